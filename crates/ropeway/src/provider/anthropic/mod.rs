//! Anthropic Messages: a request as blocks, an answer as a stream of blocks.

mod block;
mod decode;
mod encode;
mod frame;
#[cfg(test)]
mod tests;

pub(super) use self::decode::Decoder;
pub(super) use self::encode::{encode, url, version};
