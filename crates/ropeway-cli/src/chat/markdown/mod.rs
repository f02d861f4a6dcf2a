//! Markdown on a terminal, rendered while it comes.
//!
//! Only what is certain is written, and nothing that was written is changed: the terminal neither flickers nor needs a cursor
//! that moves. Text is parsed character by character, so that it looks the same however it was cut into pieces. Work is linear
//! in the length of the text, and everything that is held back has a greatest size.
//!
//! The blocks are those of CommonMark (<https://spec.commonmark.org/0.31.2/>) with the tables of GitHub, but a line break is
//! kept as a line break.

mod attributes;
mod inline;
mod table;
#[cfg(test)]
mod tests;
mod wrap;

use self::attributes::Attributes;
use self::inline::InlineParser;
use self::table::Table;
use self::wrap::{Prefix, WordWrapper};

/// The most columns of prose: longer lines are hard to read.
const WIDEST: usize = 110;

/// How deep quotes and lists may be nested; further markers are text.
const DEEPEST_QUOTE: usize = 8;
const DEEPEST_LIST: usize = 12;

/// How much of a line is held back while it is not clear which block it begins, in characters.
const LONGEST_START: usize = 200;

/// The greatest indentation that counts, in columns.
const DEEPEST_INDENT: usize = 200;

/// Renders Markdown for a terminal.
#[derive(Debug)]
pub(super) struct Markdown {
    /// Show markers as they were written, for a terminal without attributes.
    keeps_markers: bool,
    /// The attributes of all text.
    base: Attributes,
    wrapper: WordWrapper,
    inline: InlineParser,
    state: State,
    /// Characters that are read once more, the last one first.
    again: Vec<char>,
    /// The quotes that the current line is in.
    quotes: usize,
    /// The source column behind the markers of quotes.
    column: usize,
    /// The quotes and lists that the current block is in.
    place: Place,
    /// The line before is a paragraph that may go on.
    is_paragraph: bool,
    /// An empty line is due before the next block, in so many quotes.
    gap: Option<usize>,
    /// Something was written.
    has_begun: bool,
    table: Option<Table>,
    /// The table is too large to be held back.
    is_plain_table: bool,
}

/// The containers of a block.
#[derive(Clone, Debug, Default)]
struct Place {
    quotes: usize,
    lists: Vec<Level>,
    /// The quotes within the innermost list item.
    inner_quotes: usize,
}

/// A list item.
#[derive(Clone, Copy, Debug)]
struct Level {
    /// The source columns of its marker and of its text.
    marker: usize,
    text: usize,
    /// The columns that its marker takes when it is shown.
    width: usize,
}

/// What the next character belongs to.
#[derive(Debug)]
enum State {
    /// The start of a line, where a block may begin.
    Start(Start),
    /// Text with inline Markdown.
    Text {
        is_heading: bool,
    },
    /// A line of code within a fence.
    Code(Fence),
    /// The start of such a line, which may be the end of the block.
    CodeStart(CodeStart),
    /// A line of code without a fence.
    Indented,
    TableRow,
}

/// What was read of the start of a line.
#[derive(Debug)]
enum Start {
    Blank,
    /// Behind the marker of a quote.
    Quote,
    /// `#`, up to six times.
    Hashes(usize),
    /// A bullet, a rule or emphasis: one character and blanks.
    Marker {
        marker: char,
        text: String,
    },
    Digits(String),
    /// Digits and what ends them.
    Number(String),
    Ticks {
        marker: char,
        count: usize,
    },
    /// A fence and what follows it.
    Info {
        marker: char,
        count: usize,
        info: String,
    },
}

/// What was read of the start of a line of code.
#[derive(Debug)]
struct CodeStart {
    fence: Fence,
    /// The markers of quotes.
    quotes: usize,
    /// A blank here belongs to the marker before it.
    is_behind_marker: bool,
    /// What may be the end of the block.
    held: String,
}

