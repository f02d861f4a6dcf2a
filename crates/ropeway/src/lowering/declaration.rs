//! A declaration: one tool as it stands in a request.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use super::written::Object;
use crate::message::Dialect;

/// One tool as it stands in a request.
pub(super) struct Declaration<'a> {
    pub(super) dialect: Dialect,
    pub(super) name: &'a str,
    pub(super) description: Option<&'a str>,
    pub(super) schema: &'a Object<'a>,
    /// Is the model held to the schema? Where nothing is said, nobody asked.
    pub(super) strict: Option<bool>,
    /// What the definition says to this provider.
    pub(super) options: &'a Map<String, Value>,
}

/// What only we may say, whatever the options are.
pub(super) fn is_ours(name: &str, dialect: Dialect) -> bool {
    match name {
        "name" | "parameters" | "input_schema" | "parametersJsonSchema" | "strict" => true,
        // Only one dialect has kinds of tools that are declared in the same way.
        "type" | "function" => dialect != Dialect::Anthropic,
        _ => false,
    }
}

/// Whether an option is written into a declaration.
pub(super) enum OptionUse {
    /// It is.
    Sent,
    /// It is, and the vendor's reference does not list it.
    Unknown,
    /// It is not, for this reason.
    Refused(&'static str),
}

/// Returns what becomes of an option.
///
/// The known ones are those of the vendors' references:
/// <https://docs.claude.com/en/api/messages#body-tools>,
/// <https://platform.openai.com/docs/api-reference/responses/create#responses-create-tools> and
/// <https://ai.google.dev/api/caching#FunctionDeclaration>.
pub(super) fn option(name: &str, dialect: Dialect) -> OptionUse {
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
        "grounding" if dialect == Dialect::Gemini => OptionUse::Refused("functions have no grounding"),
        "strict" => OptionUse::Refused("the provider has no such option"),
        _ if is_ours(name, dialect) => OptionUse::Refused("it is set by the definition of the tool"),
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

/// What is said of the function itself.
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
            // What is not said means true there.
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
            .filter(|(key, _)| !is_ours(key, dialect) && !matches!(option(key, dialect), OptionUse::Refused(_)))
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
