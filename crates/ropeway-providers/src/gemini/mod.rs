//! [Gemini `generateContent`](https://ai.google.dev/api/generate-content).

mod contents;
mod decode;
mod encode;
mod frame;
mod model;
#[cfg(test)]
mod tests;

pub(super) use self::decode::GeminiDecoder;
pub(super) use self::encode::{encode, url};
