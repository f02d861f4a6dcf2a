//! A dialect: the protocol that a model is spoken to in.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The protocol that a model is spoken to in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Dialect {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Responses.
    Responses,
    /// Gemini generateContent.
    Gemini,
    /// Chat Completions, which nearly everybody else speaks.
    Chat,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::Responses, Self::Gemini, Self::Chat];

    /// Its name in settings and files.
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

/// A name that is no dialect's.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a dialect: it is one of anthropic, responses, gemini and chat")]
pub struct UnknownDialectError(String);

impl std::str::FromStr for Dialect {
    type Err = UnknownDialectError;

    fn from_str(name: &str) -> Result<Self, UnknownDialectError> {
        let found = Self::ALL.into_iter().find(|dialect| dialect.as_str() == name);
        found.ok_or_else(|| UnknownDialectError(name.to_owned()))
    }
}
