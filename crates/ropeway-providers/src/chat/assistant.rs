//! An assistant message in a request. It is sent back unchanged to its endpoint; others receive its plain parts.

use std::borrow::Cow;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::part::{ChatContent, ChatPart, FIELDS};
use crate::normalize::{NormalizedCall, NormalizedPart, NormalizedReply};
use crate::reply_builder::RAW_ARGUMENTS;

/// An assistant message.
#[derive(Debug)]
pub(super) struct Assistant<'a> {
    content: Option<ChatContent<'a>>,
    /// Parts that were received in other fields than `content`.
    fields: Vec<(&'a str, &'a str)>,
    extra: Option<&'a Map<String, Value>>,
    calls: Vec<CallField<'a>>,
}

#[derive(Debug)]
struct CallField<'a>(&'a NormalizedCall<'a>);

impl<'a> Assistant<'a> {
    pub(super) fn new(reply: &'a NormalizedReply<'a>) -> Self {
        let mut parts = Vec::new();
        let mut fields = Vec::new();
        let mut calls = Vec::new();
        for part in &reply.parts {
            match part {
                NormalizedPart::Text(text) => match reply.native.and_then(|_| received_in(&text.extra)) {
                    None => parts.push(ChatPart::text(text.text.as_str())),
                    Some(names) => fields.extend(names.map(|name| (name, text.text.as_str()))),
                },
                NormalizedPart::Reasoning(reasoning) => {
                    for name in received_in(&reasoning.extra).into_iter().flatten() {
                        match name {
                            "content" => parts.push(ChatPart::thinking(&reasoning.text)),
                            name => fields.push((name, reasoning.text.as_str())),
                        }
                    }
                }
                NormalizedPart::Call(call) => calls.push(CallField(call)),
                NormalizedPart::Opaque(json) => parts.push(ChatPart::Opaque(json)),
            }
        }
        let is_refused = fields.iter().any(|(name, _)| *name == "refusal");
        // `content` may be null only in a refusal or together with calls.
        let is_null = parts.is_empty() && (is_refused || !calls.is_empty());
        let content = (!is_null).then(|| content(parts));
        Self { content, fields, extra: reply.native.map(|message| &message.extra), calls }
    }
}

/// Returns the message fields that a part was received in, if not in `content`.
fn received_in(extra: &Map<String, Value>) -> Option<impl Iterator<Item = &str>> {
    extra.get(FIELDS)?.as_array().map(|names| names.iter().filter_map(Value::as_str))
}

/// Joins text parts without a separator: a server may split text within a sentence.
fn content(parts: Vec<ChatPart<'_>>) -> ChatContent<'_> {
    if !parts.iter().all(|part| matches!(part, ChatPart::Text { .. })) {
        return ChatContent::Parts(parts);
    }
    let texts = parts.into_iter().filter_map(|part| match part {
        ChatPart::Text { text } => Some(text),
        _ => None,
    });
    ChatContent::Text(texts.reduce(|all, text| all + text).unwrap_or_default())
}

impl Serialize for Assistant<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut message = serializer.serialize_map(None)?;
        message.serialize_entry("role", "assistant")?;
        message.serialize_entry("content", &self.content)?;
        for (name, text) in &self.fields {
            message.serialize_entry(name, text)?;
        }
        let is_written = |name: &str| {
            matches!(name, "role" | "content" | "tool_calls") || self.fields.iter().any(|(field, _)| *field == name)
        };
        for (name, value) in self.extra.into_iter().flatten().filter(|(name, _)| !is_written(name)) {
            message.serialize_entry(name, value)?;
        }
        if !self.calls.is_empty() {
            message.serialize_entry("tool_calls", &self.calls)?;
        }
        message.end()
    }
}

impl Serialize for CallField<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(inner) = self;
        let mut call = serializer.serialize_map(None)?;
        call.serialize_entry("id", &inner.id)?;
        call.serialize_entry("type", "function")?;
        call.serialize_entry("function", &FunctionField(inner))?;
        let is_written = |name: &str| matches!(name, "id" | "type" | "function") || name == RAW_ARGUMENTS;
        for (name, value) in inner.extra.into_iter().flatten().filter(|(name, _)| !is_written(name)) {
            call.serialize_entry(name, value)?;
        }
        call.end()
    }
}

struct FunctionField<'a>(&'a NormalizedCall<'a>);

impl Serialize for FunctionField<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(inner) = self;
        let extra = |name: &str| inner.extra.and_then(|extra| extra.get(name));
        // The provider's prompt cache matches the text that the model wrote, including white space.
        let arguments = match inner.raw_arguments {
            Some(raw) => Cow::Borrowed(raw),
            None => serde_json::to_string(&inner.arguments).map_err(serde::ser::Error::custom)?.into(),
        };
        let mut function = serializer.serialize_map(None)?;
        function.serialize_entry("name", &inner.wire_name)?;
        function.serialize_entry("arguments", &arguments)?;
        for (name, value) in extra("function").and_then(Value::as_object).into_iter().flatten() {
            function.serialize_entry(name, value)?;
        }
        function.end()
    }
}
