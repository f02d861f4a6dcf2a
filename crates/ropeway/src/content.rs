//! Content of tool results and messages: text, images, audio and resources.
//!
//! [`ContentPart`] is one piece of content, in the form of the MCP specification.

pub use ropeway_core::content::{
    Blob, ContentPart, EmbeddedResource, ResourceContents, ResourceLink, decode_base64, plain_text, sniff_media_type,
};
