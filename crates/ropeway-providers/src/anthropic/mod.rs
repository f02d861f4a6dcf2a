//! The [Anthropic Messages API](https://docs.anthropic.com/en/api/messages).

mod content_block;
mod decode;
mod encode;
mod event;
#[cfg(test)]
mod tests;

pub(super) use self::decode::AnthropicDecoder;
pub(super) use self::encode::{encode, url, version};
