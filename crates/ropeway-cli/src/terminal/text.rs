//! Text for a terminal: cleaning, wrapping and formatting.

use std::os::fd::AsFd;

use ropeway_core::invisible::{
    BYTE_ORDER_MARK, changes_direction, controls_display, hides_text, is_hangul_filler, is_invisible,
};
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::terminal::charset::is_plain;

/// Maximum combining marks per character, as in Unicode's stream-safe text format (UAX #15, D4). Terminals stack
/// them over the lines around.
const MOST_MARKS: usize = 30;

/// Maximum bytes in a grapheme cluster that is one glyph. Terminals show longer emoji chains one by one.
const LONGEST_CLUSTER: usize = 64;

/// Maximum bytes in a control string (OSC, DCS, APC…) that is dropped. Longer and unterminated ones are shown as text.
const LONGEST_STRING: usize = 4096;

/// Minimum columns for wrapped text at any indentation.
const NARROWEST: usize = 8;

/// Removes escape sequences, control characters, marks that change the text direction and characters that show nothing. Line breaks
/// and tabs are kept.
///
/// For names, use [`clean_line`] or [`clean_names`], so that different names look different; for text that a person approves,
/// [`escape_invisible`], which drops nothing.
pub(crate) fn clean(text: &str) -> String {
    cleaned(text, Cleaner::default())
}

/// Like [`clean`], for text with names: characters that show nothing are escaped.
pub(crate) fn clean_names(text: &str) -> String {
    cleaned(text, Cleaner { escapes_hidden: true, ..Cleaner::default() })
}

fn cleaned(text: &str, mut cleaner: Cleaner) -> String {
    let mut clean = cleaner.push(text);
    clean.push_str(&cleaner.end());
    clean
}

/// Cleans a text that arrives in pieces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cleaner {
    place: CleanerState,
    /// Trailing zero-width characters so far.
    marks: usize,
    /// An unterminated control string's content.
    held: String,
    /// The last character that is shown.
    last: Option<char>,
    /// Whether characters that show nothing are escaped instead of removed.
    escapes_hidden: bool,
}

/// The parser state after a piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CleanerState {
    #[default]
    Text,
    /// After a carriage return, which breaks the line unless a line feed follows.
    Return,
    /// After an escape character.
    Escape,
    /// After an escape character and intermediate bytes.
    LongEscape,
    /// In a control sequence.
    Sequence,
    /// In a control string. Without a terminator it ends at a line break, another escape sequence, the maximum
    /// length or the end of the text, and is shown, because it would hide the following text.
    Swallowed,
    /// After an escape character in a control string.
    SwallowedEscape,
}

impl Cleaner {
    /// Cleans the next piece.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        let mut clean = String::with_capacity(piece.len());
        piece.chars().for_each(|c| self.step(c, &mut clean));
        clean
    }

    /// Returns the remaining text. Another text may follow.
    pub(crate) fn end(&mut self) -> String {
        let mut clean = String::new();
        if self.place == CleanerState::Return {
            clean.push('\n');
        }
        self.release(&mut clean);
        *self = Self { escapes_hidden: self.escapes_hidden, ..Self::default() };
        clean
    }

    fn step(&mut self, c: char, clean: &mut String) {
        self.place = match (self.place, c) {
            (CleanerState::Escape, '[') | (CleanerState::Sequence, ' '..='?') => CleanerState::Sequence,
            (CleanerState::Escape, ']' | 'P' | 'X' | '^' | '_') => CleanerState::Swallowed,
            (CleanerState::Escape | CleanerState::LongEscape, ' '..='/') => CleanerState::LongEscape,
            (CleanerState::Escape | CleanerState::LongEscape, '0'..='~') | (CleanerState::Sequence, '@'..='~') => {
                CleanerState::Text
            }
            (CleanerState::Swallowed, '\u{7}' | '\u{9c}') | (CleanerState::SwallowedEscape, '\\') => {
                self.held.clear();
                CleanerState::Text
            }
            (CleanerState::Swallowed, '\u{1b}') => CleanerState::SwallowedEscape,
            (CleanerState::SwallowedEscape, c) => {
                self.release(clean);
                self.place = CleanerState::Escape;
                return self.step(c, clean);
            }
            (CleanerState::Swallowed, c) if !matches!(c, '\n' | '\r') => {
                self.held.push(c);
                if self.held.len() < LONGEST_STRING {
                    CleanerState::Swallowed
                } else {
                    self.release(clean);
                    CleanerState::Text
                }
            }
            (place, c) => {
                self.release(clean);
                if place == CleanerState::Return && c != '\n' {
                    self.show('\n', clean);
                }
                // A character that cannot continue a sequence ends it.
                match c {
                    '\r' => CleanerState::Return,
                    '\u{1b}' => CleanerState::Escape,
                    '\u{9b}' => CleanerState::Sequence,
                    '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => CleanerState::Swallowed,
                    c => {
                        self.show(c, clean);
                        CleanerState::Text
                    }
                }
            }
        };
    }

    /// Shows an unterminated control string's content.
    fn release(&mut self, clean: &mut String) {
        std::mem::take(&mut self.held).chars().for_each(|c| self.show(c, clean));
    }

    /// Shows a character, unless it is a control character, changes the text direction or exceeds the maximum number of marks.
    fn show(&mut self, c: char, clean: &mut String) {
        if changes_direction(c) || c == BYTE_ORDER_MARK || (c.is_control() && !matches!(c, '\n' | '\t')) {
            return;
        }
        if self.is_hidden(c) {
            if self.escapes_hidden {
                clean.extend(c.escape_unicode());
            }
            return;
        }
        self.last = Some(c);
        self.marks = if !c.is_ascii() && c.width() == Some(0) { self.marks + 1 } else { 0 };
        if self.marks <= MOST_MARKS {
            clean.push(c);
        }
    }
}

