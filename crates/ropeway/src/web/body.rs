//! The body of an answer, as people read it.

use std::borrow::Cow;

use crate::secret::Redactor;

/// How many bytes of a body are looked at.
const MAX_SCANNED: usize = 16 << 10;

/// The beginning of a body in one line; of a page only what a person would read.
pub(crate) fn brief(body: &[u8], mask: &Redactor) -> String {
    let text = String::from_utf8_lossy(body);
    // Hidden before anything is cut or left out: half a secret would not be found.
    let text = match text.len() > MAX_SCANNED {
        true => mask.hide_cut(&text[..text.floor_char_boundary(MAX_SCANNED)]),
        false => mask.hide(&text),
    };
    let text = &text[..text.floor_char_boundary(4000)];
    let words = readable(text);
    let words: Vec<&str> = words.split_whitespace().collect();
    words.join(" ").chars().take(200).collect()
}

/// Of a page only what a person would read; any other text as it is.
pub(crate) fn readable(text: &str) -> Cow<'_, str> {
    if !text.trim_start().starts_with('<') {
        return Cow::Borrowed(text);
    }
    // What stands before the first `>` is the tag itself.
    let behind_tags = text.split('<').map(|part| part.split_once('>').map_or("", |(_, behind)| behind));
    Cow::Owned(behind_tags.collect::<Vec<_>>().join(" "))
}

/// What a stream begins with that was not said to be one.
pub(crate) fn looks_like_sse(start: &[u8]) -> bool {
    let start = start.trim_ascii_start();
    let start = start.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(start);
    ["data:", "event:", "id:", "retry:", ":"].iter().any(|field| start.starts_with(field.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_page_only_the_words_are_told() {
        let page =
            b"<!DOCTYPE html>\n<html><head><title>Error</title></head><body><pre>Cannot POST /sse</pre></body></html>";
        assert_eq!(brief(page, &Redactor::default()), "Error Cannot POST /sse");
        assert_eq!(brief(b" plain\n 1 < 2 ", &Redactor::default()), "plain 1 < 2");
    }
}
