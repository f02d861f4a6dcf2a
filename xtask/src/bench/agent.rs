//! Agent benchmark: what the loop itself costs, and a turn compared with other agents over the same scripted model.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};

use super::goal::{Goal, Unit};
use super::rounds::Rounds;
use super::turns::{Agents, Contestant, Key, ReplyMode, Script, TOOLS};
use super::{cores, load, trial};

/// The programs to build.
pub(super) const PROGRAMS: [&str; 2] = ["bench-agent", "model-server"];

/// The dialects' names in reports.
const DIALECTS: [&str; 4] = ["anthropic", "responses", "gemini", "chat"];

const OURS: Contestant = Contestant::Ropeway;

/// The measurements.
pub(super) struct Report {
    rounds: usize,
    load: [Option<f64>; 2],
    /// The loop without a network.
    own: Rounds<()>,
    turns: Rounds<Key>,
    absent: Vec<(Contestant, String)>,
}

impl Report {
    /// Runs everything. Rounds are interleaved, so a busy moment on the machine affects all contestants.
    pub(super) fn measure(built: &Path, quick: bool) -> Result<Self> {
        let rounds = if quick { 3 } else { 7 };
        let agents = Agents::new(built)?;
        let before = load();
        let (mut own, mut turns) = (Rounds::new(), Rounds::new());
        eprintln!("round 0 of {rounds}: warm-up, not counted");
        agents.round(&mut Rounds::new())?;
        for round in 1..=rounds {
            eprintln!("round {round} of {rounds}");
            let mut command = Command::new(built.join("bench-agent"));
            command.args(["--contestant", "own", "--warm-up", "20", "--turns", "100", "--tools"]).arg(&agents.tools);
            own.add((), trial::report(&mut command)?);
            agents.round(&mut turns)?;
        }
        Ok(Self { rounds, load: [before, load()], own, turns, absent: agents.absent })
    }

    /// Returns what the loop costs in a dialect, without a network.
    fn own(&self, what: &str, dialect: &str) -> Option<f64> {
        self.own.figure(&(), &format!("{what}_{dialect}_us"))
    }

    /// Returns the largest figure over all dialects.
    fn slowest(&self, figure: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        let all = DIALECTS.iter().map(|dialect| figure(dialect)).collect::<Option<Vec<f64>>>()?;
        Some(all.into_iter().fold(0.0, f64::max))
    }

    fn turn_us(&self, key: Key) -> Option<f64> {
        self.turns.figure(&key, "turn_us")
    }

    /// Returns the time relative to ropeway.
    fn ratio(&self, (script, contestant, mode): Key) -> Option<f64> {
        self.turns.ratio(&(script, contestant, mode), &(script, OURS, ReplyMode::Streamed), "turn_us")
    }

