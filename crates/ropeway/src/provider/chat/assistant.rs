//! What a model said, as it goes back to a model: to the same one exactly as it came, to others its plain parts.

use std::borrow::Cow;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::FIELDS;
use super::part::{Content, Part};
use crate::provider::draft::WRITTEN;
use crate::provider::encoded::Extra;
use crate::provider::history;

/// What a model said.
#[derive(Debug)]
pub(super) struct Assistant<'a> {
    content: Option<Content<'a>>,
    /// Parts that came in fields of their own.
    fields: Vec<(&'a str, &'a str)>,
    extra: Option<&'a Extra>,
    calls: Vec<Call<'a>>,
}

#[derive(Debug)]
struct Call<'a>(&'a history::Call<'a>);

impl<'a> Assistant<'a> {
    pub(super) fn new(answer: &'a history::Answer<'a>) -> Self {
        let mut parts = Vec::new();
        let mut fields = Vec::new();
        let mut calls = Vec::new();
        for part in &answer.parts {
            match part {
                history::Part::Text(text) => match answer.native.and_then(|_| came_in(&text.extra)) {
                    None => parts.push(Part::text(text.text.as_str())),
                    Some(names) => fields.extend(names.map(|name| (name, text.text.as_str()))),
                },
                history::Part::Reasoning(reasoning) => {
                    for name in came_in(&reasoning.extra).into_iter().flatten() {
                        match name {
                            "content" => parts.push(Part::thinking(&reasoning.text)),
                            name => fields.push((name, reasoning.text.as_str())),
                        }
                    }
                }
                history::Part::Call(call) => calls.push(Call(call)),
                history::Part::Private(private) => parts.push(Part::Private(&private.json)),
            }
        }
        let is_refused = fields.iter().any(|(name, _)| *name == "refusal");
        let content = match parts.is_empty() {
            // OpenAI's own word for "nothing but calls"; without any a message must have a text.
            true if is_refused || !calls.is_empty() => None,
            _ => Some(content(parts)),
        };
        Self { content, fields, extra: answer.native.map(|message| &message.extra), calls }
    }
}

/// The fields that a part came in, if they are not the usual ones.
fn came_in(extra: &Extra) -> Option<impl Iterator<Item = &str>> {
    extra.get(FIELDS)?.as_array().map(|names| names.iter().filter_map(Value::as_str))
}

/// One text, whatever the parts: where a speaker parts a text, it does so in the middle of a sentence.
fn content(parts: Vec<Part<'_>>) -> Content<'_> {
    if !parts.iter().all(|part| matches!(part, Part::Text { .. })) {
        return Content::Parts(parts);
    }
    let texts = parts.into_iter().filter_map(|part| match part {
        Part::Text { text } => Some(text),
        _ => None,
    });
    Content::Text(texts.reduce(|all, text| all + text).unwrap_or_default())
}

impl Serialize for Assistant<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut message = serializer.serialize_map(None)?;
        message.serialize_entry("role", "assistant")?;
        message.serialize_entry("content", &self.content)?;
        for (name, text) in &self.fields {
            message.serialize_entry(name, text)?;
        }
        let ours = |name: &str| {
            matches!(name, "role" | "content" | "tool_calls") || self.fields.iter().any(|(field, _)| *field == name)
        };
        for (name, value) in self.extra.into_iter().flatten().filter(|(name, _)| !ours(name)) {
            message.serialize_entry(name, value)?;
        }
        if !self.calls.is_empty() {
            message.serialize_entry("tool_calls", &self.calls)?;
        }
        message.end()
    }
}

impl Serialize for Call<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(made) = self;
        let mut call = serializer.serialize_map(None)?;
        call.serialize_entry("id", &made.id)?;
        call.serialize_entry("type", "function")?;
        call.serialize_entry("function", &Function(made))?;
        let ours = |name: &str| matches!(name, "id" | "type" | "function") || name == WRITTEN;
        for (name, value) in made.extra.into_iter().flatten().filter(|(name, _)| !ours(name)) {
            call.serialize_entry(name, value)?;
        }
        call.end()
    }
}

struct Function<'a>(&'a history::Call<'a>);

impl Serialize for Function<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(made) = self;
        let extra = |name: &str| made.extra.and_then(|extra| extra.get(name));
        // A cache at the provider holds the text that the model wrote, blanks and all.
        let arguments = match made.written {
            Some(written) => Cow::Borrowed(written),
            None => serde_json::to_string(&made.arguments).map_err(serde::ser::Error::custom)?.into(),
        };
        let mut function = serializer.serialize_map(None)?;
        function.serialize_entry("name", &made.wire_name)?;
        function.serialize_entry("arguments", &arguments)?;
        for (name, value) in extra("function").and_then(Value::as_object).into_iter().flatten() {
            function.serialize_entry(name, value)?;
        }
        function.end()
    }
}
