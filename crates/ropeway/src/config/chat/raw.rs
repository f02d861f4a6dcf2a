//! A chat, as it is written.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Unexpected, Visitor};
use serde::ser::{Serialize, Serializer};
use serde::{Deserialize as DeriveDeserialize, Serialize as DeriveSerialize};

use super::ProviderName;
use crate::config::unit::{Text, fraction};
use crate::message::ReasoningEffort;

/// Which model `ropeway chat` talks to, how, and which tools it may call.
#[derive(Clone, Debug, Default, PartialEq, DeriveSerialize, DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RawChat {
    /// Whose model it is: `claude` is another word for `anthropic`, `responses` for `openai`, `google` for `gemini`, and `chat` is anybody
    /// who speaks Chat Completions at the `base_url`. Found by the keys that are set when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<RawProvider>,
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub model: Option<String>,
    /// Where the provider is, when it is not where it usually is; `${NAME}` stands for a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<Text>,
    /// The key; `${NAME}` stands for a secret. The provider's usual variable when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Text>,
    /// What the model is told to be and to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// How long an answer may get.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_tokens: Option<u32>,
    /// How much is left to chance, from 0 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<RawTemperature>,
    /// How hard the model thinks before it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<ReasoningEffort>,
    /// How often the model is asked in one turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_steps: Option<u32>,
    /// Which tools the model may call, by patterns such as `files.read_*`: SERVER.TOOL, or the name that the model uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<RawApproval>,
}

/// Which tools a model may call, by patterns such as `files.read_*`: SERVER.TOOL, or the name that the model uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveSerialize, DeriveDeserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RawApproval {
    /// Those that it may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Those that a person is asked about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<String>,
    /// Those that it may not call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

/// Whose model it is.
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
        "RawProvider".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "enum": ProviderName::WORDS })
    }
}

/// How much is left to chance: a number from 0 to 2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RawTemperature(pub f64);

impl Serialize for RawTemperature {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for RawTemperature {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Temperatures;
        impl<'de> Visitor<'de> for Temperatures {
            type Value = RawTemperature;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number from 0 to 2")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<RawTemperature, E> {
                self.visit_f64(number as f64)
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<RawTemperature, E> {
                match (0.0..=2.0).contains(&number) {
                    true => Ok(RawTemperature(number)),
                    false => Err(E::invalid_value(Unexpected::Float(number), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawTemperature, A::Error> {
                match fraction(map) {
                    Some(number) => self.visit_f64(number),
                    None => Err(de::Error::invalid_type(Unexpected::Map, &self)),
                }
            }
        }
        deserializer.deserialize_any(Temperatures)
    }
}

impl JsonSchema for RawTemperature {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "RawTemperature".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0, "maximum": 2 })
    }
}
