//! Renders streamed Markdown on a terminal.
//!
//! Text is written once its rendering is final and never rewritten, so the cursor never moves back. The parser works by
//! character: the output does not depend on how the text was split. Time is linear in the text, and all buffers are bounded.
//!
//! Blocks follow CommonMark (<https://spec.commonmark.org/0.31.2/>) and GitHub's tables
//! (<https://github.github.com/gfm/#tables-extension->), except that line breaks are kept.

mod attributes;
mod block;
mod code;
mod inline;
mod span;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod wrap;

use self::attributes::Attributes;
pub(super) use self::block::Markdown;
use self::state::{Fence, Level, MAX_START, Start, State};

/// Maximum prose width in columns; longer lines are hard to read.
const MAX_WIDTH: usize = 110;

/// Maximum quote and list nesting; deeper markers are text.
const MAX_QUOTES: usize = 8;
const MAX_LISTS: usize = 12;

/// Maximum indentation that is counted, in columns.
const MAX_INDENT: usize = 200;

impl Markdown {
    /// Creates a renderer. `keeps_markers` shows Markdown markers, for terminals without colours.
    pub(super) fn new(keeps_markers: bool) -> Self {
        Self::with_base(keeps_markers, Attributes::PLAIN)
    }

    /// Creates a renderer for faint text.
    pub(super) fn faint(keeps_markers: bool) -> Self {
        Self::with_base(keeps_markers, Attributes::FAINT)
    }

    /// Parses more text and returns the output that is final, for a terminal `columns` wide.
    pub(super) fn push(&mut self, text: &str, columns: usize) -> String {
        self.wrapper.resize(columns.min(MAX_WIDTH), columns);
        for c in text.chars() {
            self.feed(c);
        }
        self.wrapper.take()
    }

    /// Ends the text and returns the remaining output, with a line break. The renderer can be used again.
    pub(super) fn end(&mut self) -> String {
        if !self.is_at_line_start() {
            self.feed('\n');
        }
        self.end_table();
        self.end_text();
        if !self.wrapper.is_at_start() {
            self.wrapper.newline();
        }
        let rest = self.wrapper.take();
        *self = Self::with_base(self.keeps_markers, self.base);
        rest
    }

    /// Returns `true` if the cursor is at the start of a line.
    pub(super) fn is_at_start(&self) -> bool {
        self.wrapper.is_at_start()
    }

    fn feed(&mut self, c: char) {
        self.pending.push(c);
        while let Some(c) = self.pending.pop() {
            self.step(c);
        }
    }

    fn step(&mut self, c: char) {
        match std::mem::replace(&mut self.state, State::Start(Start::Blank)) {
            State::Start(start) => self.start(start, c),
            State::Text { is_heading } => self.text(is_heading, c),
            State::Code(fence) => self.code(fence, c),
            State::CodeStart(start) => self.code_start(start, c),
            State::Indented => {
                self.wrapper.push_verbatim(c, Attributes::CODE);
                if c != '\n' {
                    self.state = State::Indented;
                } else {
                    self.begin_line();
                }
            }
            State::TableRow => self.table_row(c),
        }
    }

    fn start(&mut self, start: Start, c: char) {
        match start {
            Start::Blank => self.blank(c),
            Start::Quote => match c {
                ' ' => self.state = State::Start(Start::Blank),
                _ => self.blank(c),
            },
            Start::Hashes(count) => match c {
                '#' if count < 6 => self.state = State::Start(Start::Hashes(count + 1)),
                ' ' | '\t' => self.heading(count),
                _ => self.paragraph(&"#".repeat(count), c),
            },
            Start::Marker { marker, text } => self.marker(marker, text, c),
            Start::Digits(mut digits) => match c {
                '0'..='9' if digits.len() < 9 => {
                    digits.push(c);
                    self.state = State::Start(Start::Digits(digits));
                }
                '.' | ')' => {
                    digits.push(c);
                    self.state = State::Start(Start::Number(digits));
                }
                _ => self.paragraph(&digits, c),
            },
            Start::Number(number) => match c {
                ' ' | '\t' if self.depth() < MAX_LISTS => self.item(&number),
                _ => self.paragraph(&number, c),
            },
            Start::Ticks { marker, count } => match c {
                _ if c == marker && count < MAX_START => {
                    self.state = State::Start(Start::Ticks { marker, count: count + 1 });
                }
                _ if count < 3 => self.paragraph(&marker.to_string().repeat(count), c),
                _ => self.info(marker, count, String::new(), c),
            },
            Start::Info { marker, count, info } => self.info(marker, count, info, c),
        }
    }

