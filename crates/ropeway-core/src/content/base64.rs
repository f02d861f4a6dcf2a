//! Base64 in all variants that servers send.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use crate::parse_error::ParseError;

pub(super) fn encode_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes base64 with or without padding and line breaks.
///
/// # Errors
///
/// Returns an error if the text is not base64.
pub fn decode_base64(text: &str) -> Result<Vec<u8>, ParseError> {
    let decode = |text: &str| match text.trim_end_matches('=') {
        bare if bare.len() == text.len() => STANDARD_NO_PAD.decode(text),
        _ => STANDARD.decode(text),
    };
    let decoded = match decode(text) {
        Err(_) if text.contains(|c: char| c.is_ascii_whitespace()) => {
            decode(&text.chars().filter(|c| !c.is_ascii_whitespace()).collect::<String>())
        }
        decoded => decoded,
    };
    decoded.map_err(|error| ParseError::new("the data is not valid base64").with_source(error))
}
