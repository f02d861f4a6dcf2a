//! Gemini generateContent.

mod content;
mod decode;
mod encode;
mod frame;
mod model;
#[cfg(test)]
mod tests;

pub(super) use self::decode::Decoder;
pub(super) use self::encode::{encode, url};

/// The field of a part that holds the signature of a thought; it goes back on the same part.
const SIGNATURE: &str = "thoughtSignature";

/// The field of a part that holds a call. In the `extra` of one of our calls it holds what else the call had: its id above all.
const CALL: &str = "functionCall";
