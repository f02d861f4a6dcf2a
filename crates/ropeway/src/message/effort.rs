//! An effort: how hard a model thinks before it answers.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How hard a model thinks before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ReasoningEffort {
    /// Not at all, where that is possible.
    Off,
    /// Hardly.
    Minimal,
    /// A little.
    Low,
    /// As usual.
    Medium,
    /// A lot.
    High,
    /// As much as it can.
    Max,
}

impl ReasoningEffort {
    /// All of them, the least first.
    pub const ALL: [Self; 6] = [Self::Off, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::Max];

    /// Its name in settings and files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Max => "max",
        }
    }
}

impl fmt::Display for ReasoningEffort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effort_has_one_name_everywhere() {
        for effort in ReasoningEffort::ALL {
            assert_eq!(serde_json::to_value(effort).expect("a value"), effort.as_str());
        }
    }
}
