//! What a client saw in a check.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// A check's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    Failed,
    /// The client cannot do this.
    Unsupported,
    /// The protocol has no such thing in this era or on this transport.
    Absent,
}

impl Outcome {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "ok" => Some(Self::Ok),
            "failed" => Some(Self::Failed),
            "unsupported" => Some(Self::Unsupported),
            "none" => Some(Self::Absent),
            _ => None,
        }
    }

    /// Returns `true` if this is worse than the outcome without the gateway.
    pub fn is_worse_than(self, direct: Self) -> bool {
        matches!((direct, self), (Self::Ok, Self::Failed | Self::Unsupported) | (Self::Unsupported, Self::Failed))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Unsupported => "unsupported",
            Self::Absent => "absent",
        })
    }
}

/// An outcome with a reason or what was seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub outcome: Outcome,
    pub detail: String,
}

impl Seen {
    pub fn new(outcome: Outcome, detail: impl Into<String>) -> Self {
        Self { outcome, detail: detail.into() }
    }

    /// Returns a failed check for an error.
    pub fn of(done: Result<(), String>) -> Self {
        match done {
            Ok(()) => Self::new(Outcome::Ok, ""),
            Err(reason) => Self::new(Outcome::Failed, reason),
        }
    }
}

/// One client's outcomes, by check.
pub type Outcomes = BTreeMap<String, Seen>;

/// Parses a client's lines, one per check. A check without a line has failed.
pub fn parse(said: &str, checks: &Value) -> Outcomes {
    let lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut outcomes = Outcomes::new();
    for line in lines {
        let word = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        if let Some(outcome) = Outcome::parse(&word("outcome")) {
            outcomes.insert(word("check"), Seen::new(outcome, word("detail")));
        }
    }
    let connected = outcomes.get("connect").cloned();
    let reason = match &connected {
        Some(seen) if seen.outcome == Outcome::Ok => "the client ended before the check".to_owned(),
        Some(seen) => format!("could not connect: {}", seen.detail),
        None => "the client ended before it connected".to_owned(),
    };
    for check in checks.as_object().into_iter().flatten().map(|(name, _)| name) {
        outcomes.entry(check.clone()).or_insert_with(|| Seen::new(Outcome::Failed, reason.clone()));
    }
    outcomes.retain(|check, _| checks.get(check).is_some());
    outcomes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_check_without_a_line_has_failed() {
        let said = "noise\n{\"check\":\"connect\",\"outcome\":\"ok\"}\n{\"check\":\"a\",\"outcome\":\"none\"}";
        let outcomes = parse(said, &json!({ "a": {}, "b": {} }));
        assert_eq!(outcomes["a"].outcome, Outcome::Absent);
        assert_eq!(outcomes["b"], Seen::new(Outcome::Failed, "the client ended before the check"));
        assert_eq!(outcomes.len(), 2);
    }

    #[test]
    fn only_what_was_better_without_the_gateway_is_worse() {
        use Outcome::{Absent, Failed, Ok, Unsupported};
        assert!(Failed.is_worse_than(Ok) && Unsupported.is_worse_than(Ok) && Failed.is_worse_than(Unsupported));
        assert!(!Failed.is_worse_than(Failed) && !Absent.is_worse_than(Ok) && !Ok.is_worse_than(Failed));
    }
}
