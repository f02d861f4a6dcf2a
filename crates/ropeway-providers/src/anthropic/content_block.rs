//! A request's content blocks.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::normalize::{NormalizedCall, NormalizedPart, NormalizedReply, NormalizedResult};
use crate::prompt_part::{MediaData, PromptPart};
use crate::reply_builder::RAW_ARGUMENTS;
use ropeway_core::content::ContentPart;
use ropeway_core::tool::Arguments;

/// Maximum characters in a document's title.
const MAX_TITLE: usize = 500;

/// The text for an error without a message: the API rejects an error without text.
const NO_MESSAGE: &str = "the call failed and gave no reason";

/// A message's content block.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ContentBlock<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(flatten)]
        rest: ExtraFields<'a>,
    },
    Image {
        source: BlockSource<'a>,
    },
    Document {
        source: BlockSource<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<Cow<'a, str>>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
        #[serde(flatten)]
        rest: ExtraFields<'a>,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        #[serde(flatten)]
        rest: ExtraFields<'a>,
        input: ToolInput<'a>,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: ResultContent<'a>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    #[serde(untagged)]
    Opaque(&'a Map<String, Value>),
}

/// An image's or a document's data.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum BlockSource<'a> {
    Base64 { media_type: Cow<'a, str>, data: Cow<'a, str> },
    Text { media_type: &'static str, data: Cow<'a, str> },
}

/// A tool result's content. The API rejects an empty list, but not an empty text.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum ResultContent<'a> {
    Text(Cow<'a, str>),
    Blocks(Vec<ContentBlock<'a>>),
}

/// A call's arguments.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum ToolInput<'a> {
    Raw(&'a RawValue),
    Object(&'a Arguments),
}

/// A block's additional fields, which are sent back with it.
#[derive(Default)]
pub(super) struct ExtraFields<'a> {
    fields: Option<&'a Map<String, Value>>,
    excluded: &'static [&'static str],
}

impl<'a> ExtraFields<'a> {
    fn of(fields: &'a Map<String, Value>, excluded: &'static [&'static str]) -> Self {
        Self { fields: Some(fields), excluded }
    }
}

impl Serialize for ExtraFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.fields.into_iter().flatten();
        serializer.collect_map(fields.filter(|(name, _)| !self.excluded.contains(&name.as_str())))
    }
}

