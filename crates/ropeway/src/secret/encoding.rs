//! Base64 and hexadecimal forms of a secret, wherever in a longer text it is encoded.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

use super::pattern::Pattern;

/// A shorter piece of base64 or hexadecimal may stand in any text by chance.
const SHORTEST: usize = 8;

/// All encoded forms of a value.
pub(super) fn forms(value: &[u8]) -> Vec<Pattern> {
    let mut forms = vec![hex(value, b"0123456789abcdef"), hex(value, b"0123456789ABCDEF")];
    for engine in [&STANDARD, &URL_SAFE] {
        let whole = engine.encode(value).into_bytes();
        // Of a short value only the whole is long enough to be told from other text, its padding included.
        if whole.ends_with(b"=") && core(value.len(), 0).1 < SHORTEST {
            forms.push(Pattern::plain(whole));
        }
        for offset in 0..3 {
            let mut shifted = vec![0; offset];
            shifted.extend_from_slice(value);
            let encoded = engine.encode(&shifted).into_bytes();
            let (from, to) = core(value.len(), offset);
            let after = !(offset + value.len()).is_multiple_of(3);
            // The digit before holds two or four bits of the first byte. It stays, so that a stream need not hold back
            // every digit until it is known what follows it.
            forms.push(Pattern { bytes: encoded[from..to].to_vec(), after });
        }
    }
    forms.retain(|form| form.bytes.len() >= SHORTEST);
    forms
}

/// From where to where a value alone decides on the characters, when so many bytes of a group of three stand before it.
fn core(length: usize, offset: usize) -> (usize, usize) {
    ((8 * offset).div_ceil(6), 8 * (offset + length) / 6)
}

fn hex(value: &[u8], digits: &[u8; 16]) -> Pattern {
    Pattern::plain(
        value.iter().flat_map(|byte| [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]).collect(),
    )
}

/// Is this a digit of base64, in either alphabet?
pub(super) fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}
