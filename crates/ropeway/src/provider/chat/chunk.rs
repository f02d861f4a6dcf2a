//! Lenient deserialization of a chunk.
//!
//! Strings are borrowed where possible. Fields may be missing, null or repeated, and unknown fields are kept.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// Unknown fields, unparsed.
pub(super) type UnknownFields<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

/// A chunk of the stream, or the complete reply of a server that does not stream.
#[derive(Debug, Default)]
pub(super) struct ChatChunk<'a> {
    pub(super) id: LooseValue<'a>,
    pub(super) model: LooseValue<'a>,
    pub(super) object: LooseValue<'a>,
    pub(super) choices: Vec<LooseObject<ChunkChoice<'a>>>,
    pub(super) usage: Option<&'a RawValue>,
    pub(super) error: Option<&'a RawValue>,
}

/// One of several replies; a request asks for only one.
#[derive(Debug, Default)]
pub(super) struct ChunkChoice<'a> {
    pub(super) index: LooseValue<'a>,
    pub(super) delta: ChatDelta<'a>,
    /// The complete message, instead of deltas.
    pub(super) message: Option<Box<LooseObject<ChatDelta<'a>>>>,
    pub(super) finish_reason: LooseValue<'a>,
    pub(super) usage: Option<&'a RawValue>,
    pub(super) error: Option<&'a RawValue>,
}

/// A delta of the message.
#[derive(Debug, Default)]
pub(super) struct ChatDelta<'a> {
    pub(super) content: LooseValue<'a>,
    pub(super) refusal: LooseValue<'a>,
    pub(super) reasoning_content: LooseValue<'a>,
    pub(super) reasoning: LooseValue<'a>,
    pub(super) tool_calls: Vec<LooseObject<CallDelta<'a>>>,
    pub(super) function_call: Option<Box<LooseObject<FunctionDelta<'a>>>>,
    pub(super) unknown: UnknownFields<'a>,
}

/// A delta of a tool call.
#[derive(Debug, Default)]
pub(super) struct CallDelta<'a> {
    pub(super) index: LooseValue<'a>,
    pub(super) id: LooseValue<'a>,
    pub(super) function: FunctionDelta<'a>,
    pub(super) unknown: UnknownFields<'a>,
}

/// The name and arguments in the delta of a call.
#[derive(Debug, Default)]
pub(super) struct FunctionDelta<'a> {
    pub(super) name: LooseValue<'a>,
    /// Usually a string, an object with some servers.
    pub(super) arguments: Option<&'a RawValue>,
    pub(super) unknown: UnknownFields<'a>,
}

impl ChatDelta<'_> {
    /// Returns `true` if nothing is set.
    pub(super) fn is_empty(&self) -> bool {
        let Self { content, refusal, reasoning_content, reasoning, tool_calls, function_call, unknown } = self;
        let texts = [content, refusal, reasoning_content, reasoning];
        texts.iter().all(|text| text.is_empty())
            && tool_calls.is_empty()
            && function_call.is_none()
            && unknown.is_empty()
    }
}

/// An object that is read field by field.
pub(super) trait ObjectFields<'a>: Default {
    /// Reads the value of a field from `object`.
    fn read_field<M: MapAccess<'a>>(&mut self, name: Cow<'a, str>, object: &mut M) -> Result<(), M::Error>;
}

impl<'a> ObjectFields<'a> for ChatChunk<'a> {
    fn read_field<M: MapAccess<'a>>(&mut self, name: Cow<'a, str>, object: &mut M) -> Result<(), M::Error> {
        match &*name {
            "id" => self.id = object.next_value()?,
            "model" => self.model = object.next_value()?,
            "object" => self.object = object.next_value()?,
            "choices" => self.choices = read_list(object)?,
            "usage" => self.usage = object.next_value()?,
            "error" => self.error = object.next_value()?,
            _ => _ = object.next_value::<IgnoredAny>()?,
        }
        Ok(())
    }
}

impl<'a> ObjectFields<'a> for ChunkChoice<'a> {
    fn read_field<M: MapAccess<'a>>(&mut self, name: Cow<'a, str>, object: &mut M) -> Result<(), M::Error> {
        match &*name {
            "index" => self.index = object.next_value()?,
            "delta" => self.delta = object.next_value::<LooseObject<_>>()?.0,
            "message" => self.message = object.next_value()?,
            "finish_reason" => self.finish_reason = object.next_value()?,
            "usage" => self.usage = object.next_value()?,
            "error" => self.error = object.next_value()?,
            _ => _ = object.next_value::<IgnoredAny>()?,
        }
        Ok(())
    }
}

impl<'a> ObjectFields<'a> for ChatDelta<'a> {
    fn read_field<M: MapAccess<'a>>(&mut self, name: Cow<'a, str>, object: &mut M) -> Result<(), M::Error> {
        match &*name {
            "content" => self.content = object.next_value()?,
            "refusal" => self.refusal = object.next_value()?,
            "reasoning_content" => self.reasoning_content = object.next_value()?,
            "reasoning" => self.reasoning = object.next_value()?,
            "tool_calls" => self.tool_calls = read_list(object)?,
            "function_call" => self.function_call = object.next_value()?,
            "role" => _ = object.next_value::<IgnoredAny>()?,
            _ => keep_unknown(&mut self.unknown, name, object)?,
        }
        Ok(())
    }
}

