//! A request's `input`: a conversation as items.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde::ser::{Error, SerializeMap, SerializeSeq};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::item_fields::{PART, is_unchanged, item_of, part_of, text_field};
use crate::normalize::{NormalizedCall, NormalizedMessage, NormalizedPart, NormalizedReply, NormalizedResult};
use crate::prompt_part::{DataUrl, PromptPart, join_lines};
use ropeway_core::json;
use ropeway_core::message::{AssistantMessage, AssistantText};

/// An empty result's content, which a model could mistake for a failure.
const NO_OUTPUT: &str = "(no output)";

/// The prefix for an error. The API has no field for errors.
const ERROR: &str = "error: ";

/// The text for an error without a message.
const FAILED: &str = "error: the tool failed";

/// A conversation's items.
#[derive(Debug)]
pub(super) struct ResponsesInput<'a> {
    items: Vec<InputItem<'a>>,
    /// Another model's text is sent as a string, as OpenAI itself accepts it.
    as_string: bool,
}

#[derive(Debug)]
enum InputItem<'a> {
    User(Vec<InputPart<'a>>),
    /// A message that is sent back unchanged.
    Message(&'a Map<String, Value>, Vec<&'a AssistantText>),
    /// Another model's text.
    Text(&'a str),
    /// A call, with its item's remaining fields.
    Call(&'a NormalizedCall<'a>, Option<&'a Map<String, Value>>),
    CallOutput(&'a str, CallOutput<'a>),
    Unchanged(&'a Map<String, Value>),
}

#[derive(Debug, Serialize)]
#[serde(tag = "type")]
enum InputPart<'a> {
    #[serde(rename = "input_text")]
    Text { text: Cow<'a, str> },
    #[serde(rename = "input_image")]
    Image { image_url: DataUrl<'a>, detail: &'static str },
    #[serde(rename = "input_file")]
    File { filename: String, file_data: DataUrl<'a> },
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum CallOutput<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<InputPart<'a>>),
}

impl<'a> ResponsesInput<'a> {
    /// Converts a conversation, for a model with or without reasoning.
    pub(super) fn new(messages: &'a [NormalizedMessage<'a>], is_openai: bool, supports_reasoning: bool) -> Self {
        let mut items = Vec::with_capacity(messages.len());
        let accepts = |item: &Map<String, Value>| supports_reasoning && (!is_openai || has_content(item));
        for message in messages {
            match message {
                NormalizedMessage::User(parts) => {
                    items.push(InputItem::User(parts.iter().map(|part| input_part(PromptPart::of(part))).collect()));
                }
                NormalizedMessage::Assistant(reply) => push_reply(reply, accepts, &mut items),
                NormalizedMessage::ToolResults(results) => {
                    items.extend(results.iter().map(|result| InputItem::CallOutput(&result.id, output(result))));
                }
            }
        }
        // The API rejects a message without content.
        items
            .retain(|item| !matches!(item, InputItem::Message(_, texts) if !texts.iter().any(|text| is_content(text))));
        Self { items, as_string: is_openai }
    }
}

/// Adds a message from the model. If its reasoning is not accepted, the message is sent without reasoning and ids.
fn push_reply<'a>(
    reply: &'a NormalizedReply<'a>,
    accepts: impl Fn(&Map<String, Value>) -> bool,
    items: &mut Vec<InputItem<'a>>,
) {
    // Reasoning at the end led to no item: the reply was cut off.
    let end = reply
        .parts
        .iter()
        .rposition(|part| match part {
            NormalizedPart::Reasoning(_) => false,
            NormalizedPart::Text(text) => is_content(text),
            _ => true,
        })
        .unwrap_or_default();
    let mut reasoning = reply.parts[..end].iter().filter_map(|part| match part {
        NormalizedPart::Reasoning(reasoning) => item_of(&reasoning.extra),
        _ => None,
    });
    let unchanged = reply.native.is_some_and(|message: &AssistantMessage| is_unchanged(message, &reply.parts))
        && reasoning.all(accepts);
    for (at, part) in reply.parts.iter().enumerate() {
        match part {
            NormalizedPart::Text(text) => match (item_of(&text.extra), items.last_mut()) {
                (Some(item), _) if unchanged => items.push(InputItem::Message(item, vec![text])),
                (None, Some(InputItem::Message(_, texts))) if unchanged && text.extra.contains_key(PART) => {
                    texts.push(text)
                }
                _ if text.text.is_empty() => {}
                _ => items.push(InputItem::Text(&text.text)),
            },
            NormalizedPart::Reasoning(reasoning) => {
                items.extend(item_of(&reasoning.extra).filter(|_| unchanged && at < end).map(InputItem::Unchanged));
            }
            NormalizedPart::Call(call) => {
                items.push(InputItem::Call(call, call.extra.filter(|_| unchanged).and_then(item_of)))
            }
            NormalizedPart::Opaque(json) => items.extend(unchanged.then_some(InputItem::Unchanged(json))),
        }
    }
}

/// Returns `true` if reasoning has more than an id. OpenAI rejects the id alone, since nothing is stored there.
fn has_content(item: &Map<String, Value>) -> bool {
    let is_encrypted = item.get("encrypted_content").and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    is_encrypted || item.get("content").and_then(Value::as_array).is_some_and(|parts| !parts.is_empty())
}

/// Returns `true` unless the text only stores a message item without content.
fn is_content(text: &AssistantText) -> bool {
    !text.text.is_empty() || text.extra.contains_key(PART)
}

fn input_part(part: PromptPart<'_>) -> InputPart<'_> {
    match part {
        PromptPart::Image(data) => InputPart::Image { image_url: DataUrl(data), detail: "auto" },
        PromptPart::Pdf(data) => InputPart::File { filename: data.file_name(), file_data: DataUrl(data) },
        part => InputPart::Text { text: part.into_text() },
    }
}

fn output<'a>(result: &'a NormalizedResult<'a>) -> CallOutput<'a> {
    let mut parts: Vec<InputPart<'a>> = result.content.iter().map(|part| input_part(PromptPart::of(part))).collect();
    if result.is_error {
        mark_error(&mut parts);
    }
    if !parts.iter().all(|part| matches!(part, InputPart::Text { .. })) {
        return CallOutput::Parts(parts);
    }
    let text = join_lines(parts.into_iter().filter_map(|part| match part {
        InputPart::Text { text } => Some(text),
        _ => None,
    }));
    CallOutput::Text(if text.is_empty() { NO_OUTPUT.into() } else { text })
}

/// Adds the prefix for an error.
fn mark_error(parts: &mut Vec<InputPart<'_>>) {
    match parts.first_mut() {
        Some(InputPart::Text { text }) if reports_error(text) => {}
        Some(InputPart::Text { text }) if !text.is_empty() => text.to_mut().insert_str(0, ERROR),
        Some(InputPart::Text { text }) => *text = FAILED.into(),
        _ => parts.insert(0, InputPart::Text { text: FAILED.into() }),
    }
}

/// Returns `true` if a text already reports an error.
fn reports_error(text: &str) -> bool {
    #[derive(Deserialize)]
    struct ErrorObject {
        #[serde(rename = "error")]
        _error: IgnoredAny,
    }
    text.get(..ERROR.len()).is_some_and(|start| start.eq_ignore_ascii_case(ERROR))
        || (text.trim_start().starts_with('{') && json::from_str::<ErrorObject>(text).is_ok())
}

impl Serialize for ResponsesInput<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.items.len()))?;
        for (at, item) in self.items.iter().enumerate() {
            match item {
                InputItem::Text(text) if !self.as_string => {
                    list.serialize_element(&OutputMessage { text, id: format!("msg_{at}") })?
                }
                item => list.serialize_element(item)?,
            }
        }
        list.end()
    }
}

