//! Decoding escaped characters: percent-encoding, JSON and Rust `Debug` escapes, HTML entities.

/// Maximum number of backslashes in a row. Text that was escaped more than once has several.
const MAX_BACKSLASHES: usize = 16;

/// Maximum number of characters between an entity's `&` and `;`, with leading zeros.
const MAX_ENTITY: usize = 12;

/// Maximum number of digits in `\u{…}`.
const MAX_DIGITS: usize = 8;

/// Maximum escape length in bytes: a surrogate pair with all its backslashes.
pub(super) const MAX_LENGTH: usize = 2 * (MAX_BACKSLASHES + 5);

/// One way to decode a text's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    bytes: [u8; 4],
    count: u8,
    /// Text bytes that the escape takes.
    pub(super) length: usize,
}

impl Decoded {
    /// A byte that stands for itself.
    pub(super) fn literal(byte: u8) -> Self {
        Self::byte(byte, 1)
    }

    fn byte(byte: u8, length: usize) -> Self {
        Self { bytes: [byte, 0, 0, 0], count: 1, length }
    }

    fn character(character: char, length: usize) -> Self {
        let mut bytes = [0; 4];
        let count = character.encode_utf8(&mut bytes).len() as u8;
        Self { bytes, count, length }
    }

    /// Returns the decoded bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.count)]
    }
}

/// Returns `true` if an escape may start with this byte.
pub(super) fn may_start_escape(byte: u8) -> bool {
    matches!(byte, b'%' | b'\\' | b'&' | b'+')
}

/// Returns the first two bytes of every escape that may decode to a byte in the alphabet, or to a character that starts
/// with one. Leaves out `+` and `\\\\`, whose second byte can be anything.
pub(super) fn prefixes(alphabet: &[bool; 256]) -> Vec<[u8; 2]> {
    let contains_byte = |byte: u8| alphabet[usize::from(byte)];
    let percent = b"0123456789abcdefABCDEF".iter().filter(|digit| {
        let high = char::from(**digit).to_digit(16).unwrap_or_default() as usize;
        alphabet[16 * high..][..16].contains(&true)
    });
    let decode_entity = [(b'a', b'&'), (b'a', b'\''), (b'g', b'>'), (b'l', b'<'), (b'q', b'"')];
    let entities = decode_entity.iter().filter(|(_, meaning)| contains_byte(*meaning)).map(|(letter, _)| letter);
    let escapes = b"nrtbf0\"'/".iter().filter(|letter| {
        decode_backslash(std::slice::from_ref(*letter)).is_some_and(|(character, _)| alphabet[character as usize])
    });
    // `&#`, `\u` and `\x` may decode to any character.
    let mut prefixes: Vec<[u8; 2]> = percent
        .map(|digit| [b'%', *digit])
        .chain(entities.chain(b"#").map(|letter| [b'&', *letter]))
        .chain(escapes.chain(b"ux").map(|letter| [b'\\', *letter]))
        .collect();
    prefixes.dedup();
    prefixes
}

/// Returns the start of the backslash run that ends at `last`, up to the maximum run length.
pub(super) fn backslash_run_start(text: &[u8], last: usize, lowest: usize) -> usize {
    let before = text[lowest.max((last + 1).saturating_sub(MAX_BACKSLASHES))..last].iter().rev();
    last - before.take_while(|byte| **byte == b'\\').count()
}

/// Calls `found` with every way to decode a text's beginning, except for the literal one.
pub(super) fn decodings(text: &[u8], mut found: impl FnMut(Decoded)) {
    match text.first() {
        Some(b'+') => found(Decoded::byte(b' ', 1)),
        Some(b'%') => {
            if let Some(byte) = text.get(1..3).and_then(hex) {
                found(Decoded::byte(byte as u8, 3));
            }
        }
        Some(b'\\') => {
            let run = count_backslashes(text);
            for length in [2, 4, 8] {
                if length <= run {
                    found(Decoded::byte(b'\\', length));
                }
            }
            if let Some((character, length)) = decode_backslash(&text[run..]) {
                found(Decoded::character(character, run + length));
            }
        }
        Some(b'&') => {
            let entity = &text[1..text.len().min(MAX_ENTITY + 2)];
            if let Some(end) = entity.iter().position(|byte| !is_in_entity(*byte))
                && entity[end] == b';'
                && let Some(character) = decode_entity(&entity[..end])
            {
                found(Decoded::character(character, end + 2));
            }
        }
        _ => {}
    }
}

