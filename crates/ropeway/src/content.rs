//! Content in tool results and messages: text, images, audio and resources.
//!
//! [`ContentPart`] is one piece of content, as the MCP specification defines it.

pub use ropeway_core::content::{
    Blob, ContentPart, EmbeddedResource, ResourceContents, ResourceLink, decode_base64, plain_text, sniff_media_type,
};