impl<'a> ContentBlock<'a> {
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text { text: text.into(), rest: ExtraFields::default() }
    }

    /// Converts a content part. Blank text is left out, because the API rejects it.
    pub(super) fn of(part: &'a ContentPart) -> Option<Self> {
        let block = match PromptPart::of(part) {
            PromptPart::Image(data) => Self::Image { source: data.into() },
            PromptPart::Pdf(mut data) => {
                let title = data.name.take().and_then(title);
                Self::Document { source: data.into(), title }
            }
            PromptPart::Document { name, text } if !is_blank(&text) => Self::Document {
                source: BlockSource::Text { media_type: "text/plain", data: text },
                title: title(name),
            },
            part => return text_of(part).map(Self::text),
        };
        Some(block)
    }

    /// Converts a message from the model. `signed_only` leaves out thinking without a signature.
    pub(super) fn of_reply(reply: &'a NormalizedReply<'a>, signed_only: bool) -> Vec<Self> {
        let blocks = reply.parts.iter().filter_map(|part| match part {
            NormalizedPart::Text(part) => (!is_blank(&part.text)).then(|| Self::Text {
                text: Cow::Borrowed(&part.text),
                rest: match reply.native {
                    Some(_) => ExtraFields::of(&part.extra, &["type", "text"]),
                    None => ExtraFields::default(),
                },
            }),
            NormalizedPart::Reasoning(part) => {
                let signature = part.extra.get("signature").and_then(Value::as_str).unwrap_or_default();
                (!signed_only || !signature.is_empty()).then(|| Self::Thinking {
                    thinking: &part.text,
                    signature,
                    rest: ExtraFields::of(&part.extra, &["type", "thinking", "signature"]),
                })
            }
            NormalizedPart::Call(call) => Some(Self::call(call)),
            NormalizedPart::Opaque(json) => Some(Self::Opaque(json)),
        });
        let mut blocks: Vec<Self> = blocks.collect();
        // A reply that was cut off while thinking has no signature, and the API would reject every later request. Thinking that
        // other blocks follow has one, or comes from a server without signatures.
        while matches!(blocks.last(), Some(Self::Thinking { signature: "", .. })) {
            blocks.pop();
        }
        blocks
    }

    /// Returns `true` for thinking, redacted or not.
    pub(super) fn is_thinking(&self) -> bool {
        match self {
            Self::Thinking { .. } => true,
            Self::Opaque(json) => kind(json) == "redacted_thinking",
            _ => false,
        }
    }

    /// Returns `true` for a client tool's result.
    pub(super) fn is_result(&self) -> bool {
        matches!(self, Self::ToolResult { .. })
    }

    /// Returns the id, for a call to a server tool.
    pub(super) fn server_call(&self) -> Option<&'a str> {
        match self {
            Self::Opaque(json) if kind(json) == "server_tool_use" => json.get("id")?.as_str(),
            _ => None,
        }
    }

    /// Returns the id of the call that a server tool's result belongs to.
    pub(super) fn server_result(&self) -> Option<&'a str> {
        match self {
            Self::Opaque(json) if kind(json).ends_with("_tool_result") => json.get("tool_use_id")?.as_str(),
            _ => None,
        }
    }

    fn call(call: &'a NormalizedCall<'a>) -> Self {
        let rest = call.extra.map(|extra| ExtraFields::of(extra, &["type", "id", "name", "input", RAW_ARGUMENTS]));
        Self::ToolUse { id: &call.id, name: &call.wire_name, rest: rest.unwrap_or_default(), input: input(call) }
    }

    /// Converts a call's result.
    pub(super) fn of_result(result: &'a NormalizedResult<'a>) -> Self {
        let parts = result.content.iter();
        // The API rejects anything but text in an error.
        let mut blocks: Vec<Self> = if result.is_error {
            parts.filter_map(|part| text_of(PromptPart::of(part))).map(Self::text).collect()
        } else {
            parts.filter_map(Self::of).collect()
        };
        let content = match (blocks.pop(), blocks.is_empty()) {
            (None, _) if result.is_error => ResultContent::Text(NO_MESSAGE.into()),
            (None, _) => ResultContent::Text("".into()),
            (Some(Self::Text { text, .. }), true) => ResultContent::Text(text),
            (Some(block), _) => {
                blocks.push(block);
                ResultContent::Blocks(blocks)
            }
        };
        Self::ToolResult { tool_use_id: &result.id, content, is_error: result.is_error }
    }
}

impl<'a> From<MediaData<'a>> for BlockSource<'a> {
    fn from(data: MediaData<'a>) -> Self {
        Self::Base64 { media_type: data.mime_type, data: data.base64 }
    }
}

/// Returns the arguments as the model wrote them, if unchanged: serializing them again could reformat numbers.
fn input<'a>(call: &'a NormalizedCall<'a>) -> ToolInput<'a> {
    match call.raw_arguments.and_then(|text| serde_json::from_str(text).ok()) {
        Some(raw) => ToolInput::Raw(raw),
        None => ToolInput::Object(&call.arguments),
    }
}

fn text_of(part: PromptPart<'_>) -> Option<Cow<'_, str>> {
    Some(part.into_text()).filter(|text| !is_blank(text))
}

fn title(name: Cow<'_, str>) -> Option<Cow<'_, str>> {
    let name = match name.char_indices().nth(MAX_TITLE) {
        Some((end, _)) => Cow::Owned(name[..end].to_owned()),
        None => name,
    };
    Some(name).filter(|name| !is_blank(name))
}

fn kind(block: &Map<String, Value>) -> &str {
    block.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}
