//! A request's `contents`.

use std::borrow::Cow;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use super::frame::{CALL, SIGNATURE};
use super::model::GeminiModel;
use crate::normalize::{NormalizedCall, NormalizedMessage, NormalizedPart, NormalizedReply, NormalizedResult};
use crate::prompt_part::{MediaData, PromptPart};
use crate::reply_builder::RAW_ARGUMENTS;

/// The signature for calls without one, from another model or a server that dropped it. Gemini skips its validation
/// (<https://ai.google.dev/gemini-api/docs/thought-signatures>).
const NO_SIGNATURE: &str = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=";

/// The user message before a conversation that starts with the model.
const BEGINNING: &str = "[the conversation begins]";

/// The text for an error without a message.
const FAILED: &str = "the call failed";

/// The media types that a function response may contain.
const RESULT_TYPES: [&str; 5] = ["image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"];

/// A message from the user or the model.
#[derive(Debug, serde::Serialize)]
pub(super) struct GeminiContent<'a> {
    role: &'static str,
    parts: Vec<GeminiPart<'a>>,
}

/// A message part.
#[derive(Debug)]
enum GeminiPart<'a> {
    Text(Cow<'a, str>),
    Media(MediaData<'a>),
    /// Text or reasoning that is sent back to Gemini.
    Native {
        text: &'a str,
        thought: bool,
        extra: &'a Map<String, Value>,
    },
    Call {
        call: &'a NormalizedCall<'a>,
        /// The call has no signature, but Gemini requires one.
        unsigned: bool,
    },
    Opaque(&'a Map<String, Value>),
    Response(FunctionResponse<'a>),
}

/// A call's result.
#[derive(Debug)]
struct FunctionResponse<'a> {
    /// The id that Gemini assigned to the call, if any.
    id: Option<&'a str>,
    name: &'a str,
    is_error: bool,
    text: Cow<'a, str>,
    media: Vec<MediaData<'a>>,
}

/// Converts a conversation. With `result_parts`, function responses may contain images.
pub(super) fn contents<'a>(
    messages: &'a [NormalizedMessage<'a>],
    model: &GeminiModel<'_>,
    result_parts: bool,
) -> Vec<GeminiContent<'a>> {
    let mut contents =
        ContentsBuilder { result_parts, ids: Vec::new(), contents: Vec::with_capacity(messages.len() + 1) };
    if let Some(NormalizedMessage::Assistant(_)) = messages.first() {
        contents.push("user", vec![GeminiPart::Text(BEGINNING.into())]);
    }
    for message in messages {
        match message {
            NormalizedMessage::User(content) => {
                contents.push("user", content.iter().map(|part| GeminiPart::from(PromptPart::of(part))).collect());
            }
            NormalizedMessage::Assistant(reply) => contents.push_reply(reply, !model.is_older()),
            NormalizedMessage::ToolResults(results) => contents.push_results(results),
        }
    }
    contents.contents
}

struct ContentsBuilder<'a> {
    result_parts: bool,
    /// The ids that Gemini assigned to the last reply's calls.
    ids: Vec<Option<&'a str>>,
    contents: Vec<GeminiContent<'a>>,
}

impl<'a> ContentsBuilder<'a> {
    fn push(&mut self, role: &'static str, parts: Vec<GeminiPart<'a>>) {
        self.contents.push(GeminiContent { role, parts });
    }

    /// With `sign`, the first call needs a signature.
    fn push_reply(&mut self, reply: &'a NormalizedReply<'a>, mut sign: bool) {
        let is_native = reply.native.is_some();
        self.ids.clear();
        let mut parts = Vec::with_capacity(reply.parts.len());
        for part in &reply.parts {
            parts.push(match part {
                NormalizedPart::Text(part) if is_native => {
                    GeminiPart::Native { text: &part.text, thought: false, extra: &part.extra }
                }
                NormalizedPart::Text(part) => GeminiPart::Text(Cow::Borrowed(&part.text)),
                NormalizedPart::Reasoning(part) => {
                    GeminiPart::Native { text: &part.text, thought: true, extra: &part.extra }
                }
                NormalizedPart::Opaque(json) => GeminiPart::Opaque(json),
                NormalizedPart::Call(call) => {
                    self.ids.push(native_fields(call).and_then(|fields| fields.get("id")?.as_str()));
                    // Only a reply's first call has a signature.
                    let is_signed = call.extra.is_some_and(|extra| extra.contains_key(SIGNATURE));
                    GeminiPart::Call { call, unsigned: std::mem::take(&mut sign) && !is_signed }
                }
            });
        }
        match self.contents.last_mut() {
            // A call is valid only directly after a user message or a function response.
            Some(before) if before.role == "model" => before.parts.extend(parts),
            _ => self.push("model", parts),
        }
    }

