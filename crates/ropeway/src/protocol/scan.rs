//! Finds the members of a JSON object without parsing their values.

use std::ops::Range;

/// One member of an object, as byte ranges of the scanned text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name, without its quotes.
    pub key: Range<usize>,
    /// The value.
    pub value: Range<usize>,
}

/// The text is not exactly one balanced object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a balanced JSON object")]
pub struct ScanError;

/// Maximum nesting of a scanned object.
const MAX_DEPTH: usize = 1024;

/// Calls `take` with the name and the ranges of each top-level member.
///
/// The grammar inside of values is not checked, except that strings end and that brackets match.
///
/// # Errors
///
/// Fails unless the text is exactly one balanced object.
pub fn scan_object(text: &[u8], mut take: impl FnMut(&[u8], Member)) -> Result<(), ScanError> {
    let mut at = expect(text, 0, b'{')?;
    at = skip_spaces(text, at);
    if text.get(at) == Some(&b'}') {
        return end(text, at + 1);
    }
    loop {
        at = skip_spaces(text, at);
        let key_end = skip_string(text, at)?;
        let key = at + 1..key_end - 1;
        at = expect(text, skip_spaces(text, key_end), b':')?;
        let start = skip_spaces(text, at);
        at = skip_value(text, start)?;
        take(&text[key.clone()], Member { key, value: start..at });
        at = skip_spaces(text, at);
        match text.get(at) {
            Some(b',') => at += 1,
            Some(b'}') => return end(text, at + 1),
            _ => return Err(ScanError),
        }
    }
}

fn expect(text: &[u8], at: usize, byte: u8) -> Result<usize, ScanError> {
    if text.get(at) == Some(&byte) { Ok(at + 1) } else { Err(ScanError) }
}

fn end(text: &[u8], at: usize) -> Result<(), ScanError> {
    if at == text.len() { Ok(()) } else { Err(ScanError) }
}

fn skip_spaces(text: &[u8], at: usize) -> usize {
    at + text[at..].iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count()
}

/// Returns the end of the string that starts at `at`.
fn skip_string(text: &[u8], at: usize) -> Result<usize, ScanError> {
    let mut at = expect(text, at, b'"')?;
    loop {
        let found = memchr::memchr2(b'"', b'\\', text.get(at..).unwrap_or_default()).ok_or(ScanError)?;
        at += found + 1;
        if text[at - 1] == b'"' {
            return Ok(at);
        }
        // The escaped character.
        at += 1;
    }
}

/// Returns the end of the value that starts at `at`.
fn skip_value(text: &[u8], start: usize) -> Result<usize, ScanError> {
    let mut open = Vec::new();
    let mut at = start;
    loop {
        match text.get(at).ok_or(ScanError)? {
            b'"' => at = skip_string(text, at)?,
            b'{' | b'[' if open.len() == MAX_DEPTH => return Err(ScanError),
            bracket @ (b'{' | b'[') => {
                open.push(bracket + 2);
                at += 1;
            }
            b',' | b'}' | b']' if open.is_empty() => {
                let value = text[start..at].trim_ascii_end();
                return if value.is_empty() { Err(ScanError) } else { Ok(start + value.len()) };
            }
            bracket @ (b'}' | b']') => {
                if open.pop() != Some(*bracket) {
                    return Err(ScanError);
                }
                at += 1;
            }
            _ => at += 1,
        }
        if open.is_empty() && matches!(text[at - 1], b'"' | b'}' | b']') {
            return Ok(at);
        }
    }
}