#[derive(Clone, Copy, Debug)]
struct Fence {
    marker: char,
    count: usize,
    indent: usize,
    quotes: usize,
}

impl Markdown {
    /// Returns a renderer for a terminal. Without colours, `keeps_markers` keeps what they would show.
    pub(super) fn new(keeps_markers: bool) -> Self {
        Self::with_base(keeps_markers, Attributes::PLAIN)
    }

    /// Returns a renderer whose text is all faint.
    pub(super) fn faint(keeps_markers: bool) -> Self {
        Self::with_base(keeps_markers, Attributes::FAINT)
    }

    fn with_base(keeps_markers: bool, base: Attributes) -> Self {
        Self {
            keeps_markers,
            base,
            wrapper: WordWrapper::new(base),
            inline: InlineParser::new(keeps_markers),
            state: State::Start(Start::Blank),
            again: Vec::new(),
            quotes: 0,
            column: 0,
            place: Place::default(),
            is_paragraph: false,
            gap: None,
            has_begun: false,
            table: None,
            is_plain_table: false,
        }
    }

    /// Returns what can be written now that there is more text, on a terminal of so many columns.
    pub(super) fn push(&mut self, text: &str, columns: usize) -> String {
        self.wrapper.resize(columns.min(WIDEST), columns);
        for c in text.chars() {
            self.feed(c);
        }
        self.wrapper.take()
    }

    /// Returns what is left to be written when the text is over, with the end of its line. Then another text may begin.
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

    /// Returns true if the cursor stands at the start of a line.
    pub(super) fn is_at_start(&self) -> bool {
        self.wrapper.is_at_start()
    }

    /// Returns true if nothing of the current source line was read.
    fn is_at_line_start(&self) -> bool {
        match &self.state {
            State::Start(Start::Blank) => self.column == 0 && self.quotes == 0,
            State::CodeStart(start) => start.held.is_empty() && start.quotes == 0,
            _ => false,
        }
    }

