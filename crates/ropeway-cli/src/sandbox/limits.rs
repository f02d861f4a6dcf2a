//! Limits on memory, processes and open files.

use std::fs;

use ropeway_config::SandboxProfile;
use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};

/// A profile's limits.
pub(super) struct Limits(Vec<(&'static str, Resource, u64)>);

impl Limits {
    pub(super) fn of(profile: &SandboxProfile) -> Result<Self, String> {
        // A core file would contain the server's secrets.
        let mut limits = vec![("core files", Resource::Core, 0)];
        // Not the address space: V8 reserves many gigabytes without using them.
        limits.extend(profile.memory.map(|bytes| ("memory", Resource::Data, bytes)));
        limits.extend(profile.files.map(|count| ("files", Resource::Nofile, count)));
        if let Some(count) = profile.processes {
            limits.push(("processes", Resource::Nproc, running_threads()?.saturating_add(count)));
        }
        Ok(Self(limits))
    }

    pub(super) fn apply(&self) -> Result<(), String> {
        for (name, resource, limit) in &self.0 {
            let maximum = getrlimit(*resource).maximum.map_or(*limit, |maximum| maximum.min(*limit));
            let limit = Rlimit { current: Some(maximum), maximum: Some(maximum) };
            setrlimit(*resource, limit).map_err(|error| format!("could not limit {name}: {error}"))?;
        }
        Ok(())
    }
}

/// Returns how many threads this user runs. The kernel counts them per user
/// (<https://man7.org/linux/man-pages/man2/getrlimit.2.html>, `RLIMIT_NPROC`).
fn running_threads() -> Result<u64, String> {
    let user = getuid().as_raw().to_string();
    let processes = fs::read_dir("/proc").map_err(|error| format!("could not count processes: {error}"))?;
    let is_process = |name: &std::ffi::OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let processes = processes.flatten().filter(|entry| is_process(&entry.file_name()));
    // A process that ends meanwhile has no file.
    let threads = processes.filter_map(|process| {
        let status = fs::read_to_string(process.path().join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next();
        (field("Uid:") == Some(&user)).then(|| field("Threads:")?.parse::<u64>().ok()).flatten()
    });
    Ok(threads.sum())
}

/// Returns `false` for root, whose processes the kernel does not limit. A user namespace's root is an ordinary user.
pub(super) fn apply_to_processes() -> bool {
    let is_initial = || {
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        map.split_whitespace().eq(["0", "0", "4294967295"])
    };
    !(getuid().is_root() && is_initial())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_of_this_process_are_counted() {
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(running_threads().expect("/proc") >= 2));
        });
    }
}
