//! Blocks: the pieces that messages are written in.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::content::ContentPart;
use crate::provider::draft::WRITTEN;
use crate::provider::history::{Answer, Call, Outcome, Part};
use crate::provider::piece::{Data, Piece};
use crate::tool::Arguments;

/// How many characters the title of a document may have.
const MAX_TITLE: usize = 500;

/// What stands for the words of a failure that has none: the API refuses an error without text.
const NO_WORDS: &str = "the call failed and gave no reason";

/// One block of a message.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(flatten)]
        rest: Rest<'a>,
    },
    Image {
        source: Source<'a>,
    },
    Document {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<Cow<'a, str>>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
        #[serde(flatten)]
        rest: Rest<'a>,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        #[serde(flatten)]
        rest: Rest<'a>,
        input: Input<'a>,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: ResultContent<'a>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    #[serde(untagged)]
    Private(&'a Map<String, Value>),
}

/// Where a picture or a document comes from.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Source<'a> {
    Base64 { media_type: Cow<'a, str>, data: Cow<'a, str> },
    Text { media_type: &'static str, data: Cow<'a, str> },
}

/// What a tool answered. An empty list is refused, an empty text is not.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum ResultContent<'a> {
    Text(Cow<'a, str>),
    Blocks(Vec<Block<'a>>),
}

/// The arguments of a call.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Input<'a> {
    Written(&'a RawValue),
    Object(&'a Arguments),
}

/// Fields that came with a block and go back with it, besides those that we write ourselves.
#[derive(Default)]
pub(super) struct Rest<'a> {
    fields: Option<&'a Map<String, Value>>,
    written: &'static [&'static str],
}

impl<'a> Rest<'a> {
    fn of(fields: &'a Map<String, Value>, written: &'static [&'static str]) -> Self {
        Self { fields: Some(fields), written }
    }
}

impl Serialize for Rest<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.fields.into_iter().flatten();
        serializer.collect_map(fields.filter(|(name, _)| !self.written.contains(&name.as_str())))
    }
}

impl<'a> Block<'a> {
    /// Text of our own.
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text { text: text.into(), rest: Rest::default() }
    }

    /// A part of a person's or of a tool's, if there is anything in it: texts of nothing but space are refused.
    pub(super) fn of(part: &'a ContentPart) -> Option<Self> {
        let block = match Piece::of(part) {
            Piece::Image(data) => Self::Image { source: data.into() },
            Piece::Pdf(mut data) => {
                let title = data.name.take().and_then(title);
                Self::Document { source: data.into(), title }
            }
            Piece::Document { name, text } if !is_blank(&text) => {
                Self::Document { source: Source::Text { media_type: "text/plain", data: text }, title: title(name) }
            }
            piece => return text_of(piece).map(Self::text),
        };
        Some(block)
    }

    /// The blocks of an answer, in their order. `signed_only`: thoughts without a signature are refused.
    pub(super) fn of_answer(answer: &'a Answer<'a>, signed_only: bool) -> Vec<Self> {
        let blocks = answer.parts.iter().filter_map(|part| match part {
            Part::Text(part) => (!is_blank(&part.text)).then(|| Self::Text {
                text: Cow::Borrowed(&part.text),
                rest: match answer.native {
                    Some(_) => Rest::of(&part.extra, &["type", "text"]),
                    None => Rest::default(),
                },
            }),
            Part::Reasoning(part) => {
                let signature = part.extra.get("signature").and_then(Value::as_str).unwrap_or_default();
                (!signed_only || !signature.is_empty()).then(|| Self::Thinking {
                    thinking: &part.text,
                    signature,
                    rest: Rest::of(&part.extra, &["type", "thinking", "signature"]),
                })
            }
            Part::Call(call) => Some(Self::call(call)),
            Part::Private(part) => Some(Self::Private(&part.json)),
        });
        let mut blocks: Vec<Self> = blocks.collect();
        // An answer that was cut off while it thought has no signature, and would be refused for ever after. Thoughts that others
        // follow have one, or come from a server that has none to give.
        while matches!(blocks.last(), Some(Self::Thinking { signature: "", .. })) {
            blocks.pop();
        }
        blocks
    }

    /// Is it a thought, be it hidden?
    pub(super) fn is_thought(&self) -> bool {
        match self {
            Self::Thinking { .. } => true,
            Self::Private(json) => kind(json) == "redacted_thinking",
            _ => false,
        }
    }

    /// Is it the result of a call of ours?
    pub(super) fn is_result(&self) -> bool {
        matches!(self, Self::ToolResult { .. })
    }

    /// The id of a call that the provider itself answers.
    pub(super) fn server_call(&self) -> Option<&'a str> {
        match self {
            Self::Private(json) if kind(json) == "server_tool_use" => json.get("id")?.as_str(),
            _ => None,
        }
    }

    /// The id of the call that the provider itself has answered here.
    pub(super) fn server_result(&self) -> Option<&'a str> {
        match self {
            Self::Private(json) if kind(json).ends_with("_tool_result") => json.get("tool_use_id")?.as_str(),
            _ => None,
        }
    }

    fn call(call: &'a Call<'a>) -> Self {
        let rest = call.extra.map(|extra| Rest::of(extra, &["type", "id", "name", "input", WRITTEN]));
        Self::ToolUse { id: &call.id, name: &call.wire_name, rest: rest.unwrap_or_default(), input: input(call) }
    }

    /// The result of a call.
    pub(super) fn of_outcome(outcome: &'a Outcome<'a>) -> Self {
        let parts = outcome.content.iter();
        // The API refuses anything but text in an error.
        let mut blocks: Vec<Self> = match outcome.is_error {
            true => parts.filter_map(|part| text_of(Piece::of(part))).map(Self::text).collect(),
            false => parts.filter_map(Self::of).collect(),
        };
        let content = match (blocks.pop(), blocks.is_empty()) {
            (None, _) if outcome.is_error => ResultContent::Text(NO_WORDS.into()),
            (None, _) => ResultContent::Text("".into()),
            (Some(Self::Text { text, .. }), true) => ResultContent::Text(text),
            (Some(block), _) => {
                blocks.push(block);
                ResultContent::Blocks(blocks)
            }
        };
        Self::ToolResult { tool_use_id: &outcome.id, content, is_error: outcome.is_error }
    }
}

impl<'a> From<Data<'a>> for Source<'a> {
    fn from(data: Data<'a>) -> Self {
        Self::Base64 { media_type: data.mime_type, data: data.base64 }
    }
}

/// Arguments as the model wrote them, where they still mean the same: numbers, for one, are not written twice in one way.
fn input<'a>(call: &'a Call<'a>) -> Input<'a> {
    match call.written.and_then(|text| serde_json::from_str(text).ok()) {
        Some(written) => Input::Written(written),
        None => Input::Object(&call.arguments),
    }
}

fn text_of(piece: Piece<'_>) -> Option<Cow<'_, str>> {
    Some(piece.into_text()).filter(|text| !is_blank(text))
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
