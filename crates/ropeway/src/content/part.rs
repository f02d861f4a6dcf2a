//! The parts of a tool result or message.

use serde_json::{Map, Value};

use super::base64::{Base64Error, decode_base64, encode_base64};
use super::shared_text::SharedText;

/// One part of an answer.
///
/// Reading one never fails on well-formed JSON: a block of an unknown type, or one that lacks what
/// its type needs, becomes a text part that holds the block's JSON.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ContentPart {
    /// Plain text.
    Text(TextContent),
    /// A picture.
    Image(Blob),
    /// A sound.
    Audio(Blob),
    /// A resource, with its contents.
    Resource(EmbeddedResource),
    /// A resource, by its address only.
    ResourceLink(ResourceLink),
}

/// A text part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextContent {
    /// The text itself.
    pub text: String,
    /// Every other field of the block as it came: `annotations`, `_meta`, and what we do not know.
    pub extra: Map<String, Value>,
}

/// Binary data, kept as the base64 text that came over the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct Blob {
    /// The media type, such as `image/png`.
    pub mime_type: String,
    /// The data as base64 text; [`Blob::bytes`] decodes it.
    pub base64: SharedText,
    /// Every other field of the block as it came.
    pub extra: Map<String, Value>,
}

/// A resource that travels inside an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddedResource {
    /// Where the resource lives.
    pub uri: String,
    /// The media type, when the server named one.
    pub mime_type: Option<String>,
    /// What the resource holds.
    pub contents: ResourceContents,
    /// Every other field of the inner `resource` object as it came.
    pub resource_extra: Map<String, Value>,
    /// Every other field of the block as it came.
    pub extra: Map<String, Value>,
}

/// What a resource holds.
#[derive(Clone, Debug, PartialEq)]
pub enum ResourceContents {
    /// Text.
    Text(String),
    /// Binary data as base64 text.
    Blob(String),
}

/// The address of a resource that can be read from the server.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceLink {
    /// Where the resource lives.
    pub uri: String,
    /// Its name; the URI where the server gave none.
    pub name: String,
    /// The media type, when the server named one.
    pub mime_type: Option<String>,
    /// Every other field of the block as it came.
    pub extra: Map<String, Value>,
}

impl ResourceLink {
    /// The link in one line, for whoever cannot follow it.
    pub fn describe(&self) -> String {
        let Self { uri, name, mime_type, extra, .. } = self;
        let mime_type = mime_type.as_deref().map(|mime| format!(", {mime}")).unwrap_or_default();
        let description = extra.get("description").and_then(Value::as_str);
        let description = description.map(|text| format!(": {text}")).unwrap_or_default();
        if name == uri {
            format!("[resource {uri}{mime_type}{description}]")
        } else {
            format!("[resource `{name}`, {uri}{mime_type}{description}]")
        }
    }
}

impl ContentPart {
    /// A text part with nothing but text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextContent { text: text.into(), extra: Map::new() })
    }

    /// The text of a text part.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(part) => Some(&part.text),
            _ => None,
        }
    }

    /// The annotations of the block (`audience`, `priority`, …), when there are any.
    pub fn annotations(&self) -> Option<&Value> {
        let extra = match self {
            Self::Text(part) => &part.extra,
            Self::Image(part) | Self::Audio(part) => &part.extra,
            Self::Resource(part) => &part.extra,
            Self::ResourceLink(part) => &part.extra,
        };
        extra.get("annotations")
    }
}

/// The parts as one string, joined by newlines, when all of them are text.
pub fn plain_text(parts: &[ContentPart]) -> Option<String> {
    match parts {
        [ContentPart::Text(only)] => Some(only.text.clone()),
        _ => {
            let texts: Option<Vec<&str>> = parts.iter().map(ContentPart::as_text).collect();
            Some(texts?.join("\n"))
        }
    }
}

impl Blob {
    /// Encodes bytes.
    pub fn new(mime_type: impl Into<String>, bytes: &[u8]) -> Self {
        Self { mime_type: mime_type.into(), base64: encode_base64(bytes).into(), extra: Map::new() }
    }

    /// Decodes the data; line breaks and missing padding are forgiven.
    pub fn bytes(&self) -> Result<Vec<u8>, Base64Error> {
        decode_base64(&self.base64)
    }
}
