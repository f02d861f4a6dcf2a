//! Servers that were not ready the last time, so that later commands for other servers do not wait for them.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ropeway_bridge::{cached_tools, default_cache_dir};
use ropeway_config::{ServerEntry, ServerSettings, StartMode};
use ropeway_core::duration::format_duration;
use ropeway_core::tool::Alias;
use serde::{Deserialize, Serialize};

use crate::connect::arrival::REMEMBERED_PATIENCE;
use crate::connect::servers::Servers;
use crate::connect::waiting::Waiting;
use crate::failure::Failure;
use crate::files::file;
use crate::files::folder_lock::lock_folder;
use crate::secrets::redaction;
use crate::trust::sha256;

/// The file beside the cached definitions.
const FILE: &str = "failures.json";

/// File format version.
const VERSION: u64 = 1;

/// Age after which a failure is forgotten: the network may be back, or a program installed.
const MAX_AGE: Duration = Duration::from_secs(10 * 60);

/// The same for a server that was only slow: it may be healthy.
const MAX_SLOW_AGE: Duration = Duration::from_secs(60);

/// A server that fails sooner delays nothing, and is not remembered.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// Maximum error length in characters.
const LONGEST_CAUSE: usize = 500;

/// Digits of a configuration digest in a key.
const KEY_DIGITS: usize = 32;

/// A server's result in a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Available,
    /// It was still connecting at the end.
    NotReady {
        after: Duration,
    },
    Failed {
        after: Duration,
        cause: String,
    },
}

/// A server's failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LastFailure {
    /// Seconds since 1970.
    at: u64,
    /// How long the command waited for it.
    waited_ms: u64,
    /// The error; `None` if the server did not respond while the command waited.
    cause: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct FailureFile {
    version: u64,
    failures: Failures,
}

/// The remembered failures for the servers in one configuration file. Editing the file makes them void.
///
/// Each command owns one. [`load`](Self::load) reads the shared file without a lock, and the command decides by the failures at
/// its start. [`update`](Self::update) consumes the memory when the command ends. If something has changed, it takes the folder's
/// lock, reads the file again, changes only the entries for this command's servers, and replaces the file. Commands that run at
/// the same time thus keep each other's entries. Dropping the memory without an update changes nothing.
pub(crate) struct FailureMemory {
    path: PathBuf,
    config: String,
    /// The failures when the command started.
    failures: Failures,
}

/// The failures by configuration file and server.
type Failures = BTreeMap<String, LastFailure>;

impl FailureMemory {
    /// Reads the failures for a configuration file's servers. Returns `None` without a file, or if nothing is cached.
    pub(crate) fn load(servers: &Servers) -> Option<Self> {
        let config = servers.file.as_ref()?;
        let path = default_cache_dir()?.join(FILE);
        let config = sha256(&format!("{}\0{}", config.path.display(), config.text))[..KEY_DIGITS].to_owned();
        let failures = recent_failures(&path);
        Some(Self { path, config, failures })
    }

    /// Returns `true` if a command that waits this way for a server would wait in vain, as the last time.
    pub(crate) fn is_hopeless(&self, entry: &ServerEntry, waiting: Waiting) -> bool {
        let Some(failure) = self.failures.get(&self.key(&entry.alias)) else { return false };
        let patience = match waiting {
            Waiting::ForAll => return false,
            Waiting::Briefly(patience) => patience,
            Waiting::UnlessFailed if is_cached(entry) => REMEMBERED_PATIENCE,
            Waiting::UnlessFailed => Duration::MAX,
        };
        failure.cause.is_some() || Duration::from_millis(failure.waited_ms) >= patience
    }

    /// Marks the servers as down that would be waited for in vain, unless no other one remains. Returns their names. Slow ones
    /// with cached tools are listed from the cache, and started when they are called.
    pub(crate) fn skip(&self, servers: &mut Servers) -> HashSet<Alias> {
        let (waiting, eager) = (servers.waiting, servers.eager);
        let is_usable = |entry: &&mut ServerEntry| entry.enabled && entry.config().is_some();
        let usable = servers.config.servers.iter_mut().filter(is_usable);
        let (hopeless, others): (Vec<_>, Vec<_>) = usable.partition(|entry| self.is_hopeless(entry, waiting));
        if others.is_empty() {
            return HashSet::new();
        }
        let skip = |entry: &mut ServerEntry| {
            let failure = self.failures.get(&self.key(&entry.alias))?;
            if failure.cause.is_none() && !eager && is_cached(entry) {
                entry.start = StartMode::Lazy;
                return None;
            }
            entry.settings = ServerSettings::Down { cause: describe(failure, &entry.alias) };
            Some(entry.alias.clone())
        };
        hopeless.into_iter().filter_map(skip).collect()
    }

