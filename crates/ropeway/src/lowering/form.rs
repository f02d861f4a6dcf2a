//! A form: what a dialect takes of JSON Schema, and what it takes when it holds the model to it.

use serde_json::Value;

use super::name::Alphabet;
use super::pattern;
use crate::message::Dialect;

/// What a dialect takes of JSON Schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// All of JSON Schema, but for its root.
    Anthropic,
    /// All of JSON Schema, but for its root, and arrays and objects that leave everything open. Whoever speaks Chat.
    OpenAi,
    /// A list of keywords.
    Gemini,
    /// What can be compiled to a grammar; optional arguments stay optional.
    StrictAnthropic,
    /// What can be compiled to a grammar; every argument is there, if need be as `null`.
    StrictOpenAi,
}

/// What becomes of a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Keep,
    Describe,
    Drop,
}

/// Strings that Anthropic can hold a model to.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];

impl Form {
    pub(super) fn of(dialect: Dialect, strict: bool) -> Self {
        match (dialect, strict) {
            (Dialect::Anthropic, false) => Self::Anthropic,
            (Dialect::Anthropic, true) => Self::StrictAnthropic,
            (Dialect::Responses | Dialect::Chat, false) => Self::OpenAi,
            (Dialect::Responses | Dialect::Chat, true) => Self::StrictOpenAi,
            (Dialect::Gemini, _) => Self::Gemini,
        }
    }

    /// Is the model held to the schema?
    pub(super) fn is_strict(self) -> bool {
        matches!(self, Self::StrictAnthropic | Self::StrictOpenAi)
    }

    /// Does it take nearly all of JSON Schema?
    pub(super) fn is_lenient(self) -> bool {
        matches!(self, Self::Anthropic | Self::OpenAi)
    }

    /// Does it take `allOf` below the root?
    pub(super) fn takes_all_of(self) -> bool {
        self == Self::Anthropic
    }

    /// Does it take other keywords beside alternatives?
    pub(super) fn takes_beside_alternatives(self) -> bool {
        self.is_lenient()
    }

    /// Must an array say what it is made of?
    pub(super) fn wants_items(self) -> bool {
        self != Self::Anthropic
    }

    /// Must an object list its properties?
    pub(super) fn wants_properties(self) -> bool {
        matches!(self, Self::OpenAi | Self::StrictOpenAi | Self::StrictAnthropic)
    }

    /// What arguments may be called.
    pub(super) fn alphabet(self) -> Option<&'static Alphabet> {
        match self {
            Self::Anthropic | Self::StrictAnthropic => Alphabet::of_arguments(Dialect::Anthropic),
            Self::OpenAi | Self::StrictOpenAi => Alphabet::of_arguments(Dialect::Chat),
            Self::Gemini => Alphabet::of_arguments(Dialect::Gemini),
        }
    }

    /// What becomes of a keyword that has no schema inside.
    pub(super) fn fate(self, keyword: &str) -> Fate {
        match (keyword, self) {
            (_, Self::Anthropic | Self::OpenAi) => Fate::Keep,
            ("title" | "readOnly" | "writeOnly", _) => Fate::Drop,
            ("minimum" | "maximum" | "minItems" | "maxItems", Self::Gemini | Self::StrictOpenAi) => Fate::Keep,
            ("exclusiveMinimum" | "exclusiveMaximum" | "multipleOf", Self::StrictOpenAi) => Fate::Keep,
            ("minLength" | "maxLength", Self::StrictOpenAi) => Fate::Keep,
            _ => Fate::Describe,
        }
    }

    /// Does it take a count as it is? Only Anthropic looks at the number.
    pub(super) fn takes_count(self, keyword: &str, count: &Value) -> bool {
        self == Self::StrictAnthropic && keyword == "minItems" && count.as_u64().is_some_and(|count| count <= 1)
    }

    /// Does it take this format?
    pub(super) fn takes_format(self, format: &str) -> bool {
        match self {
            Self::Anthropic | Self::OpenAi => true,
            Self::Gemini => matches!(format, "date-time" | "date" | "time"),
            Self::StrictAnthropic => FORMATS.contains(&format),
            Self::StrictOpenAi => format != "uri" && FORMATS.contains(&format),
        }
    }

    /// Does it take this regular expression?
    ///
    /// Also where the provider itself takes any, others that speak its dialect compile them to a grammar, and refuse the whole
    /// request for one that they cannot compile.
    pub(super) fn takes_pattern(self, text: &str) -> bool {
        match self {
            Self::Gemini | Self::StrictAnthropic => false,
            Self::Anthropic | Self::OpenAi | Self::StrictOpenAi => pattern::is_whole(text) && pattern::is_plain(text),
        }
    }
}
