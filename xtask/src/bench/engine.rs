//! Engine benchmark: one connection to one server, compared with a hand-written client and the official Rust SDK.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};

use super::goal::Goal;
use super::rounds::Rounds;
use super::{cores, trial};

/// A contestant's, scenario's or server's name.
type Name = &'static str;

const BASELINE: Name = "baseline";
const RMCP: Name = "rmcp";
const OURS: Name = "ropeway";
/// In round order.
const CONTESTANTS: [Name; 3] = [BASELINE, RMCP, OURS];
/// The goals are about the first, a hand-written server.
const SERVERS: [Name; 2] = ["echo-server", "rmcp-server"];
/// The image's base64 text.
const IMAGE_KIB: f64 = 4096.0;

/// A scenario, with enough calls for a stable median.
struct Scenario {
    name: Name,
    calls: usize,
    /// The figure to compare: the rate if calls overlap, otherwise one call's time.
    key: Name,
}

const SCENARIOS: [Scenario; 7] = [
    Scenario { name: "connect", calls: 30, key: "p50_us" },
    Scenario { name: "sequential", calls: 20_000, key: "p50_us" },
    Scenario { name: "inflight32", calls: 40_000, key: "calls_per_second" },
    Scenario { name: "text1m", calls: 60, key: "p50_us" },
    Scenario { name: "image4m", calls: 30, key: "p50_us" },
    Scenario { name: "structured776k", calls: 8, key: "p50_us" },
    Scenario { name: "list200", calls: 100, key: "p50_us" },
];

/// Each contestant's reports for each scenario and server.
pub(super) struct Report {
    rounds: usize,
    reports: Rounds<(Name, Name, Name)>,
}

impl Report {
    /// Runs everything. Rounds are interleaved, so a busy moment on the machine affects all contestants.
    pub(super) fn measure(peers: &Path, quick: bool) -> Result<Self> {
        let rounds = if quick { 1 } else { 5 };
        let mut reports = Rounds::new();
        for round in 1..=rounds {
            for server in SERVERS {
                for scenario in &SCENARIOS {
                    eprintln!("round {round} of {rounds}: {} on {server}", scenario.name);
                    for contestant in CONTESTANTS {
                        let calls = if quick { (scenario.calls / 10).max(3) } else { scenario.calls };
                        let report = measure(peers, contestant, scenario, server, calls)?;
                        reports.add((server, scenario.name, contestant), report);
                    }
                }
            }
        }
        Ok(Self { rounds, reports })
    }

    fn figure(&self, server: Name, scenario: Name, contestant: Name, key: &str) -> Option<f64> {
        self.reports.figure(&(server, scenario, contestant), key)
    }

    fn ratio(&self, server: Name, scenario: Name, (contestant, other): (Name, Name), key: &str) -> Option<f64> {
        self.reports.ratio(&(server, scenario, contestant), &(server, scenario, other), key)
    }

    fn failure(&self, server: Name, scenario: Name, contestant: Name) -> Option<&str> {
        self.reports.failure(&(server, scenario, contestant))
    }

    fn goals(&self) -> Vec<Goal> {
        let echo = SERVERS[0];
        let ratio = |scenario, other, key| self.ratio(echo, scenario, (OURS, other), key);
        let peak = self.figure(echo, "image4m", OURS, "peak_kib").map(|peak| peak / IMAGE_KIB);
        vec![
            Goal::at_most("S15.1", "one call, relative to the baseline", ratio("sequential", BASELINE, "p50_us"), 2.0),
            Goal::at_most("S15.1", "one call, relative to rmcp", ratio("sequential", RMCP, "p50_us"), 0.6),
            Goal::at_least(
                "S15.1",
                "32 in flight, rate relative to rmcp",
                ratio("inflight32", RMCP, "calls_per_second"),
                4.0,
            ),
            Goal::at_most("S15.2", "4 MiB image, relative to the baseline", ratio("image4m", BASELINE, "p50_us"), 1.5),
            Goal::at_most("S15.2", "4 MiB image, peak memory per payload", peak, 3.0),
            Goal::at_most(
                "connect",
                "ready to call, relative to the baseline",
                ratio("connect", BASELINE, "p50_us"),
                3.0,
            ),
        ]
    }

