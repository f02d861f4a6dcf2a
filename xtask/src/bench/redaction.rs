//! Redaction benchmark: searching text without secrets, compared with one pass over the same text.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};

use super::goal::Goal;
use super::rounds::Rounds;
use super::{cores, load, trial};

/// The programs to build.
pub(super) const PROGRAMS: [&str; 1] = ["bench-redaction"];

/// The texts, with their titles.
const TEXTS: [(&str, &str); 3] =
    [("log", "10 MB of a log"), ("json", "10 MB of JSON"), ("json_in_json", "10 MB of JSON within JSON")];

/// The measurements.
pub(super) struct Report {
    rounds: usize,
    load: [Option<f64>; 2],
    reports: Rounds<()>,
}

impl Report {
    /// Runs everything. Both sides of a ratio are measured in the same second.
    pub(super) fn measure(built: &Path, quick: bool) -> Result<Self> {
        let rounds = if quick { 3 } else { 11 };
        let before = load();
        let mut reports = Rounds::new();
        for round in 1..=rounds {
            eprintln!("round {round} of {rounds}");
            reports.add((), trial::report(&mut Command::new(built.join("bench-redaction")))?);
        }
        Ok(Self { rounds, load: [before, load()], reports })
    }

    fn figure(&self, kind: &str, what: &str) -> Option<f64> {
        self.reports.figure(&(), &format!("{kind}_{what}"))
    }

    fn goals(&self) -> Vec<Goal> {
        let goal = |(kind, title)| Goal::at_most("S14.6", title, self.figure(kind, "ratio"), 3.0);
        TEXTS.into_iter().map(goal).collect()
    }

    pub(super) fn to_json(&self) -> Value {
        let figures = TEXTS.map(|(kind, _)| {
            json!({
                "text": kind,
                "memchr_ms": self.figure(kind, "memchr_ms"),
                "redaction_ms": self.figure(kind, "redaction_ms"),
            })
        });
        json!({
            "bench": "redaction",
            "rounds": self.rounds,
            "cores": cores(),
            "load": self.load,
            "figures": figures,
            "verdicts": self.goals().iter().map(Goal::to_json).collect::<Vec<_>>(),
        })
    }

    pub(super) fn to_text(&self) -> String {
        let [before, after] = self.load.map(|load| load.map_or_else(|| "unknown".to_owned(), |load| load.to_string()));
        let mut text = format!(
            "{} cores, load {before} before and {after} after, medians of {} rounds, in milliseconds\n\n{:<26} {:>12} {:>12}\n",
            cores(),
            self.rounds,
            "",
            "memchr",
            "redaction"
        );
        for (kind, title) in TEXTS {
            text += &format!("{title:<26}");
            for what in ["memchr_ms", "redaction_ms"] {
                let figure = self.figure(kind, what).map_or_else(|| "-".into(), |ms| format!("{ms:.3}"));
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
