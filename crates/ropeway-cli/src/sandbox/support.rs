//! Which restrictions the system supports.

use std::fmt;

use ropeway_config::{Config, SandboxMode, ServerEntry};

/// The first Landlock version that restricts truncating files. Before it, a server could empty any of the user's files.
const TRUNCATION_LANDLOCK: u8 = 3;

/// The first Landlock version that restricts signals. Before it, a server could kill any of the user's processes.
const SIGNAL_LANDLOCK: u8 = 6;

/// The restrictions that the system supports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Support {
    /// Landlock's interface version, 0 without Landlock.
    landlock: u8,
    seccomp: bool,
    /// Whether process limits apply to this user.
    process_limits: bool,
}

impl Support {
    /// Detects what the system supports.
    #[cfg(target_os = "linux")]
    pub(crate) fn detect() -> Self {
        Self {
            landlock: super::landlock::version(),
            seccomp: super::seccomp::is_supported(),
            process_limits: super::limits::apply_to_processes(),
        }
    }

    /// Detects what the system supports: nothing.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn detect() -> Self {
        Self { landlock: 0, seccomp: false, process_limits: false }
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.landlock {
            0 => f.write_str("no Landlock")?,
            version => write!(f, "Landlock ABI {version}")?,
        }
        f.write_str(if self.seccomp { ", seccomp" } else { ", no seccomp" })
    }
}

/// Returns the sandbox restrictions that the system does not support, each with what is needed.
pub(crate) fn missing(limits_processes: bool, support: &Support) -> Vec<String> {
    if !cfg!(target_os = "linux") {
        return vec!["sandboxes need Linux".to_owned()];
    }
    let mut gaps = Vec::new();
    match support.landlock {
        0 => gaps.push("the kernel has no Landlock, so files are not restricted (needs Linux 6.12 or later)".to_owned()),
        version if version < TRUNCATION_LANDLOCK => gaps.push(format!(
            "Landlock ABI {version} of the kernel can restrict neither truncating files nor signals to other processes \
             (needs Linux 6.12 or later)"
        )),
        version if version < SIGNAL_LANDLOCK => gaps.push(format!(
            "Landlock ABI {version} of the kernel cannot restrict signals to other processes (needs Linux 6.12 or later)"
        )),
        _ => {}
    }
    if !support.seccomp {
        gaps.push("the system has no seccomp, so networks and system calls are not restricted".to_owned());
    }
    if limits_processes && !support.process_limits {
        gaps.push("`processes` has no effect for root".to_owned());
    }
    gaps
}

/// Returns warnings about sandboxes that are not required and incomplete on this system.
pub(crate) fn gap_warnings(config: &Config) -> Vec<String> {
    let optional = |entry: &&ServerEntry| {
        entry.enabled && entry.sandbox().is_some_and(|sandbox| sandbox.mode == SandboxMode::BestEffort)
    };
    let warning = |entry: &ServerEntry| {
        let limits_processes = entry.sandbox().is_some_and(|sandbox| sandbox.processes.is_some());
        let gaps = missing(limits_processes, &Support::detect());
        let text = format!("the sandbox of server `{}` is incomplete: {}", entry.alias, gaps.join("; "));
        (!gaps.is_empty()).then_some(text)
    };
    config.servers.iter().filter(optional).filter_map(warning).collect()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn each_missing_restriction_is_named() {
        let full = Support { landlock: 7, seccomp: true, process_limits: true };
        assert_eq!(missing(true, &full), [""; 0]);
        assert_eq!(full.to_string(), "Landlock ABI 7, seccomp");
        let none = Support { landlock: 0, seccomp: false, process_limits: false };
        assert_eq!(none.to_string(), "no Landlock, no seccomp");
        assert_eq!(
            missing(true, &none),
            [
                "the kernel has no Landlock, so files are not restricted (needs Linux 6.12 or later)",
                "the system has no seccomp, so networks and system calls are not restricted",
                "`processes` has no effect for root",
            ]
        );
        let old = Support { landlock: 2, seccomp: true, process_limits: false };
        assert_eq!(
            missing(false, &old),
            ["Landlock ABI 2 of the kernel can restrict neither truncating files nor signals to other processes \
              (needs Linux 6.12 or later)"]
        );
    }

    #[test]
    fn signals_need_a_kernel_that_restricts_them() {
        let gaps = |landlock| missing(false, &Support { landlock, seccomp: true, process_limits: true });
        for version in 3..6 {
            assert_eq!(
                gaps(version),
                [format!(
                    "Landlock ABI {version} of the kernel cannot restrict signals to other processes (needs Linux 6.12 or later)"
                )]
            );
        }
        assert_eq!(gaps(6), [""; 0]);
    }
}
