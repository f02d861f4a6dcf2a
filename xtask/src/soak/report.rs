//! A soak's report: calls, lost calls with their reasons, memory, processes left.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::chaos::{Event, EventKind, Observed};

/// Milliseconds by which clocks and signals may be late.
const SLACK: u64 = 250;
/// Milliseconds after an event within which a call on what was killed has to fail. A longer one hangs, and is lost.
const LATEST: u64 = 2_000;
/// Memory growth that is not a leak: caches and the allocator.
const GROWTH_KIB: u64 = 16 << 10;

/// A soak's report.
#[derive(Debug)]
pub struct Report {
    summary: Value,
    /// Failed calls by what they were in flight on.
    in_flight: BTreeMap<String, u64>,
    /// Failed calls that nothing explains, by server and reason.
    lost: BTreeMap<String, u64>,
    observed: Observed,
}

impl Report {
    /// Explains the load's failed calls by the events.
    pub fn new(lines: &[String], observed: Observed) -> Result<Self> {
        let mut messages: Vec<Value> = lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let summary = messages.pop().filter(|last| last.get("calls").is_some());
        let summary = summary.with_context(|| format!("the load printed no summary\n{}", lines.join("\n")))?;
        let (mut in_flight, mut lost) = (BTreeMap::new(), BTreeMap::new());
        for failure in &messages {
            let text = |name: &str| failure[name].as_str().unwrap_or_default();
            match cause(failure, &observed.events) {
                Some(cause) => *in_flight.entry(cause).or_default() += 1,
                None => {
                    let reason = text("reason").split_whitespace().collect::<Vec<_>>().join(" ");
                    let reason: String = reason.chars().take(200).collect();
                    let key =
                        format!("{} ({}): {reason}{}", text("server"), text("era"), nearby(failure, &observed.events));
                    *lost.entry(key).or_default() += 1;
                }
            }
        }
        Ok(Self { summary, in_flight, lost, observed })
    }

    /// Fails if a call was lost, memory grew or a process is left.
    pub fn verdict(&self) -> Result<()> {
        let lost: u64 = self.lost.values().sum();
        if lost > 0 {
            bail!("{lost} calls were lost, but were not in flight on a killed process");
        }
        if !self.observed.left.is_empty() {
            bail!("{} processes are left", self.observed.left.len());
        }
        match self.memory() {
            Some((start, end)) if end > start + start / 2 + GROWTH_KIB => {
                bail!("memory grew from {start} to {end} KiB")
            }
            _ => Ok(()),
        }
    }

    /// Returns the gateway's memory early and late since its last start: medians over a few samples.
    fn memory(&self) -> Option<(u64, u64)> {
        let samples = &self.observed.memory_kib;
        let median = |part: &[u64]| {
            let mut part = part.to_vec();
            part.sort_unstable();
            part.get(part.len() / 2).copied()
        };
        let few = (samples.len() / 4).clamp(1, 10);
        Some((median(samples.get(..few)?)?, median(samples.get(samples.len() - few..)?)?))
    }

    fn count(&self, is: impl Fn(&EventKind) -> bool) -> usize {
        self.observed.events.iter().filter(|event| is(&event.kind)).count()
    }
}

/// Describes the last event before a failed call, and the first one during it.
fn nearby(failure: &Value, events: &[Event]) -> String {
    let (started, ended) =
        (failure["started"].as_u64().unwrap_or_default(), failure["ended"].as_u64().unwrap_or_default());
    let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1000.0;
    let before = events.iter().rev().find(|event| event.until <= started);
    let during = events.iter().find(|event| event.until > started && event.at <= ended);
    let before = before.map(|event| format!("; {:.1} s after {:?}", seconds(event.until, started), event.kind));
    let during = during.map(|event| format!("; {:?} {:.1} s later", event.kind, seconds(started, event.at)));
    [before, during].into_iter().flatten().collect()
}