/// Another model's text for compatible servers: llama.cpp rejects a string, others require an id and a status. OpenAI itself
/// could reject an id that it did not issue.
struct OutputMessage<'a> {
    text: &'a str,
    id: String,
}

impl Serialize for OutputMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct OutputText<'a> {
            r#type: &'static str,
            text: &'a str,
            annotations: [(); 0],
        }
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("type", "message")?;
        fields.serialize_entry("id", &self.id)?;
        fields.serialize_entry("role", "assistant")?;
        fields.serialize_entry("status", "completed")?;
        let text = OutputText { r#type: "output_text", text: self.text, annotations: [] };
        fields.serialize_entry("content", &[text])?;
        fields.end()
    }
}

impl Serialize for InputItem<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Self::Unchanged(item) = self {
            return item.serialize(serializer);
        }
        let mut fields = serializer.serialize_map(None)?;
        match self {
            Self::User(content) => {
                fields.serialize_entry("type", "message")?;
                fields.serialize_entry("role", "user")?;
                fields.serialize_entry("content", content)?;
            }
            Self::Text(text) => {
                fields.serialize_entry("type", "message")?;
                fields.serialize_entry("role", "assistant")?;
                fields.serialize_entry("content", text)?;
            }
            Self::Message(item, texts) => {
                for (name, value) in *item {
                    fields.serialize_entry(name, value)?;
                }
                fields.serialize_entry("content", &MessageContent(texts))?;
            }
            Self::Call(call, item) => {
                match item {
                    Some(item) => {
                        for (name, value) in *item {
                            fields.serialize_entry(name, value)?;
                        }
                    }
                    None => fields.serialize_entry("type", "function_call")?,
                }
                fields.serialize_entry("call_id", &call.id)?;
                fields.serialize_entry("name", &call.wire_name)?;
                match call.raw_arguments {
                    Some(raw_arguments) => fields.serialize_entry("arguments", raw_arguments)?,
                    None => fields.serialize_entry(
                        "arguments",
                        &serde_json::to_string(&call.arguments).map_err(Error::custom)?,
                    )?,
                }
            }
            Self::CallOutput(call, output) => {
                fields.serialize_entry("type", "function_call_output")?;
                fields.serialize_entry("call_id", call)?;
                fields.serialize_entry("output", output)?;
            }
            Self::Unchanged(_) => {}
        }
        fields.end()
    }
}

/// The content for a message that is sent back unchanged.
struct MessageContent<'a>(&'a [&'a AssistantText]);

impl Serialize for MessageContent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().filter(|text| is_content(text)).map(|text| MessageContentPart(text)))
    }
}

struct MessageContentPart<'a>(&'a AssistantText);

impl Serialize for MessageContentPart<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        match part_of(&self.0.extra) {
            Some(part) => {
                let text_field = text_field(part);
                for (name, value) in part {
                    if name == text_field {
                        fields.serialize_entry(name, &self.0.text)?;
                    } else {
                        fields.serialize_entry(name, value)?;
                    }
                }
            }
            None => {
                fields.serialize_entry("type", "output_text")?;
                fields.serialize_entry("text", &self.0.text)?;
                fields.serialize_entry("annotations", &[(); 0])?;
            }
        }
        fields.end()
    }
}
