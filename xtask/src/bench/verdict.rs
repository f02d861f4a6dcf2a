//! A verdict: a promise of speed, and whether it was kept.

use serde_json::{Value, json};

/// A promise of speed, and whether it was kept.
pub(super) struct Verdict {
    promise: &'static str,
    what: &'static str,
    ratio: Option<f64>,
    limit: f64,
    at_least: bool,
}

impl Verdict {
    pub(super) fn at_most(promise: &'static str, what: &'static str, ratio: Option<f64>, limit: f64) -> Self {
        Self { promise, what, ratio, limit, at_least: false }
    }

    pub(super) fn at_least(promise: &'static str, what: &'static str, ratio: Option<f64>, limit: f64) -> Self {
        Self { promise, what, ratio, limit, at_least: true }
    }

    pub(super) fn reached(&self) -> Option<bool> {
        self.ratio.map(|ratio| if self.at_least { ratio >= self.limit } else { ratio <= self.limit })
    }

    pub(super) fn to_json(&self) -> Value {
        let bound = if self.at_least { "at_least" } else { "at_most" };
        json!({"promise": self.promise, "what": self.what, "ratio": self.ratio, bound: self.limit, "reached": self.reached()})
    }

    pub(super) fn to_text(&self) -> String {
        let outcome = match self.reached() {
            Some(true) => "reached",
            Some(false) => "NOT reached",
            None => "not measured",
        };
        let ratio = self.ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2} ×"));
        let bound = if self.at_least { "at least" } else { "at most" };
        format!("{:<8} {:<42} {ratio:>8}  ({bound} {} ×)  {outcome}\n", self.promise, self.what, self.limit)
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
}