/// Returns `true` if the text may begin an escape whose end is missing.
pub(super) fn is_incomplete(text: &[u8]) -> bool {
    match text.first() {
        Some(b'%') => text.len() < 3 && text[1..].iter().all(u8::is_ascii_hexdigit),
        Some(b'\\') => {
            let run = count_backslashes(text);
            let rest = &text[run..];
            match rest.first() {
                None => run < MAX_BACKSLASHES,
                Some(b'x') => rest.len() < 3 && rest[1..].iter().all(u8::is_ascii_hexdigit),
                Some(b'u') => match rest.strip_prefix(b"u{") {
                    Some(digits) => digits.len() <= MAX_DIGITS && digits.iter().all(u8::is_ascii_hexdigit),
                    None if rest.len() < 5 => rest[1..].iter().all(u8::is_ascii_hexdigit),
                    // A surrogate pair's second half is escaped like the first.
                    None => {
                        rest.get(1..5).and_then(hex).is_some_and(is_high_surrogate)
                            && is_incomplete_surrogate(&rest[5..])
                    }
                },
                _ => false,
            }
        }
        Some(b'&') => text.len() <= MAX_ENTITY + 1 && text[1..].iter().all(|byte| is_in_entity(*byte)),
        _ => false,
    }
}

fn is_incomplete_surrogate(text: &[u8]) -> bool {
    let run = count_backslashes(text);
    let rest = &text[run..];
    match rest.first() {
        None => run < MAX_BACKSLASHES,
        Some(b'u') => run > 0 && rest.len() < 5 && rest[1..].iter().all(u8::is_ascii_hexdigit),
        Some(_) => false,
    }
}

fn count_backslashes(text: &[u8]) -> usize {
    text.iter().take(MAX_BACKSLASHES).take_while(|byte| **byte == b'\\').count()
}

fn is_in_entity(byte: u8) -> bool {
    byte == b'#' || byte.is_ascii_alphanumeric()
}

/// Decodes the text after backslashes. Returns the character and its escape's length.
fn decode_backslash(text: &[u8]) -> Option<(char, usize)> {
    let simple = match text.first()? {
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'0' => '\0',
        same @ (b'"' | b'\'' | b'/') => char::from(*same),
        b'x' => return Some((char::from(hex(text.get(1..3)?)? as u8), 3)),
        b'u' if text.get(1) == Some(&b'{') => {
            let digits = &text[2..text.len().min(3 + MAX_DIGITS)];
            let end = digits.iter().position(|byte| *byte == b'}')?;
            return Some((char::from_u32(hex(&digits[..end])?)?, end + 3));
        }
        b'u' => {
            let first = hex(text.get(1..5)?)?;
            if !is_high_surrogate(first) {
                return Some((char::from_u32(first)?, 5));
            }
            let run = count_backslashes(&text[5..]);
            let second = text.get(5 + run..10 + run)?.strip_prefix(b"u").filter(|_| run > 0).and_then(hex)?;
            let pair = char::decode_utf16([first as u16, second as u16]).next()?.ok()?;
            return Some((pair, 10 + run));
        }
        _ => return None,
    };
    Some((simple, 1))
}

fn is_high_surrogate(unit: u32) -> bool {
    (0xd800..0xdc00).contains(&unit)
}

fn decode_entity(entity: &[u8]) -> Option<char> {
    match entity {
        b"amp" => Some('&'),
        b"lt" => Some('<'),
        b"gt" => Some('>'),
        b"quot" => Some('"'),
        b"apos" => Some('\''),
        [b'#', b'x' | b'X', digits @ ..] => char::from_u32(hex(digits)?),
        [b'#', digits @ ..] => char::from_u32(std::str::from_utf8(digits).ok()?.parse().ok()?),
        _ => None,
    }
}

