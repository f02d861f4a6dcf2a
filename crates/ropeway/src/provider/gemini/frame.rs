//! A frame of an answer: what Gemini sends, borrowed from its bytes.
//!
//! Servers that only speak like Gemini leave fields out, write `null`, or spell names with underscores; they are understood.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

/// A piece of an answer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Frame<'a> {
    #[serde(borrow)]
    pub(super) candidates: Option<Vec<Candidate<'a>>>,
    #[serde(borrow, alias = "prompt_feedback")]
    pub(super) prompt_feedback: Option<Feedback<'a>>,
    #[serde(alias = "usage_metadata")]
    pub(super) usage_metadata: Option<Counts>,
    #[serde(borrow, alias = "response_id")]
    pub(super) response_id: Option<Text<'a>>,
    #[serde(borrow, alias = "model_version")]
    pub(super) model_version: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// One of the answers that were asked for; we ask for one.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Candidate<'a> {
    pub(super) index: Option<Count>,
    #[serde(borrow)]
    pub(super) content: Option<Content<'a>>,
    #[serde(borrow, alias = "finish_reason")]
    pub(super) finish_reason: Option<Text<'a>>,
    #[serde(borrow, alias = "finish_message")]
    pub(super) finish_message: Option<Text<'a>>,
    #[serde(borrow, alias = "continuation_token")]
    pub(super) continuation_token: Option<Text<'a>>,
}

/// What was said.
#[derive(Debug, Deserialize)]
pub(super) struct Content<'a> {
    #[serde(borrow)]
    pub(super) parts: Option<Vec<Part<'a>>>,
}

/// Why there will be no answer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Feedback<'a> {
    #[serde(borrow, alias = "block_reason")]
    pub(super) block_reason: Option<Text<'a>>,
    #[serde(borrow, alias = "block_reason_message")]
    pub(super) block_reason_message: Option<Text<'a>>,
}

/// What it has cost so far. What a frame does not tell is as before.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Counts {
    #[serde(rename = "promptTokenCount", alias = "prompt_token_count")]
    pub(super) prompt: Option<Count>,
    #[serde(rename = "toolUsePromptTokenCount", alias = "tool_use_prompt_token_count")]
    pub(super) tool_use: Option<Count>,
    #[serde(rename = "cachedContentTokenCount", alias = "cached_content_token_count")]
    pub(super) cached: Option<Count>,
    #[serde(rename = "candidatesTokenCount", alias = "candidates_token_count")]
    pub(super) candidates: Option<Count>,
    #[serde(rename = "thoughtsTokenCount", alias = "thoughts_token_count")]
    pub(super) thoughts: Option<Count>,
}

/// One part of what was said.
#[derive(Debug, Default)]
pub(super) struct Part<'a> {
    pub(super) text: Option<Cow<'a, str>>,
    pub(super) thought: bool,
    pub(super) signature: Option<Cow<'a, str>>,
    pub(super) call: Option<Call<'a>>,
    /// All other fields.
    pub(super) rest: Map<String, Value>,
}

/// A call of a tool.
#[derive(Debug, Default)]
pub(super) struct Call<'a> {
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) arguments: Option<&'a RawValue>,
    /// All other fields.
    pub(super) rest: Map<String, Value>,
}

/// A text, borrowed where it holds no escapes. (In an `Option`, a `Cow` alone would always be owned.)
#[derive(Debug, Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Part<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields::<Self>(PhantomData))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Call<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields::<Self>(PhantomData))
    }
}

/// Takes an object field by field: what is known into its place, what is not into `rest`.
struct Fields<T>(PhantomData<T>);

impl<'de: 'a, 'a> Visitor<'de> for Fields<Part<'a>> {
    type Value = Part<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a part")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Part<'a>, A::Error> {
        let mut part = Part::default();
        while let Some(Text(name)) = map.next_key::<Text<'a>>()? {
            match &*name {
                "text" => part.text = text(&mut map)?,
                "thought" => part.thought = map.next_value::<Option<bool>>()?.unwrap_or_default(),
                "thoughtSignature" | "thought_signature" => part.signature = text(&mut map)?,
                "functionCall" | "function_call" => part.call = map.next_value()?,
                _ => keep(&mut part.rest, name, &mut map)?,
            }
        }
        Ok(part)
    }
}

impl<'de: 'a, 'a> Visitor<'de> for Fields<Call<'a>> {
    type Value = Call<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a call")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Call<'a>, A::Error> {
        let mut call = Call::default();
        while let Some(Text(name)) = map.next_key::<Text<'a>>()? {
            match &*name {
                "id" => call.id = text(&mut map)?,
                "name" => call.name = text(&mut map)?,
                "args" => call.arguments = map.next_value()?,
                _ => keep(&mut call.rest, name, &mut map)?,
            }
        }
        Ok(call)
    }
}

fn text<'de: 'a, 'a, A: MapAccess<'de>>(map: &mut A) -> Result<Option<Cow<'a, str>>, A::Error> {
    Ok(map.next_value::<Option<Text<'a>>>()?.map(|Text(text)| text))
}

/// Keeps a field that is not known; one that is `null` says nothing.
fn keep<'de, A: MapAccess<'de>>(
    rest: &mut Map<String, Value>,
    name: Cow<'_, str>,
    map: &mut A,
) -> Result<(), A::Error> {
    let value: Value = map.next_value()?;
    if !value.is_null() {
        rest.insert(name.into_owned(), value);
    }
    Ok(())
}

/// A number of tokens, never more than Gemini could count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count(pub(super) u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Number::deserialize(deserializer)?;
        // A cast keeps to the bounds of its target.
        let count = number.as_u64().unwrap_or_else(|| number.as_f64().unwrap_or(f64::MAX) as u64);
        Ok(Self(count.min(u32::MAX.into())))
    }
}
