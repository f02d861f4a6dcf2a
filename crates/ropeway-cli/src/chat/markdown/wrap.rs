//! Wraps styled text at word boundaries.

use unicode_width::UnicodeWidthChar as _;

use super::attributes::Attributes;
use crate::terminal::text::{clusters, columns};

/// Maximum unbroken text that is buffered, in bytes.
const MAX_PIECE: usize = 64;

/// Wraps styled text that arrives by character. A word is written when the next character ends it. Attributes are reset after
/// each write.
#[derive(Debug)]
pub(super) struct WordWrapper {
    out: String,
    /// The base attributes for all text.
    base: Attributes,
    /// The column at which lines are wrapped.
    width: usize,
    /// The terminal's width; it breaks longer words itself.
    screen: usize,
    /// Breaks long words instead of leaving that to the terminal.
    breaks_words: bool,
    /// The prefix for a block's first line, such as a bullet, until it is written.
    first: Option<Prefix>,
    /// The prefix for the other lines.
    rest: Prefix,
    column: usize,
    /// The line's prefix is written.
    has_prefix: bool,
    /// The line has no words.
    is_fresh: bool,
    /// The line was started by wrapping.
    is_wrapped: bool,
    /// A space at the end of the line was dropped.
    is_full: bool,
    word: Vec<(Attributes, String)>,
    /// An upper bound for the word's width in columns.
    word_columns: usize,
    last: Option<char>,
    /// The word is longer than a line, and its start is written.
    is_long: bool,
}

/// Text before a line.
#[derive(Clone, Debug, Default)]
pub(super) struct Prefix {
    pieces: Vec<(Attributes, String)>,
    columns: usize,
}

impl Prefix {
    pub(super) fn push(&mut self, attributes: Attributes, text: &str) {
        self.pieces.push((attributes, text.to_owned()));
        self.columns += columns(text);
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }
}

impl WordWrapper {
    /// Creates a wrapper with base attributes.
    pub(super) fn new(base: Attributes) -> Self {
        Self {
            out: String::new(),
            base,
            width: 80,
            screen: 80,
            breaks_words: false,
            first: None,
            rest: Prefix::default(),
            column: 0,
            has_prefix: false,
            is_fresh: true,
            is_wrapped: false,
            is_full: false,
            word: Vec::new(),
            word_columns: 0,
            last: None,
            is_long: false,
        }
    }

