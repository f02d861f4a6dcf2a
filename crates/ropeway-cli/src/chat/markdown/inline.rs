//! Parses inline Markdown as it arrives: emphasis, code, links and escapes.

use std::collections::VecDeque;

use super::attributes::Attributes;
use super::span::{Active, Kind, Node, Opener, State, unpadded, url};

/// Maximum length of emphasis, a code span or a link text, in characters. An unmatched marker delays at most this much text and
/// then becomes text itself.
const MAX_SPAN: usize = 400;

/// Maximum link destination length in characters.
const MAX_DESTINATION: usize = 2000;

/// Maximum open markers; beyond it, the oldest becomes text.
const MAX_OPEN: usize = 32;

/// Parses inline Markdown (<https://spec.commonmark.org/0.31.2/#inlines>). Text is ready once no open marker can change its
/// attributes, and final from then on.
#[derive(Debug)]
pub(super) struct InlineParser {
    /// Shows markers as written, for a terminal without attributes.
    keeps_markers: bool,
    /// The whole block's attributes.
    base: Attributes,
    ready: Vec<(char, Attributes)>,
    /// The nodes from the first open marker on.
    held: VecDeque<Node>,
    /// The first held node's index.
    first: usize,
    openers: VecDeque<Opener>,
    state: State,
    /// Characters to parse again, the next one last.
    pending: Vec<char>,
    previous: char,
    active: Active,
    /// The current link's text.
    link: Option<String>,
}

impl InlineParser {
    pub(super) fn new(keeps_markers: bool) -> Self {
        Self {
            keeps_markers,
            base: Attributes::PLAIN,
            ready: Vec::new(),
            held: VecDeque::new(),
            first: 0,
            openers: VecDeque::new(),
            state: State::Text,
            pending: Vec::new(),
            previous: '\n',
            active: Active::default(),
            link: None,
        }
    }

    /// Starts a text block with these base attributes.
    pub(super) fn begin(&mut self, base: Attributes) {
        self.base = base;
        self.previous = '\n';
    }