impl<'a> ObjectFields<'a> for CallDelta<'a> {
    fn read_field<M: MapAccess<'a>>(&mut self, name: Cow<'a, str>, object: &mut M) -> Result<(), M::Error> {
        match &*name {
            "index" => self.index = object.next_value()?,
            "id" => self.id = object.next_value()?,
            "function" => self.function = object.next_value::<LooseObject<_>>()?.0,
            // Requests offer only functions.
            "type" => _ = object.next_value::<IgnoredAny>()?,
            _ => keep_unknown(&mut self.unknown, name, object)?,
        }
        Ok(())
    }
}

impl<'a> ObjectFields<'a> for FunctionDelta<'a> {
    fn read_field<M: MapAccess<'a>>(&mut self, name: Cow<'a, str>, object: &mut M) -> Result<(), M::Error> {
        match &*name {
            "name" => self.name = object.next_value()?,
            "arguments" => self.arguments = object.next_value()?,
            _ => keep_unknown(&mut self.unknown, name, object)?,
        }
        Ok(())
    }
}

fn read_list<'a, T: ObjectFields<'a>, M: MapAccess<'a>>(object: &mut M) -> Result<Vec<LooseObject<T>>, M::Error> {
    Ok(object.next_value::<Option<_>>()?.unwrap_or_default())
}

fn keep_unknown<'a, M: MapAccess<'a>>(
    unknown: &mut UnknownFields<'a>,
    name: Cow<'a, str>,
    object: &mut M,
) -> Result<(), M::Error> {
    // Some servers send null in every chunk.
    if let Some(value) = object.next_value()? {
        unknown.push((name, value));
    }
    Ok(())
}

/// Deserializes an object field by field. Null is an empty object.
#[derive(Debug)]
pub(super) struct LooseObject<T>(pub(super) T);

impl<'de, T: ObjectFields<'de>> Deserialize<'de> for LooseObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LooseObjectVisitor(PhantomData))
    }
}

struct LooseObjectVisitor<T>(PhantomData<T>);

impl<'de, T: ObjectFields<'de>> Visitor<'de> for LooseObjectVisitor<T> {
    type Value = LooseObject<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<LooseObject<T>, E> {
        Ok(LooseObject(T::default()))
    }

    fn visit_map<M: MapAccess<'de>>(self, mut object: M) -> Result<LooseObject<T>, M::Error> {
        let mut known = T::default();
        while let Some(BorrowedStr(name)) = object.next_key()? {
            known.read_field(name, &mut object)?;
        }
        Ok(LooseObject(known))
    }
}

#[derive(serde::Deserialize)]
struct BorrowedStr<'a>(#[serde(borrow)] Cow<'a, str>);

/// A string, or any other value in its place.
#[derive(Debug, Default)]
pub(super) enum LooseValue<'a> {
    /// Null or missing.
    #[default]
    Missing,
    Text(Cow<'a, str>),
    /// Another value; boxed because it is rare.
    Other(Box<Value>),
}

impl LooseValue<'_> {
    /// Returns the string, or an empty one for any other value.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            _ => "",
        }
    }

    /// Returns a number, or the number in a string.
    pub(super) fn number(&self) -> Option<u64> {
        match self {
            Self::Text(text) => text.parse().ok(),
            Self::Other(value) => value.as_u64(),
            Self::Missing => None,
        }
    }

    /// Returns `true` if it is missing or an empty string.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Missing => true,
            Self::Text(text) => text.is_empty(),
            Self::Other(_) => false,
        }
    }
}

impl<'de> Deserialize<'de> for LooseValue<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LooseValueVisitor)
    }
}

struct LooseValueVisitor;

impl<'de> Visitor<'de> for LooseValueVisitor {
    type Value = LooseValue<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: Error>(self) -> Result<LooseValue<'de>, E> {
        Ok(LooseValue::Missing)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<LooseValue<'de>, E> {
        Ok(LooseValue::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<LooseValue<'de>, E> {
        Ok(LooseValue::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<LooseValue<'de>, E> {
        Ok(LooseValue::Other(Box::new(value.into())))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<LooseValue<'de>, E> {
        Ok(LooseValue::Other(Box::new(value.into())))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<LooseValue<'de>, E> {
        Ok(LooseValue::Other(Box::new(value.into())))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<LooseValue<'de>, E> {
        Ok(LooseValue::Other(Box::new(value.into())))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, list: S) -> Result<LooseValue<'de>, S::Error> {
        Value::deserialize(SeqAccessDeserializer::new(list)).map(|value| LooseValue::Other(Box::new(value)))
    }

    fn visit_map<M: MapAccess<'de>>(self, object: M) -> Result<LooseValue<'de>, M::Error> {
        Value::deserialize(MapAccessDeserializer::new(object)).map(|value| LooseValue::Other(Box::new(value)))
    }
}

/// Returns the content of a JSON string, or the text of any other value.
pub(super) fn string_or_json(raw: &RawValue) -> Cow<'_, str> {
    match serde_json::from_str(raw.get()) {
        Ok(BorrowedStr(text)) => text,
        Err(_) => Cow::Borrowed(raw.get()),
    }
}
