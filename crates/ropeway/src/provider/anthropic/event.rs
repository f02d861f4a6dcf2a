//! Events of a stream. Missing and malformed fields are empty.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// An event of any type. Fields of other types are empty.
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

/// The delta of a block or of the message.
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

/// The message of a `message_start` event.
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

/// Details of a refusal.
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
        match deserializer.deserialize_any(ScalarVisitor)? {
            Scalar::Text(text) => Ok(Self(text)),
            Scalar::Number(_) | Scalar::Other => Ok(Self::default()),
        }
    }
}

/// A non-negative number. Any other value reads as `None`.
#[derive(Clone, Copy, Default)]
pub(super) struct LooseNumber(pub(super) Option<u64>);

impl<'de> Deserialize<'de> for LooseNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(ScalarVisitor)? {
            Scalar::Number(number) => Ok(Self(Some(number))),
            Scalar::Text(_) | Scalar::Other => Ok(Self(None)),
        }
    }
}

enum Scalar<'a> {
    Text(Cow<'a, str>),
    Number(u64),
    Other,
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Number(number))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Other)
    }

    fn visit_f64<E>(self, number: f64) -> Result<Scalar<'de>, E> {
        Ok(if number >= 0.0 { Scalar::Number(number as u64) } else { Scalar::Other })
    }

    fn visit_bool<E>(self, _: bool) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Other)
    }

    fn visit_unit<E>(self) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Scalar<'de>, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Scalar<'de>, A::Error> {
        // With `arbitrary_precision`, serde_json presents a fraction as a map that only `Value` understands.
        match Value::deserialize(MapAccessDeserializer::new(fields))?.as_f64() {
            Some(number) => self.visit_f64(number),
            None => Ok(Scalar::Other),
        }
    }
}
