//! Parts of tool results and messages.

use std::fmt;

use serde_json::{Map, Value};

use super::base64::{decode_base64, encode_base64};
use super::shared_text::SharedText;
use crate::parse_error::ParseError;

/// A content block (<https://modelcontextprotocol.io/specification/2025-06-18/server/tools#tool-result>).
///
/// Deserializing valid JSON never fails: a block with an unknown type, or without a required field, becomes a text part with
/// the block's JSON.
#[derive(Clone, Debug, PartialEq)]
#[doc(alias("ToolResultPart", "MCPContentBlock"))]
pub enum ContentPart {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// The block's other fields, such as `annotations` and `_meta`.
        extra: Map<String, Value>,
    },
    /// An image.
    Image(Blob),
    /// Audio.
    Audio(Blob),
    /// A resource with its contents.
    Resource(EmbeddedResource),
    /// A link to a resource.
    ResourceLink(ResourceLink),
}

/// Binary data, stored as base64 text.
#[derive(Clone, Debug, PartialEq)]
pub struct Blob {
    /// Media type, such as `image/png`.
    pub mime_type: String,
    /// The data.
    pub base64: SharedText,
    /// The block's other fields.
    pub extra: Map<String, Value>,
}

/// A resource with its contents.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddedResource {
    /// The resource's URI.
    pub uri: String,
    /// Media type, if the server sent one.
    pub mime_type: Option<String>,
    /// The resource's contents.
    pub contents: ResourceContents,
    /// The inner `resource` object's other fields.
    pub resource_extra: Map<String, Value>,
    /// The block's other fields.
    pub extra: Map<String, Value>,
}

/// A resource's contents.
#[derive(Clone, Debug, PartialEq)]
pub enum ResourceContents {
    /// Text.
    Text(String),
    /// Binary data as base64.
    Blob(String),
}

/// A link to a resource that can be read from the server.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceLink {
    /// The resource's URI.
    pub uri: String,
    /// The resource's name, or its URI if the server sent no name.
    pub name: String,
    /// Media type, if the server sent one.
    pub mime_type: Option<String>,
    /// The block's other fields.
    pub extra: Map<String, Value>,
}

impl ResourceLink {
    /// Describes the link in one line, for models that do not support links.
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
    /// Creates a text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), extra: Map::new() }
    }

    /// Creates an image part from base64 text, which is not validated. [`Blob::new`] encodes bytes.
    pub fn image(mime_type: impl Into<String>, base64: impl Into<String>) -> Self {
        Self::Image(Blob::from_base64(mime_type, base64))
    }

    /// Creates an audio part from base64 text, which is not validated.
    pub fn audio(mime_type: impl Into<String>, base64: impl Into<String>) -> Self {
        Self::Audio(Blob::from_base64(mime_type, base64))
    }

    /// Creates a text file: a resource whose URI is the name. Models get the name with the text.
    #[doc(alias = "addFile")]
    pub fn file(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Resource(EmbeddedResource {
            uri: name.into(),
            mime_type: None,
            contents: ResourceContents::Text(text.into()),
            resource_extra: Map::new(),
            extra: Map::new(),
        })
    }

    /// Returns a text part's text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Returns the block's annotations, such as `audience` and `priority`.
    pub fn annotations(&self) -> Option<&Value> {
        let extra = match self {
            Self::Text { extra, .. } => extra,
            Self::Image(part) | Self::Audio(part) => &part.extra,
            Self::Resource(part) => &part.extra,
            Self::ResourceLink(part) => &part.extra,
        };
        extra.get("annotations")
    }
}

/// Joins text parts with newlines. Returns `None` if some parts are not text.
pub fn plain_text(parts: &[ContentPart]) -> Option<String> {
    match parts {
        [ContentPart::Text { text, .. }] => Some(text.clone()),
        _ => {
            let texts: Option<Vec<&str>> = parts.iter().map(ContentPart::as_text).collect();
            Some(texts?.join("\n"))
        }
    }
}

impl Blob {
    /// Creates a blob from bytes.
    pub fn new(mime_type: impl Into<String>, bytes: &[u8]) -> Self {
        Self::from_base64(mime_type, encode_base64(bytes))
    }

    /// Creates a blob from base64 text, which is not validated.
    pub fn from_base64(mime_type: impl Into<String>, base64: impl Into<String>) -> Self {
        Self { mime_type: mime_type.into(), base64: base64.into().into(), extra: Map::new() }
    }

    /// Returns the data as base64 text.
    pub fn base64(&self) -> &str {
        &self.base64
    }

    /// Decodes the data. Line breaks are ignored, and padding is optional.
    ///
    /// # Errors
    ///
    /// Returns an error if the data is not base64.
    pub fn bytes(&self) -> Result<Vec<u8>, ParseError> {
        decode_base64(&self.base64)
    }
}

/// Writes text as it is, and any other part as one line in brackets, such as `[image/png, 5500 bytes of base64]`.
impl fmt::Display for ContentPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { text, .. } => f.write_str(text),
            Self::Image(blob) | Self::Audio(blob) => {
                write!(f, "[{}, {} bytes of base64]", blob.mime_type, blob.base64.len())
            }
            Self::Resource(EmbeddedResource { uri, .. }) | Self::ResourceLink(ResourceLink { uri, .. }) => {
                write!(f, "[resource {uri}]")
            }
        }
    }
}
