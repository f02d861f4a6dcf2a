//! What happens to the gateway during a soak.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::now;
use crate::gateway::Gateway;
use crate::paths;

/// The servers' programs, by a word in their command line.
const SERVERS: [(&str, &str); 6] = [
    // Before the other server that runs the same program.
    ("\"asker\"", "asker"),
    ("echo-server", "echo"),
    ("rmcp-server", "rust"),
    ("server-everything", "everything"),
    ("scripted-server", "scripted"),
    ("server-memory", "memory"),
];

/// Time before the first event, in which all servers start.
const WARM_UP: Duration = Duration::from_secs(5);

/// An event that may end calls.
#[derive(Clone, Debug)]
pub struct Event {
    /// Milliseconds since the epoch.
    pub at: u64,
    /// Until when calls may be affected.
    pub until: u64,
    pub kind: EventKind,
}

/// An event's kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A server was killed.
    Killed(String),
    /// The configuration was written.
    Reloaded,
    /// The gateway was ended and started.
    Restarted,
}

/// What was observed about the gateway.
#[derive(Debug, Default)]
pub struct Observed {
    pub events: Vec<Event>,
    /// The gateway's resident memory since its last start, in KiB, one sample per second.
    pub memory_kib: Vec<u64>,
    /// Gateway descendants that are alive after it has ended.
    pub left: Vec<String>,
}

/// Disturbs a running gateway.
pub struct Chaos {
    gateway: Option<Gateway>,
    config: PathBuf,
    /// The configuration that is not in use at the moment.
    other: Value,
    listen: String,
    random: Random,
    observed: Observed,
    /// The descendants seen so far: process id and start time.
    seen: HashSet<(u32, u64)>,
    sampled: Instant,
    next: Instant,
    has_restarted: bool,
}

impl Chaos {
    pub fn new(gateway: Gateway, config: PathBuf, other: Value, listen: String, random: Random) -> Self {
        Self {
            gateway: Some(gateway),
            config,
            other,
            listen,
            random,
            observed: Observed::default(),
            seen: HashSet::new(),
            sampled: Instant::now(),
            next: Instant::now() + WARM_UP,
            has_restarted: false,
        }
    }

    /// Waits a moment, and causes an event when one is due.
    pub fn step(&mut self, end: Instant) -> Result<()> {
        std::thread::sleep(Duration::from_millis(100));
        self.sample();
        if Instant::now() < self.next {
            return Ok(());
        }
        self.next = Instant::now() + Duration::from_millis(2_000 + self.random.below(3_000));
        // One restart early, then rarely: memory is compared since the last one.
        let time_left = end.saturating_duration_since(Instant::now());
        let may_restart = time_left > Duration::from_secs(20);
        match self.random.below(10) {
            0..=5 => self.kill_server()?,
            6..=8 => self.reload()?,
            _ if may_restart => self.restart()?,
            _ => self.kill_server()?,
        }
        if !self.has_restarted && may_restart && time_left < Duration::from_secs(40) {
            self.restart()?;
        }
        Ok(())
    }

    /// Records the memory once per second, and the processes.
    pub fn sample(&mut self) {
        let Some(gateway) = &self.gateway else { return };
        let pid = gateway.program.pid();
        self.seen.extend(descendants(pid).into_iter().filter_map(|child| Some((child, start_time(child)?))));
        if self.sampled.elapsed() >= Duration::from_secs(1) {
            self.sampled = Instant::now();
            self.observed.memory_kib.push(resident_kib(pid));
        }
    }

    fn kill_server(&mut self) -> Result<()> {
        let gateway = self.gateway.as_ref().context("the gateway is not running")?;
        let children = descendants(gateway.program.pid());
        let named: Vec<(u32, &str)> = children.into_iter().filter_map(|pid| Some((pid, server_of(pid)?))).collect();
        if named.is_empty() {
            return Ok(());
        }
        let (pid, server) = named[self.random.below(named.len() as u64) as usize];
        let at = now();
        if let Some(pid) = Pid::from_raw(pid.try_into().unwrap_or_default()) {
            // Fails if it has ended.
            let _ = kill_process(pid, Signal::KILL);
        }
        println!("  killed `{server}`");
        self.observed.events.push(Event { at, until: now(), kind: EventKind::Killed(server.to_owned()) });
        Ok(())
    }

    fn reload(&mut self) -> Result<()> {
        let current: Value = serde_json::from_str(&fs::read_to_string(&self.config)?)?;
        let at = now();
        // Replaced at once, as editors do.
        let new = self.config.with_extension("new");
        fs::write(&new, serde_json::to_string_pretty(&self.other)?)?;
        fs::rename(&new, &self.config)?;
        self.other = current;
        println!("  wrote the configuration");
        self.observed.events.push(Event { at, until: now(), kind: EventKind::Reloaded });
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        let gateway = self.gateway.take().context("the gateway is not running")?;
        let at = now();
        gateway.program.stop()?;
        let gateway = Gateway::start(&paths::program("ropeway"), &self.config, &self.listen)?;
        println!("  restarted the gateway ({} ms)", now() - at);
        self.gateway = Some(gateway);
        self.has_restarted = true;
        self.observed.memory_kib.clear();
        self.observed.events.push(Event { at, until: now(), kind: EventKind::Restarted });
        Ok(())
    }

    /// Ends the gateway and returns what was seen.
    pub fn finish(mut self) -> Result<Observed> {
        let mut gateway = self.gateway.take().context("the gateway is not running")?;
        if !gateway.program.is_running() {
            bail!("the gateway ended by itself\n{}", gateway.program.output().join("\n"));
        }
        gateway.program.stop()?;
        std::thread::sleep(Duration::from_millis(500));
        let alive = self.seen.iter().filter(|(pid, start)| start_time(*pid) == Some(*start));
        self.observed.left = alive.map(|(pid, _)| format!("{pid} {}", command_line(*pid))).collect();
        Ok(self.observed)
    }
}

/// Returns the alias for the server that a process runs.
fn server_of(pid: u32) -> Option<&'static str> {
    let line = command_line(pid);
    SERVERS.iter().find(|(word, _)| line.contains(word)).map(|(_, server)| *server)
}

fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim().to_owned()
}

/// Returns the `/proc/PID/stat` fields after the name, which may contain spaces; `None` for a zombie.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<String> = text.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect();
    (fields.first()? != "Z").then_some(fields)
}

fn start_time(pid: u32) -> Option<u64> {
    stat(pid)?.get(19)?.parse().ok()
}

fn descendants(root: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, u32)> = pids.filter_map(|pid| Some((pid, stat(pid)?.get(1)?.parse().ok()?))).collect();
    let mut found = vec![root];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

/// A small random number generator (xorshift64*), whose seed repeats a run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Returns a number below the limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            (0..8).map(|_| random.below(10)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8_001));
    }

    #[test]
    fn a_child_is_a_descendant_until_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        assert!(descendants(std::process::id()).contains(&child.id()));
        let started = start_time(child.id()).expect("a start time");
        child.kill().expect("a running child");
        child.wait().expect("an ended child");
        assert_ne!(start_time(child.id()), Some(started));
    }
}