    /// Remembers the servers that were not ready, and forgets those that were.
    pub(crate) fn update(self, outcomes: impl IntoIterator<Item = (Alias, Outcome)>) {
        let mut changes: BTreeMap<String, Option<LastFailure>> = BTreeMap::new();
        for (alias, outcome) in outcomes {
            let (after, cause) = match outcome {
                Outcome::Available => {
                    changes.insert(self.key(&alias), None);
                    continue;
                }
                Outcome::NotReady { after } => (after, None),
                Outcome::Failed { after, cause } => (after, Some(cause)),
            };
            if after < MIN_WAIT {
                continue;
            }
            let cause = cause.map(|cause| redaction::redact(&cause).chars().take(LONGEST_CAUSE).collect());
            let waited_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
            changes.insert(self.key(&alias), Some(LastFailure { at: seconds_now(), waited_ms, cause }));
        }
        // Most commands change nothing, and need no lock.
        if apply(&changes, &mut recent_failures(&self.path)) {
            // Without the file, the next command waits again.
            let _ = self.store(&changes);
        }
    }

    /// Applies changes to the entries that other commands have stored meanwhile.
    fn store(&self, changes: &BTreeMap<String, Option<LastFailure>>) -> Result<(), Failure> {
        let _held = lock_folder(self.path.parent().unwrap_or(Path::new("/")))?;
        let mut failures = recent_failures(&self.path);
        if !apply(changes, &mut failures) {
            return Ok(());
        }
        let text = serde_json::to_string(&FailureFile { version: VERSION, failures });
        file::put(&self.path, &text.unwrap_or_default(), file::PRIVATE)
    }

    fn key(&self, alias: &Alias) -> String {
        format!("{}:{alias}", self.config)
    }
}

/// Reads the failures in a file that are not too old. A missing or unreadable file has none.
fn recent_failures(path: &Path) -> Failures {
    let text = file::read(path).ok().flatten().unwrap_or_default();
    let failures = match serde_json::from_str::<FailureFile>(&text) {
        Ok(file) if file.version == VERSION => file.failures,
        _ => BTreeMap::new(),
    };
    let now = seconds_now();
    let is_recent = |failure: &LastFailure| {
        let max_age = if failure.cause.is_some() { MAX_AGE } else { MAX_SLOW_AGE };
        now.checked_sub(failure.at).is_some_and(|age| age < max_age.as_secs())
    };
    failures.into_iter().filter(|(_, failure)| is_recent(failure)).collect()
}

/// Adds and removes failures. Returns `true` if something has changed.
fn apply(changes: &BTreeMap<String, Option<LastFailure>>, failures: &mut Failures) -> bool {
    let mut is_changed = false;
    for (key, change) in changes {
        is_changed |= match change {
            Some(failure) => failures.insert(key.clone(), failure.clone()).as_ref() != Some(failure),
            None => failures.remove(key).is_some(),
        };
    }
    is_changed
}

/// Returns `true` if a server's tools are cached.
fn is_cached(entry: &ServerEntry) -> bool {
    let tools = default_cache_dir().and_then(|folder| cached_tools(&folder, entry));
    tools.is_some_and(|tools| !tools.is_empty())
}

