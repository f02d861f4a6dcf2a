//! Parser state for Markdown blocks.

/// Maximum characters that are buffered before a line's block is known.
pub(super) const MAX_START: usize = 200;

/// A block's containers.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    pub(super) quotes: usize,
    pub(super) lists: Vec<Level>,
    /// Quotes inside the innermost list item.
    pub(super) inner_quotes: usize,
}

/// A list item.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    /// The marker's and the text's source columns.
    pub(super) marker: usize,
    pub(super) text: usize,
    /// The rendered marker's width.
    pub(super) width: usize,
}

/// What the next character belongs to.
#[derive(Debug)]
pub(super) enum State {
    /// The start of a line, where a block may start.
    Start(Start),
    /// Text with inline Markdown.
    Text {
        is_heading: bool,
    },
    /// A code line within a fence.
    Code(Fence),
    /// The start of a code line, which may be the closing fence.
    CodeStart(CodeStart),
    /// A code line without a fence.
    Indented,
    TableRow,
}

/// The parsed start of a line.
#[derive(Debug)]
pub(super) enum Start {
    Blank,
    /// After a quote marker.
    Quote,
    /// `#`, up to six times.
    Hashes(usize),
    /// A bullet, a rule or emphasis: one character and spaces.
    Marker {
        marker: char,
        text: String,
    },
    Digits(String),
    /// Digits followed by `.` or `)`.
    Number(String),
    Ticks {
        marker: char,
        count: usize,
    },
    /// A fence and its info string.
    Info {
        marker: char,
        count: usize,
        info: String,
    },
}

/// The parsed start of a code line.
#[derive(Debug)]
pub(super) struct CodeStart {
    pub(super) fence: Fence,
    /// Number of quote markers.
    pub(super) quotes: usize,
    /// The next space belongs to the quote marker.
    pub(super) is_behind_marker: bool,
    /// A possible closing fence.
    pub(super) held: String,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Fence {
    pub(super) marker: char,
    pub(super) count: usize,
    pub(super) indent: usize,
    pub(super) quotes: usize,
}

impl Fence {
    /// Returns the state at the start of a line inside this fence.
    pub(super) fn line(self) -> CodeStart {
        CodeStart { fence: self, quotes: 0, is_behind_marker: false, held: String::new() }
    }

    /// Returns `true` if the line is the closing fence.
    pub(super) fn is_ended_by(self, line: &str) -> bool {
        let marks = line.trim();
        let indent = line.len() - line.trim_start().len();
        marks.len() >= self.count && marks.chars().all(|c| c == self.marker) && indent <= self.indent + 3
    }
}
