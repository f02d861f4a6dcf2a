//! The engine: one connection to one server, beside a hand-written client and the official Rust SDK's.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};

use super::rounds::Rounds;
use super::verdict::Verdict;
use super::{cores, trial};

/// Names are written once, here.
type Name = &'static str;

const FLOOR: Name = "floor";
const RMCP: Name = "rmcp";
const OURS: Name = "ropeway";
/// In the order in which they run within a round.
const CONTESTANTS: [Name; 3] = [FLOOR, RMCP, OURS];
/// The promises are about the first: the floor is a hand-written client against a hand-written server.
const SERVERS: [Name; 2] = ["echo-server", "rmcp-server"];
/// The base64 text of the image.
const IMAGE_KIB: f64 = 4096.0;

/// What is measured, and how many calls it takes for a stable median.
struct Scenario {
    name: Name,
    calls: usize,
    /// What counts: the rate when calls overlap, else the time of one.
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

/// What each contestant reported of each scenario on each server.
pub(super) struct Board {
    rounds: usize,
    reports: Rounds<(Name, Name, Name)>,
}

impl Board {
    /// Runs everything. Rounds are interleaved, so that a busy moment of the machine hits all alike.
    pub(super) fn fill(peers: &Path, quick: bool) -> Result<Self> {
        let rounds = if quick { 1 } else { 5 };
        let mut board = Self { rounds, reports: Rounds::new() };
        for round in 1..=rounds {
            for server in SERVERS {
                for scenario in &SCENARIOS {
                    eprintln!("round {round} of {rounds}: {} on {server}", scenario.name);
                    for contestant in CONTESTANTS {
                        let calls = if quick { (scenario.calls / 10).max(3) } else { scenario.calls };
                        let report = measure(peers, contestant, scenario, server, calls)?;
                        board.reports.add((server, scenario.name, contestant), report);
                    }
                }
            }
        }
        Ok(board)
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

    fn verdicts(&self) -> Vec<Verdict> {
        let echo = SERVERS[0];
        let ratio = |scenario, other, key| self.ratio(echo, scenario, (OURS, other), key);
        let peak = self.figure(echo, "image4m", OURS, "peak_kib").map(|peak| peak / IMAGE_KIB);
        vec![
            Verdict::at_most("S15.1", "one call, time of the floor's", ratio("sequential", FLOOR, "p50_us"), 2.0),
            Verdict::at_most("S15.1", "one call, time of rmcp's", ratio("sequential", RMCP, "p50_us"), 0.6),
            Verdict::at_least(
                "S15.1",
                "32 in flight, rate of rmcp's",
                ratio("inflight32", RMCP, "calls_per_second"),
                4.0,
            ),
            Verdict::at_most("S15.2", "4 MiB image, time of the floor's", ratio("image4m", FLOOR, "p50_us"), 1.5),
            Verdict::at_most("S15.2", "4 MiB image, peak memory of the payload", peak, 3.0),
            Verdict::at_most("connect", "ready to call, time of the floor's", ratio("connect", FLOOR, "p50_us"), 3.0),
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
        let verdicts: Vec<Value> = self.verdicts().iter().map(Verdict::to_json).collect();
        json!({"rounds": self.rounds, "cores": cores(), "results": results, "verdicts": verdicts})
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
            "ratio_to_floor": ratio(FLOOR, scenario.key),
            "ratio_to_rmcp": ratio(RMCP, scenario.key),
            "cpu_ratio_to_floor": ratio(FLOOR, "cpu_us_per_call"),
            "cpu_ratio_to_rmcp": ratio(RMCP, "cpu_us_per_call"),
        })
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = format!("{} cores, medians of {} interleaved rounds\n", cores(), self.rounds);
        for server in SERVERS {
            text += &format!(
                "\n{:<15} {:<8} {:>10} {:>10} {:>10} {:>10} {:>9} {:>9} {:>9}\n",
                server, "", "p50 µs", "p99 µs", "calls/s", "CPU µs", "peak MiB", "× floor", "× rmcp"
            );
            for scenario in &SCENARIOS {
                for contestant in CONTESTANTS {
                    text += &self.row(server, scenario, contestant);
                }
            }
        }
        text += "\n× compares p50, for inflight32 calls/s.\n\n";
        for verdict in self.verdicts() {
            text += &verdict.to_text();
        }
        text
    }

    fn row(&self, server: Name, scenario: &Scenario, contestant: Name) -> String {
        let name = if contestant == FLOOR { scenario.name } else { "" };
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
            ratio(FLOOR),
            ratio(RMCP),
        )
    }
}

/// One run of one contestant.
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
    fn what_was_not_measured_is_neither_reached_nor_missed() {
        let mut reports = Rounds::new();
        for (contestant, time) in [(FLOOR, 5.0), (OURS, 9.0)] {
            reports.add(("echo-server", "sequential", contestant), Ok(json!({ "p50_us": time })));
        }
        let verdicts = Board { rounds: 1, reports }.verdicts();
        assert_eq!(verdicts[0].reached(), Some(true));
        assert_eq!(verdicts[1].reached(), None);
    }
}
