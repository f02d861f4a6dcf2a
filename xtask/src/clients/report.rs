//! The comparison: what is worse through the gateway than directly.

use std::fmt::Write as _;

use super::baseline::{Baseline, Place};
use super::outcome::{Outcome, Outcomes};
use super::ways::{Server, Way};

/// Maximum reason length in characters.
const MAX_DETAIL: usize = 160;

/// One client's outcomes on one way to one server.
#[derive(Debug)]
pub struct Run {
    pub client: &'static str,
    pub way: Way,
    pub server: Server,
    pub outcomes: Outcomes,
}

/// A check that is worse through the gateway.
#[derive(Debug, PartialEq)]
struct Worse {
    client: &'static str,
    way: Way,
    text: String,
    /// Why that is accepted.
    reason: Option<String>,
}

/// All runs and what is worse.
#[derive(Debug)]
pub struct Report {
    runs: Vec<Run>,
    worse: Vec<Worse>,
}

impl Report {
    pub fn new(runs: Vec<Run>, baseline: &Baseline) -> Self {
        let mut worse = Vec::new();
        for run in runs.iter().filter(|run| !run.way.is_direct()) {
            for (check, seen) in &run.outcomes {
                let reference = run.way.reference(check);
                let is_reference =
                    |other: &&Run| other.client == run.client && other.server == run.server && other.way == reference;
                let Some(direct) = runs.iter().find(is_reference).and_then(|other| other.outcomes.get(check)) else {
                    continue;
                };
                if !seen.outcome.is_worse_than(direct.outcome) {
                    continue;
                }
                let (way, server) = (run.way.name(), run.server.name());
                let place = Place { check, client: run.client, way, server };
                let detail: Vec<&str> = seen.detail.split_whitespace().collect();
                let detail: String = detail.join(" ").chars().take(MAX_DETAIL).collect();
                let text = format!("{server} {check}: {} instead of {}: {detail}", seen.outcome, direct.outcome);
                let reason = baseline.reason(place).map(str::to_owned);
                worse.push(Worse { client: run.client, way: run.way, text, reason });
            }
        }
        Self { runs, worse }
    }

    /// Returns how many checks are worse without a reason.
    pub fn failures(&self) -> usize {
        self.worse.iter().filter(|worse| worse.reason.is_none()).count()
    }

    /// Returns how many checks are not worse.
    pub fn passed(&self) -> usize {
        let checks: usize = self.runs.iter().filter(|run| !run.way.is_direct()).map(|run| run.outcomes.len()).sum();
        checks - self.failures()
    }

    /// Returns a table with a row per client and a column per way, and the checks that are worse.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let has = |way: &&Way| self.runs.iter().any(|run| run.way == **way);
        let ways: Vec<Way> = Way::ALL.iter().filter(has).copied().collect();
        let mut clients: Vec<&str> = Vec::new();
        for run in &self.runs {
            if !clients.contains(&run.client) {
                clients.push(run.client);
            }
        }
        let _ = write!(text, "{:<12}", "passed/worse");
        for way in &ways {
            let _ = write!(text, " {:>13}", way.name());
        }
        text.push('\n');
        for client in clients {
            let _ = write!(text, "{client:<12}");
            for way in &ways {
                let _ = write!(text, " {:>13}", self.cell(client, *way));
            }
            text.push('\n');
        }
        for worse in &self.worse {
            let Worse { client, way, text: what, reason } = worse;
            let word = if reason.is_some() { "known" } else { "WORSE" };
            let _ = writeln!(text, "{word} {client} {} {what}", way.name());
            if let Some(reason) = reason {
                let _ = writeln!(text, "      accepted: {reason}");
            }
        }
        text
    }

    fn cell(&self, client: &str, way: Way) -> String {
        let runs = self.runs.iter().filter(|run| run.client == client && run.way == way);
        let seen: Vec<Outcome> = runs.flat_map(|run| run.outcomes.values().map(|seen| seen.outcome)).collect();
        if seen.is_empty() {
            return "-".to_owned();
        }
        let passed = seen.iter().filter(|outcome| **outcome == Outcome::Ok).count();
        let worse = self.worse.iter().filter(|worse| worse.client == client && worse.way == way);
        if way.is_direct() { passed.to_string() } else { format!("{passed}/{}", worse.count()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::Seen;
    use super::*;

    fn run(way: Way, outcome: Outcome) -> Run {
        let outcomes = [("log".to_owned(), Seen::new(outcome, ""))].into();
        Run { client: "ts1", way, server: Server::Modern, outcomes }
    }

    #[test]
    fn a_check_that_fails_only_through_the_gateway_is_a_failure() {
        let baseline = Baseline::parse("[]").expect("a baseline");
        let runs = |direct| vec![run(Way::DirectStdio, direct), run(Way::Nested, Outcome::Failed)];
        assert_eq!(Report::new(runs(Outcome::Ok), &baseline).failures(), 1);
        assert_eq!(Report::new(runs(Outcome::Failed), &baseline).failures(), 0);
        let known = r#"[{ "check": "log", "client": "*", "way": "*", "server": "*", "reason": "x" }]"#;
        let known = Baseline::parse(known).expect("a baseline");
        let report = Report::new(runs(Outcome::Ok), &known);
        assert_eq!((report.failures(), report.passed()), (0, 1));
        assert!(report.text().contains("accepted: x"), "{}", report.text());
    }
}