fn hex(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > MAX_ENTITY {
        return None;
    }
    digits.iter().try_fold(0_u32, |number, digit| number.checked_mul(16)?.checked_add(char::from(*digit).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, usize)> {
        let mut all = Vec::new();
        decodings(text.as_bytes(), |decoded| {
            all.push((String::from_utf8_lossy(decoded.bytes()).into_owned(), decoded.length));
        });
        all
    }

    #[test]
    fn every_escape_is_decoded_and_nothing_else() {
        for (text, meaning, length) in [
            ("%41b", "A", 3),
            ("+", " ", 1),
            ("\\n", "\n", 2),
            ("\\u00e9x", "é", 6),
            ("\\u{1F600}x", "😀", 9),
            ("\\ud83d\\ude00", "😀", 12),
            ("\\x41", "A", 4),
            ("&amp;x", "&", 5),
            ("&#0000039;", "'", 10),
            ("&#x27;", "'", 6),
        ] {
            assert_eq!(read(text), [(meaning.to_owned(), length)], "{text}");
        }
        assert_eq!(read("\\\\\\\\\""), [("\\".to_owned(), 2), ("\\".to_owned(), 4), ("\"".to_owned(), 5)]);
        for text in
            ["", "%", "%4", "%4g", "&", "&amp", "&am p;", "&#;", "&#xd800;", "\\u{", "\\u{}", "\\ud83d", "\\u12"]
        {
            assert_eq!(read(text), [], "{text}");
        }
    }

    #[test]
    fn every_decoded_escape_starts_with_a_known_prefix() {
        let pieces = [
            "%4", "%41", "%c3", "%C3", "\\", "\\\\", "\\n", "\\\"", "u0041", "x41", "&", "amp;", "&#39;", "&lt;",
            "&gt;", "&quot;", "&apos;", "+", "0", " ",
        ];
        let alphabets = ["A", "\"", "\n", "&", "'", "<", ">", "é", "ab\u{8}\u{c}\0/\r\t"].map(|bytes| {
            let mut alphabet = [false; 256];
            bytes.bytes().for_each(|byte| alphabet[usize::from(byte)] = true);
            alphabet
        });
        let mut texts = Vec::new();
        for one in pieces {
            for two in pieces {
                texts.extend(pieces.map(|three| format!("{one}{two}{three}")));
            }
        }
        for text in texts {
            for alphabet in &alphabets {
                let mut is_known = false;
                decodings(text.as_bytes(), |decoded| is_known |= alphabet[usize::from(decoded.bytes()[0])]);
                let last = count_backslashes(text.as_bytes()).saturating_sub(1);
                let is_found =
                    prefixes(alphabet).iter().any(|beginning| text.as_bytes()[last..].starts_with(beginning));
                assert!(is_found || !is_known, "{text}");
            }
        }
        assert_eq!(backslash_run_start(b"a\\\\\\u", 3, 0), 1);
        assert_eq!(backslash_run_start(b"a\\\\\\u", 3, 2), 2);
        assert_eq!(backslash_run_start(b"\\u", 0, 0), 0);
    }

    #[test]
    fn the_beginning_of_an_escape_is_incomplete() {
        for whole in
            ["%41", "\\n", "\\u00e9", "\\u{1F600}", "\\\\ud83d\\\\ude00", "\\x41", "&amp;", "&#x27;", "\\\\\\\""]
        {
            for end in 1..whole.len() {
                let end_is_known = !read(&whole[..end]).is_empty() && !whole[..end].ends_with('\\');
                assert!(is_incomplete(&whole.as_bytes()[..end]) || end_is_known, "{}", &whole[..end]);
            }
            assert!(!is_incomplete(whole.as_bytes()), "{whole}");
        }
        for text in ["", "a", "% ", "%%", "& b", "&&", "\\q", "\\u12g", "\\u{zz", "\\ud83d ", "&aaaaaaaaaaaaaaaaaaa"] {
            assert!(!is_incomplete(text.as_bytes()), "{text}");
        }
    }
}