impl Cleaner {
    /// Returns `true` for characters that show nothing, so that different texts would look the same.
    fn is_hidden(&self, c: char) -> bool {
        match c {
            // They join letters in some scripts, and emoji, but no ASCII characters.
            '\u{200c}' | '\u{200d}' => self.last.is_none_or(|last| last.is_ascii()),
            // They name a flag's region.
            '\u{e0020}'..='\u{e007f}' => {
                !self.last.is_some_and(|last| matches!(last, '\u{1f3f4}' | '\u{e0020}'..='\u{e007e}'))
            }
            // Emoji need theirs.
            '\u{fe0e}' | '\u{fe0f}' => false,
            c => is_invisible(c) || is_hangul_filler(c),
        }
    }
}

/// Returns a description's first sentence.
pub(crate) fn first_sentence(description: &str) -> String {
    let text = clean(description);
    let paragraphs = text.trim().split("\n\n").map(clean_line);
    let paragraph = paragraphs.into_iter().find(|paragraph| !paragraph.is_empty()).unwrap_or_default();
    let is_end = |at: &usize| {
        // "e.g. this" and "v1. it" do not end a sentence.
        let next = paragraph[at + 2..].chars().next();
        let before = paragraph[..*at].rsplit(' ').next().unwrap_or_default();
        next.is_some_and(|next| !next.is_lowercase()) && !before.contains('.')
    };
    let end = paragraph.match_indices(". ").map(|(at, _)| at).find(is_end);
    paragraph[..end.unwrap_or(paragraph.len())].trim_end_matches('.').to_owned()
}

