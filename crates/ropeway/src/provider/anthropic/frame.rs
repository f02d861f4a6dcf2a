//! Frames: the events of an answer as they come, with everything that servers leave out left out.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// One event. What a kind of event does not have is empty.
#[derive(serde::Deserialize)]
pub(super) struct Frame<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(default)]
    pub(super) index: Number,
    #[serde(borrow)]
    pub(super) delta: Option<Delta<'a>>,
    #[serde(borrow)]
    pub(super) content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// What is new in a block, or in the whole message.
#[derive(Default, serde::Deserialize)]
pub(super) struct Delta<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow, default)]
    pub(super) text: Text<'a>,
    #[serde(borrow, default)]
    pub(super) thinking: Text<'a>,
    #[serde(borrow, default)]
    pub(super) partial_json: Text<'a>,
    #[serde(borrow, default)]
    pub(super) signature: Text<'a>,
    #[serde(borrow)]
    pub(super) citation: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) stop_reason: Text<'a>,
    #[serde(borrow)]
    pub(super) stop_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) container: Option<&'a RawValue>,
}

/// The message that an answer begins with.
#[derive(serde::Deserialize)]
pub(super) struct Start<'a> {
    #[serde(borrow, default)]
    pub(super) id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) model: Text<'a>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) container: Option<&'a RawValue>,
}

/// What an answer has cost so far; a number that is not there has not changed.
#[derive(Default, serde::Deserialize)]
pub(super) struct Cost {
    #[serde(default)]
    pub(super) input_tokens: Number,
    #[serde(default)]
    pub(super) output_tokens: Number,
    #[serde(default)]
    pub(super) cache_read_input_tokens: Number,
    #[serde(default)]
    pub(super) cache_creation_input_tokens: Number,
    pub(super) output_tokens_details: Option<CostDetails>,
}

#[derive(Default, serde::Deserialize)]
pub(super) struct CostDetails {
    #[serde(default)]
    pub(super) thinking_tokens: Number,
}

/// Why an answer stopped, in more words.
#[derive(Default, serde::Deserialize)]
pub(super) struct StopDetails<'a> {
    #[serde(borrow, default)]
    pub(super) category: Text<'a>,
    #[serde(borrow, default)]
    pub(super) explanation: Text<'a>,
}

/// A text, borrowed where it can be. Whatever is no text is an empty one.
#[derive(Default)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(Loose)? {
            Scalar::Text(text) => Ok(Self(text)),
            Scalar::Number(_) | Scalar::Other => Ok(Self::default()),
        }
    }
}

/// A whole number. Whatever is none is not there.
#[derive(Clone, Copy, Default)]
pub(super) struct Number(pub(super) Option<u64>);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(Loose)? {
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

struct Loose;

impl<'de> Visitor<'de> for Loose {
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
        // With arbitrary precision the parser shows a fraction as a map that only a `Value` understands.
        match Value::deserialize(MapAccessDeserializer::new(fields))?.as_f64() {
            Some(number) => self.visit_f64(number),
            None => Ok(Scalar::Other),
        }
    }
}
