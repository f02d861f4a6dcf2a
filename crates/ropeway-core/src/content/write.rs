//! Serializes content blocks.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::part::{ContentPart, EmbeddedResource, ResourceContents};

impl Serialize for ContentPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let extra = match self {
            Self::Text { text, extra } => {
                map.serialize_entry("type", "text")?;
                map.serialize_entry("text", text)?;
                extra
            }
            Self::Image(part) | Self::Audio(part) => {
                map.serialize_entry("type", if matches!(self, Self::Image(_)) { "image" } else { "audio" })?;
                map.serialize_entry("data", &part.base64)?;
                map.serialize_entry("mimeType", &part.mime_type)?;
                &part.extra
            }
            Self::Resource(part) => {
                map.serialize_entry("type", "resource")?;
                map.serialize_entry("resource", &InnerResource(part))?;
                &part.extra
            }
            Self::ResourceLink(part) => {
                map.serialize_entry("type", "resource_link")?;
                map.serialize_entry("uri", &part.uri)?;
                map.serialize_entry("name", &part.name)?;
                if let Some(mime_type) = &part.mime_type {
                    map.serialize_entry("mimeType", mime_type)?;
                }
                &part.extra
            }
        };
        for (key, value) in extra {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// The `resource` object inside a resource block.
struct InnerResource<'a>(&'a EmbeddedResource);

impl Serialize for InnerResource<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("uri", &self.0.uri)?;
        if let Some(mime_type) = &self.0.mime_type {
            map.serialize_entry("mimeType", mime_type)?;
        }
        match &self.0.contents {
            ResourceContents::Text(text) => map.serialize_entry("text", text)?,
            ResourceContents::Blob(blob) => map.serialize_entry("blob", blob)?,
        }
        for (key, value) in &self.0.resource_extra {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}
