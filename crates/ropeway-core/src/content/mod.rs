//! Tool result and message content: text, images, audio and resources.

mod base64;
mod media_type;
mod part;
mod read;
mod shared_text;
#[cfg(test)]
mod tests;
mod write;

pub use self::base64::decode_base64;
pub use self::media_type::sniff_media_type;
pub use self::part::{Blob, ContentPart, EmbeddedResource, ResourceContents, ResourceLink, plain_text};
pub(crate) use self::read::{PartSeed, visit_as_text};
pub use self::shared_text::SharedText;
pub(crate) use self::shared_text::SourceBytes;
