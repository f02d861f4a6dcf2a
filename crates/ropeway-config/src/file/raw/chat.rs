//! The settings of `ropeway chat`, key for key.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize as DeriveSerialize;
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

use super::values::{RawText, inline_schema, record, scalar};
use crate::settings::ProviderName;
use ropeway_core::message::ReasoningEffort;

record! {
    /// The model that `ropeway chat` uses, and the tools that it may call.
    #[schemars(rename = "Chat")]
    pub struct RawChat {
        /// The model provider. `claude` is an alias of `anthropic`, `responses` of `openai` and `google` of `gemini`; `chat` is any Chat
        /// Completions endpoint at `base_url`. Defaults to the first provider whose API key is set.
        pub provider: Option<RawProvider>,
        /// The model identifier. Defaults to the default model of the provider, if it has one.
        #[schemars(length(min = 1))]
        pub model: Option<String>,
        /// The base URL of the API, if it is not the default of the provider. `${NAME}` is replaced by the value of a secret or variable.
        /// Example: `http://127.0.0.1:8080/v1`.
        pub base_url: Option<RawText>,
        /// The API key. `${NAME}` is replaced by the value of a secret or variable. Defaults to the provider's usual environment variable,
        /// such as `ANTHROPIC_API_KEY`.
        pub key: Option<RawText>,
        /// The system prompt.
        pub system: Option<String>,
        /// Maximum tokens of one reply.
        #[schemars(range(min = 1))]
        pub max_tokens: Option<u32>,
        /// Sampling temperature, from 0 to 2. Defaults to that of the provider.
        pub temperature: Option<RawTemperature>,
        /// Reasoning effort. Defaults to that of the model.
        pub effort: Option<ReasoningEffort>,
        /// Maximum model requests per turn. Defaults to 50.
        #[schemars(range(min = 1))]
        pub max_steps: Option<u32>,
        /// The tools that the model may call with or without approval.
        pub tools: Option<RawApproval>,
    }
}

record! {
    /// The tools that the model may call, by patterns: `SERVER.TOOL` such as `files.read_*`, or the name shown to the model. `deny`
    /// takes precedence over `ask`, and `ask` over `allow`.
    #[derive(Eq)]
    #[serde(default)]
    #[schemars(rename = "ToolApproval")]
    pub struct RawApproval {
        /// Tools that are called without asking. Example: `["files.read_*"]`.
        pub allow: Vec<String>,
        /// Tools that require approval.
        pub ask: Vec<String>,
        /// Tools that are never called. Example: `["*.delete_*"]`.
        pub deny: Vec<String>,
    }
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
#[derive(Clone, Copy, Debug, PartialEq, DeriveSerialize)]
#[serde(transparent)]
pub struct RawTemperature(pub f64);

impl<'de> Deserialize<'de> for RawTemperature {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let in_range = |number| (0.0..=2.0).contains(&number).then_some(Self(number));
        scalar(deserializer, "a number from 0 to 2", |_| None, in_range)
    }
}

inline_schema!(RawTemperature, "Temperature", { "type": "number", "minimum": 0, "maximum": 2 });