    pub(super) fn to_json(&self) -> Value {
        let mut results = Vec::new();
        for server in SERVERS {
            for scenario in &SCENARIOS {
                for contestant in CONTESTANTS {
                    results.push(self.result(server, scenario, contestant));
                }
            }
        }
        let goals: Vec<Value> = self.goals().iter().map(Goal::to_json).collect();
        json!({"rounds": self.rounds, "cores": cores(), "results": results, "verdicts": goals})
    }

    fn result(&self, server: Name, scenario: &Scenario, contestant: Name) -> Value {
        let figure = |key| self.figure(server, scenario.name, contestant, key);
        let ratio = |other, key| self.ratio(server, scenario.name, (contestant, other), key);
        json!({
            "server": server,
            "scenario": scenario.name,
            "contestant": contestant,
            "failure": self.failure(server, scenario.name, contestant),
            "p50_us": figure("p50_us"),
            "p99_us": figure("p99_us"),
            "mean_us": figure("mean_us"),
            "calls_per_second": figure("calls_per_second"),
            "cpu_us_per_call": figure("cpu_us_per_call"),
            "idle_kib": figure("idle_kib"),
            "peak_kib": figure("peak_kib"),
            "compared_by": scenario.key,
            "ratio_to_floor": ratio(BASELINE, scenario.key),
            "ratio_to_rmcp": ratio(RMCP, scenario.key),
            "cpu_ratio_to_floor": ratio(BASELINE, "cpu_us_per_call"),
            "cpu_ratio_to_rmcp": ratio(RMCP, "cpu_us_per_call"),
        })
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = format!("{} cores, medians of {} interleaved rounds\n", cores(), self.rounds);
        for server in SERVERS {
            text += &format!(
                "\n{:<15} {:<8} {:>10} {:>10} {:>10} {:>10} {:>9} {:>9} {:>9}\n",
                server, "", "p50 µs", "p99 µs", "calls/s", "CPU µs", "peak MiB", "× base", "× rmcp"
            );
            for scenario in &SCENARIOS {
                for contestant in CONTESTANTS {
                    text += &self.row(server, scenario, contestant);
                }
            }
        }
        text += "\n× compares p50, for inflight32 calls/s.\n\n";
        for goal in self.goals() {
            text += &goal.to_text();
        }
        text
    }

    fn row(&self, server: Name, scenario: &Scenario, contestant: Name) -> String {
        let name = if contestant == BASELINE { scenario.name } else { "" };
        if let Some(failure) = self.failure(server, scenario.name, contestant) {
            return format!("{name:<15} {contestant:<8} failed: {failure}\n");
        }
        let figure = |key| self.figure(server, scenario.name, contestant, key).unwrap_or(f64::NAN);
        let ratio = |other| match self.ratio(server, scenario.name, (contestant, other), scenario.key) {
            Some(ratio) => format!("{ratio:.2}"),
            None => "-".into(),
        };
        format!(
            "{name:<15} {contestant:<8} {:>10.1} {:>10.1} {:>10.0} {:>10.1} {:>9.1} {:>9} {:>9}\n",
            figure("p50_us"),
            figure("p99_us"),
            figure("calls_per_second"),
            figure("cpu_us_per_call"),
            figure("peak_kib") / 1024.0,
            ratio(BASELINE),
            ratio(RMCP),
        )
    }
}

/// Runs one contestant once.
fn measure(
    peers: &Path,
    contestant: &str,
    scenario: &Scenario,
    server: &str,
    calls: usize,
) -> Result<Result<Value, String>> {
    let tools = if scenario.name == "list200" { " --tools 200" } else { "" };
    let mut command = Command::new(peers.join(format!("bench-{contestant}")));
    command
        .args(["--scenario", scenario.name, "--rounds", &calls.to_string()])
        .args(["--server", &format!("{}{tools}", peers.join(server).display())]);
    trial::report(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_that_was_not_measured_is_neither_reached_nor_missed() {
        let mut reports = Rounds::new();
        for (contestant, time) in [(BASELINE, 5.0), (OURS, 9.0)] {
            reports.add(("echo-server", "sequential", contestant), Ok(json!({ "p50_us": time })));
        }
        let goals = Report { rounds: 1, reports }.goals();
        assert_eq!(goals[0].reached(), Some(true));
        assert_eq!(goals[1].reached(), None);
    }
}
