//! Response body summaries, for error messages.

use std::borrow::Cow;

use ropeway_core::secret::Redactor;

/// Number of body bytes to inspect.
const MAX_SCANNED: usize = 16 << 10;

/// Returns the beginning of a body in one line, without HTML tags.
pub fn brief(body: &[u8], redactor: &Redactor) -> String {
    let text = String::from_utf8_lossy(body);
    // Redacted before it is truncated, because half a secret would not be found.
    let text = if text.len() > MAX_SCANNED {
        redactor.redact_truncated(&text[..text.floor_char_boundary(MAX_SCANNED)])
    } else {
        redactor.redact(&text)
    };
    let text = &text[..text.floor_char_boundary(4000)];
    let words = readable(text);
    let words: Vec<&str> = words.split_whitespace().collect();
    words.join(" ").chars().take(200).collect()
}

/// Removes an HTML page's tags. Returns other text unchanged.
pub fn readable(text: &str) -> Cow<'_, str> {
    if !text.trim_start().starts_with('<') {
        return Cow::Borrowed(text);
    }
    // The part before the first `>` is the tag.
    let behind_tags = text.split('<').map(|part| part.split_once('>').map_or("", |(_, behind)| behind));
    Cow::Owned(behind_tags.collect::<Vec<_>>().join(" "))
}

/// Returns `true` if a body looks like an event stream, regardless of its `Content-Type`.
pub fn looks_like_sse(start: &[u8]) -> bool {
    let start = start.trim_ascii_start();
    let start = start.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(start);
    ["data:", "event:", "id:", "retry:", ":"].iter().any(|field| start.starts_with(field.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_a_page_has_no_tags() {
        let page =
            b"<!DOCTYPE html>\n<html><head><title>Error</title></head><body><pre>Cannot POST /sse</pre></body></html>";
        assert_eq!(brief(page, &Redactor::default()), "Error Cannot POST /sse");
        assert_eq!(brief(b" plain\n 1 < 2 ", &Redactor::default()), "plain 1 < 2");
    }
}
