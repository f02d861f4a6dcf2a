//! Dialects: model provider protocols.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::parse_error::ParseError;

/// A model provider's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// Anthropic Messages (<https://docs.anthropic.com/en/api/messages>).
    Anthropic,
    /// OpenAI Responses (<https://platform.openai.com/docs/api-reference/responses>).
    Responses,
    /// Gemini `generateContent` (<https://ai.google.dev/api/generate-content>).
    Gemini,
    /// Chat Completions, which most other providers support (<https://platform.openai.com/docs/api-reference/chat>).
    Chat,
}

impl Dialect {
    /// All dialects.
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::Responses, Self::Gemini, Self::Chat];

    /// Returns the name in settings and files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Responses => "responses",
            Self::Gemini => "gemini",
            Self::Chat => "chat",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Dialect {
    type Err = ParseError;

    fn from_str(name: &str) -> Result<Self, ParseError> {
        let found = Self::ALL.into_iter().find(|dialect| dialect.as_str() == name);
        let names = Self::ALL.map(|dialect| format!("`{dialect}`")).join(", ");
        found.ok_or_else(|| ParseError::new(format!("unknown dialect `{name}`, expected one of {names}")))
    }
}
