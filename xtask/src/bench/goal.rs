//! Performance goals, and whether they were reached.

use serde_json::{Value, json};

/// A figure's unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A ratio.
    Times,
    Seconds,
    Milliseconds,
    Microseconds,
    Megabytes,
    Kibibytes,
}

impl Unit {
    fn sign(self) -> &'static str {
        match self {
            Self::Times => "×",
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::Microseconds => "µs",
            Self::Megabytes => "MB",
            Self::Kibibytes => "KiB",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Self::Times => "ratio",
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
            Self::Microseconds => "microseconds",
            Self::Megabytes => "megabytes",
            Self::Kibibytes => "kibibytes",
        }
    }
}

/// A performance goal, and whether it was reached.
pub(super) struct Goal {
    promise: &'static str,
    what: &'static str,
    figure: Option<f64>,
    unit: Unit,
    limit: f64,
    at_least: bool,
    note: Option<String>,
}

impl Goal {
    pub(super) fn at_most(promise: &'static str, what: &'static str, figure: Option<f64>, limit: f64) -> Self {
        Self { promise, what, figure, unit: Unit::Times, limit, at_least: false, note: None }
    }

    pub(super) fn at_least(promise: &'static str, what: &'static str, figure: Option<f64>, limit: f64) -> Self {
        Self { at_least: true, ..Self::at_most(promise, what, figure, limit) }
    }

    /// Sets the unit for the figure and its limit.
    pub(super) fn with_unit(self, unit: Unit) -> Self {
        Self { unit, ..self }
    }

    /// Adds a note.
    pub(super) fn with_note(self, note: Option<String>) -> Self {
        Self { note, ..self }
    }

    pub(super) fn reached(&self) -> Option<bool> {
        self.figure.map(|figure| if self.at_least { figure >= self.limit } else { figure <= self.limit })
    }

    pub(super) fn to_json(&self) -> Value {
        let bound = if self.at_least { "at_least" } else { "at_most" };
        let mut goal = json!({
            "promise": self.promise,
            "what": self.what,
            self.unit.key(): self.figure,
            bound: self.limit,
            "reached": self.reached(),
        });
        if let Some(note) = &self.note {
            goal["note"] = json!(note);
        }
        goal
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
        // Two digits, and no zeros at the end.
        let limit = (self.limit * 100.0).round() / 100.0;
        format!("{:<8} {:<42} {figure:>9}  ({bound} {limit} {sign})  {outcome}{note}\n", self.promise, self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_is_missed_from_below() {
        assert_eq!(Goal::at_least("S15.1", "rate", Some(3.9), 4.0).reached(), Some(false));
        assert_eq!(Goal::at_most("S15.1", "time", Some(3.9), 4.0).reached(), Some(true));
    }

    #[test]
    fn a_goal_shows_its_figure_unit_and_note() {
        let goal = Goal::at_most("S15.3", "ten slow servers", Some(1.625), 1.5)
            .with_unit(Unit::Seconds)
            .with_note(Some("the baseline takes 1.01 s".to_owned()));
        let text = goal.to_text();
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(
            words.join(" "),
            "S15.3 ten slow servers 1.62 s (at most 1.5 s) NOT reached; the baseline takes 1.01 s"
        );
        let expected = json!({
            "promise": "S15.3",
            "what": "ten slow servers",
            "seconds": 1.625,
            "at_most": 1.5,
            "reached": false,
            "note": "the baseline takes 1.01 s",
        });
        assert_eq!(goal.to_json(), expected);
    }

    #[test]
    fn a_goal_without_a_figure_is_not_measured() {
        let text = Goal::at_most("S15.4", "tools", None, 50.0).with_unit(Unit::Milliseconds).to_text();
        assert!(text.ends_with("(at most 50 ms)  not measured\n"), "{text}");
    }
}