    fn push_results(&mut self, results: &'a [NormalizedResult<'a>]) {
        let ids = std::mem::take(&mut self.ids);
        let mut responses = Vec::with_capacity(results.len());
        // Media next to function responses would count as the model's content, so they follow in their own content.
        let mut aside = Vec::new();
        for (at, result) in results.iter().enumerate() {
            let (response, media) = self.function_response(result, ids.get(at).copied().flatten());
            responses.push(GeminiPart::Response(response));
            if !media.is_empty() {
                let which = match results.len() {
                    1 => String::new(),
                    all => format!(", result {} of {all}", at + 1),
                };
                aside.push(GeminiPart::Text(format!("[returned by the tool `{}`{which}]", result.wire_name).into()));
                aside.extend(media.into_iter().map(GeminiPart::Media));
            }
        }
        self.push("user", responses);
        if !aside.is_empty() {
            self.push("user", aside);
        }
    }

    /// Converts a result; returns media that it cannot contain separately.
    fn function_response(
        &self,
        result: &'a NormalizedResult<'a>,
        id: Option<&'a str>,
    ) -> (FunctionResponse<'a>, Vec<MediaData<'a>>) {
        let (mut texts, mut media, mut aside) = (Vec::new(), Vec::new(), Vec::new());
        for part in result.content.iter().map(PromptPart::of) {
            let (kind, data) = match part {
                PromptPart::Image(data) => ("image", data),
                PromptPart::Audio(data) => ("sound", data),
                PromptPart::Pdf(data) => ("document", data),
                part => {
                    texts.push(part.into_text());
                    continue;
                }
            };
            if self.result_parts && RESULT_TYPES.contains(&&*data.mime_type) {
                media.push(data);
            } else {
                texts.push(format!("[{kind}, {}: it follows the results]", data.mime_type).into());
                aside.push(data);
            }
        }
        texts.retain(|text| !text.is_empty());
        let text = match texts.len() {
            0 if result.is_error => FAILED.into(),
            0 | 1 => texts.pop().unwrap_or_default(),
            _ => texts.join("\n").into(),
        };
        (FunctionResponse { id, name: &result.wire_name, is_error: result.is_error, text, media }, aside)
    }
}

/// Returns a native call's fields other than its name and arguments.
fn native_fields<'a>(call: &NormalizedCall<'a>) -> Option<&'a Map<String, Value>> {
    call.extra?.get(CALL)?.as_object()
}

impl<'a> From<PromptPart<'a>> for GeminiPart<'a> {
    fn from(part: PromptPart<'a>) -> Self {
        match part {
            PromptPart::Image(data) | PromptPart::Audio(data) | PromptPart::Pdf(data) => Self::Media(data),
            part => Self::Text(part.into_text()),
        }
    }
}

impl Serialize for GeminiPart<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Text(text) => map.serialize_entry("text", text)?,
            Self::Media(data) => map.serialize_entry("inlineData", &InlineData::from(data))?,
            Self::Native { text, thought, extra } => {
                map.serialize_entry("text", text)?;
                if *thought {
                    map.serialize_entry("thought", thought)?;
                }
                serialize_rest(&mut map, extra, &["text", "thought"])?;
            }
            Self::Call { call, unsigned } => {
                map.serialize_entry(CALL, &FunctionCallField(call))?;
                if *unsigned {
                    map.serialize_entry(SIGNATURE, NO_SIGNATURE)?;
                }
                if let Some(extra) = call.extra {
                    serialize_rest(&mut map, extra, &[CALL, RAW_ARGUMENTS])?;
                }
            }
            Self::Opaque(json) => serialize_rest(&mut map, json, &[])?,
            Self::Response(response) => map.serialize_entry("functionResponse", response)?,
        }
        map.end()
    }
}

/// Serializes the fields that are not in `written`.
fn serialize_rest<M: SerializeMap>(map: &mut M, fields: &Map<String, Value>, written: &[&str]) -> Result<(), M::Error> {
    let mut fields = fields.iter().filter(|(name, _)| !written.contains(&name.as_str()));
    fields.try_for_each(|(name, value)| map.serialize_entry(name, value))
}

struct FunctionCallField<'a>(&'a NormalizedCall<'a>);

impl Serialize for FunctionCallField<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.0.wire_name)?;
        map.serialize_entry("args", &*self.0.arguments)?;
        if let Some(fields) = native_fields(self.0) {
            serialize_rest(&mut map, fields, &["name", "args"])?;
        }
        map.end()
    }
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct InlineData<'a> {
    mime_type: &'a str,
    data: &'a str,
}

impl<'a> From<&'a MediaData<'_>> for InlineData<'a> {
    fn from(data: &'a MediaData<'_>) -> Self {
        Self { mime_type: &data.mime_type, data: &data.base64 }
    }
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct InlineDataPart<'a> {
    inline_data: InlineData<'a>,
}

impl Serialize for FunctionResponse<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        #[serde(rename_all = "lowercase")]
        enum ResponseValue<'a> {
            Output(&'a str),
            Error(&'a str),
        }
        let mut map = serializer.serialize_map(None)?;
        if let Some(id) = self.id {
            map.serialize_entry("id", id)?;
        }
        map.serialize_entry("name", self.name)?;
        let value = if self.is_error { ResponseValue::Error(&self.text) } else { ResponseValue::Output(&self.text) };
        map.serialize_entry("response", &value)?;
        if !self.media.is_empty() {
            let parts: Vec<InlineDataPart<'_>> =
                self.media.iter().map(|data| InlineDataPart { inline_data: data.into() }).collect();
            map.serialize_entry("parts", &parts)?;
        }
        map.end()
    }
}
