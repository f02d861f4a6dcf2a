//! Makes call summaries safe to display.

use crate::invisible::{is_filler, is_invisible};
use crate::secret::Redactor;

/// Maximum summary length in characters, including the ellipsis.
const MAX_CHARS: usize = 200;

/// Maximum characters that are read from the original text.
const MAX_INPUT_CHARS: usize = 4096;

/// Returns the text as one truncated line without secrets, escape sequences or invisible characters. Returns `None` if nothing is
/// left.
pub(crate) fn summary_line(text: &str, secrets: &Redactor) -> Option<String> {
    let end = text.char_indices().nth(MAX_INPUT_CHARS).map_or(text.len(), |(at, _)| at);
    let text = if end < text.len() { secrets.redact_truncated(&text[..end]) } else { secrets.redact(text) };
    let visible = without_escapes(&text);
    let words: Vec<&str> = visible.split(is_blank).filter(|word| !word.is_empty()).collect();
    // Removing invisible characters may have joined a secret's halves.
    let line = words.join(" ");
    let line = secrets.redact(&line);
    match line.char_indices().nth(MAX_CHARS) {
        _ if line.is_empty() => None,
        None => Some(line.into_owned()),
        Some(_) => Some(line.chars().take(MAX_CHARS - 1).chain(['…']).collect()),
    }
}

/// Removes ANSI escape sequences and invisible characters.
fn without_escapes(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.peek() {
                Some('[') => {
                    chars.next();
                    skip_csi(&mut chars);
                }
                // Strings (OSC, DCS, SOS, PM, APC) end with BEL or ST.
                Some(']' | 'P' | 'X' | '^' | '_') => skip_string(&mut chars),
                _ => {}
            },
            '\u{9b}' => skip_csi(&mut chars),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => skip_string(&mut chars),
            c if is_blank(c) => visible.push(' '),
            c if c.is_control() || is_invisible(c) => {}
            c => visible.push(c),
        }
    }
    visible
}

/// Skips a control sequence's parameters and final byte (ECMA-48, section 5.4).
fn skip_csi(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    chars.next_if(|c| matches!(c, '@'..='~'));
}

fn skip_string(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while let Some(c) = chars.next_if(|c| *c != '\n') {
        match c {
            '\u{7}' | '\u{9c}' => return,
            '\u{1b}' if chars.next_if_eq(&'\\').is_some() => return,
            _ => {}
        }
    }
}

/// Returns `true` for every kind of blank, including U+2800 and the Hangul fillers.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || is_filler(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    fn line(text: &str) -> Option<String> {
        summary_line(text, &Redactor::default())
    }

    #[test]
    fn a_summary_is_one_line_of_bounded_length() {
        assert_eq!(line(" Delete \r\n  3\u{2028}files\t").as_deref(), Some("Delete 3 files"));
        assert_eq!(line("x".repeat(1_000_000).as_str()).map(|line| line.chars().count()), Some(MAX_CHARS));
        assert_eq!(line(&"é".repeat(MAX_CHARS)).map(|line| line.chars().count()), Some(MAX_CHARS));
        assert_eq!(line(" \u{200b}\n\u{2800}"), None);
    }

    #[test]
    fn a_summary_has_no_escape_sequences_or_invisible_characters() {
        for text in [
            "a\u{1b}[31;1mb\u{1b}[0m",
            "a\u{9b}2Jb",
            "a\u{1b}]0;title\u{7}b",
            "a\u{1b}]8;;http://x\u{1b}\\b",
            "a\u{202e}b\u{2066}\u{e0041}",
            "a\u{8}\u{0}b\u{1b}",
        ] {
            assert_eq!(line(text).as_deref(), Some("ab"), "{text:?}");
        }
    }

    #[test]
    fn a_summary_shows_no_secret_even_when_it_is_split_or_cut() {
        let secrets = Redactor::new([&Secret::new("open-sesame-42")]);
        let shown = |text: &str| summary_line(text, &secrets).unwrap_or_default();
        assert_eq!(shown("Send open-sesame-42 on"), "Send *** on");
        assert_eq!(shown("Send open-\u{200b}sesame-42 on"), "Send *** on");
        for pad in MAX_INPUT_CHARS - 14..MAX_INPUT_CHARS {
            let text = format!("{}open-sesame-42", " ".repeat(pad));
            assert!(!shown(&text).contains("open-ses"), "{pad}: {}", shown(&text));
        }
        for pad in MAX_CHARS - 14..MAX_CHARS {
            let text = format!("{}open-sesame-42", "x".repeat(pad));
            assert!(!shown(&text).contains("open"), "{pad}: {}", shown(&text));
        }
    }
}
