//! A readable sandbox summary, and its differences from another one.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::sandbox::{Sandbox, SandboxMode, SandboxPath};

/// A [`Sandbox`]'s restrictions as the configuration file states them, without this machine's paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxSummary {
    pub(crate) mode: SandboxMode,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) read: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) write: Vec<String>,
    #[serde(default)]
    pub(crate) network: bool,
    #[serde(default)]
    pub(crate) unix_sockets: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) processes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) files: Option<u64>,
}

impl From<&Sandbox> for SandboxSummary {
    fn from(sandbox: &Sandbox) -> Self {
        let texts = |paths: &[SandboxPath]| paths.iter().map(|path| path.text.clone()).collect();
        Self {
            mode: sandbox.mode,
            read: texts(&sandbox.read),
            write: texts(&sandbox.write),
            network: sandbox.network,
            unix_sockets: sandbox.unix_sockets,
            memory: sandbox.memory,
            processes: sandbox.processes,
            files: sandbox.files,
        }
    }
}

impl fmt::Display for SandboxSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |paths: &[String]| paths.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", ");
        let mut parts = vec![self.mode.as_str().to_owned()];
        if !self.read.is_empty() {
            parts.push(format!("reads {}", list(&self.read)));
        }
        if !self.write.is_empty() {
            parts.push(format!("writes {}", list(&self.write)));
        }
        if self.read.is_empty() && self.write.is_empty() {
            parts.push("reads only system files".to_owned());
        }
        parts.push(if self.network { "network" } else { "no network" }.to_owned());
        if self.unix_sockets {
            parts.push("Unix sockets".to_owned());
        }
        for limit in self.limits() {
            parts.extend(limit.value.map(|value| format!("{} {}", limit.name, (limit.show)(value))));
        }
        f.write_str(&parts.join("; "))
    }
}

/// A sandbox limit.
struct Limit {
    name: &'static str,
    value: Option<u64>,
    show: fn(u64) -> String,
}

impl SandboxSummary {
    fn limits(&self) -> [Limit; 3] {
        [
            Limit { name: "memory", value: self.memory, show: format_size },
            Limit { name: "processes", value: self.processes, show: |count| count.to_string() },
            Limit { name: "files", value: self.files, show: |count| count.to_string() },
        ]
    }
}

/// Formats a size as a configuration file would.
fn format_size(bytes: u64) -> String {
    let units = [(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    match units.into_iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// A difference between two sandboxes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SandboxChange {
    /// Change description, such as "network allowed".
    pub text: String,
    /// Whether the server may do more than before.
    pub widens: bool,
}

impl fmt::Display for SandboxChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns the differences between a server's two sandboxes; `None` stands for no sandbox.
pub fn sandbox_changes(before: Option<&SandboxSummary>, now: Option<&SandboxSummary>) -> Vec<SandboxChange> {
    let change = |text: String, widens: bool| SandboxChange { text, widens };
    let (before, now) = match (before, now) {
        (None, None) => return Vec::new(),
        (None, Some(_)) => return vec![change("sandbox added".to_owned(), false)],
        (Some(_), None) => return vec![change("sandbox removed".to_owned(), true)],
        (Some(before), Some(now)) => (before, now),
    };
    let mut changes = Vec::new();
    if before.mode != now.mode {
        let text = format!("mode changed from {} to {}", before.mode.as_str(), now.mode.as_str());
        changes.push(change(text, now.mode == SandboxMode::BestEffort));
    }
    for (kind, old, new) in [("read", &before.read, &now.read), ("write", &before.write, &now.write)] {
        let added = new.iter().filter(|path| !old.contains(path));
        changes.extend(added.map(|path| {
            // A path that could be written could be read.
            let widens = kind == "write" || !before.write.contains(path);
            change(format!("{kind} path `{path}` added"), widens)
        }));
        let removed = old.iter().filter(|path| !new.contains(path));
        changes.extend(removed.map(|path| change(format!("{kind} path `{path}` removed"), false)));
    }
    let switches = [("network", before.network, now.network), ("Unix sockets", before.unix_sockets, now.unix_sockets)];
    for (name, _, allowed) in switches.into_iter().filter(|(_, old, new)| old != new) {
        changes.push(change(format!("{name} {}", if allowed { "allowed" } else { "denied" }), allowed));
    }
    for (old, new) in before.limits().into_iter().zip(now.limits()) {
        changes.extend(match (old.value, new.value) {
            (None, Some(new_value)) => {
                Some(change(format!("{} limited to {}", new.name, (new.show)(new_value)), false))
            }
            (Some(old_value), None) => {
                Some(change(format!("limit of {} removed (was {})", old.name, (old.show)(old_value)), true))
            }
            (Some(old_value), Some(new_value)) if old_value != new_value => {
                let verb = if new_value > old_value { "raised" } else { "lowered" };
                let (from, to) = ((old.show)(old_value), (new.show)(new_value));
                Some(change(format!("limit of {} {verb} from {from} to {to}", old.name), new_value > old_value))
            }
            _ => None,
        });
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> SandboxSummary {
        SandboxSummary {
            read: vec!["./docs".to_owned()],
            write: vec!["~/notes".to_owned()],
            memory: Some(512 << 20),
            ..SandboxSummary::default()
        }
    }

    #[test]
    fn a_sandbox_is_described_in_one_line() {
        assert_eq!(SandboxSummary::default().to_string(), "required; reads only system files; no network");
        assert_eq!(summary().to_string(), "required; reads `./docs`; writes `~/notes`; no network; memory 512M");
        let wide = SandboxSummary { network: true, unix_sockets: true, files: Some(256), ..SandboxSummary::default() };
        assert_eq!(wide.to_string(), "required; reads only system files; network; Unix sockets; files 256");
    }

    #[test]
    fn each_way_to_widen_a_sandbox_is_named() {
        let widened = |change: fn(&mut SandboxSummary)| {
            let mut now = summary();
            change(&mut now);
            let back = sandbox_changes(Some(&now), Some(&summary()));
            assert!(back.iter().all(|change| !change.widens), "{back:?}");
            let changes = sandbox_changes(Some(&summary()), Some(&now));
            assert!(changes.iter().all(|change| change.widens), "{changes:?}");
            changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(widened(|_| ()), "");
        assert_eq!(widened(|now| now.mode = SandboxMode::BestEffort), "mode changed from required to best-effort");
        assert_eq!(widened(|now| now.read.push("/etc".into())), "read path `/etc` added");
        assert_eq!(widened(|now| now.write.push("/".into())), "write path `/` added");
        assert_eq!(widened(|now| now.network = true), "network allowed");
        assert_eq!(widened(|now| now.unix_sockets = true), "Unix sockets allowed");
        assert_eq!(widened(|now| now.memory = Some(1 << 30)), "limit of memory raised from 512M to 1G");
        assert_eq!(widened(|now| now.memory = None), "limit of memory removed (was 512M)");
        let texts =
            |changes: Vec<SandboxChange>| changes.into_iter().map(|it| (it.text, it.widens)).collect::<Vec<_>>();
        assert_eq!(texts(sandbox_changes(Some(&summary()), None)), [("sandbox removed".to_owned(), true)]);
        assert_eq!(texts(sandbox_changes(None, Some(&summary()))), [("sandbox added".to_owned(), false)]);
        let mut read_only = summary();
        read_only.read.append(&mut read_only.write);
        assert!(sandbox_changes(Some(&summary()), Some(&read_only)).iter().all(|change| !change.widens));
    }
}
