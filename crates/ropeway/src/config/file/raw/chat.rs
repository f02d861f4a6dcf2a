//! The settings of `ropeway chat`, key for key.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Unexpected, Visitor};
use serde::ser::{Serialize, Serializer};
use serde::{Deserialize as DeriveDeserialize, Serialize as DeriveSerialize};

use super::values::{RawText, decode_number};
use crate::config::settings::ProviderName;
use crate::message::ReasoningEffort;

/// The model that `ropeway chat` uses, and the tools that it may call.
#[derive(Clone, Debug, Default, PartialEq, DeriveSerialize, DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Chat")]
#[non_exhaustive]
pub struct RawChat {
    /// The model provider. `claude` is an alias of `anthropic`, `responses` of `openai` and `google` of `gemini`; `chat` is any Chat
    /// Completions endpoint at `base_url`. Defaults to the first provider whose API key is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<RawProvider>,
    /// The model identifier. Defaults to the default model of the provider, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub model: Option<String>,
    /// The base URL of the API, if it is not the default of the provider. `${NAME}` is replaced by the value of a secret or variable.
    /// Example: `http://127.0.0.1:8080/v1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<RawText>,
    /// The API key. `${NAME}` is replaced by the value of a secret or variable. Defaults to the provider's usual environment variable,
    /// such as `ANTHROPIC_API_KEY`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<RawText>,
    /// The system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Maximum tokens of one reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_tokens: Option<u32>,
    /// Sampling temperature, from 0 to 2. Defaults to that of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<RawTemperature>,
    /// Reasoning effort. Defaults to that of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<ReasoningEffort>,
    /// Maximum model requests per turn. Defaults to 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_steps: Option<u32>,
    /// The tools that the model may call with or without approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<RawApproval>,
}

/// The tools that the model may call, by patterns: `SERVER.TOOL` such as `files.read_*`, or the name shown to the model. `deny`
/// takes precedence over `ask`, and `ask` over `allow`.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveSerialize, DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ToolApproval")]
#[non_exhaustive]
pub struct RawApproval {
    /// Tools that are called without asking. Example: `["files.read_*"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Tools that require approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<String>,
    /// Tools that are never called. Example: `["*.delete_*"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

/// A model provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawProvider(pub ProviderName);

impl Serialize for RawProvider {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str())
    }
}

impl<'de> Deserialize<'de> for RawProvider {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        word.parse().map(Self).map_err(|_| de::Error::unknown_variant(&word, &ProviderName::WORDS))
    }
}

impl JsonSchema for RawProvider {
    fn schema_name() -> Cow<'static, str> {
        "Provider".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "enum": ProviderName::WORDS })
    }
}

/// A sampling temperature from 0 to 2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RawTemperature(pub f64);

impl Serialize for RawTemperature {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for RawTemperature {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TemperatureVisitor;
        impl<'de> Visitor<'de> for TemperatureVisitor {
            type Value = RawTemperature;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number from 0 to 2")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<RawTemperature, E> {
                self.visit_f64(number as f64)
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<RawTemperature, E> {
                if (0.0..=2.0).contains(&number) {
                    Ok(RawTemperature(number))
                } else {
                    Err(E::invalid_value(Unexpected::Float(number), &self))
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawTemperature, A::Error> {
                match decode_number(map) {
                    Some(number) => self.visit_f64(number),
                    None => Err(de::Error::invalid_type(Unexpected::Map, &self)),
                }
            }
        }
        deserializer.deserialize_any(TemperatureVisitor)
    }
}

impl JsonSchema for RawTemperature {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Temperature".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0, "maximum": 2 })
    }
}
