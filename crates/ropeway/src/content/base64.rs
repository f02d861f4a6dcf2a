//! Base64 in all variants that servers send.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

/// Error returned for invalid base64.
#[derive(Debug, thiserror::Error)]
#[error("the data is not valid base64")]
pub struct Base64Error(#[source] base64::DecodeError);

pub(super) fn encode_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes base64 with or without padding and line breaks.
///
/// # Errors
///
/// Returns an error if the text is not base64.
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
