//! Base64 as servers write it.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

/// Data that was said to be base64 is not.
#[derive(Debug, thiserror::Error)]
#[error("the data is not valid base64")]
pub struct Base64Error(#[source] base64::DecodeError);

pub(super) fn encode_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes base64 text as servers write it: padded or not, in one line or in many.
pub fn decode_base64(text: &str) -> Result<Vec<u8>, Base64Error> {
    let decode = |text: &str| match text.trim_end_matches('=') {
        bare if bare.len() == text.len() => STANDARD_NO_PAD.decode(text),
        _ => STANDARD.decode(text),
    };
    let first = decode(text);
    match first {
        Ok(bytes) => Ok(bytes),
        Err(_) if text.contains(|c: char| c.is_ascii_whitespace()) => {
            let compact: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
            decode(&compact).map_err(Base64Error)
        }
        Err(error) => Err(Base64Error(error)),
    }
}
