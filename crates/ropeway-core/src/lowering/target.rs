//! The JSON Schema subset that a dialect accepts, with and without strict mode.

use serde_json::Value;

use super::name::NameRules;
use super::pattern;
use crate::message::Dialect;

/// The JSON Schema subset that a dialect accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaTarget {
    /// Everything, except for restrictions on the root.
    Anthropic,
    /// Everything, except for restrictions on the root, and for open arrays and objects. Used for all Chat Completions
    /// servers.
    OpenAi,
    /// A keyword list.
    Gemini,
    /// A subset that compiles to a grammar; arguments may be optional.
    StrictAnthropic,
    /// A subset that compiles to a grammar; all arguments are required, and `null` if they are left out.
    StrictOpenAi,
}

/// What lowering does with a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeywordAction {
    Keep,
    Describe,
    Drop,
}

/// String formats that Anthropic enforces.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];

impl SchemaTarget {
    pub(super) fn of(dialect: Dialect, strict: bool) -> Self {
        match (dialect, strict) {
            (Dialect::Anthropic, false) => Self::Anthropic,
            (Dialect::Anthropic, true) => Self::StrictAnthropic,
            (Dialect::Responses | Dialect::Chat, false) => Self::OpenAi,
            (Dialect::Responses | Dialect::Chat, true) => Self::StrictOpenAi,
            (Dialect::Gemini, _) => Self::Gemini,
        }
    }

    /// Returns `true` if the provider enforces the schema.
    pub(super) fn is_strict(self) -> bool {
        matches!(self, Self::StrictAnthropic | Self::StrictOpenAi)
    }

    /// Returns `true` if nearly all of JSON Schema is accepted.
    pub(super) fn is_lenient(self) -> bool {
        matches!(self, Self::Anthropic | Self::OpenAi)
    }

    /// Returns `true` if `allOf` is accepted below the root.
    pub(super) fn takes_all_of(self) -> bool {
        self == Self::Anthropic
    }

    /// Returns `true` if alternatives may have sibling keywords.
    pub(super) fn takes_beside_alternatives(self) -> bool {
        self.is_lenient()
    }

    /// Returns `true` if arrays must declare `items`.
    pub(super) fn wants_items(self) -> bool {
        self != Self::Anthropic
    }

    /// Returns `true` if objects must declare `properties`.
    pub(super) fn wants_properties(self) -> bool {
        matches!(self, Self::OpenAi | Self::StrictOpenAi | Self::StrictAnthropic)
    }

    /// Returns the rules for argument names, if the target has any.
    pub(super) fn name_rules(self) -> Option<&'static NameRules> {
        match self {
            Self::Anthropic | Self::StrictAnthropic => NameRules::of_arguments(Dialect::Anthropic),
            Self::OpenAi | Self::StrictOpenAi => NameRules::of_arguments(Dialect::Chat),
            Self::Gemini => NameRules::of_arguments(Dialect::Gemini),
        }
    }

    /// Returns the action for a keyword without subschemas.
    pub(super) fn action(self, keyword: &str) -> KeywordAction {
        match (keyword, self) {
            (_, Self::Anthropic | Self::OpenAi) => KeywordAction::Keep,
            ("title" | "readOnly" | "writeOnly", _) => KeywordAction::Drop,
            ("minimum" | "maximum" | "minItems" | "maxItems", Self::Gemini | Self::StrictOpenAi) => KeywordAction::Keep,
            ("exclusiveMinimum" | "exclusiveMaximum" | "multipleOf", Self::StrictOpenAi) => KeywordAction::Keep,
            ("minLength" | "maxLength", Self::StrictOpenAi) => KeywordAction::Keep,
            _ => KeywordAction::Describe,
        }
    }

    /// Returns `true` if a count is accepted. Only Anthropic restricts its value.
    pub(super) fn takes_count(self, keyword: &str, count: &Value) -> bool {
        self == Self::StrictAnthropic && keyword == "minItems" && count.as_u64().is_some_and(|count| count <= 1)
    }

    /// Returns `true` if a string format is accepted.
    pub(super) fn takes_format(self, format: &str) -> bool {
        match self {
            Self::Anthropic | Self::OpenAi => true,
            Self::Gemini => matches!(format, "date-time" | "date" | "time"),
            Self::StrictAnthropic => FORMATS.contains(&format),
            Self::StrictOpenAi => format != "uri" && FORMATS.contains(&format),
        }
    }

    /// Returns `true` if a regular expression is accepted.
    ///
    /// Some Chat Completions servers compile patterns to a grammar and reject the whole request if they cannot, so this
    /// is stricter than OpenAI itself.
    pub(super) fn takes_pattern(self, text: &str) -> bool {
        match self {
            Self::Gemini | Self::StrictAnthropic => false,
            Self::Anthropic | Self::OpenAi | Self::StrictOpenAi => {
                pattern::is_anchored(text) && pattern::is_portable(text)
            }
        }
    }
}
