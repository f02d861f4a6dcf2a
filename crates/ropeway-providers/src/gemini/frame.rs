//! Lenient deserialization for a streamed `GenerateContentResponse`.
//!
//! Compatible servers omit fields, send `null`, or use snake case; the decoder accepts all three.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use crate::loose_object::{LooseObject, ObjectFields};
use ropeway_core::loose_json::BorrowedText;

/// A part's field with a thought signature, which must be sent back on the same part
/// (<https://ai.google.dev/gemini-api/docs/thought-signatures>).
pub(super) const SIGNATURE: &str = "thoughtSignature";

/// A part's field with a call. In a call's `extra` it holds the call's remaining fields, such as its id.
pub(super) const CALL: &str = "functionCall";

/// One response in the stream.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GeminiFrame<'a> {
    #[serde(borrow)]
    pub(super) candidates: Option<Vec<Candidate<'a>>>,
    #[serde(borrow, alias = "prompt_feedback")]
    pub(super) prompt_feedback: Option<PromptFeedback<'a>>,
    #[serde(alias = "usage_metadata")]
    pub(super) usage_metadata: Option<UsageMetadata>,
    #[serde(borrow, alias = "response_id")]
    pub(super) response_id: Option<BorrowedText<'a>>,
    #[serde(borrow, alias = "model_version")]
    pub(super) model_version: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// One of several replies; requests specify a single one.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Candidate<'a> {
    pub(super) index: Option<TokenCount>,
    #[serde(borrow)]
    pub(super) content: Option<CandidateContent<'a>>,
    #[serde(borrow, alias = "finish_reason")]
    pub(super) finish_reason: Option<BorrowedText<'a>>,
    #[serde(borrow, alias = "finish_message")]
    pub(super) finish_message: Option<BorrowedText<'a>>,
    #[serde(borrow, alias = "continuation_token")]
    pub(super) continuation_token: Option<BorrowedText<'a>>,
}

/// A candidate's content.
#[derive(Debug, Deserialize)]
pub(super) struct CandidateContent<'a> {
    #[serde(borrow)]
    pub(super) parts: Option<Vec<CandidatePart<'a>>>,
}

/// Why the prompt was blocked.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PromptFeedback<'a> {
    #[serde(borrow, alias = "block_reason")]
    pub(super) block_reason: Option<BorrowedText<'a>>,
    #[serde(borrow, alias = "block_reason_message")]
    pub(super) block_reason_message: Option<BorrowedText<'a>>,
}

/// The usage so far. A missing count is unchanged.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct UsageMetadata {
    #[serde(rename = "promptTokenCount", alias = "prompt_token_count")]
    pub(super) prompt: Option<TokenCount>,
    #[serde(rename = "toolUsePromptTokenCount", alias = "tool_use_prompt_token_count")]
    pub(super) tool_use: Option<TokenCount>,
    #[serde(rename = "cachedContentTokenCount", alias = "cached_content_token_count")]
    pub(super) cached: Option<TokenCount>,
    #[serde(rename = "candidatesTokenCount", alias = "candidates_token_count")]
    pub(super) candidates: Option<TokenCount>,
    #[serde(rename = "thoughtsTokenCount", alias = "thoughts_token_count")]
    pub(super) thoughts: Option<TokenCount>,
}

/// A content part.
#[derive(Debug, Default)]
pub(super) struct CandidatePart<'a> {
    pub(super) text: Option<Cow<'a, str>>,
    pub(super) thought: bool,
    pub(super) signature: Option<Cow<'a, str>>,
    pub(super) call: Option<FunctionCall<'a>>,
    /// Unknown fields.
    pub(super) rest: Map<String, Value>,
}

/// A function call.
#[derive(Debug, Default)]
pub(super) struct FunctionCall<'a> {
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) arguments: Option<&'a RawValue>,
    /// Unknown fields.
    pub(super) rest: Map<String, Value>,
}

impl<'de: 'a, 'a> Deserialize<'de> for CandidatePart<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        LooseObject::deserialize(deserializer).map(|LooseObject(part)| part)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for FunctionCall<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        LooseObject::deserialize(deserializer).map(|LooseObject(call)| call)
    }
}

impl<'de: 'a, 'a> ObjectFields<'de> for CandidatePart<'a> {
    fn read_field<M: MapAccess<'de>>(&mut self, name: Cow<'de, str>, object: &mut M) -> Result<(), M::Error> {
        match &*name {
            "text" => self.text = text(object)?,
            "thought" => self.thought = object.next_value::<Option<bool>>()?.unwrap_or_default(),
            "thoughtSignature" | "thought_signature" => self.signature = text(object)?,
            "functionCall" | "function_call" => self.call = object.next_value()?,
            _ => keep(&mut self.rest, name, object)?,
        }
        Ok(())
    }
}

impl<'de: 'a, 'a> ObjectFields<'de> for FunctionCall<'a> {
    fn read_field<M: MapAccess<'de>>(&mut self, name: Cow<'de, str>, object: &mut M) -> Result<(), M::Error> {
        match &*name {
            "id" => self.id = text(object)?,
            "name" => self.name = text(object)?,
            "args" => self.arguments = object.next_value()?,
            _ => keep(&mut self.rest, name, object)?,
        }
        Ok(())
    }
}

fn text<'de: 'a, 'a, A: MapAccess<'de>>(map: &mut A) -> Result<Option<Cow<'a, str>>, A::Error> {
    Ok(map.next_value::<Option<BorrowedText<'a>>>()?.map(|BorrowedText(text)| text))
}

/// Keeps an unknown field, unless it is `null`.
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

/// A token count, at most `u32::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenCount(pub(super) u64);

impl<'de> Deserialize<'de> for TokenCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Number::deserialize(deserializer)?;
        // Casting a float saturates.
        let count = number.as_u64().unwrap_or_else(|| number.as_f64().unwrap_or(f64::MAX) as u64);
        Ok(Self(count.min(u32::MAX.into())))
    }
}
