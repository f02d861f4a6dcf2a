//! The sandbox for stdio servers: restricts this process and then executes a server.
//!
//! `ropeway __sandbox` is the launcher behind [`ropeway::config::SandboxLauncher`]. It uses Landlock for files
//! (<https://docs.kernel.org/userspace-api/landlock.html>), seccomp for sockets and system calls
//! (<https://docs.kernel.org/userspace-api/seccomp_filter.html>) and resource limits. None of them needs root.

#[cfg(target_os = "linux")]
mod access;
mod built_in;
#[cfg(target_os = "linux")]
mod capabilities;
mod certificates;
mod coverage;
mod home;
#[cfg(target_os = "linux")]
mod landlock;
mod launch;
#[cfg(target_os = "linux")]
mod limits;
mod links;
mod path_warnings;
mod program_files;
#[cfg(target_os = "linux")]
mod runner_cache;
mod script;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
mod seccomp;
#[cfg(all(target_os = "linux", not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))))]
#[path = "no_seccomp.rs"]
mod seccomp;
mod summary;
mod support;

use std::path::PathBuf;

pub(crate) use self::certificates::certificates;
pub(crate) use self::coverage::covers;
pub(crate) use self::launch::launch;
pub(crate) use self::path_warnings::path_warnings;
pub(crate) use self::summary::{describe, lacks_network};
pub(crate) use self::support::{Support, gap_warnings, missing};

/// Returns the sandbox launcher: this program.
pub(crate) fn launcher() -> PathBuf {
    if cfg!(target_os = "linux") {
        // The link works even if the file was replaced by an update.
        "/proc/self/exe".into()
    } else {
        std::env::current_exe().unwrap_or_else(|_| "ropeway".into())
    }
}
