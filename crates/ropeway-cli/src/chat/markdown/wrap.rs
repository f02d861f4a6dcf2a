//! A word wrapper: characters go in, whole words come out, broken into lines at a width.

use unicode_width::UnicodeWidthChar as _;

use super::attributes::Attributes;
use crate::terminal::text::{clusters, columns};

/// The longest piece of an unbroken text that is written at once, in bytes.
const LONGEST_PIECE: usize = 64;

/// Breaks styled text into lines at the ends of words. The text may come character by character: a word is written when the
/// next character shows that it is over. Each write leaves the terminal without attributes.
#[derive(Debug)]
pub(super) struct WordWrapper {
    out: String,
    /// The attributes of all text.
    base: Attributes,
    /// Lines are broken at this column.
    width: usize,
    /// The columns of the terminal, where it breaks a word that is longer than a line.
    screen: usize,
    /// Break long words here instead of leaving that to the terminal.
    breaks_words: bool,
    /// The text before the first line of a block that was not written yet, such as a bullet.
    first: Option<Prefix>,
    /// The text before its other lines.
    rest: Prefix,
    column: usize,
    /// The prefix of the line was written.
    has_prefix: bool,
    /// The line holds no word yet.
    is_fresh: bool,
    /// The line was begun here, at the end of a word, and not by the text.
    is_wrapped: bool,
    /// A space was left out at the end of the line.
    is_full: bool,
    word: Vec<(Attributes, String)>,
    /// The columns of the word, at most.
    word_columns: usize,
    last: Option<char>,
    /// The start of the word was written already, since it is longer than a line.
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
    /// Returns a wrapper whose text all has these attributes.
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

    /// Breaks all that follows at this width, on a terminal of `screen` columns.
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

    /// Returns what can be written by now.
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    /// Returns true if nothing was written to the current line.
    pub(super) fn is_at_start(&self) -> bool {
        self.column == 0
    }

    /// Sets the text before the first line of the next block, and before its other lines.
    pub(super) fn begin(&mut self, first: Prefix, rest: Prefix) {
        self.first = Some(first);
        self.rest = rest;
    }

    /// Writes the prefix of the line, if it was not written.
    pub(super) fn write_prefix(&mut self) {
        if std::mem::replace(&mut self.has_prefix, true) {
            return;
        }
        let prefix = self.first.take().unwrap_or_else(|| self.rest.clone());
        self.column = prefix.columns();
        let base = self.base;
        prefix.pieces.iter().for_each(|(attributes, text)| (*attributes | base).write(text, &mut self.out));
    }

    /// Writes more of the prefix of a line that has one already.
    pub(super) fn extend_prefix(&mut self, attributes: Attributes, text: &str) {
        self.write_prefix();
        self.column += columns(text);
        (attributes | self.base).write(text, &mut self.out);
    }

    /// Writes a line that is laid out already.
    pub(super) fn write_line(&mut self, line: &str) {
        self.end_word();
        self.write_prefix();
        self.out.push_str(line);
        self.end_line();
        self.is_wrapped = false;
    }