/// Cleans a text and joins its lines. Characters that show nothing are escaped.
pub(crate) fn clean_line(text: &str) -> String {
    clean_names(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Strips the prefix for models from tool names: `` `mcp_files_read` `` becomes `` `files_read` ``.
pub(crate) fn strip_model_prefix(words: &str) -> String {
    words.replace("`mcp_", "`")
}

/// Returns a line's width in columns.
pub(crate) fn columns(text: &str) -> usize {
    if text.is_ascii() { text.width() } else { clusters(text).map(|(_, columns)| columns).sum() }
}

/// Returns a text's grapheme clusters with their widths.
pub(crate) fn clusters(text: &str) -> impl DoubleEndedIterator<Item = (&str, usize)> {
    text.graphemes(true).map(|cluster| {
        let columns = match cluster.len() {
            1 => 1,
            2..=LONGEST_CLUSTER => cluster.width(),
            _ => cluster.chars().filter_map(char::width).sum(),
        };
        (cluster, columns)
    })
}

/// Truncates a text to `most` columns, with `…` at the end.
pub(crate) fn cut(text: &str, most: usize) -> String {
    // A plain ellipsis takes three columns.
    let most = if is_plain() && columns(text) > most { most.saturating_sub(2) } else { most };
    // `kept` is the length in bytes that fits before `…`. Stops at the first cluster that does not fit.
    let (mut used, mut length, mut kept) = (0, 0, 0);
    for (cluster, columns) in clusters(text) {
        used += columns;
        length += cluster.len();
        if used > most {
            return match most {
                0 => String::new(),
                _ => format!("{}…", text[..kept].trim_end_matches(['\u{200d}', ' '])),
            };
        }
        if used < most {
            kept = length;
        }
    }
    text.to_owned()
}

/// Like [`cut`], but between words, unless that hides more than half of the text.
pub(crate) fn cut_words(text: &str, most: usize) -> String {
    let short = cut(text, most);
    let Some(kept) = short.strip_suffix('…').filter(|_| short != text) else { return short };
    if text[kept.len()..].starts_with(' ') {
        return short;
    }
    match kept.rfind(' ') {
        Some(end) if columns(&kept[..end]) >= most / 2 => format!("{}…", kept[..end].trim_end()),
        _ => short,
    }
}

/// Escapes control characters in JSON strings. The value stays the same.
pub(crate) fn clean_json(json: &str) -> String {
    let harmful = |c: char| c != '\n' && is_harmful(c);
    if !json.contains(harmful) {
        return json.to_owned();
    }
    // JSON syntax is ASCII, so these characters occur only in strings, where an escape is equivalent.
    json.chars().fold(String::with_capacity(json.len()), |mut safe, c| {
        if c == '\r' {
            // A raw carriage return occurs only between values, where a space is equivalent.
            safe.push(' ');
        } else if harmful(c) {
            safe.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            safe.push(c);
        }
        safe
    })
}

/// Returns `true` for characters that control a terminal or the text direction, except tabs.
fn is_harmful(c: char) -> bool {
    c != '\t' && controls_display(c)
}

/// Escapes control characters in log lines. Colour sequences are kept if `colours` is set.
pub(crate) fn escape_controls(text: &str, colours: bool) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c| c != '\n' && is_harmful(c)) {
        safe.push_str(&rest[..at]);
        rest = &rest[at..];
        let sequence = if colours { colour(rest) } else { 0 };
        if sequence > 0 {
            safe.push_str(&rest[..sequence]);
            rest = &rest[sequence..];
        } else if let Some(c) = rest.chars().next() {
            safe.extend(c.escape_default());
            rest = &rest[c.len_utf8()..];
        }
    }
    safe.push_str(rest);
    safe
}

/// Formats text that a person approves on one line. Control and invisible characters are escaped; nothing is
/// dropped, and spaces are kept.
pub(crate) fn escape_invisible(text: &str) -> String {
    let mut marks = 0;
    text.chars().fold(String::with_capacity(text.len()), |mut seen, c| {
        marks = if c.width() == Some(0) { marks + 1 } else { 0 };
        if hides_text(c) || marks > MOST_MARKS {
            match c {
                '\n' | '\r' | '\t' => seen.extend(c.escape_default()),
                c => seen.extend(c.escape_unicode()),
            }
        } else {
            seen.push(c);
        }
        seen
    })
}

/// Returns the length of a colour sequence at the start of the text, or 0.
fn colour(text: &str) -> usize {
    let Some(parameters) = text.strip_prefix("\u{1b}[") else { return 0 };
    match parameters.find(|c: char| !c.is_ascii_digit() && c != ';') {
        Some(end) if parameters[end..].starts_with('m') => end + 3,
        _ => 0,
    }
}

/// Folds one line to a width, each line after `indent` spaces: at a space if possible, otherwise within a word. All
/// other spaces are kept.
pub(crate) fn fold(text: &str, width: usize, indent: usize) -> String {
    let space = " ".repeat(indent);
    let room = width.saturating_sub(indent).max(NARROWEST);
    let mut folded = space.clone();
    // The line begins at the byte `start` and takes `used` columns; `blank` is its last blank, with the columns before it.
    let (mut start, mut used, mut at) = (0, 0, 0);
    let mut blank: Option<(usize, usize)> = None;
    for (cluster, columns) in clusters(text) {
        if cluster == " " && at > start {
            blank = Some((at, used));
        }
        used += columns;
        if used > room && at > start {
            let (end, next, before) = match blank.take() {
                Some((blank, before)) => (blank, blank + 1, before + 1),
                None => (at, at, used - columns),
            };
            folded.push_str(&text[start..end]);
            folded.push('\n');
            folded.push_str(&space);
            start = next;
            used -= before;
        }
        at += cluster.len();
    }
    folded.push_str(&text[start..]);
    folded.push('\n');
    folded
}

