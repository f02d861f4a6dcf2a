//! A message's content parts.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::prompt_part::{DataUrl, PromptPart, join_lines};

/// The field in a part's `extra` that names the message fields the part was received in, if not in `content`.
pub(super) const FIELDS: &str = "fields";

/// A message's content. Plain text is preferred, because many chat templates support nothing else.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum ChatContent<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<ChatPart<'a>>),
}

/// A message part.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ChatPart<'a> {
    Text {
        text: Cow<'a, str>,
    },
    ImageUrl {
        image_url: ImageUrl<'a>,
    },
    InputAudio {
        input_audio: InputAudio<'a>,
    },
    File {
        file: File<'a>,
    },
    /// Reasoning in Mistral's form.
    Thinking {
        thinking: [ThinkingText<'a>; 1],
    },
    /// A part with an unknown type, as it was received.
    #[serde(untagged)]
    Opaque(&'a Map<String, Value>),
}

#[derive(Debug, Serialize)]
pub(super) struct ImageUrl<'a> {
    url: DataUrl<'a>,
    detail: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct InputAudio<'a> {
    data: Cow<'a, str>,
    format: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct File<'a> {
    filename: String,
    file_data: DataUrl<'a>,
}

#[derive(Debug, Serialize)]
pub(super) struct ThinkingText<'a> {
    r#type: &'static str,
    text: &'a str,
}

impl<'a> ChatPart<'a> {
    /// Converts a user message's part. Unsupported media become text.
    pub(super) fn of(part: PromptPart<'a>) -> Self {
        match part {
            PromptPart::Image(data) => Self::ImageUrl { image_url: ImageUrl { url: DataUrl(data), detail: "auto" } },
            PromptPart::Audio(data) => match audio_format(&data.mime_type) {
                Some(format) => Self::InputAudio { input_audio: InputAudio { data: data.base64, format } },
                None => Self::text(PromptPart::Audio(data).into_text()),
            },
            PromptPart::Pdf(data) => Self::File { file: File { filename: data.file_name(), file_data: DataUrl(data) } },
            text => Self::text(text.into_text()),
        }
    }

    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text { text: text.into() }
    }

    pub(super) fn thinking(text: &'a str) -> Self {
        Self::Thinking { thinking: [ThinkingText { r#type: "text", text }] }
    }

    /// Returns the noun for a part that is not text.
    pub(super) fn kind(&self) -> Option<&'static str> {
        match self {
            Self::ImageUrl { .. } => Some("image"),
            Self::InputAudio { .. } => Some("sound"),
            Self::File { .. } => Some("document"),
            _ => None,
        }
    }
}

impl<'a> ChatContent<'a> {
    /// Joins the parts to one text if they all are text.
    pub(super) fn new(parts: Vec<ChatPart<'a>>) -> Self {
        if !parts.iter().all(|part| matches!(part, ChatPart::Text { .. })) {
            return Self::Parts(parts);
        }
        Self::Text(join_lines(parts.into_iter().filter_map(|part| match part {
            ChatPart::Text { text } => Some(text),
            _ => None,
        })))
    }
}

/// Returns the API's name for an audio format.
fn audio_format(mime_type: &str) -> Option<&'static str> {
    match mime_type {
        "audio/wav" | "audio/x-wav" | "audio/wave" | "audio/vnd.wave" => Some("wav"),
        "audio/mpeg" | "audio/mp3" | "audio/x-mp3" | "audio/mpeg3" => Some("mp3"),
        _ => None,
    }
}