    /// Adds a character of prose. A line break ends the line.
    pub(super) fn push(&mut self, c: char, attributes: Attributes) {
        match c {
            '\n' => self.newline(),
            ' ' | '\t' => {
                self.end_word();
                self.write_prefix();
                // Spaces at the end of a line would only begin the next one.
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

    /// Adds a character that is shown as it is, without breaking lines.
    pub(super) fn push_verbatim(&mut self, c: char, attributes: Attributes) {
        if c == '\n' {
            return self.newline();
        }
        self.is_long = true;
        self.write_prefix();
        let is_blank = |c: char| c == ' ' || c == '\t';
        // Indentation is written with the word behind it.
        let has_word = |word: &[(Attributes, String)]| word.iter().any(|(_, text)| text.contains(|c| !is_blank(c)));
        if self.last.is_some_and(is_blank) && !is_blank(c) && has_word(&self.word) {
            self.write_word();
        }
        self.add(c, attributes);
        if self.word_length() >= LONGEST_PIECE {
            self.write_word();
        }
    }

    /// Ends the line, behind the prefix at least.
    pub(super) fn newline(&mut self) {
        self.end_word();
        self.write_prefix();
        self.end_line();
        self.is_wrapped = false;
    }

    /// Writes the word, since it is over.
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

    /// Writes what there is of a word that fits no line: the terminal breaks it, so that it is copied in one piece.
    fn begin_long_word(&mut self, c: char) {
        if !self.is_long {
            if !self.is_fresh {
                self.wrap();
            }
            self.write_prefix();
            self.is_long = true;
        }
        // Not in the midst of a character with its marks.
        if self.word_length() >= LONGEST_PIECE && c.width() != Some(0) {
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

/// Breaks text into lines of at most `width` columns, and returns each with the columns that it takes.
pub(super) fn wrap_text(text: &[(char, Attributes)], width: usize) -> Vec<(String, usize)> {
    let mut wrapper = WordWrapper { breaks_words: true, ..WordWrapper::new(Attributes::PLAIN) };
    wrapper.resize(width, usize::MAX);
    text.iter().for_each(|(c, attributes)| wrapper.push(*c, *attributes));
    wrapper.end_word();
    let measured = |line: &str| (line.to_owned(), columns(&anstream::adapter::strip_str(line).to_string()));
    let text = wrapper.take();
    text.split('\n').map(|line| measured(line.trim_end_matches(' '))).collect()
}

/// May a line end between these two characters? Between wide characters, such as those of Chinese, Japanese and Korean, it may;
/// punctuation stays with what it belongs to (a small part of UAX #14).
fn can_break(last: char, next: char) -> bool {
    let is_wide = |c: char| c.width() == Some(2);
    let joins = matches!(next, '\u{1f3fb}'..='\u{1f3ff}') || last == '\u{200d}' || next.width() == Some(0);
    let begins_nothing =
        "、。，．・：；？！）］｝〉》」』】〕〗’”‥…ー々〻ぁぃぅぇぉっゃゅょァィゥェォッャュョ.,:;?!)]}%".contains(next);
    let ends_nothing = "（［｛〈《「『【〔〖‘“([{$".contains(last);
    (is_wide(last) || is_wide(next)) && !joins && !begins_nothing && !ends_nothing
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
    fn lines_end_where_words_end() {
        assert_eq!(wrapped("one two three", 7), "one two\nthree");
        assert_eq!(wrapped("one two three", 8), "one two\nthree");
        assert_eq!(wrapped("one  two\n  three", 20), "one  two\n  three");
        assert_eq!(wrapped("a https://example.com/long b", 10), "a\nhttps://example.com/long b");
    }

    #[test]
    fn wide_characters_marks_and_emoji_are_measured_as_they_are_shown() {
        assert_eq!(wrapped("日本語の文章。次の文", 8), "日本語の\n文章。次\nの文");
        assert_eq!(wrapped("日本語（注）です", 8), "日本語\n（注）で\nす");
        assert_eq!(wrapped("cafe\u{301} cafe\u{301} cafe\u{301}", 9), "cafe\u{301} cafe\u{301}\ncafe\u{301}");
        assert_eq!(wrapped("👍🏽👍🏽👩‍👩‍👧‍👦👍🏽", 4), "👍🏽👍🏽\n👩‍👩‍👧‍👦👍🏽");
        assert_eq!(wrapped("🇩🇪 🇫🇷 🇯🇵", 5), "🇩🇪 🇫🇷\n🇯🇵");
    }

    #[test]
    fn words_in_cells_are_broken_where_they_do_not_fit() {
        let text: Vec<_> = "ab cdefgh 日本".chars().map(|c| (c, Attributes::PLAIN)).collect();
        let lines = wrap_text(&text, 3);
        let expected = [("ab", 2), ("cde", 3), ("fgh", 3), ("日", 2), ("本", 2)];
        assert_eq!(lines, expected.map(|(line, columns)| (line.to_owned(), columns)));
    }
}