    fn blank(&mut self, c: char) {
        self.state = State::Start(Start::Blank);
        match c {
            ' ' => self.column = (self.column + 1).min(MAX_INDENT),
            '\t' => self.column = (self.column / 4 * 4 + 4).min(MAX_INDENT),
            '\n' => self.empty_line(),
            _ if self.is_indented_code() => self.indented_code(c),
            '>' if self.quotes < MAX_QUOTES => {
                self.quotes += 1;
                // Inside a list item, the indentation determines the item.
                if !self.is_in_item() {
                    self.column = 0;
                }
                self.state = State::Start(Start::Quote);
            }
            '#' => self.state = State::Start(Start::Hashes(1)),
            '-' | '*' | '+' | '_' => self.state = State::Start(Start::Marker { marker: c, text: c.to_string() }),
            '0'..='9' => self.state = State::Start(Start::Digits(c.to_string())),
            '`' | '~' => self.state = State::Start(Start::Ticks { marker: c, count: 1 }),
            '|' => self.begin_row(),
            _ => self.paragraph("", c),
        }
    }

    fn marker(&mut self, marker: char, mut text: String, c: char) {
        let is_item = marker != '_' && text[1..].starts_with([' ', '\t']) && self.depth() < MAX_LISTS;
        let is_rule = marker != '+' && text.chars().filter(|c| *c == marker).count() >= 3;
        match c {
            '\n' if is_rule => {
                self.begin_block(false);
                self.begin_prose();
                let width = self.wrapper.width().saturating_sub(self.prefix().columns()).max(1);
                let mut line = String::new();
                Attributes::FAINT.write(&"─".repeat(width), &mut line);
                self.wrapper.write_line(&line);
                self.begin_line();
            }
            _ if (c == marker && marker != '+' || c == ' ' || c == '\t') && text.len() < MAX_START => {
                text.push(c);
                self.state = State::Start(Start::Marker { marker, text });
            }
            _ if is_item => {
                self.pending.push(c);
                self.pending.extend(text[2..].chars().rev());
                self.item(&text[..1]);
            }
            '\n' if marker != '_' && text.len() == 1 => {
                self.pending.push(c);
                self.item(&text);
            }
            _ => self.paragraph(&text, c),
        }
    }

    fn info(&mut self, marker: char, count: usize, mut info: String, c: char) {
        if c == '\n' {
            let fence = Fence { marker, count, indent: self.column, quotes: self.quotes };
            if self.is_item_start() {
                self.wrapper.newline();
            }
            self.begin_block(false);
            self.begin_code();
            let line = format!("{}{}{info}", " ".repeat(self.column), marker.to_string().repeat(count));
            line.chars().for_each(|c| self.wrapper.push_verbatim(c, Attributes::FAINT));
            self.wrapper.newline();
            self.state = State::CodeStart(fence.line());
        } else if marker == '`' && c == '`' || info.len() >= MAX_START {
            self.paragraph(&format!("{}{info}", marker.to_string().repeat(count)), c);
        } else {
            info.push(c);
            self.state = State::Start(Start::Info { marker, count, info });
        }
    }

