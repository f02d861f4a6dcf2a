//! Gateway benchmark: calls over HTTP to one native stdio server, compared with other gateways.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::gateways::{Contestant, Gateways};
use super::goal::{Goal, Unit};
use super::rounds::Rounds;
use super::{cores, load, trial};

/// Concurrent session counts.
const SESSIONS: [usize; 3] = [1, 16, 64];
const MANY: usize = 64;

/// The table's figures: key, title, factor and digits.
const FIGURES: [(&str, &str, f64, usize); 6] = [
    ("calls_per_second", "calls/s", 1.0, 0),
    ("p50_us", "p50 ms", 1e-3, 2),
    ("p99_us", "p99 ms", 1e-3, 2),
    ("cpu_us_per_call", "CPU µs/call", 1.0, 0),
    ("peak_kib", "MiB", 1.0 / 1024.0, 0),
    ("processes", "processes", 1.0, 0),
];

/// The measurements.
pub(super) struct Report {
    rounds: usize,
    load: [Option<f64>; 2],
    runs: Rounds<(Contestant, usize)>,
    absent: Vec<(Contestant, String)>,
}

impl Report {
    /// Runs everything. Rounds are interleaved, so a busy moment on the machine affects all contestants.
    pub(super) fn measure(built: &Path, quick: bool) -> Result<Self> {
        let rounds = if quick { 1 } else { 3 };
        let gateways = Gateways::install(built)?;
        let mut absent: Vec<(Contestant, String)> = Vec::new();
        for contestant in Contestant::ALL {
            absent.extend(gateways.absent(contestant).map(|why| (contestant, why.to_owned())));
        }
        let before = load();
        let mut runs = Rounds::new();
        for round in 1..=rounds {
            for contestant in Contestant::ALL {
                if absent.iter().any(|(missing, _)| *missing == contestant) {
                    continue;
                }
                eprintln!("round {round} of {rounds}: {}", contestant.name());
                match gateways.start(contestant, quick) {
                    Ok(running) => {
                        for sessions in SESSIONS {
                            runs.add((contestant, sessions), trial::report(&mut running.load(sessions))?);
                        }
                    }
                    Err(error) => absent.push((contestant, format!("{error:#}"))),
                }
            }
        }
        Ok(Self { rounds, load: [before, load()], runs, absent })
    }

    fn figure(&self, contestant: Contestant, sessions: usize, name: &str) -> Option<f64> {
        self.runs.figure(&(contestant, sessions), name)
    }

    /// Returns our figure relative to another's, within each round.
    fn ratio(&self, other: Contestant, sessions: usize, name: &str) -> Option<f64> {
        self.runs.ratio(&(Contestant::Ropeway, sessions), &(other, sessions), name)
    }

