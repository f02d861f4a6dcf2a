//! A reply's cost, as reported by the provider.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Ticks per US dollar, as xAI counts them: <https://docs.x.ai/developers/cost-tracking>.
const TICKS: u64 = 10_000_000_000;

/// A US dollar amount that a provider reports as charged. It is never estimated.
///
/// Amounts are exact to 10⁻¹⁰ dollars, and add up without rounding errors. In JSON, an amount is a number in dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost {
    ticks: u64,
}

impl Cost {
    /// Creates an amount in US dollars, or returns `None` if it is negative or not finite.
    pub fn from_usd(dollars: f64) -> Option<Self> {
        let is_amount = dollars.is_finite() && dollars >= 0.0;
        is_amount.then(|| Self { ticks: (dollars * TICKS as f64).round() as u64 })
    }

    /// Returns the amount in US dollars.
    pub fn as_usd(self) -> f64 {
        self.ticks as f64 / TICKS as f64
    }

    /// Reads the cost from a provider's `usage` object.
    ///
    /// OpenRouter sends `cost` (<https://openrouter.ai/docs/use-cases/usage-accounting>), Perplexity `cost.total_cost`, and xAI
    /// `cost_in_usd_ticks`.
    pub(super) fn of_usage(usage: &Value) -> Option<Self> {
        if let Some(ticks) = usage.get("cost_in_usd_ticks").and_then(Value::as_u64) {
            return Some(Self { ticks });
        }
        let cost = usage.get("cost")?;
        cost.as_f64().or_else(|| cost.get("total_cost")?.as_f64()).and_then(Self::from_usd)
    }
}

impl std::ops::Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { ticks: self.ticks.saturating_add(other.ticks) }
    }
}

impl fmt::Display for Cost {
    /// Writes `$1.25`, or two significant digits for less than a cent: `$0.00042`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cent = TICKS / 100;
        if self.ticks == 0 || self.ticks >= cent {
            return write!(f, "${:.2}", self.as_usd());
        }
        // One tick is the tenth decimal place.
        let places = (11 - self.ticks.ilog10() as usize).min(10);
        let digits = format!("{:.places$}", self.as_usd());
        write!(f, "${}", digits.trim_end_matches('0'))
    }
}

impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_usd())
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let dollars = f64::deserialize(deserializer)?;
        Self::from_usd(dollars).ok_or_else(|| serde::de::Error::custom("a cost is a number of dollars"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn costs_are_read_in_the_forms_of_all_providers() {
        let read = |usage: Value| Cost::of_usage(&usage).map(|cost| cost.to_string());
        let openrouter = json!({"prompt_tokens": 194, "cost": 0.95, "cost_details": {"upstream_inference_cost": 19}});
        for (usage, expected) in [
            (openrouter, Some("$0.95")),
            (json!({"cost_in_usd_ticks": 37_756_000}), Some("$0.0038")),
            (json!({"cost": {"input_tokens_cost": 0.001, "total_cost": 0.006}}), Some("$0.006")),
            (json!({"cost": 0}), Some("$0.00")),
            (json!({"cost": 4.2e-4}), Some("$0.00042")),
            (json!({"cost": 1e-10}), Some("$0.0000000001")),
            (json!({"cost": 1e300}), Some("$1844674407.37")),
            (json!({"cost": -1}), None),
            (json!({"cost": "much"}), None),
            (json!({"cost": null}), None),
            (json!({"prompt_tokens": 194}), None),
        ] {
            assert_eq!(read(usage.clone()).as_deref(), expected, "{usage}");
        }
    }

    #[test]
    fn costs_add_up_without_rounding_errors() {
        let tenth = Cost::from_usd(0.1).expect("an amount");
        let all = (0..10).fold(Cost::default(), |sum, _| sum + tenth);
        assert_eq!(all.to_string(), "$1.00");
        assert_eq!(serde_json::to_value(all).expect("JSON"), json!(1.0));
        assert_eq!(serde_json::from_value::<Cost>(json!(0.1)).expect("an amount"), tenth);
        assert!(serde_json::from_value::<Cost>(json!(-1)).is_err());
        assert_eq!([f64::NAN, f64::INFINITY, -0.5].map(Cost::from_usd), [None; 3]);
    }
}