    /// Takes the text that is ready.
    pub(super) fn take(&mut self) -> std::vec::Drain<'_, (char, Attributes)> {
        self.ready.drain(..)
    }

    /// Parses the block's next character.
    pub(super) fn push(&mut self, c: char) {
        self.pending.push(c);
        while let Some(c) = self.pending.pop() {
            self.step(c);
        }
    }

    /// Ends the block; open markers become text.
    pub(super) fn finish(&mut self) {
        loop {
            match std::mem::take(&mut self.state) {
                State::Text => break,
                State::Escape => self.text('\\'),
                State::Bang => self.text('!'),
                State::Run { marker, length, before } => self.run(marker, length, before, '\n'),
                State::Ticks { count } => self.ticks(count),
                State::Code { ticks, text, length, closing } => self.end_code(ticks, text, length, closing, None),
                State::Bracketed => self.unlinked(),
                State::Destination { text, .. } => self.no_destination(&text, None),
            }
            while let Some(c) = self.pending.pop() {
                self.step(c);
            }
        }
        self.openers.clear();
        self.release();
        self.active = Active::default();
        self.link = None;
        self.previous = '\n';
    }

    fn step(&mut self, c: char) {
        match std::mem::take(&mut self.state) {
            State::Text => self.character(c),
            State::Escape if c.is_ascii_punctuation() => self.text(c),
            State::Escape => {
                if c != '\n' {
                    self.text('\\');
                }
                self.character(c);
            }
            State::Bang if c == '[' => self.bracket(true),
            State::Bang => {
                self.text('!');
                self.character(c);
            }
            State::Run { marker, length, before } if c == marker => {
                self.state = State::Run { marker, length: length + 1, before };
            }
            State::Run { marker, length, before } => {
                self.run(marker, length, before, c);
                self.character(c);
            }
            State::Ticks { count } if c == '`' => self.state = State::Ticks { count: count + 1 },
            State::Ticks { count } if count > MAX_SPAN => {
                self.ticks(count);
                self.character(c);
            }
            State::Ticks { count } => {
                self.state = State::Code { ticks: count, text: String::new(), length: 0, closing: 0 };
                self.step(c);
            }
            State::Code { ticks, text, length, closing } if c == '`' && length < MAX_SPAN => {
                self.state = State::Code { ticks, text, length: length + 1, closing: closing + 1 };
            }
            State::Code { ticks, text, length, closing } if closing == ticks || length >= MAX_SPAN => {
                self.end_code(ticks, text, length, closing, Some(c));
            }
            State::Code { ticks, mut text, length, closing } => {
                (0..closing).for_each(|_| text.push('`'));
                text.push(c);
                self.state = State::Code { ticks, text, length: length + 1, closing: 0 };
            }
            State::Bracketed if c == '(' => {
                self.state = State::Destination { text: String::new(), length: 0, depth: 0 };
            }
            State::Bracketed => {
                self.unlinked();
                self.character(c);
            }
            State::Destination { text, length, depth } => self.destination(text, length, depth, c),
        }
    }

    fn character(&mut self, c: char) {
        match c {
            '\\' => self.state = State::Escape,
            '!' => self.state = State::Bang,
            '`' => self.state = State::Ticks { count: 1 },
            '*' | '_' | '~' => self.state = State::Run { marker: c, length: 1, before: self.previous },
            '[' => self.bracket(false),
            ']' if self.openers.iter().any(|opener| opener.kind == Kind::Bracket) => self.state = State::Bracketed,
            _ => self.text(c),
        }
    }

    fn text(&mut self, c: char) {
        self.previous = c;
        self.hold(Node::Char(c));
    }

    /// Adds a node and shows it if no marker is open.
    fn hold(&mut self, node: Node) {
        self.held.push_back(node);
        while self.held.len() > MAX_SPAN || self.openers.len() > MAX_OPEN {
            if self.openers.pop_front().is_none() {
                break;
            }
            self.release();
        }
        if self.openers.is_empty() {
            self.release();
        }
    }

    /// Shows the nodes before the first open marker.
    fn release(&mut self) {
        let end = self.openers.front().map_or(usize::MAX, |opener| opener.node);
        while self.first < end
            && let Some(node) = self.held.pop_front()
        {
            self.first += 1;
            self.call_display(node);
        }
    }

    fn call_display(&mut self, node: Node) {
        let keeps = self.keeps_markers;
        match node {
            Node::Char(c) => self.show_char(c, Attributes::PLAIN),
            Node::Code { ticks, text } if keeps => {
                let ticks = "`".repeat(ticks);
                self.show_all(&format!("{ticks}{text}{ticks}"), Attributes::PLAIN);
            }
            Node::Code { text, .. } => self.show_all(unpadded(&text), Attributes::CODE),
            Node::Run { marker, length, left, before, after } => {
                self.active.add(before);
                let count = if keeps { length } else { left };
                (0..count).for_each(|_| self.show_char(marker, Attributes::PLAIN));
                self.active.add(after);
            }
            Node::Bracket { is_link: true, .. } => self.link = Some(String::new()),
            Node::Bracket { is_image, .. } => {
                if is_image {
                    self.show_char('!', Attributes::PLAIN);
                }
                self.show_char('[', Attributes::PLAIN);
            }
            Node::LinkEnd { url } => {
                let text = self.link.take().unwrap_or_default();
                if text.is_empty() {
                    self.show_all(&url, Attributes::UNDERLINED);
                } else if text != url && !url.is_empty() {
                    self.show_all(&format!(" ({url})"), Attributes::FAINT);
                }
            }
        }
    }

    fn show_all(&mut self, text: &str, attributes: Attributes) {
        text.chars().for_each(|c| self.show_char(c, attributes));
    }

    fn show_char(&mut self, c: char, mut attributes: Attributes) {
        if let Some(link) = &mut self.link {
            link.push(c);
            attributes = attributes | Attributes::UNDERLINED;
        }
        for (count, attribute) in [
            (self.active.bold, Attributes::BOLD),
            (self.active.italic, Attributes::ITALIC),
            (self.active.struck, Attributes::STRUCK),
        ] {
            if count > 0 && !self.keeps_markers {
                attributes = attributes | attribute;
            }
        }
        self.ready.push((c, attributes | self.base));
    }

    /// Adds a delimiter run (<https://spec.commonmark.org/0.31.2/#delimiter-run>): closes matching openers, and opens with the rest.
    fn run(&mut self, marker: char, length: usize, before: char, after: char) {
        self.previous = marker;
        let is_space = |c: char| c.is_whitespace();
        let is_sign =
            |c: char| c.is_ascii_punctuation() || (!c.is_alphanumeric() && !c.is_whitespace() && !c.is_ascii());
        let left = !is_space(after) && (!is_sign(after) || is_space(before) || is_sign(before));
        let right = !is_space(before) && (!is_sign(before) || is_space(after) || is_sign(after));
        let (can_open, can_close) = match marker {
            '_' => (left && (!right || is_sign(before)), right && (!left || is_sign(after))),
            '~' if length != 2 => (false, false),
            // In `2*3*4` and `a**b` they are operators, not emphasis.
            _ => (left && !(before.is_ascii_alphanumeric() && after.is_ascii_alphanumeric()), right),
        };
        let mut rest = length;
        let mut closed = Active::default();
        while can_close && rest > 0 {
            let Some(at) = self.opener_of(marker, rest, length, can_open) else { break };
            let node = self.openers[at].node;
            // Markers between the two can no longer match.
            self.openers.truncate(at + 1);
            let Some(Node::Run { left, after, .. }) = self.held.get_mut(node - self.first) else { break };
            let used = if rest >= 2 && *left >= 2 { 2 } else { 1 };
            *left -= used;
            after.switch(marker, used, 1);
            closed.switch(marker, used, -1);
            rest -= used;
            if *left == 0 {
                self.openers.pop_back();
            }
        }
        if can_open && rest > 0 {
            let node = self.first + self.held.len();
            self.openers.push_back(Opener { node, kind: Kind::Run { marker, can_close } });
        }
        self.hold(Node::Run { marker, length, left: rest, before: closed, after: Active::default() });
    }

    /// Returns the last open run that this one closes.
    fn opener_of(&self, marker: char, rest: usize, length: usize, can_open: bool) -> Option<usize> {
        let fits = |opener: &Opener| {
            let Kind::Run { marker: other, can_close } = &opener.kind else { return false };
            let Some(Node::Run { left, length: whole, .. }) = self.held.get(opener.node - self.first) else {
                return false;
            };
            let is_third = (can_open || *can_close) && (whole + length).is_multiple_of(3) && !length.is_multiple_of(3);
            *other == marker && !is_third && (marker != '~' || (*left == 2 && rest == 2))
        };
        self.openers.iter().rposition(fits)
    }

    fn bracket(&mut self, is_image: bool) {
        self.previous = '[';
        let node = self.first + self.held.len();
        self.openers.push_back(Opener { node, kind: Kind::Bracket });
        self.hold(Node::Bracket { is_image, is_link: false });
    }

    /// Turns a bracket without a destination into text.
    fn unlinked(&mut self) {
        if let Some(at) = self.openers.iter().rposition(|opener| opener.kind == Kind::Bracket) {
            self.openers.remove(at);
        }
        self.text(']');
    }

    fn destination(&mut self, mut text: String, length: usize, depth: usize, c: char) {
        match c {
            ')' if depth == 0 => match url(&text) {
                Some(url) => self.link(url),
                None => self.no_destination(&text, Some(c)),
            },
            '\n' | '[' | '`' => self.no_destination(&text, Some(c)),
            _ if length >= MAX_DESTINATION => self.no_destination(&text, Some(c)),
            _ => {
                let depth = match c {
                    '(' => depth + 1,
                    ')' => depth - 1,
                    _ => depth,
                };
                text.push(c);
                self.state = State::Destination { text, length: length + 1, depth };
            }
        }
    }

    fn link(&mut self, url: String) {
        let Some(at) = self.openers.iter().rposition(|opener| opener.kind == Kind::Bracket) else {
            return self.no_destination(&url, Some(')'));
        };
        let node = self.openers[at].node;
        self.openers.truncate(at);
        if let Some(Node::Bracket { is_link, .. }) = self.held.get_mut(node - self.first) {
            *is_link = true;
        }
        self.previous = ')';
        self.hold(Node::LinkEnd { url });
    }

    /// Turns an invalid destination into text and parses it again.
    fn no_destination(&mut self, text: &str, next: Option<char>) {
        self.pending.extend(next);
        self.pending.extend(text.chars().rev());
        self.unlinked();
        self.text('(');
    }

    /// Adds unmatched backticks as text.
    fn ticks(&mut self, count: usize) {
        (0..count).for_each(|_| self.text('`'));
    }

    /// Ends a closed code span, or parses an unclosed one's text again.
    fn end_code(&mut self, ticks: usize, mut text: String, length: usize, closing: usize, next: Option<char>) {
        self.pending.extend(next);
        if closing == ticks && length > closing {
            self.previous = '`';
            return self.hold(Node::Code { ticks, text });
        }
        (0..closing).for_each(|_| text.push('`'));
        self.pending.extend(text.chars().rev());
        self.ticks(ticks);
    }
}