/// Returns the event that explains a failed call: it was in flight on what was killed, and failed soon.
fn cause(failure: &Value, events: &[Event]) -> Option<String> {
    let (started, ended) = (failure["started"].as_u64()?, failure["ended"].as_u64()?);
    let server = failure["server"].as_str()?;
    let overlaps = |event: &&Event| {
        let is_bounded = ended <= event.until + LATEST + SLACK;
        started <= event.until + SLACK && ended + SLACK >= event.at && is_bounded
    };
    events.iter().filter(overlaps).find_map(|event| match &event.kind {
        EventKind::Killed(killed) if killed == server => Some(format!("killed server `{killed}`")),
        EventKind::Restarted => Some("restarted gateway".to_owned()),
        EventKind::Killed(_) | EventKind::Reloaded => None,
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |name: &str| self.summary[name].as_u64().unwrap_or_default();
        let killed = self.count(|kind| matches!(kind, EventKind::Killed(_)));
        let reloaded = self.count(|kind| *kind == EventKind::Reloaded);
        let restarted = self.count(|kind| *kind == EventKind::Restarted);
        writeln!(f, "calls      {} in {} sessions, {} failed", number("calls"), number("sessions"), number("failed"))?;
        let (streams, updates, answers) = (number("streams"), number("updates"), number("answers"));
        writeln!(f, "streams    {streams} opened, {updates} updates arrived, {answers} requests of servers answered")?;
        writeln!(f, "unanswered {}", number("unanswered"))?;
        let (waits, refused) = (number("waits"), number("refused"));
        writeln!(f, "restarts   {waits} connections repeated, {refused} requests refused with 503 and repeated")?;
        writeln!(f, "events     {killed} servers killed, {reloaded} reloads, {restarted} restarts")?;
        for (cause, count) in &self.in_flight {
            writeln!(f, "in flight  {count} on {cause}")?;
        }
        for (reason, count) in &self.lost {
            writeln!(f, "LOST       {count} on {reason}")?;
        }
        if self.lost.is_empty() {
            writeln!(f, "lost       none")?;
        }
        match self.memory() {
            Some((start, end)) => {
                writeln!(f, "memory     {start} KiB at the start, {end} KiB at the end (since the last restart)")?
            }
            None => writeln!(f, "memory     not measured")?,
        }
        if self.observed.left.is_empty() {
            writeln!(f, "processes  none left")?;
        }
        for process in &self.observed.left {
            writeln!(f, "LEFT       {process}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(at: u64, kind: EventKind) -> Event {
        Event { at, until: at + 10, kind }
    }

    fn lines(failures: &[Value]) -> Vec<String> {
        let summary = json!({ "calls": 9, "failed": failures.len(), "sessions": 2, "waits": 0 });
        failures.iter().chain([&summary]).map(Value::to_string).collect()
    }

    #[test]
    fn a_call_that_hangs_after_a_kill_is_lost() {
        let events = vec![event(10_000, EventKind::Killed("a".to_owned())), event(50_000, EventKind::Restarted)];
        let observed = || Observed { events: events.clone(), ..Observed::default() };
        for (started, ended, is_lost) in [(9_990, 11_500, false), (9_990, 13_000, true), (49_000, 70_000, true)] {
            let failure = json!({ "server": "a", "era": "legacy", "started": started, "ended": ended, "reason": "x" });
            let report = Report::new(&lines(&[failure]), observed()).expect("a report");
            assert_eq!(report.verdict().is_err(), is_lost, "{started} to {ended}: {report}");
            let is_near = report.to_string().contains(r#"; 39.0 s after Killed("a"); Restarted 1.0 s later"#);
            assert_eq!(is_near, started == 49_000, "{report}");
        }
    }

    fn failure(server: &str, started: u64) -> Value {
        json!({ "server": server, "era": "modern", "started": started, "ended": started + 20, "reason": "HTTP 200 x" })
    }

    #[test]
    fn only_calls_in_flight_on_what_was_killed_are_excused() {
        let events = vec![event(10_000, EventKind::Killed("a".to_owned()))];
        let observed = || Observed { events: events.clone(), ..Observed::default() };
        let excused = Report::new(&lines(&[failure("a", 9_990)]), observed()).expect("a report");
        assert!(excused.verdict().is_ok(), "{excused}");
        for failure in [failure("b", 9_990), failure("a", 12_000)] {
            let lost = Report::new(&lines(&[failure]), observed()).expect("a report");
            assert!(lost.verdict().is_err(), "{lost}");
        }
    }

    #[test]
    fn a_reload_excuses_no_call() {
        let observed = Observed { events: vec![event(10_000, EventKind::Reloaded)], ..Observed::default() };
        assert!(Report::new(&lines(&[failure("a", 9_990)]), observed).expect("a report").verdict().is_err());
    }

    #[test]
    fn growing_memory_and_processes_left_fail() {
        let grown =
            Observed { memory_kib: (0..40).map(|second| 20_000 + second * 2_000).collect(), ..Observed::default() };
        assert!(Report::new(&lines(&[]), grown).expect("a report").verdict().is_err());
        let left = Observed { left: vec!["7 node".to_owned()], ..Observed::default() };
        assert!(Report::new(&lines(&[]), left).expect("a report").verdict().is_err());
        let flat = Observed { memory_kib: vec![20_000; 40], ..Observed::default() };
        assert!(Report::new(&lines(&[]), flat).expect("a report").verdict().is_ok());
    }
}
