//! Lenient chunk deserialization.
//!
//! Strings are borrowed where possible. Fields may be missing, null or repeated, and unknown fields are kept.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::loose_object::{LooseObject, ObjectFields};
use ropeway_core::loose_json::{BorrowedText, LooseJson};

/// Unknown fields, unparsed.
pub(super) type UnknownFields<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

/// A chunk in the stream, or the complete reply from a server that does not stream.
#[derive(Debug, Default)]
pub(super) struct ChatChunk<'a> {
    pub(super) id: LooseValue<'a>,
    pub(super) model: LooseValue<'a>,
    pub(super) object: LooseValue<'a>,
    pub(super) choices: Vec<LooseObject<ChunkChoice<'a>>>,
    pub(super) usage: Option<&'a RawValue>,
    pub(super) error: Option<&'a RawValue>,
}

/// One of several replies; requests specify a single one.
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

/// A message delta.
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

/// A tool call delta.
#[derive(Debug, Default)]
pub(super) struct CallDelta<'a> {
    pub(super) index: LooseValue<'a>,
    pub(super) id: LooseValue<'a>,
    pub(super) function: FunctionDelta<'a>,
    pub(super) unknown: UnknownFields<'a>,
}

/// The name and arguments in a call's delta.
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
        Ok(match LooseJson::deserialize(deserializer)? {
            LooseJson::Text(text) => Self::Text(text),
            LooseJson::Unsigned(number) => Self::Other(Box::new(number.into())),
            LooseJson::Other(Value::Null) => Self::Missing,
            LooseJson::Other(value) => Self::Other(Box::new(value)),
        })
    }
}

/// Returns a JSON string's content, or any other value's text.
pub(super) fn string_or_json(raw: &RawValue) -> Cow<'_, str> {
    match serde_json::from_str(raw.get()) {
        Ok(BorrowedText(text)) => text,
        Err(_) => Cow::Borrowed(raw.get()),
    }
}