    fn feed(&mut self, c: char) {
        self.again.push(c);
        while let Some(c) = self.again.pop() {
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

    fn begin_line(&mut self) {
        self.quotes = 0;
        self.column = 0;
        self.state = State::Start(Start::Blank);
    }

    // The start of a line.

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
                ' ' | '\t' if self.depth() < DEEPEST_LIST => self.item(&number),
                _ => self.paragraph(&number, c),
            },
            Start::Ticks { marker, count } => match c {
                _ if c == marker && count < LONGEST_START => {
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
            ' ' => self.column = (self.column + 1).min(DEEPEST_INDENT),
            '\t' => self.column = (self.column / 4 * 4 + 4).min(DEEPEST_INDENT),
            '\n' => self.empty_line(),
            _ if self.is_indented_code() => self.indented_code(c),
            '>' if self.quotes < DEEPEST_QUOTE => {
                self.quotes += 1;
                // Within a list item the indentation still tells which one.
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

    /// Returns true if the line is indented as far as the text of a list item.
    fn is_in_item(&self) -> bool {
        self.place.lists.first().is_some_and(|level| self.column > level.marker + 1)
    }

    fn marker(&mut self, marker: char, mut text: String, c: char) {
        let is_item = marker != '_' && text[1..].starts_with([' ', '\t']) && self.depth() < DEEPEST_LIST;
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
            _ if (c == marker && marker != '+' || c == ' ' || c == '\t') && text.len() < LONGEST_START => {
                text.push(c);
                self.state = State::Start(Start::Marker { marker, text });
            }
            _ if is_item => {
                self.again.push(c);
                self.again.extend(text[2..].chars().rev());
                self.item(&text[..1]);
            }
            '\n' if marker != '_' && text.len() == 1 => {
                self.again.push(c);
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
        } else if marker == '`' && c == '`' || info.len() >= LONGEST_START {
            self.paragraph(&format!("{}{info}", marker.to_string().repeat(count)), c);
        } else {
            info.push(c);
            self.state = State::Start(Start::Info { marker, count, info });
        }
    }

    // Blocks.

    /// Ends the block before, unless this is a line of the same paragraph, and finds the containers of the new one.
    fn begin_block(&mut self, is_text: bool) -> bool {
        self.end_table();
        self.is_plain_table = false;
        let (outer, inner) = if self.place.lists.is_empty() || self.place.quotes == self.quotes {
            (self.quotes, 0)
        } else {
            let outer = self.place.quotes.min(self.quotes);
            (outer, self.quotes - outer)
        };
        let is_same = outer == self.place.quotes && inner == self.place.inner_quotes;
        if is_text && is_same && self.is_paragraph && self.gap.is_none() {
            return false;
        }
        self.end_text();
        let is_same_quote = outer == self.place.quotes && (inner == 0 || self.is_in_item());
        let depth = if is_same_quote { self.depth() } else { 0 };
        self.place.lists.truncate(depth);
        (self.place.quotes, self.place.inner_quotes) = if depth > 0 { (outer, inner) } else { (self.quotes, 0) };
        self.write_gap();
        true
    }

    /// Returns how many of the list items the line is indented to be in.
    fn depth(&self) -> usize {
        let is_inside = |level: &&Level| self.column >= level.text || self.column > level.marker + 1;
        self.place.lists.iter().take_while(is_inside).count()
    }

    fn write_gap(&mut self) {
        if let Some(quotes) = self.gap.take()
            && self.has_begun
        {
            let mut bars = Prefix::default();
            (0..quotes.min(self.place.quotes)).for_each(|_| bars.push(Attributes::FAINT, "│ "));
            self.wrapper.begin(bars, Prefix::default());
            self.wrapper.newline();
        }
        self.has_begun = true;
    }

    /// The text before each line of the current block.
    fn prefix(&self) -> Prefix {
        let mut prefix = Prefix::default();
        let Place { quotes, lists, inner_quotes } = &self.place;
        (0..*quotes).for_each(|_| prefix.push(Attributes::FAINT, "│ "));
        let indent: usize = lists.iter().map(|level| level.width).sum();
        let most = (self.wrapper.width() / 2).saturating_sub(prefix.columns());
        prefix.push(Attributes::PLAIN, &" ".repeat(indent.min(most)));
        (0..*inner_quotes).for_each(|_| prefix.push(Attributes::FAINT, "│ "));
        prefix
    }

    fn begin_prose(&mut self) {
        let prefix = self.prefix();
        self.wrapper.begin(prefix.clone(), prefix);
    }

    /// Code stands where it was written, but for the bars of quotes.
    fn begin_code(&mut self) {
        let mut bars = Prefix::default();
        (0..self.quotes).for_each(|_| bars.push(Attributes::FAINT, "│ "));
        self.wrapper.begin(bars.clone(), bars);
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

    /// Begins a list item; what follows its marker may begin any block.
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
            // The marker of a list item stands alone.
            self.wrapper.newline();
            return self.begin_line();
        }
        self.end_table();
        self.end_text();
        self.is_plain_table = false;
        self.gap = Some(self.quotes);
        self.begin_line();
    }

    /// Begins or goes on with a paragraph, whose line begins with this text.
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
        // Outside of lists people indent for the looks of it.
        if self.place.lists.is_empty() && self.place.quotes == 0 {
            (0..self.column).for_each(|_| self.inline.push(' '));
        }
        self.is_paragraph = true;
        self.state = State::Text { is_heading: false };
        self.again.push(next);
        self.again.extend(text.chars().rev());
    }

    /// Returns true directly behind the marker of a list item.
    fn is_item_start(&self) -> bool {
        !self.wrapper.is_at_start() && !self.is_paragraph && self.table.is_none()
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

    fn show_text(&mut self) {
        for (c, attributes) in self.inline.take() {
            self.wrapper.push(c, attributes);
        }
    }

    /// Ends a text block: what inline Markdown has held back is shown.
    fn end_text(&mut self) {
        self.inline.finish();
        self.show_text();
        self.wrapper.end_word();
        self.is_paragraph = false;
    }

    // Code.

    fn is_indented_code(&self) -> bool {
        self.column >= 4 && self.place.lists.is_empty() && !self.is_paragraph && self.quotes == 0
    }

    fn indented_code(&mut self, c: char) {
        self.begin_block(false);
        self.begin_code();
        (0..self.column).for_each(|_| self.wrapper.push_verbatim(' ', Attributes::CODE));
        self.again.push(c);
        self.state = State::Indented;
    }

    fn code(&mut self, fence: Fence, c: char) {
        self.wrapper.push_verbatim(c, Attributes::CODE);
        self.state = match c {
            '\n' => State::CodeStart(fence.line()),
            _ => State::Code(fence),
        };
    }

    /// Reads the start of a line of code: the markers of quotes, and perhaps the end of the block.
    fn code_start(&mut self, mut start: CodeStart, c: char) {
        let fence = start.fence;
        let is_short = start.held.len() < LONGEST_START;
        if start.quotes < fence.quotes {
            match c {
                '>' => {
                    let quotes = start.quotes + 1;
                    self.state = State::CodeStart(CodeStart { quotes, is_behind_marker: true, ..fence.line() });
                }
                ' ' if is_short => {
                    start.held.push(c);
                    self.state = State::CodeStart(start);
                }
                // A quote that is over ends the code in it.
                _ => {
                    self.again.push(c);
                    self.again.extend(start.held.chars().rev());
                    (0..start.quotes).for_each(|_| self.again.push('>'));
                    self.begin_line();
                }
            }
        } else if c == ' ' && start.is_behind_marker {
            self.state = State::CodeStart(CodeStart { is_behind_marker: false, ..start });
        } else if c == '\n' {
            let is_end = fence.is_ended_by(&start.held);
            let attributes = if is_end { Attributes::FAINT } else { Attributes::CODE };
            start.held.chars().for_each(|c| self.wrapper.push_verbatim(c, attributes));
            self.wrapper.newline();
            if is_end {
                self.begin_line();
            } else {
                self.state = State::CodeStart(fence.line());
            }
        } else if (c == ' ' || c == fence.marker) && is_short {
            start.held.push(c);
            self.state = State::CodeStart(CodeStart { is_behind_marker: false, ..start });
        } else {
            self.again.push(c);
            self.again.extend(start.held.chars().rev());
            self.state = State::Code(fence);
        }
    }

    // Tables.

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
        // The line goes on as text.
        let line = table.end_line();
        self.end_table_as_written();
        self.again.extend(line.chars().rev());
        self.is_paragraph = true;
        self.is_plain_table = true;
        self.state = State::Text { is_heading: false };
    }

    /// Shows the table that is held back, if there is one.
    fn end_table(&mut self) {
        let Some(table) = &self.table else { return };
        let width = self.wrapper.screen().saturating_sub(self.prefix().columns());
        match table.render(width, self.keeps_markers) {
            Some(lines) => {
                self.table = None;
                lines.iter().for_each(|line| self.wrapper.write_line(line));
            }
            None => self.end_table_as_written(),
        }
    }

    /// Shows the lines of a table as a paragraph.
    fn end_table_as_written(&mut self) {
        let Some(table) = self.table.take() else { return };
        self.inline.begin(Attributes::PLAIN);
        for line in table.into_lines() {
            line.chars().chain(['\n']).for_each(|c| self.inline.push(c));
            self.show_text();
        }
        self.is_paragraph = true;
    }
}

impl Fence {
    /// The start of a line behind this fence.
    fn line(self) -> CodeStart {
        CodeStart { fence: self, quotes: 0, is_behind_marker: false, held: String::new() }
    }

    /// Returns true if the line ends the block.
    fn is_ended_by(self, line: &str) -> bool {
        let marks = line.trim();
        let indent = line.len() - line.trim_start().len();
        marks.len() >= self.count && marks.chars().all(|c| c == self.marker) && indent <= self.indent + 3
    }
}