fn describe(failure: &LastFailure, alias: &Alias) -> String {
    let ago = Duration::from_secs(seconds_now().saturating_sub(failure.at).max(1));
    let waited = Duration::from_millis(failure.waited_ms);
    let cause = failure.cause.clone().unwrap_or_else(|| format!("not ready within {}", format_duration(waited)));
    format!("{cause} ({} ago; `ropeway tools {alias}` tries again)", format_duration(ago))
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use ropeway_config::{Config, ServerConfig, StdioServer};

    use super::*;
    use crate::connect::servers::ServerSource;

    fn servers(names: &[&str], waiting: Waiting) -> Servers {
        let server = |name: &&str| ServerConfig::new(*name, StdioServer::new("x", [""; 0]));
        let source = ServerSource::File("ropeway.yaml".into());
        Servers::new(Config::new(names.iter().map(server)), source).waiting(waiting)
    }

    fn memory(path: PathBuf) -> FailureMemory {
        FailureMemory { path, config: "c".to_owned(), failures: BTreeMap::new() }
    }

    fn stored(path: &Path) -> Failures {
        let text = std::fs::read_to_string(path).expect("a file");
        serde_json::from_str::<FailureFile>(&text).expect("JSON").failures
    }

    #[test]
    fn only_a_server_that_kept_a_command_waiting_is_remembered() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        let failed = |millis| Outcome::Failed { after: Duration::from_millis(millis), cause: "gone".to_owned() };
        let not_ready = Outcome::NotReady { after: Duration::from_secs(2) };
        memory(path.clone()).update([("quick".into(), failed(10)), ("there".into(), Outcome::Available)]);
        assert!(!path.exists());
        memory(path.clone()).update([("slow".into(), failed(1500)), ("hung".into(), not_ready)]);
        let failures = stored(&path);
        assert_eq!(failures.keys().collect::<Vec<_>>(), ["c:hung", "c:slow"]);
        assert_eq!(failures["c:slow"].cause.as_deref(), Some("gone"));
        FailureMemory { failures, ..memory(path.clone()) }.update([("slow".into(), Outcome::Available)]);
        assert_eq!(stored(&path).keys().collect::<Vec<_>>(), ["c:hung"]);
    }

    #[test]
    fn a_command_changes_only_the_entries_of_its_own_servers() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        let not_ready = || Outcome::NotReady { after: Duration::from_secs(2) };
        memory(path.clone()).update([("one".into(), not_ready()), ("two".into(), not_ready())]);
        let slow_command = FailureMemory { failures: stored(&path), ..memory(path.clone()) };
        memory(path.clone()).update([("one".into(), Outcome::Available), ("three".into(), not_ready())]);
        slow_command.update([("four".into(), not_ready())]);
        assert_eq!(stored(&path).keys().collect::<Vec<_>>(), ["c:four", "c:three", "c:two"]);
    }

    #[test]
    fn commands_that_end_at_the_same_time_lose_no_failures() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        std::thread::scope(|scope| {
            for number in 0..8 {
                let memory = memory(path.clone());
                let outcome = Outcome::NotReady { after: Duration::from_secs(2) };
                scope.spawn(move || memory.update([(Alias::new(format!("s{number}")), outcome)]));
            }
        });
        assert_eq!(stored(&path).len(), 8);
    }

    #[test]
    fn a_command_skips_servers_only_if_it_would_wait_no_longer_than_the_last_one() {
        let failure = |seconds: u64, cause: Option<&str>| LastFailure {
            at: seconds_now(),
            waited_ms: seconds * 1000,
            cause: cause.map(str::to_owned),
        };
        let failures = [("c:hung", failure(2, None)), ("c:broken", failure(9, Some("gone")))];
        let failures = failures.into_iter().map(|(key, failure)| (key.to_owned(), failure)).collect();
        let memory = FailureMemory { failures, ..memory(PathBuf::new()) };
        let skipped = |names: &[&str], waiting| {
            let mut skipped: Vec<String> =
                memory.skip(&mut servers(names, waiting)).iter().map(ToString::to_string).collect();
            skipped.sort();
            skipped
        };
        let all = ["hung", "broken", "good"];
        assert_eq!(skipped(&all, Waiting::ForAll), [""; 0]);
        assert_eq!(skipped(&all, Waiting::UnlessFailed), ["broken"]);
        assert_eq!(skipped(&all, Waiting::Briefly(Duration::from_secs(2))), ["broken", "hung"]);
        assert_eq!(skipped(&all, Waiting::Briefly(Duration::from_secs(3))), ["broken"]);
        assert_eq!(skipped(&["hung", "broken"], Waiting::Briefly(Duration::from_secs(2))), [""; 0]);
    }
}
