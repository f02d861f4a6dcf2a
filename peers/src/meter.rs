//! Measures time, CPU time and memory.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Measures calls, from the first to the last.
#[derive(Debug)]
pub struct Meter {
    laps: Vec<Duration>,
    idle_kib: u64,
    started: Instant,
    cpu: Duration,
}

/// The measurements; printed as one JSON line.
#[derive(Debug, Serialize)]
pub struct Report {
    calls: usize,
    p50_us: f64,
    p99_us: f64,
    mean_us: f64,
    calls_per_second: f64,
    cpu_us_per_call: f64,
    idle_kib: u64,
    peak_kib: u64,
}

impl Meter {
    /// Starts the clocks. `idle_kib` is [`resident_kib`] before the first call.
    pub fn start(calls: usize, idle_kib: u64) -> Self {
        Self { laps: Vec::with_capacity(calls), idle_kib, started: Instant::now(), cpu: cpu_time() }
    }

    /// Adds a call's duration.
    pub fn lap(&mut self, took: Duration) {
        self.laps.push(took);
    }

    /// Stops the clocks and returns the report.
    pub fn finish(mut self) -> Report {
        let (wall, cpu) = (self.started.elapsed(), cpu_time() - self.cpu);
        let calls = self.laps.len().max(1);
        let total: Duration = self.laps.iter().sum();
        self.laps.sort_unstable();
        Report {
            calls: self.laps.len(),
            p50_us: micros(self.percentile(50)),
            p99_us: micros(self.percentile(99)),
            mean_us: micros(total) / calls as f64,
            calls_per_second: calls as f64 / wall.as_secs_f64(),
            cpu_us_per_call: micros(cpu) / calls as f64,
            idle_kib: self.idle_kib,
            peak_kib: peak_kib(),
        }
    }

    /// Returns a percentile; the laps must be sorted.
    fn percentile(&self, percent: usize) -> Duration {
        let last = self.laps.len().saturating_sub(1);
        self.laps.get(last * percent / 100).copied().unwrap_or_default()
    }
}

/// Returns this process's resident memory.
pub fn resident_kib() -> u64 {
    status_kib("VmRSS:")
}

/// Returns this process's peak resident memory.
pub fn peak_kib() -> u64 {
    status_kib("VmHWM:")
}

/// Returns a duration in microseconds, rounded to tenths.
pub fn micros(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e7).round() / 10.0
}

/// Returns the CPU time that all threads in this process used, including ended ones.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or_default(), time.tv_nsec.try_into().unwrap_or_default())
}

/// Returns a `/proc/self/status` entry, or 0.
fn status_kib(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    value.trim().trim_end_matches(" kB").parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_lap() {
        let mut meter = Meter::start(3, 0);
        for micros in [30, 10, 20] {
            meter.lap(Duration::from_micros(micros));
        }
        let report = meter.finish();
        assert_eq!((report.calls, report.p50_us, report.p99_us, report.mean_us), (3, 20.0, 20.0, 20.0));
    }

    #[test]
    fn memory_is_read_from_the_kernel() {
        assert!(resident_kib() > 0 && Meter::start(0, 0).finish().peak_kib >= resident_kib() / 2);
    }
}