/// Wraps text to a width, each line after `indent` spaces; line breaks and list indentation are kept. A word that is longer than
/// a line stays whole, since it may be a URL; [`fold`] breaks text that a person decides on.
pub(crate) fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut wrapped = String::new();
    let mut blank = false;
    for line in text.trim().lines() {
        let line = line.replace('\t', "    ");
        if line.trim().is_empty() {
            // One empty line separates as well as many.
            if !blank {
                wrapped.push('\n');
            }
            blank = true;
            continue;
        }
        blank = false;
        let own_indent = (line.len() - line.trim_start_matches(' ').len()).min(width / 4);
        let start = " ".repeat(indent + own_indent);
        let mut used = start.len();
        wrapped.push_str(&start);
        let mut first = true;
        for word in line.split_whitespace() {
            let length = columns(word);
            if !first && used + 1 + length > width {
                wrapped.push('\n');
                wrapped.push_str(&start);
                used = start.len();
            } else if !first {
                wrapped.push(' ');
                used += 1;
            }
            wrapped.push_str(word);
            used += length;
            first = false;
        }
        wrapped.push('\n');
    }
    wrapped
}

/// Formats a count with its noun: `1 tool`, `2 tools`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Formats a size in bytes: `812 B`, `12 KB`, `3.4 MB`.
pub(crate) fn size(bytes: usize) -> String {
    const UNITS: [&str; 3] = ["KB", "MB", "GB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1000.0;
    let mut unit = 0;
    while amount >= 999.5 && unit + 1 < UNITS.len() {
        amount /= 1000.0;
        unit += 1;
    }
    let decimals = usize::from(amount < 9.95);
    format!("{amount:.decimals$} {}", UNITS[unit])
}

/// Returns the columns for output on standard output, 80 without a terminal.
pub(crate) fn width() -> usize {
    terminal_width(&std::io::stdout()).unwrap_or(80)
}

/// Returns a terminal's columns, 80 if unknown.
pub(crate) fn screen_columns(stream: &impl AsFd) -> usize {
    terminal_size::terminal_size_of(stream).map_or(80, |(terminal_size::Width(columns), _)| usize::from(columns).max(1))
}

/// Returns the columns for output on a terminal, limited to a readable line length.
pub(crate) fn terminal_width(stream: &impl AsFd) -> Option<usize> {
    let (terminal_size::Width(columns), _) = terminal_size::terminal_size_of(stream)?;
    Some(usize::from(columns).clamp(20, 110))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_removes_only_terminal_controls() {
        for (dirty, harmless) in [
            ("plain\ttext\nÜber 日本 👍", "plain\ttext\nÜber 日本 👍"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}[2J\u{1b}[Hgone", "gone"),
            ("\u{1b}]0;title\u{7}after", "after"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}Pq#0\u{1b}\\after", "after"),
            ("\u{1b}(Bset", "set"),
            ("\u{9b}31mred", "red"),
            ("\u{9d}0;t\u{9c}after", "after"),
            ("bell\u{7} back\u{8} del\u{7f} nul\0", "bell back del nul"),
            ("safe\u{202e}txt.exe", "safetxt.exe"),
            ("one\r\ntwo\rthree", "one\ntwo\nthree"),
            ("\u{1b}]never ended\nnext line", "never ended\nnext line"),
            ("Adds.\u{1b}] Sends keys first.", "Adds. Sends keys first."),
            ("\u{90}a\rb", "a\nb"),
            ("\u{1b}]cut off\u{1b}", "cut off"),
            ("\u{1b}]one \u{1b}[31mred\u{7}", "one red"),
            ("\u{1b}]bidi\u{202e} \u{9d}C1", "bidi C1"),
            ("\u{1b}", ""),
            ("\u{1b}[", ""),
            ("\u{1b}[31", ""),
            ("e\u{301}\u{302}", "e\u{301}\u{302}"),
        ] {
            assert_eq!(clean(dirty), harmless, "{dirty:?}");
            assert_eq!(clean(&clean(dirty)), harmless, "{dirty:?} twice");
            let mut cleaner = Cleaner::default();
            let letters = dirty.chars().map(|c| cleaner.push(&c.to_string())).collect::<String>();
            assert_eq!(letters + &cleaner.end(), harmless, "{dirty:?} letter by letter");
        }
    }

    #[test]
    fn hidden_characters_are_removed_from_text_and_escaped_in_names() {
        for (dirty, text, name) in [
            ("re\u{200b}ad", "read", r"re\u{200b}ad"),
            ("read\u{e0041}\u{e007f}", "read", r"read\u{e0041}\u{e007f}"),
            ("re\u{200d}ad\u{2060}\u{ad}\u{3164}", "read", r"re\u{200d}ad\u{2060}\u{ad}\u{3164}"),
            (
                "👩\u{200d}💻 ❤\u{fe0f} می\u{200c}خواهم",
                "👩\u{200d}💻 ❤\u{fe0f} می\u{200c}خواهم",
                "👩\u{200d}💻 ❤\u{fe0f} می\u{200c}خواهم",
            ),
        ] {
            assert_eq!(clean(dirty), text);
            assert_eq!(clean_line(dirty), name);
            assert_eq!(clean_line(name), name);
            let mut cleaner = Cleaner::default();
            let letters = dirty.chars().map(|c| cleaner.push(&c.to_string())).collect::<String>();
            assert_eq!(letters + &cleaner.end(), text, "letter by letter");
        }
        assert_ne!(clean_line("re\u{200b}ad"), clean_line("read"), "two tools do not look the same");
    }

    #[test]
    fn a_control_string_hides_no_more_than_its_greatest_length() {
        let mut cleaner = Cleaner::default();
        let shown = cleaner.push(&format!("\u{1b}]{}", "x".repeat(3 * LONGEST_STRING)));
        assert_eq!(shown.len(), 3 * LONGEST_STRING, "nothing is held for longer");
        assert_eq!(cleaner.push("\u{7}after") + &cleaner.end(), "after");
    }

    #[test]
    fn text_to_decide_on_is_escaped_and_nothing_of_it_is_left_out() {
        for (text, seen) in [
            ("plain  text 日本 é e\u{301} 👍 ❤\u{fe0f}", "plain  text 日本 é e\u{301} 👍 ❤\u{fe0f}"),
            ("\u{90}:DIR/bin:/usr/bin", r"\u{90}:DIR/bin:/usr/bin"),
            ("\u{1b}]x:/evil.so", r"\u{1b}]x:/evil.so"),
            ("one\r\n\ttwo", r"one\r\n\ttwo"),
            ("a\u{202e}b\u{200b}c\u{ad}d\u{61c}e\u{2028}f", r"a\u{202e}b\u{200b}c\u{ad}d\u{61c}e\u{2028}f"),
            ("\u{2800}\u{3164}\u{a0}\u{e0041}\u{fe00}", r"\u{2800}\u{3164}\u{a0}\u{e0041}\u{fe00}"),
        ] {
            assert_eq!(escape_invisible(text), seen);
        }
        let stack = format!("a{}", "\u{301}".repeat(MOST_MARKS + 1));
        assert!(escape_invisible(&stack).ends_with("\u{301}\\u{301}"));
    }

    #[test]
    fn a_line_that_is_folded_keeps_its_blanks_and_its_indentation() {
        assert_eq!(fold("one  two", 80, 2), "  one  two\n");
        assert_eq!(fold("one two three four", 12, 2), "  one two\n  three four\n");
        assert_eq!(fold("one two   three", 10, 2), "  one two \n   three\n");
        assert_eq!(fold(&"x".repeat(20), 10, 2), "  xxxxxxxx\n  xxxxxxxx\n  xxxx\n");
        assert_eq!(fold("日本日本日本", 11, 2), "  日本日本\n  日本\n");
        assert_eq!(fold(" 123456789", 8, 0), " 1234567\n89\n");
        assert_eq!(fold("a b", usize::MAX, 4), "    a b\n");
        assert_eq!(fold("", 80, 2), "  \n");
    }

    #[test]
    fn cleaned_json_has_the_same_value() {
        let value = serde_json::json!({"a": "\u{9b}31m\u{7f}\u{202e}ü"});
        let safe = clean_json(&value.to_string());
        assert_eq!(safe, r#"{"a":"\u009b31m\u007f\u202eü"}"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).expect("JSON"), value);
    }

    #[test]
    fn lines_are_wrapped_between_words_and_keep_their_indentation() {
        assert_eq!(wrap("one two three four", 9, 0), "one two\nthree\nfour\n");
        assert_eq!(wrap("one two", 20, 4), "    one two\n");
        assert_eq!(wrap("list:\n  - one two three\n\n\n\nend", 16, 2), "  list:\n    - one two\n    three\n\n  end\n");
        assert_eq!(wrap("an unbreakable word", 12, 2), "  an\n  unbreakable\n  word\n");
        assert_eq!(wrap("unbreakable", 4, 0), "unbreakable\n");
        assert_eq!(wrap("  \n ", 10, 2), "");
    }

    #[test]
    fn wide_characters_take_two_columns_and_marks_take_none() {
        assert_eq!(["", "abc", "日本", "e\u{301}", "●", "👍"].map(columns), [0, 3, 4, 1, 1, 2]);
        assert_eq!(wrap("日本 日本 日本", 9, 0), "日本 日本\n日本\n");
    }

    #[test]
    fn text_is_cut_by_columns_with_an_ellipsis() {
        for (text, most, expected) in [
            ("plain", 5, "plain"),
            ("plain", 4, "pla…"),
            ("plain", 1, "…"),
            ("plain", 0, ""),
            ("one two", 5, "one…"),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("cafe\u{301}s", 5, "cafe\u{301}s"),
        ] {
            assert_eq!(cut(text, most), expected, "{text} in {most}");
        }
    }

    #[test]
    fn text_is_cut_between_words_unless_much_would_be_lost() {
        for (most, expected) in [(13, "one two three"), (11, "one two…"), (9, "one two…"), (7, "one…"), (2, "o…")]
        {
            assert_eq!(cut_words("one two three", most), expected);
        }
        assert_eq!(cut_words("a get_current_time", 10), "a get_cur…");
    }

    #[test]
    fn stacks_of_combining_marks_are_shown_up_to_a_height() {
        let marks = |count| "\u{301}".repeat(count);
        let stacks = format!("a{} b{}", marks(80_000), marks(40));
        assert_eq!(clean(&stacks), format!("a{} b{}", marks(MOST_MARKS), marks(MOST_MARKS)));
        let mut cleaner = Cleaner::default();
        let pieces: String = stacks.chars().map(|c| cleaner.push(&c.to_string())).collect();
        assert_eq!(pieces, clean(&stacks));
        assert_eq!(columns(&clean(&stacks)), 3);
        for family in ["👩‍👩‍👧‍👦", "🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}", "각", "ที่", "👩🏽‍❤️‍💋‍👨🏽"]
        {
            assert_eq!(clean(family), family);
        }
    }

    /// Each of these took seconds to minutes when every prefix was measured again.
    #[test]
    fn work_on_text_is_linear_in_its_length() {
        let texts = [
            format!("a{}", "\u{301}".repeat(500_000)),
            "👩\u{200d}".repeat(150_000),
            "🇩🇪".repeat(125_000),
            "a".repeat(1_000_000),
            "a\t".repeat(500_000),
            "a\n".repeat(500_000),
            "日".repeat(300_000),
            "क्".repeat(150_000),
            "لا".repeat(250_000),
            ". A".repeat(300_000),
            "\u{200b}".repeat(300_000),
        ];
        for text in texts {
            let began = std::time::Instant::now();
            let all = columns(&text);
            assert!(columns(&cut(&text, 40)) <= 40 && columns(&cut(&text, all / 2)) <= all / 2);
            wrap(&text, 80, 2);
            fold(&text, 80, 2);
            escape_invisible(&text);
            first_sentence(&text);
            clean_json(&clean_line(&text));
            let head: String = text.chars().take(4).collect();
            assert!(began.elapsed().as_secs() < 20, "{head:?} took {:?}", began.elapsed());
        }
    }

    #[test]
    fn the_first_sentence_of_a_description_is_found() {
        for (description, sentence) in [
            ("Adds two numbers. Slowly.", "Adds two numbers"),
            ("Adds, e.g. Two numbers, i.e. a sum. Slowly.", "Adds, e.g. Two numbers, i.e. a sum"),
            ("Reads a file\nof text\n\nArgs: path", "Reads a file of text"),
            ("\n\n  Reads.\n\nMore. Of it.", "Reads"),
            ("Version 1.2 of it", "Version 1.2 of it"),
            ("日本語。 もっと. 続き", "日本語。 もっと"),
            ("", ""),
        ] {
            assert_eq!(first_sentence(description), sentence);
        }
    }

    #[test]
    fn sizes_have_readable_units() {
        let sizes = [0, 999, 1000, 9_949, 12_345, 999_600, 3_400_000, 7_000_000_000_000].map(size);
        assert_eq!(sizes, ["0 B", "999 B", "1.0 KB", "9.9 KB", "12 KB", "1.0 MB", "3.4 MB", "7000 GB"]);
    }
}
