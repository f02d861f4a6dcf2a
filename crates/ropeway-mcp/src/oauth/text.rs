//! Other parties' text in messages: one line, bounded, without invisible characters.

use ropeway_core::invisible::{controls_display, is_hangul_filler, is_invisible};
use ropeway_core::secret::Redactor;

/// Maximum number of characters in a text.
const MAX_CHARS: usize = 300;

/// Number of bytes to inspect. A longer text is cut off before redaction.
const MAX_SCANNED: usize = 16 << 10;

/// Returns a server's text in a form that can be shown. Secrets are removed before it is truncated.
pub(super) fn shown(text: &str, redactor: &Redactor) -> String {
    let text = if text.len() > MAX_SCANNED {
        redactor.redact_truncated(&text[..text.floor_char_boundary(MAX_SCANNED)])
    } else {
        redactor.redact(text)
    };
    let mut line = String::new();
    let mut count = 0;
    for word in text.split_whitespace() {
        let separator = if line.is_empty() { "" } else { " " };
        line.push_str(separator);
        count += separator.len();
        for c in word.chars().filter(|c| !is_hidden(*c)) {
            if count == MAX_CHARS {
                line.push('…');
                return line;
            }
            line.push(c);
            count += 1;
        }
    }
    line
}

/// Returns `true` for characters that are not shown, or that change how a terminal shows the text around them.
pub(super) fn is_hidden(c: char) -> bool {
    controls_display(c) || is_invisible(c) || is_hangul_filler(c)
}

/// Returns a URL without its query and user information, which can contain secrets.
pub(super) fn shown_url(url: &reqwest::Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // These fail for URLs without a host, which have no user either.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.as_str().chars().take(MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_core::secret::Secret;

    #[test]
    fn shown_text_is_one_bounded_line_without_secrets() {
        let redactor = Redactor::new(&[Secret::new("s3cret-value")]);
        assert_eq!(shown(" a\u{1b}[31m\n b\u{202e} s3cret-value ", &redactor), "a[31m b ***");
        assert_eq!(shown("the end is s3cret", &redactor), "the end is s3cret");
        let long = shown(&"x".repeat(1000), &redactor);
        assert_eq!(long.chars().count(), MAX_CHARS + 1);
    }

    #[test]
    fn shown_urls_have_neither_query_nor_user() {
        let url = reqwest::Url::parse("https://user:pass@a.example/token?code=1#x").expect("a URL");
        assert_eq!(shown_url(&url), "https://a.example/token");
    }
}
