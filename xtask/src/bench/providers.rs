//! Provider benchmark: lowering, encoding and decoding, compared with parsing the same frames into JSON values.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};

use super::goal::{Goal, Unit};
use super::rounds::Rounds;
use super::{cores, load, trial};
use crate::{paths, servers};

/// The dialects' names in reports.
const DIALECTS: [&str; 4] = ["anthropic", "responses", "gemini", "chat"];

/// Each dialect's measures, with their titles.
const MEASURES: [(&str, &str); 5] = [
    ("lower", "lower 1,600"),
    ("encode_first", "first turn"),
    ("encode_again", "next turn"),
    ("decode", "decode 100k"),
    ("values", "as values"),
];

/// The measurements.
pub(super) struct Report {
    rounds: usize,
    load: [Option<f64>; 2],
    reports: Rounds<()>,
    /// The tools' source.
    source: String,
}

impl Report {
    /// Runs everything. Both sides of a ratio are measured in the same second.
    pub(super) fn measure(built: &Path, quick: bool) -> Result<Self> {
        let rounds = if quick { 3 } else { 11 };
        let corpus = paths::corpus();
        let (flag, path, source) = if corpus.is_dir() {
            ("--corpus", corpus, "recorded lists")
        } else {
            servers::run()?;
            ("--servers", paths::servers().join("servers.json"), "installed servers")
        };
        let before = load();
        let mut reports = Rounds::new();
        for round in 1..=rounds {
            eprintln!("round {round} of {rounds}");
            reports.add((), trial::report(Command::new(built.join("bench-providers")).arg(flag).arg(&path))?);
        }
        let tools = reports.figure(&(), "distinct_tools").unwrap_or_default();
        let source = format!("{tools} different tools of {source}");
        Ok(Self { rounds, load: [before, load()], reports, source })
    }

    fn micros(&self, what: &str, dialect: &str) -> Option<f64> {
        self.reports.figure(&(), &format!("{what}_{dialect}_us"))
    }

    fn goals(&self) -> Vec<Goal> {
        let left_out: f64 =
            DIALECTS.iter().filter_map(|dialect| self.reports.figure(&(), &format!("left_out_{dialect}"))).sum();
        let slowest = DIALECTS.iter().map(|dialect| Some(self.micros("lower", dialect)? / 1000.0));
        let slowest = slowest.collect::<Option<Vec<f64>>>().map(|all| all.into_iter().fold(0.0, f64::max));
        let lowering = Goal::at_most("S15.6", "lowering 1,600 tools, slowest dialect", slowest, 50.0)
            .with_unit(Unit::Milliseconds)
            .with_note(Some(format!("{}; {left_out} left out", self.source)));
        let again =
            DIALECTS.iter().map(|dialect| self.reports.figure(&(), &format!("encode_{dialect}_again_of_first")));
        let again = again.collect::<Option<Vec<f64>>>().map(|all| all.into_iter().fold(0.0, f64::max));
        let turn = Goal::at_most("S15.6", "unchanged turn of 200 tools, of the first", again, 0.25);
        let decoding = DIALECTS.map(|dialect| {
            let ratio = self.reports.figure(&(), &format!("decode_{dialect}_of_values"));
            Goal::at_most("decode", title(dialect), ratio, 2.0)
        });
        [lowering, turn].into_iter().chain(decoding).collect()
    }

    pub(super) fn to_json(&self) -> Value {
        let figures = DIALECTS.map(|dialect| {
            let figures = MEASURES.map(|(what, _)| (format!("{what}_us"), self.micros(what, dialect)));
            (dialect, figures.into_iter().collect::<std::collections::BTreeMap<_, _>>())
        });
        json!({
            "bench": "providers",
            "rounds": self.rounds,
            "cores": cores(),
            "load": self.load,
            "tools": self.source,
            "figures": figures.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
            "verdicts": self.goals().iter().map(Goal::to_json).collect::<Vec<_>>(),
        })
    }

    pub(super) fn to_text(&self) -> String {
        let [before, after] = self.load.map(|load| load.map_or_else(|| "unknown".to_owned(), |load| load.to_string()));
        let mut text = format!(
            "{} cores, load {before} before and {after} after, medians of {} rounds, in milliseconds\n\n{:<10}",
            cores(),
            self.rounds,
            ""
        );
        for (_, title) in MEASURES {
            text += &format!(" {title:>12}");
        }
        text.push('\n');
        for dialect in DIALECTS {
            text += &format!("{dialect:<10}");
            for (what, _) in MEASURES {
                let figure = self.micros(what, dialect).map_or_else(|| "-".into(), |us| format!("{:.3}", us / 1000.0));
                text += &format!(" {figure:>12}");
            }
            text.push('\n');
        }
        if let Some(failure) = self.reports.failure(&()) {
            text += &format!("\na round failed: {failure}\n");
        }
        text.push('\n');
        text.extend(self.goals().iter().map(Goal::to_text));
        text
    }
}

fn title(dialect: &str) -> &'static str {
    match dialect {
        "anthropic" => "100,000 deltas of Anthropic, of parsing",
        "responses" => "100,000 deltas of Responses, of parsing",
        "gemini" => "100,000 deltas of Gemini, of parsing",
        _ => "100,000 deltas of Chat, of parsing",
    }
}
