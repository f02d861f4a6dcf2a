//! A verdict: a promise of speed, and whether it was kept.

use serde_json::{Value, json};

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// How many times what it is compared with.
    Times,
    Seconds,
    Milliseconds,
    Microseconds,
    Megabytes,
}

impl Unit {
    fn sign(self) -> &'static str {
        match self {
            Self::Times => "×",
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::Microseconds => "µs",
            Self::Megabytes => "MB",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Self::Times => "ratio",
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
            Self::Microseconds => "microseconds",
            Self::Megabytes => "megabytes",
        }
    }
}

/// A promise of speed, and whether it was kept.
pub(super) struct Verdict {
    promise: &'static str,
    what: &'static str,
    figure: Option<f64>,
    unit: Unit,
    limit: f64,
    at_least: bool,
    note: Option<String>,
}

impl Verdict {
    pub(super) fn at_most(promise: &'static str, what: &'static str, figure: Option<f64>, limit: f64) -> Self {
        Self { promise, what, figure, unit: Unit::Times, limit, at_least: false, note: None }
    }

    pub(super) fn at_least(promise: &'static str, what: &'static str, figure: Option<f64>, limit: f64) -> Self {
        Self { at_least: true, ..Self::at_most(promise, what, figure, limit) }
    }

    /// The figure and its limit are not a ratio.
    pub(super) fn counted_in(self, unit: Unit) -> Self {
        Self { unit, ..self }
    }

    /// What one should know to judge the figure.
    pub(super) fn noting(self, note: Option<String>) -> Self {
        Self { note, ..self }
    }

    pub(super) fn reached(&self) -> Option<bool> {
        self.figure.map(|figure| if self.at_least { figure >= self.limit } else { figure <= self.limit })
    }

    pub(super) fn to_json(&self) -> Value {
        let bound = if self.at_least { "at_least" } else { "at_most" };
        let mut verdict = json!({
            "promise": self.promise,
            "what": self.what,
            self.unit.key(): self.figure,
            bound: self.limit,
            "reached": self.reached(),
        });
        if let Some(note) = &self.note {
            verdict["note"] = json!(note);
        }
        verdict
    }

    pub(super) fn to_text(&self) -> String {
        let outcome = match self.reached() {
            Some(true) => "reached",
            Some(false) => "NOT reached",
            None => "not measured",
        };
        let sign = self.unit.sign();
        let figure = self.figure.map_or_else(|| "-".into(), |figure| format!("{figure:.2} {sign}"));
        let bound = if self.at_least { "at least" } else { "at most" };
        let note = self.note.as_ref().map(|note| format!("; {note}")).unwrap_or_default();
        format!("{:<8} {:<42} {figure:>9}  ({bound} {} {sign})  {outcome}{note}\n", self.promise, self.what, self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_of_at_least_is_missed_from_below() {
        assert_eq!(Verdict::at_least("S15.1", "rate", Some(3.9), 4.0).reached(), Some(false));
        assert_eq!(Verdict::at_most("S15.1", "time", Some(3.9), 4.0).reached(), Some(true));
    }

    #[test]
    fn a_verdict_says_its_figure_in_its_unit_and_what_one_should_know() {
        let verdict = Verdict::at_most("S15.3", "ten slow servers", Some(1.625), 1.5)
            .counted_in(Unit::Seconds)
            .noting(Some("the floor takes 1.01 s".to_owned()));
        let text = verdict.to_text();
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(
            words.join(" "),
            "S15.3 ten slow servers 1.62 s (at most 1.5 s) NOT reached; the floor takes 1.01 s"
        );
        let expected = json!({
            "promise": "S15.3",
            "what": "ten slow servers",
            "seconds": 1.625,
            "at_most": 1.5,
            "reached": false,
            "note": "the floor takes 1.01 s",
        });
        assert_eq!(verdict.to_json(), expected);
    }

    #[test]
    fn what_was_not_measured_says_so() {
        let text = Verdict::at_most("S15.4", "tools", None, 50.0).counted_in(Unit::Milliseconds).to_text();
        assert!(text.ends_with("(at most 50 ms)  not measured\n"), "{text}");
    }
}