    fn heading(&mut self, level: usize) {
        self.begin_block(false);
        self.begin_prose();
        let attributes = match level {
            1 => Attributes::BOLD | Attributes::UNDERLINED,
            2 => Attributes::BOLD,
            _ => Attributes::BOLD | Attributes::ITALIC,
        };
        self.inline.begin(attributes);
        if self.keeps_markers {
            let markers = format!("{} ", "#".repeat(level));
            markers.chars().for_each(|c| self.wrapper.push(c, attributes));
        }
        self.is_paragraph = false;
        self.state = State::Text { is_heading: true };
    }

    /// Starts a list item; any block may follow its marker.
    fn item(&mut self, marker: &str) {
        let column = self.column;
        let is_nested = self.is_item_start();
        self.begin_block(false);
        let mut first = self.prefix();
        let shown = if marker.len() == 1 { "• ".to_owned() } else { format!("{marker} ") };
        let text = column + marker.len() + 1;
        self.place.lists.push(Level { marker: column, text, width: crate::terminal::text::columns(&shown) });
        if is_nested {
            self.wrapper.extend_prefix(Attributes::PLAIN, &shown);
            self.begin_prose();
        } else {
            first.push(Attributes::PLAIN, &shown);
            self.wrapper.begin(first, self.prefix());
            self.wrapper.write_prefix();
        }
        self.column = text;
        self.is_paragraph = false;
        self.state = State::Start(Start::Blank);
    }

    fn empty_line(&mut self) {
        if self.is_item_start() {
            // The list item is empty.
            self.wrapper.newline();
            return self.begin_line();
        }
        self.end_table();
        self.end_text();
        self.is_plain_table = false;
        self.gap = Some(self.quotes);
        self.begin_line();
    }

    /// Starts or continues a paragraph with a line that starts with `text`.
    fn paragraph(&mut self, text: &str, next: char) {
        let is_item = self.is_item_start();
        let is_new = !is_item && self.begin_block(true);
        if is_new {
            self.begin_prose();
        } else if is_item && self.quotes > self.place.quotes {
            self.place.inner_quotes = self.quotes - self.place.quotes;
            (0..self.place.inner_quotes).for_each(|_| self.wrapper.extend_prefix(Attributes::FAINT, "│ "));
            self.begin_prose();
        }
        if is_new || !self.is_paragraph {
            self.inline.begin(Attributes::PLAIN);
        }
        // Outside lists, indentation is kept.
        if self.place.lists.is_empty() && self.place.quotes == 0 {
            (0..self.column).for_each(|_| self.inline.push(' '));
        }
        self.is_paragraph = true;
        self.state = State::Text { is_heading: false };
        self.pending.push(next);
        self.pending.extend(text.chars().rev());
    }

    fn text(&mut self, is_heading: bool, c: char) {
        if c != '\n' {
            self.inline.push(c);
            self.show_text();
            self.state = State::Text { is_heading };
            return;
        }
        if is_heading {
            self.end_text();
            self.wrapper.newline();
        } else {
            self.inline.push('\n');
            self.show_text();
        }
        self.begin_line();
    }

    fn begin_row(&mut self) {
        if self.is_item_start() || self.is_plain_table {
            self.paragraph("", '|');
            self.is_plain_table = true;
            return;
        }
        if self.table.is_some() && self.quotes != self.place.quotes + self.place.inner_quotes {
            self.end_table();
        }
        if self.table.is_none() {
            self.begin_block(false);
            self.begin_prose();
        }
        let table = self.table.get_or_insert_default();
        table.begin_line();
        table.push('|');
        self.state = State::TableRow;
    }

    fn table_row(&mut self, c: char) {
        let Some(table) = &mut self.table else { return self.begin_line() };
        if c == '\n' {
            if !table.is_possible() || table.is_full() {
                self.end_table_as_written();
                self.is_plain_table = true;
            }
            return self.begin_line();
        }
        table.push(c);
        if !table.is_full() {
            self.state = State::TableRow;
            return;
        }
        // The rest of the line is text.
        let line = table.end_line();
        self.end_table_as_written();
        self.pending.extend(line.chars().rev());
        self.is_paragraph = true;
        self.is_plain_table = true;
        self.state = State::Text { is_heading: false };
    }
}
