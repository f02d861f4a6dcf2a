//! Stream events. Missing and malformed fields are empty.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use ropeway_core::loose_json::LooseJson;

/// An event with any type. Other types' fields are empty.
#[derive(serde::Deserialize)]
pub(super) struct AnthropicEvent<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: LooseText<'a>,
    #[serde(default)]
    pub(super) index: LooseNumber,
    #[serde(borrow)]
    pub(super) delta: Option<EventDelta<'a>>,
    #[serde(borrow)]
    pub(super) content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// A block's or the message's delta.
#[derive(Default, serde::Deserialize)]
pub(super) struct EventDelta<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: LooseText<'a>,
    #[serde(borrow, default)]
    pub(super) text: LooseText<'a>,
    #[serde(borrow, default)]
    pub(super) thinking: LooseText<'a>,
    #[serde(borrow, default)]
    pub(super) partial_json: LooseText<'a>,
    #[serde(borrow, default)]
    pub(super) signature: LooseText<'a>,
    #[serde(borrow)]
    pub(super) citation: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) stop_reason: LooseText<'a>,
    #[serde(borrow)]
    pub(super) stop_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) container: Option<&'a RawValue>,
}

/// The message in a `message_start` event.
#[derive(serde::Deserialize)]
pub(super) struct MessageStart<'a> {
    #[serde(borrow, default)]
    pub(super) id: LooseText<'a>,
    #[serde(borrow, default)]
    pub(super) model: LooseText<'a>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) container: Option<&'a RawValue>,
}

/// The usage so far. A missing count is unchanged.
#[derive(Default, serde::Deserialize)]
pub(super) struct UsageCounts {
    #[serde(default)]
    pub(super) input_tokens: LooseNumber,
    #[serde(default)]
    pub(super) output_tokens: LooseNumber,
    #[serde(default)]
    pub(super) cache_read_input_tokens: LooseNumber,
    #[serde(default)]
    pub(super) cache_creation_input_tokens: LooseNumber,
    pub(super) output_tokens_details: Option<OutputTokenDetails>,
}

#[derive(Default, serde::Deserialize)]
pub(super) struct OutputTokenDetails {
    #[serde(default)]
    pub(super) thinking_tokens: LooseNumber,
}

/// A refusal's details.
#[derive(Default, serde::Deserialize)]
pub(super) struct StopDetails<'a> {
    #[serde(borrow, default)]
    pub(super) category: LooseText<'a>,
    #[serde(borrow, default)]
    pub(super) explanation: LooseText<'a>,
}

/// A string, borrowed if possible. Any other value reads as an empty string.
#[derive(Default)]
pub(super) struct LooseText<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for LooseText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match LooseJson::deserialize(deserializer)? {
            LooseJson::Text(text) => Ok(Self(text)),
            LooseJson::Unsigned(_) | LooseJson::Other(_) => Ok(Self::default()),
        }
    }
}

/// A non-negative number. Any other value reads as `None`.
#[derive(Clone, Copy, Default)]
pub(super) struct LooseNumber(pub(super) Option<u64>);

impl<'de> Deserialize<'de> for LooseNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match LooseJson::deserialize(deserializer)? {
            LooseJson::Unsigned(number) => Some(number),
            LooseJson::Text(_) => None,
            LooseJson::Other(value) => value.as_f64().filter(|number| *number >= 0.0).map(|number| number as u64),
        }))
    }
}
