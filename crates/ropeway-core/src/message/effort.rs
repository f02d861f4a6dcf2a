//! Reasoning effort.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much a model reasons before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningEffort {
    /// No reasoning, if the model allows it.
    Off,
    /// Minimal reasoning.
    Minimal,
    /// Little reasoning.
    Low,
    /// Default reasoning of most models.
    Medium,
    /// Much reasoning.
    High,
    /// Maximum reasoning of the model.
    Max,
}

impl ReasoningEffort {
    /// All values, from least to most.
    pub const ALL: [Self; 6] = [Self::Off, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::Max];

    /// Returns the name in settings and files.
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
    fn an_effort_serializes_as_its_name() {
        for effort in ReasoningEffort::ALL {
            assert_eq!(serde_json::to_value(effort).expect("a value"), effort.as_str());
        }
    }
}