    /// Wraps further text at this width, on a terminal `screen` columns wide.
    pub(super) fn resize(&mut self, width: usize, screen: usize) {
        self.width = width.max(1);
        self.screen = screen.max(1);
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn screen(&self) -> usize {
        self.screen
    }

    /// Takes the wrapped text.
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    /// Returns `true` if the current line is empty.
    pub(super) fn is_at_start(&self) -> bool {
        self.column == 0
    }

    /// Sets the prefixes for the next block's first line and its other lines.
    pub(super) fn begin(&mut self, first: Prefix, rest: Prefix) {
        self.first = Some(first);
        self.rest = rest;
    }

    /// Writes the line's prefix once.
    pub(super) fn write_prefix(&mut self) {
        if std::mem::replace(&mut self.has_prefix, true) {
            return;
        }
        let prefix = self.first.take().unwrap_or_else(|| self.rest.clone());
        self.column = prefix.columns();
        let base = self.base;
        prefix.pieces.iter().for_each(|(attributes, text)| (*attributes | base).write(text, &mut self.out));
    }

    /// Extends the current line's prefix.
    pub(super) fn extend_prefix(&mut self, attributes: Attributes, text: &str) {
        self.write_prefix();
        self.column += columns(text);
        (attributes | self.base).write(text, &mut self.out);
    }

    /// Writes a line without wrapping.
    pub(super) fn write_line(&mut self, line: &str) {
        self.end_word();
        self.write_prefix();
        self.out.push_str(line);
        self.end_line();
        self.is_wrapped = false;
    }

    /// Adds a prose character.
    pub(super) fn push(&mut self, c: char, attributes: Attributes) {
        match c {
            '\n' => self.newline(),
            ' ' | '\t' => {
                self.end_word();
                self.write_prefix();
                // A space beyond the width would start the next line.
                if self.column >= self.width {
                    self.is_full = true;
                } else if !(self.is_wrapped && self.is_fresh) {
                    self.out.push(' ');
                    self.column += 1;
                }
            }
            _ => {
                if self.last.is_some_and(|last| can_break(last, c)) {
                    self.end_word();
                }
                self.add(c, attributes);
                let room = self.width.saturating_sub(self.rest.columns()).max(1);
                if !self.breaks_words && (self.is_long || self.word_columns > room) {
                    self.begin_long_word(c);
                }
            }
        }
    }

    /// Adds a character without wrapping.
    pub(super) fn push_verbatim(&mut self, c: char, attributes: Attributes) {
        if c == '\n' {
            return self.newline();
        }
        self.is_long = true;
        self.write_prefix();
        let is_blank = |c: char| c == ' ' || c == '\t';
        // Indentation is written with the following word.
        let has_word = |word: &[(Attributes, String)]| word.iter().any(|(_, text)| text.contains(|c| !is_blank(c)));
        if self.last.is_some_and(is_blank) && !is_blank(c) && has_word(&self.word) {
            self.write_word();
        }
        self.add(c, attributes);
        if self.word_length() >= MAX_PIECE {
            self.write_word();
        }
    }

    /// Ends the line, after its prefix.
    pub(super) fn newline(&mut self) {
        self.end_word();
        self.write_prefix();
        self.end_line();
        self.is_wrapped = false;
    }

    /// Ends and writes the word.
    pub(super) fn end_word(&mut self) {
        self.last = None;
        if self.word.is_empty() {
            self.is_long = false;
            return;
        }
        if !self.is_long {
            let word: usize = self.word.iter().map(|(_, text)| columns(text)).sum();
            if !self.is_fresh && (self.is_full || self.column + word > self.width) {
                self.wrap();
            }
            self.write_prefix();
            if self.breaks_words && self.column + word > self.width {
                return self.break_word();
            }
        }
        self.write_word();
        self.is_long = false;
    }

    fn add(&mut self, c: char, attributes: Attributes) {
        let attributes = attributes | self.base;
        match self.word.last_mut() {
            Some((last, text)) if *last == attributes => text.push(c),
            _ => self.word.push((attributes, c.to_string())),
        }
        self.word_columns += c.width().unwrap_or(0);
        self.last = Some(c);
    }

    fn word_length(&self) -> usize {
        self.word.iter().map(|(_, text)| text.len()).sum()
    }

    /// Writes a word that is longer than a line. The terminal breaks it, so that it can be copied in one piece.
    fn begin_long_word(&mut self, c: char) {
        if !self.is_long {
            if !self.is_fresh {
                self.wrap();
            }
            self.write_prefix();
            self.is_long = true;
        }
        // Not between a character and its combining marks.
        if self.word_length() >= MAX_PIECE && c.width() != Some(0) {
            self.write_word();
        }
    }

    fn write_word(&mut self) {
        for (attributes, text) in std::mem::take(&mut self.word) {
            self.column += columns(&text);
            attributes.write(&text, &mut self.out);
        }
        if self.column > self.screen {
            self.column = (self.column - 1) % self.screen + 1;
        }
        self.word_columns = 0;
        self.is_fresh = false;
    }

    fn break_word(&mut self) {
        for (attributes, text) in std::mem::take(&mut self.word) {
            let mut piece = String::new();
            for (cluster, columns) in clusters(&text) {
                if self.column + columns > self.width && self.column > 0 {
                    attributes.write(&std::mem::take(&mut piece), &mut self.out);
                    self.wrap();
                    self.write_prefix();
                }
                piece.push_str(cluster);
                self.column += columns;
            }
            attributes.write(&piece, &mut self.out);
        }
        self.word_columns = 0;
        self.is_fresh = false;
    }

    fn wrap(&mut self) {
        self.end_line();
        self.is_wrapped = true;
    }

    fn end_line(&mut self) {
        self.out.push('\n');
        self.column = 0;
        self.has_prefix = false;
        self.is_fresh = true;
        self.is_full = false;
    }
}

/// Wraps text at `width` columns. Returns each line with its width.
pub(super) fn wrap_text(text: &[(char, Attributes)], width: usize) -> Vec<(String, usize)> {
    let mut wrapper = WordWrapper { breaks_words: true, ..WordWrapper::new(Attributes::PLAIN) };
    wrapper.resize(width, usize::MAX);
    text.iter().for_each(|(c, attributes)| wrapper.push(*c, *attributes));
    wrapper.end_word();
    let measured = |line: &str| (line.to_owned(), columns(&anstream::adapter::strip_str(line).to_string()));
    let text = wrapper.take();
    text.split('\n').map(|line| measured(line.trim_end_matches(' '))).collect()
}

/// Returns `true` if a line may break between two characters: next to wide characters, as in Chinese, Japanese and Korean,
/// except around punctuation (a small part of [UAX #14](https://www.unicode.org/reports/tr14/)).
fn can_break(last: char, next: char) -> bool {
    let is_wide = |c: char| c.width() == Some(2);
    let joins = matches!(next, '\u{1f3fb}'..='\u{1f3ff}') || last == '\u{200d}' || next.width() == Some(0);
    let is_closing =
        "、。，．・：；？！）］｝〉》」』】〕〗’”‥…ー々〻ぁぃぅぇぉっゃゅょァィゥェォッャュョ.,:;?!)]}%".contains(next);
    let is_opening = "（［｛〈《「『【〔〖‘“([{$".contains(last);
    (is_wide(last) || is_wide(next)) && !joins && !is_closing && !is_opening
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(text: &str, width: usize) -> String {
        let mut wrapper = WordWrapper::new(Attributes::PLAIN);
        wrapper.resize(width, width);
        text.chars().for_each(|c| wrapper.push(c, Attributes::PLAIN));
        wrapper.end_word();
        let lines: Vec<String> = wrapper.take().lines().map(|line| line.trim_end().to_owned()).collect();
        lines.join("\n")
    }

    #[test]
    fn lines_wrap_at_word_boundaries() {
        assert_eq!(wrapped("one two three", 7), "one two\nthree");
        assert_eq!(wrapped("one two three", 8), "one two\nthree");
        assert_eq!(wrapped("one  two\n  three", 20), "one  two\n  three");
        assert_eq!(wrapped("a https://example.com/long b", 10), "a\nhttps://example.com/long b");
    }

    #[test]
    fn wide_characters_marks_and_emoji_are_measured_by_columns() {
        assert_eq!(wrapped("日本語の文章。次の文", 8), "日本語の\n文章。次\nの文");
        assert_eq!(wrapped("日本語（注）です", 8), "日本語\n（注）で\nす");
        assert_eq!(wrapped("cafe\u{301} cafe\u{301} cafe\u{301}", 9), "cafe\u{301} cafe\u{301}\ncafe\u{301}");
        assert_eq!(wrapped("👍🏽👍🏽👩‍👩‍👧‍👦👍🏽", 4), "👍🏽👍🏽\n👩‍👩‍👧‍👦👍🏽");
        assert_eq!(wrapped("🇩🇪 🇫🇷 🇯🇵", 5), "🇩🇪 🇫🇷\n🇯🇵");
    }

    #[test]
    fn long_words_in_cells_are_broken() {
        let text: Vec<_> = "ab cdefgh 日本".chars().map(|c| (c, Attributes::PLAIN)).collect();
        let lines = wrap_text(&text, 3);
        let expected = [("ab", 2), ("cde", 3), ("fgh", 3), ("日", 2), ("本", 2)];
        assert_eq!(lines, expected.map(|(line, columns)| (line.to_owned(), columns)));
    }
}
