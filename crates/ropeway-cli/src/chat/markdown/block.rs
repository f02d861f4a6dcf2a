//! Starts and ends Markdown blocks, with their prefixes.

use super::attributes::Attributes;
use super::inline::InlineParser;
use super::state::{Level, Place, Start, State};
use super::table::Table;
use super::wrap::{Prefix, WordWrapper};

/// Renders Markdown for a terminal.
#[derive(Debug)]
pub(in crate::chat) struct Markdown {
    /// Shows markers as written, for a terminal without attributes.
    pub(super) keeps_markers: bool,
    /// The base attributes for all text.
    pub(super) base: Attributes,
    pub(super) wrapper: WordWrapper,
    pub(super) inline: InlineParser,
    pub(super) state: State,
    /// Characters to parse again, the next one last.
    pub(super) pending: Vec<char>,
    /// Quotes around the current line.
    pub(super) quotes: usize,
    /// The source column after the quote markers.
    pub(super) column: usize,
    /// The quotes and lists around the current block.
    pub(super) place: Place,
    /// The previous line is a paragraph that may continue.
    pub(super) is_paragraph: bool,
    /// An empty line is due before the next block, inside this many quotes.
    pub(super) gap: Option<usize>,
    pub(super) has_begun: bool,
    pub(super) table: Option<Table>,
    /// The table is too large to buffer and is shown as text.
    pub(super) is_plain_table: bool,
}

impl Markdown {
    pub(super) fn with_base(keeps_markers: bool, base: Attributes) -> Self {
        Self {
            keeps_markers,
            base,
            wrapper: WordWrapper::new(base),
            inline: InlineParser::new(keeps_markers),
            state: State::Start(Start::Blank),
            pending: Vec::new(),
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

    /// Returns `true` at the start of a source line.
    pub(super) fn is_at_line_start(&self) -> bool {
        match &self.state {
            State::Start(Start::Blank) => self.column == 0 && self.quotes == 0,
            State::CodeStart(start) => start.held.is_empty() && start.quotes == 0,
            _ => false,
        }
    }

    pub(super) fn begin_line(&mut self) {
        self.quotes = 0;
        self.column = 0;
        self.state = State::Start(Start::Blank);
    }

    /// Returns `true` if the line is indented to a list item's text.
    pub(super) fn is_in_item(&self) -> bool {
        self.place.lists.first().is_some_and(|level| self.column > level.marker + 1)
    }

    /// Ends the previous block and determines the new block's containers. Returns `false` if a paragraph continues.
    pub(super) fn begin_block(&mut self, is_text: bool) -> bool {
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

    /// Returns how many list items contain the line, by its indentation.
    pub(super) fn depth(&self) -> usize {
        let is_inside = |level: &&Level| self.column >= level.text || self.column > level.marker + 1;
        self.place.lists.iter().take_while(is_inside).count()
    }

    pub(super) fn write_gap(&mut self) {
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

    /// Returns the text before each line in the current block.
    pub(super) fn prefix(&self) -> Prefix {
        let mut prefix = Prefix::default();
        let Place { quotes, lists, inner_quotes } = &self.place;
        (0..*quotes).for_each(|_| prefix.push(Attributes::FAINT, "│ "));
        let indent: usize = lists.iter().map(|level| level.width).sum();
        let most = (self.wrapper.width() / 2).saturating_sub(prefix.columns());
        prefix.push(Attributes::PLAIN, &" ".repeat(indent.min(most)));
        (0..*inner_quotes).for_each(|_| prefix.push(Attributes::FAINT, "│ "));
        prefix
    }

    pub(super) fn begin_prose(&mut self) {
        let prefix = self.prefix();
        self.wrapper.begin(prefix.clone(), prefix);
    }

    /// Starts code, which keeps its indentation after quote bars.
    pub(super) fn begin_code(&mut self) {
        let mut bars = Prefix::default();
        (0..self.quotes).for_each(|_| bars.push(Attributes::FAINT, "│ "));
        self.wrapper.begin(bars.clone(), bars);
    }

    /// Returns `true` directly after a list item's marker.
    pub(super) fn is_item_start(&self) -> bool {
        !self.wrapper.is_at_start() && !self.is_paragraph && self.table.is_none()
    }

    pub(super) fn show_text(&mut self) {
        for (c, attributes) in self.inline.take() {
            self.wrapper.push(c, attributes);
        }
    }

    /// Ends a text block and shows its buffered text.
    pub(super) fn end_text(&mut self) {
        self.inline.finish();
        self.show_text();
        self.wrapper.end_word();
        self.is_paragraph = false;
    }

    /// Shows the buffered table, if any.
    pub(super) fn end_table(&mut self) {
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

    /// Shows a table's lines as a paragraph.
    pub(super) fn end_table_as_written(&mut self) {
        let Some(table) = self.table.take() else { return };
        self.inline.begin(Attributes::PLAIN);
        for line in table.into_lines() {
            line.chars().chain(['\n']).for_each(|c| self.inline.push(c));
            self.show_text();
        }
        self.is_paragraph = true;
    }
}
