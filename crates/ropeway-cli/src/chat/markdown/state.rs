//! The parser state of Markdown blocks.

/// Maximum characters of a line that are buffered until its block is known.
pub(super) const MAX_START: usize = 200;

/// The containers of a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    pub(super) quotes: usize,
    pub(super) lists: Vec<Level>,
    /// Number of quotes inside the innermost list item.
    pub(super) inner_quotes: usize,
}

/// A list item.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    /// The source columns of the marker and of the text.
    pub(super) marker: usize,
    pub(super) text: usize,
    /// The width of the rendered marker.
    pub(super) width: usize,
}

/// The context of the next character.
#[derive(Debug)]
pub(super) enum State {
    /// The start of a line, where a block may start.
    Start(Start),
    /// Text with inline Markdown.
    Text {
        is_heading: bool,
    },
    /// A line of code within a fence.
    Code(Fence),
    /// The start of such a line, which may be the closing fence.
    CodeStart(CodeStart),
    /// A line of code without a fence.
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

/// The parsed start of a line of code.
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
