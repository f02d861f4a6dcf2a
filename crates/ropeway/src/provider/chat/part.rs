//! A part of a message, where a message is not just text.

use std::borrow::Cow;

use serde::Serialize;

use crate::provider::encoded::Extra;
use crate::provider::piece::{DataUrl, Piece};

/// What a message says: text alone wherever possible, because many a chat template takes nothing else.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Content<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

/// A part of a message.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Part<'a> {
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
    /// Mistral: what the model thought.
    Thinking {
        thinking: [Thought<'a>; 1],
    },
    /// A part as it came.
    #[serde(untagged)]
    Private(&'a Extra),
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
pub(super) struct Thought<'a> {
    r#type: &'static str,
    text: &'a str,
}

impl<'a> Part<'a> {
    /// A piece as the protocol takes it in a message of the person; what it does not take is a line of text.
    pub(super) fn of(piece: Piece<'a>) -> Self {
        match piece {
            Piece::Image(data) => Self::ImageUrl { image_url: ImageUrl { url: DataUrl(data), detail: "auto" } },
            Piece::Audio(data) => match format(&data.mime_type) {
                Some(format) => Self::InputAudio { input_audio: InputAudio { data: data.base64, format } },
                None => Self::text(Piece::Audio(data).into_text()),
            },
            Piece::Pdf(data) => Self::File { file: File { filename: data.file_name(), file_data: DataUrl(data) } },
            text => Self::text(text.into_text()),
        }
    }

    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text { text: text.into() }
    }

    pub(super) fn thinking(text: &'a str) -> Self {
        Self::Thinking { thinking: [Thought { r#type: "text", text }] }
    }

    /// What to call it, if it is not text.
    pub(super) fn kind(&self) -> Option<&'static str> {
        match self {
            Self::ImageUrl { .. } => Some("image"),
            Self::InputAudio { .. } => Some("sound"),
            Self::File { .. } => Some("document"),
            _ => None,
        }
    }
}

impl<'a> Content<'a> {
    /// Parts as one text, if they are nothing else.
    pub(super) fn new(parts: Vec<Part<'a>>) -> Self {
        match parts.iter().all(|part| matches!(part, Part::Text { .. })) {
            true => Self::Text(joined(parts.into_iter().filter_map(|part| match part {
                Part::Text { text } => Some(text),
                _ => None,
            }))),
            false => Self::Parts(parts),
        }
    }
}

/// Texts, a line for each.
pub(super) fn joined<'a>(texts: impl IntoIterator<Item = Cow<'a, str>>) -> Cow<'a, str> {
    let mut texts = texts.into_iter();
    let first = texts.next().unwrap_or_default();
    texts.fold(first, |mut all, text| {
        let growing = all.to_mut();
        growing.push('\n');
        growing.push_str(&text);
        all
    })
}

/// The protocol's name for a format of sound.
fn format(mime_type: &str) -> Option<&'static str> {
    match mime_type {
        "audio/wav" | "audio/x-wav" | "audio/wave" | "audio/vnd.wave" => Some("wav"),
        "audio/mpeg" | "audio/mp3" | "audio/x-mp3" | "audio/mpeg3" => Some("mp3"),
        _ => None,
    }
}
