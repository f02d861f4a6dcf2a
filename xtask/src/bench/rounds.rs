//! Rounds: each contestant's reports, and their medians.

use std::collections::HashMap;
use std::hash::Hash;

use serde_json::Value;

/// Each contestant's reports, round by round; a failed run holds the reason.
pub(super) struct Rounds<K> {
    reports: HashMap<K, Vec<Result<Value, String>>>,
}

impl<K: Eq + Hash> Rounds<K> {
    pub(super) fn new() -> Self {
        Self { reports: HashMap::new() }
    }

    /// Adds one round's report.
    pub(super) fn add(&mut self, key: K, report: Result<Value, String>) {
        self.reports.entry(key).or_default().push(report);
    }

    /// Returns the median over the rounds; `None` if a round failed.
    pub(super) fn figure(&self, key: &K, name: &str) -> Option<f64> {
        median(self.figures(key, name)?)
    }

    /// Returns the median of the per-round ratios: both sides of a ratio were measured in the same
    /// minute.
    pub(super) fn ratio(&self, key: &K, other: &K, name: &str) -> Option<f64> {
        let (ours, theirs) = (self.figures(key, name)?, self.figures(other, name)?);
        median(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect())
    }

    /// Returns why a round failed.
    pub(super) fn failure(&self, key: &K) -> Option<&str> {
        self.reports.get(key)?.iter().find_map(|report| report.as_ref().err()).map(String::as_str)
    }

    fn figures(&self, key: &K, name: &str) -> Option<Vec<f64>> {
        self.reports.get(key)?.iter().map(|report| report.as_ref().ok()?[name].as_f64()).collect()
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rounds(reports: impl IntoIterator<Item = (&'static str, Result<Value, String>)>) -> Rounds<&'static str> {
        let mut rounds = Rounds::new();
        reports.into_iter().for_each(|(key, report)| rounds.add(key, report));
        rounds
    }

    #[test]
    fn a_ratio_compares_within_rounds() {
        let baseline = [5.0, 50.0, 6.0].map(|time| ("baseline", Ok(json!({ "time": time }))));
        let ours = [10.0, 100.0, 6.0].map(|time| ("ours", Ok(json!({ "time": time }))));
        assert_eq!(rounds(baseline.into_iter().chain(ours)).ratio(&"ours", &"baseline", "time"), Some(2.0));
    }

    #[test]
    fn a_failed_round_has_a_reason_and_no_figure() {
        let rounds = rounds([("ours", Ok(json!({"time": 1.0}))), ("ours", Err("it died".to_owned()))]);
        assert_eq!((rounds.figure(&"ours", "time"), rounds.failure(&"ours")), (None, Some("it died")));
    }
}
