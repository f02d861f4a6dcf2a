//! A secret's base64 and hexadecimal forms, at any offset in a longer encoded text.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

use super::pattern::Pattern;

/// Minimum encoded form length. Shorter ones occur in any text by chance.
const MIN_LENGTH: usize = 8;

/// Returns a value's encoded forms.
pub(super) fn encoded_forms(value: &[u8]) -> Vec<Pattern> {
    let mut forms = vec![hex(value, b"0123456789abcdef"), hex(value, b"0123456789ABCDEF")];
    for engine in [&STANDARD, &URL_SAFE] {
        let whole = engine.encode(value).into_bytes();
        // A short value is only recognisable as a whole, with its padding.
        if whole.ends_with(b"=") && fixed_digits(value.len(), 0).1 < MIN_LENGTH {
            forms.push(Pattern::plain(whole));
        }
        for offset in 0..3 {
            let mut shifted = vec![0; offset];
            shifted.extend_from_slice(value);
            let encoded = engine.encode(&shifted).into_bytes();
            let (from, to) = fixed_digits(value.len(), offset);
            let takes_next_digit = !(offset + value.len()).is_multiple_of(3);
            // The digit before holds two or four bits of the first byte. It is not redacted: a stream would have to hold
            // back every digit until the next one arrives.
            forms.push(Pattern { bytes: encoded[from..to].to_vec(), takes_next_digit });
        }
    }
    forms.retain(|form| form.bytes.len() >= MIN_LENGTH);
    forms
}

/// Returns the range of base64 digits that depend on the value alone, `offset` bytes after a group of three.
fn fixed_digits(length: usize, offset: usize) -> (usize, usize) {
    ((8 * offset).div_ceil(6), 8 * (offset + length) / 6)
}

fn hex(value: &[u8], digits: &[u8; 16]) -> Pattern {
    Pattern::plain(
        value.iter().flat_map(|byte| [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]).collect(),
    )
}

/// Returns `true` for a base64 digit in either alphabet.
pub(super) fn is_base64_digit(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}