    /// Returns the best gateway on Node or Python by CPU time per call.
    fn best_script(&self) -> Option<Contestant> {
        let scripts = Contestant::SCRIPTS.into_iter();
        let measured = scripts.filter_map(|it| Some((it, self.figure(it, MANY, "cpu_us_per_call")?)));
        measured.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(it, _)| it)
    }

    /// Returns the memory that one idle session adds, in KiB.
    fn idle_session(&self) -> Option<f64> {
        let idle = |sessions| self.figure(Contestant::Ropeway, sessions, "idle_kib");
        Some((idle(MANY)? - idle(1)?) / (MANY - 1) as f64)
    }

    fn goals(&self) -> Vec<Goal> {
        let rust = Contestant::McpProxy;
        let script = self.best_script();
        let scripted = |name: &str| script.and_then(|script| self.ratio(script, MANY, name));
        let note = || script.map(|script| format!("the best is {}", script.name()));
        let s = "S15.5";
        let own = |operated| self.runs.ratio(&(operated, MANY), &(Contestant::Ropeway, MANY), "cpu_us_per_call");
        vec![
            Goal::at_most(
                s,
                "CPU per call, of mcp-proxy's, 64 sessions",
                self.ratio(rust, MANY, "cpu_us_per_call"),
                0.5,
            ),
            Goal::at_most(s, "CPU per call, of the best script's", scripted("cpu_us_per_call"), 1.0 / 6.0)
                .with_note(note()),
            Goal::at_least(s, "calls/s, of mcp-proxy's, 64 sessions", self.ratio(rust, MANY, "calls_per_second"), 1.3),
            Goal::at_least(s, "calls/s, of the best script's", scripted("calls_per_second"), 5.0).with_note(note()),
            Goal::at_most(s, "p50, of mcp-proxy's, one session", self.ratio(rust, 1, "p50_us"), 0.6),
            Goal::at_most(
                s,
                "CPU per call with keys, limits and audit, of the bare gateway's",
                own(Contestant::RopewayOperated),
                1.25,
            ),
            Goal::at_most(
                s,
                "CPU per call with OTLP as well, of the bare gateway's",
                own(Contestant::RopewayTraced),
                1.35,
            ),
            Goal::at_most(s, "memory of an idle session", self.idle_session(), 64.0).with_unit(Unit::Kibibytes),
        ]
    }

    pub(super) fn to_json(&self) -> Value {
        let mut figures = Vec::new();
        for contestant in Contestant::ALL {
            for sessions in SESSIONS {
                let mut entry = json!({ "gateway": contestant.name(), "sessions": sessions });
                for (key, ..) in FIGURES {
                    entry[key] = json!(self.figure(contestant, sessions, key));
                }
                entry["failure"] = json!(self.runs.failure(&(contestant, sessions)));
                figures.push(entry);
            }
        }
        let absent: Vec<Value> =
            self.absent.iter().map(|(it, why)| json!({ "gateway": it.name(), "reason": why })).collect();
        json!({
            "bench": "gateway",
            "rounds": self.rounds,
            "cores": cores(),
            "load": self.load,
            "figures": figures,
            "missing": absent,
            "verdicts": self.goals().iter().map(Goal::to_json).collect::<Vec<_>>(),
        })
    }

    pub(super) fn to_text(&self) -> String {
        let [before, after] = self.load.map(|load| load.map_or_else(|| "unknown".to_owned(), |load| load.to_string()));
        let mut text = format!(
            "{} cores, load {before} before and {after} after, medians of {} rounds\n\n{:<20} {:>8}",
            cores(),
            self.rounds,
            "",
            "sessions"
        );
        text.extend(FIGURES.map(|(_, title, ..)| format!(" {title:>12}")));
        text.push('\n');
        for contestant in Contestant::ALL {
            if self.absent.iter().any(|(missing, _)| *missing == contestant) {
                continue;
            }
            for sessions in SESSIONS {
                text += &format!("{:<20} {sessions:>8}", contestant.name());
                for (key, _, factor, digits) in FIGURES {
                    let figure = self.figure(contestant, sessions, key);
                    let figure = figure.map_or_else(|| "-".into(), |figure| format!("{:.digits$}", figure * factor));
                    text += &format!(" {figure:>12}");
                }
                text.push('\n');
                if let Some(failure) = self.runs.failure(&(contestant, sessions)) {
                    text += &format!("    failed: {failure}\n");
                }
            }
        }
        for (contestant, why) in &self.absent {
            text += &format!("missing: {}: {why}\n", contestant.name());
        }
        text.push('\n');
        text.extend(self.goals().iter().map(Goal::to_text));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut runs = Rounds::new();
        for (contestant, factor) in [
            (Contestant::Ropeway, 1.0),
            (Contestant::RopewayOperated, 1.2),
            (Contestant::RopewayTraced, 1.3),
            (Contestant::McpProxy, 4.0),
            (Contestant::McpHub, 12.0),
        ] {
            for sessions in SESSIONS {
                let figures = json!({
                    "calls_per_second": 1_000.0 / factor, "p50_us": 50.0 * factor, "p99_us": 90.0 * factor,
                    "cpu_us_per_call": 20.0 * factor, "peak_kib": 9_000, "idle_kib": 8_000 + sessions, "processes": 2,
                });
                runs.add((contestant, sessions), Ok(figures));
            }
        }
        let absent = vec![(Contestant::FastMcp, "no Python".to_owned())];
        Report { rounds: 1, load: [None; 2], runs, absent }
    }

    #[test]
    fn goals_compare_with_the_best_of_each_kind() {
        let goals = report().goals();
        assert!(goals.iter().all(|goal| goal.reached() == Some(true)), "{}", report().to_text());
    }

    #[test]
    fn a_missing_gateway_is_named() {
        assert!(report().to_text().contains("missing: fastmcp: no Python\n"));
        assert_eq!(report().to_json()["missing"][0]["reason"], "no Python");
    }
}