    /// Returns the fastest other agent, in its faster mode.
    fn best_other(&self, script: Script) -> Option<Key> {
        let keys = Contestant::OTHERS.into_iter().flat_map(|other| {
            other
                .modes()
                .iter()
                .filter_map(move |mode| Some(((script, other, *mode), self.turn_us((script, other, *mode))?)))
        });
        keys.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(key, _)| key)
    }

    fn goals(&self) -> Vec<Goal> {
        let steps = self.best_other(Script::Steps);
        let parallel = self.best_other(Script::Parallel);
        let called = |(_, other, mode): Key| format!("{}, {}", other.name(), mode.name());
        let dialects: Option<Vec<String>> =
            DIALECTS.iter().map(|dialect| Some(format!("{dialect} {:.1}", self.own("step", dialect)?))).collect();
        let waited = parallel
            .and_then(|key| Some(format!("the best other takes {:.2} s ({})", self.turn_us(key)? / 1e6, called(key))));
        vec![
            Goal::at_most(
                "agent",
                "cost of the loop per step, 200 tools",
                self.slowest(|dialect| self.own("step", dialect)),
                100.0,
            )
            .with_unit(Unit::Microseconds)
            .with_note(dialects.map(|dialects| dialects.join(", "))),
            Goal::at_most(
                "agent",
                "next turn, relative to the first",
                self.slowest(|dialect| Some(self.own("next", dialect)? / self.own("first", dialect)?)),
                0.25,
            )
            .with_note(Some("only the first turn lowers the tools".to_owned())),
            Goal::at_most(
                "agent",
                "32 concurrent calls of 1 s",
                self.turn_us((Script::Parallel, OURS, ReplyMode::Streamed)).map(|us| us / 1e6),
                1.1,
            )
            .with_unit(Unit::Seconds)
            .with_note(waited),
            Goal::at_least("agent", "a step over HTTP, best other agent", steps.and_then(|key| self.ratio(key)), 1.0)
                .with_note(steps.map(|key| format!("the best other is {}", called(key)))),
        ]
    }

    pub(super) fn to_json(&self) -> Value {
        let mut turns = Vec::new();
        for key in keys() {
            let (script, contestant, mode) = key;
            let figure = |name| self.turns.figure(&key, name);
            let calls = script.calls() as f64;
            turns.push(json!({
                "model": script.model(),
                "contestant": contestant.name(),
                "manner": mode.name(),
                "failure": self.turns.failure(&key),
                "turn_us": figure("turn_us"),
                "call_us": figure("turn_us").map(|us| us / calls),
                "cpu_us_per_call": figure("cpu_us").map(|us| us / calls),
                "idle_kib": figure("idle_kib"),
                "peak_kib": figure("peak_kib"),
                "ratio_to_ropeway": self.ratio(key),
            }));
        }
        let own = DIALECTS.map(|dialect| {
            let figures = ["step", "first", "next"].map(|what| (format!("{what}_us"), self.own(what, dialect)));
            (dialect, figures.into_iter().collect::<std::collections::BTreeMap<_, _>>())
        });
        let absent: Vec<Value> =
            self.absent.iter().map(|(who, why)| json!({"contestant": who.name(), "why": why})).collect();
        json!({
            "bench": "agent",
            "rounds": self.rounds,
            "cores": cores(),
            "load": self.load,
            "tools": TOOLS,
            "own_failure": self.own.failure(&()),
            "own": own.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
            "turns": turns,
            "absent": absent,
            "verdicts": self.goals().iter().map(Goal::to_json).collect::<Vec<_>>(),
        })
    }

    pub(super) fn to_text(&self) -> String {
        let [before, after] = self.load.map(|load| load.map_or_else(|| "unknown".to_owned(), |load| load.to_string()));
        let mut text = format!(
            "{} cores, load {before} before and {after} after, medians of {} interleaved rounds, {TOOLS} tools\n",
            cores(),
            self.rounds
        );
        text += &format!("\n{:<12} {:>10} {:>10} {:>10}\n", "no network", "step µs", "first µs", "next µs");
        match self.own.failure(&()) {
            Some(failure) => text += &format!("failed: {failure}\n"),
            None => text.extend(DIALECTS.map(|dialect| {
                let [step, first, next] =
                    ["step", "first", "next"].map(|what| self.own(what, dialect).unwrap_or(f64::NAN));
                format!("{dialect:<12} {step:>10.1} {first:>10.1} {next:>10.1}\n")
            })),
        }
        text += &format!(
            "\n{:<12} {:<17} {:<9} {:>10} {:>10} {:>10} {:>10} {:>10}\n",
            "model", "", "", "turn ms", "step µs", "CPU µs", "peak MiB", "× ropeway"
        );
        text.extend(keys().map(|key| self.row(key)));
        text.push('\n');
        text.extend(self.goals().iter().map(Goal::to_text));
        text
    }

    fn row(&self, key: Key) -> String {
        let (script, contestant, mode) = key;
        let name = format!("{:<12} {:<17} {:<9}", script.model(), contestant.name(), mode.name());
        if let Some((_, why)) = self.absent.iter().find(|(absent, _)| *absent == contestant) {
            return format!("{name} skipped: {why}\n");
        }
        if let Some(failure) = self.turns.failure(&key) {
            return format!("{name} failed: {failure}\n");
        }
        let figure = |name| self.turns.figure(&key, name).unwrap_or(f64::NAN);
        let calls = script.calls() as f64;
        // Concurrent calls have no separate times.
        let step = match script {
            Script::Steps => format!("{:.1}", figure("turn_us") / calls),
            Script::Parallel => "-".to_owned(),
        };
        format!(
            "{name} {:>10.2} {step:>10} {:>10.1} {:>10.1} {:>10.2}\n",
            figure("turn_us") / 1e3,
            figure("cpu_us") / calls,
            figure("peak_kib") / 1024.0,
            self.ratio(key).unwrap_or(f64::NAN),
        )
    }
}

/// Returns all runs, in table order.
fn keys() -> impl Iterator<Item = Key> {
    Script::ALL.into_iter().flat_map(|script| {
        let of = move |contestant: Contestant| contestant.modes().iter().map(move |mode| (script, contestant, *mode));
        Contestant::ALL.into_iter().flat_map(of)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let absent = vec![(Contestant::PydanticAi, "no Python".to_owned())];
        Report { rounds: 1, load: [None, None], own: Rounds::new(), turns: Rounds::new(), absent }
    }

    fn reached(report: &Report) -> Vec<Option<bool>> {
        report.goals().iter().map(Goal::reached).collect()
    }

    #[test]
    fn each_goal_uses_its_own_figures_and_the_slowest_dialect() {
        let mut report = report();
        let mut own = json!({});
        for (dialect, step) in DIALECTS.into_iter().zip([40.0, 101.0, 30.0, 20.0]) {
            own[format!("step_{dialect}_us")] = json!(step);
            own[format!("first_{dialect}_us")] = json!(4000.0);
            own[format!("next_{dialect}_us")] = json!(100.0);
        }
        report.own.add((), Ok(own));
        let turns = [
            (Script::Steps, OURS, ReplyMode::Streamed, 2_000.0),
            (Script::Steps, Contestant::AiSdk, ReplyMode::Streamed, 40_000.0),
            (Script::Steps, Contestant::AiSdk, ReplyMode::Whole, 30_000.0),
            (Script::Parallel, OURS, ReplyMode::Streamed, 1_200_000.0),
        ];
        for (script, contestant, mode, turn_us) in turns {
            report.turns.add((script, contestant, mode), Ok(json!({ "turn_us": turn_us })));
        }
        assert_eq!(reached(&report), [false, true, false, true].map(Some));
        let best = (Script::Steps, Contestant::AiSdk, ReplyMode::Whole);
        assert_eq!((report.best_other(Script::Steps), report.ratio(best)), (Some(best), Some(15.0)));
    }

    #[test]
    fn missing_and_failed_contestants_are_named() {
        let mut report = report();
        let failed = (Script::Steps, Contestant::AiSdk, ReplyMode::Whole);
        report.turns.add(failed, Err("exit status: 1: no output".to_owned()));
        assert_eq!(report.row(failed), "steps-20     ai sdk            whole     failed: exit status: 1: no output\n");
        assert_eq!(
            report.row((Script::Parallel, Contestant::PydanticAi, ReplyMode::Streamed)),
            "parallel-32  pydantic-ai       streamed  skipped: no Python\n"
        );
        assert_eq!(reached(&report), [None; 4]);
    }
}
