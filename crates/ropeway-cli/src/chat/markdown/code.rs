//! Fenced and indented code blocks.

use super::attributes::Attributes;
use super::block::Markdown;
use super::state::{CodeStart, Fence, MAX_START, State};

impl Markdown {
    pub(super) fn is_indented_code(&self) -> bool {
        self.column >= 4 && self.place.lists.is_empty() && !self.is_paragraph && self.quotes == 0
    }

    pub(super) fn indented_code(&mut self, c: char) {
        self.begin_block(false);
        self.begin_code();
        (0..self.column).for_each(|_| self.wrapper.push_verbatim(' ', Attributes::CODE));
        self.pending.push(c);
        self.state = State::Indented;
    }

    pub(super) fn code(&mut self, fence: Fence, c: char) {
        self.wrapper.push_verbatim(c, Attributes::CODE);
        self.state = match c {
            '\n' => State::CodeStart(fence.line()),
            _ => State::Code(fence),
        };
    }

    /// Parses the start of a code line: quote markers, and possibly the closing fence.
    pub(super) fn code_start(&mut self, mut start: CodeStart, c: char) {
        let fence = start.fence;
        let is_short = start.held.len() < MAX_START;
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
                // The end of a quote ends its code block.
                _ => {
                    self.pending.push(c);
                    self.pending.extend(start.held.chars().rev());
                    (0..start.quotes).for_each(|_| self.pending.push('>'));
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
            self.pending.push(c);
            self.pending.extend(start.held.chars().rev());
            self.state = State::Code(fence);
        }
    }
}
