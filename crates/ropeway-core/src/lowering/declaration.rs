//! A tool's declaration in a request.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use super::cow_value::CowObject;
use crate::message::Dialect;

/// A tool's declaration in a request.
pub(super) struct Declaration<'a> {
    pub(super) dialect: Dialect,
    pub(super) name: &'a str,
    pub(super) description: Option<&'a str>,
    pub(super) schema: &'a CowObject<'a>,
    /// Whether the provider enforces the schema; `None` if the definition does not specify it.
    pub(super) strict: Option<bool>,
    /// The definition's provider options.
    pub(super) options: &'a Map<String, Value>,
}

/// Returns `true` for fields that options cannot override.
pub(super) fn is_reserved(name: &str, dialect: Dialect) -> bool {
    match name {
        "name" | "parameters" | "input_schema" | "parametersJsonSchema" | "strict" => true,
        // Anthropic's server tools are declared with the same fields.
        "type" | "function" => dialect != Dialect::Anthropic,
        _ => false,
    }
}

/// What lowering does with a provider option.
pub(super) enum OptionUse {
    Sent,
    /// It is sent, but the vendor's reference does not list it.
    Unknown,
    /// It is not sent, for this reason.
    Refused(&'static str),
}

/// Returns what lowering does with an option.
///
/// Known options are those in the vendors' references: <https://docs.claude.com/en/api/messages#body-tools>,
/// <https://platform.openai.com/docs/api-reference/responses/create#responses-create-tools> and
/// <https://ai.google.dev/api/caching#FunctionDeclaration>.
pub(super) fn option_use(name: &str, dialect: Dialect) -> OptionUse {
    let known: &[&str] = match dialect {
        Dialect::Anthropic => &[
            "description",
            "type",
            "strict",
            "cache_control",
            "defer_loading",
            "allowed_callers",
            "input_examples",
            "eager_input_streaming",
        ],
        Dialect::Responses => &["description", "strict", "defer_loading"],
        Dialect::Chat => &["description", "strict"],
        Dialect::Gemini => &["description", "behavior", "response", "responseJsonSchema"],
    };
    match name {
        _ if known.contains(&name) => OptionUse::Sent,
        "grounding" if dialect == Dialect::Gemini => {
            OptionUse::Refused("function declarations do not support grounding")
        }
        "strict" => OptionUse::Refused("the provider does not support it"),
        _ if is_reserved(name, dialect) => OptionUse::Refused("it is set by the definition of the tool"),
        _ => OptionUse::Unknown,
    }
}

impl Serialize for Declaration<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self.dialect {
            Dialect::Chat => {
                map.serialize_entry("type", "function")?;
                map.serialize_entry("function", &Fields(self))?;
            }
            Dialect::Responses => {
                map.serialize_entry("type", "function")?;
                Fields(self).write(&mut map)?;
            }
            Dialect::Anthropic | Dialect::Gemini => Fields(self).write(&mut map)?,
        }
        map.end()
    }
}

/// The function's fields.
struct Fields<'a>(&'a Declaration<'a>);

impl Fields<'_> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let Declaration { dialect, name, description, schema, strict, options } = *self.0;
        map.serialize_entry("name", name)?;
        if let Some(description) = description.filter(|_| !options.contains_key("description")) {
            map.serialize_entry("description", description)?;
        }
        let (key, strict) = match dialect {
            Dialect::Anthropic => ("input_schema", strict),
            // The Responses API defaults to `true`.
            Dialect::Responses => ("parameters", Some(strict.unwrap_or(false))),
            Dialect::Chat => ("parameters", strict),
            Dialect::Gemini => ("parametersJsonSchema", None),
        };
        map.serialize_entry(key, schema)?;
        if let Some(strict) = strict {
            map.serialize_entry("strict", &strict)?;
        }
        for (key, value) in options
            .iter()
            .filter(|(key, _)| !is_reserved(key, dialect) && !matches!(option_use(key, dialect), OptionUse::Refused(_)))
        {
            map.serialize_entry(key, value)?;
        }
        Ok(())
    }
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.write(&mut map)?;
        map.end()
    }
}
