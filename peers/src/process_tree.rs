//! A process's and its descendants' CPU time and memory, from `/proc`.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// Ticks per second in `/proc/PID/stat`, which Linux fixes at 100 for all programs.
const TICKS: u64 = 100;

/// The sums over a process and its descendants.
#[derive(Clone, Copy, Debug, Default)]
pub struct TreeUsage {
    /// The CPU time, including ended children's.
    pub cpu: Duration,
    /// The resident memory.
    pub resident_kib: u64,
    /// Number of processes.
    pub processes: usize,
}

/// Measures a process and its descendants.
pub fn usage(root: u32) -> TreeUsage {
    let stats: HashMap<u32, Stat> = processes().filter_map(|pid| Some((pid, Stat::read(pid)?))).collect();
    let mut sum = TreeUsage::default();
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        let Some(stat) = stats.get(&pid) else { continue };
        sum.cpu += Duration::from_millis(stat.ticks * 1_000 / TICKS);
        sum.resident_kib += resident_kib(pid);
        sum.processes += 1;
        next.extend(stats.iter().filter(|(_, stat)| stat.parent == pid).map(|(pid, _)| *pid));
    }
    sum
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

struct Stat {
    parent: u32,
    ticks: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses the fields after the name, which may contain spaces and parentheses.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        // utime, stime, and the same for children that were waited for.
        let ticks = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
        Some(Self { parent: fields.get(1)?.parse().ok()?, ticks })
    }
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = Stat::parse("7 (a) b) S 3 7 7 0 -1 0 0 0 0 0 10 20 30 40 20 0 1 0 99").expect("a stat line");
        assert_eq!((stat.parent, stat.ticks), (3, 100));
    }

    #[test]
    fn this_process_uses_memory() {
        let usage = usage(std::process::id());
        assert!(usage.processes >= 1 && usage.resident_kib > 0, "{usage:?}");
    }
}
