//! A process group's activity, to distinguish a slow start from one that hangs.

use std::time::{Duration, Instant};

/// Interval between measurements.
const INTERVAL: Duration = Duration::from_secs(2);

/// Idle time after which a process group counts as hanging.
pub(crate) const IDLE_LIMIT: Duration = Duration::from_secs(15);

/// CPU time in clock ticks, and bytes read or written, that count as work. An idle event loop stays far below both.
const MIN_TICKS: u64 = 10;
const MIN_BYTES: u64 = 64 << 10;

/// The resources that a process group has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceUsage {
    pub(crate) ticks: u64,
    pub(crate) bytes: u64,
}

impl ResourceUsage {
    /// Returns `true` if the group has done work since `earlier`. A process's exit counts as well, because it lowers the sum.
    fn is_ahead_of(self, earlier: Self) -> bool {
        self.ticks.abs_diff(earlier.ticks) >= MIN_TICKS || self.bytes.abs_diff(earlier.bytes) >= MIN_BYTES
    }
}

/// Returns a process group's resource usage; zero where `/proc` is missing.
pub(crate) fn usage(group: i32) -> ResourceUsage {
    let Ok(processes) = std::fs::read_dir("/proc") else { return ResourceUsage::default() };
    let ids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter_map(|id| process_usage(id, group)).fold(ResourceUsage::default(), |all, one| ResourceUsage {
        ticks: all.ticks + one.ticks,
        bytes: all.bytes + one.bytes,
    })
}

fn process_usage(id: u32, group: i32) -> Option<ResourceUsage> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The program's name is in parentheses and may contain anything
    // (https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html).
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    if fields.get(2)?.parse() != Ok(group) {
        return None;
    }
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<u64>().ok()).unwrap_or_default();
    let io = std::fs::read_to_string(format!("/proc/{id}/io")).unwrap_or_default();
    let counted = io.lines().filter_map(|line| line.split_once(": "));
    let counted = counted.filter(|(name, _)| matches!(*name, "rchar" | "wchar"));
    let bytes = counted.filter_map(|(_, bytes)| bytes.parse::<u64>().ok()).sum();
    Some(ResourceUsage { ticks: ticks(11) + ticks(12), bytes })
}

/// Waits until a process group has been idle for a while.
pub(crate) async fn until_idle(usage: impl Fn() -> ResourceUsage) {
    let (mut last, mut worked_at) = (usage(), Instant::now());
    while worked_at.elapsed() < IDLE_LIMIT {
        tokio::time::sleep(INTERVAL).await;
        let now = usage();
        if now.is_ahead_of(last) {
            (last, worked_at) = (now, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_busy_group_is_active_and_a_sleeping_one_is_idle() {
        let start = |script: &str| Command::new("sh").args(["-c", script]).process_group(0).spawn().expect("sh");
        let (mut busy, mut idle) = (start("while :; do :; done"), start("sleep 60"));
        let group = |child: &std::process::Child| i32::try_from(child.id()).expect("an id");
        let is_ahead = |group: i32| {
            let before = usage(group);
            (0..200).any(|_| {
                std::thread::sleep(Duration::from_millis(50));
                usage(group).is_ahead_of(before)
            })
        };
        let worked = is_ahead(group(&busy));
        let before = usage(group(&idle));
        std::thread::sleep(Duration::from_millis(300));
        let waited = !usage(group(&idle)).is_ahead_of(before);
        for child in [&mut busy, &mut idle] {
            child.kill().expect("a process of this test");
            child.wait().expect("it ends");
        }
        assert!(worked && waited, "worked: {worked}, waited: {waited}");
    }
}
