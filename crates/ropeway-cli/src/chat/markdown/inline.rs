//! Inline Markdown: emphasis, code, links and escapes within a paragraph, parsed while it comes.

use std::collections::VecDeque;

use super::attributes::Attributes;

/// How long emphasis, a code span or the text of a link may be, in characters. A marker without a counterpart holds back the text
/// behind it up to here, then it is text itself.
const LONGEST_SPAN: usize = 400;

/// How long the destination of a link may be.
const LONGEST_DESTINATION: usize = 2000;

/// How many markers may be open at once; the oldest of more is text.
const MOST_OPEN: usize = 32;

/// Parses inline Markdown (<https://spec.commonmark.org/0.31.2/#inlines>). Text is ready as soon as no open marker before it can
/// change how it looks; nothing that is ready is ever changed.
#[derive(Debug)]
pub(super) struct InlineParser {
    /// Show markers as they were written, for a terminal without attributes.
    keeps_markers: bool,
    /// The attributes of the whole block.
    base: Attributes,
    ready: Vec<(char, Attributes)>,
    /// What follows the first open marker.
    held: VecDeque<Node>,
    /// The number of the first held node.
    first: usize,
    openers: VecDeque<Opener>,
    state: State,
    /// Characters that are read once more, the last one first.
    again: Vec<char>,
    previous: char,
    active: Active,
    /// The text of the link that is being shown.
    link: Option<String>,
}

#[derive(Debug)]
enum Node {
    Char(char),
    Code {
        ticks: usize,
        text: String,
    },
    /// A run of `*`, `_` or `~`.
    Run {
        marker: char,
        length: usize,
        left: usize,
        before: Active,
        after: Active,
    },
    Bracket {
        is_image: bool,
        is_link: bool,
    },
    LinkEnd {
        url: String,
    },
}

/// How often each kind of emphasis is switched on, or off where it is negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Active {
    bold: i32,
    italic: i32,
    struck: i32,
}

impl Active {
    fn add(&mut self, other: Self) {
        self.bold += other.bold;
        self.italic += other.italic;
        self.struck += other.struck;
    }

    fn switch(&mut self, marker: char, length: usize, by: i32) {
        match (marker, length) {
            ('~', _) => self.struck += by,
            (_, 2) => self.bold += by,
            _ => self.italic += by,
        }
    }
}

/// A marker that may be closed by a later one.
#[derive(Debug)]
struct Opener {
    node: usize,
    kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Run { marker: char, can_close: bool },
    Bracket,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Text,
    Escape,
    Bang,
    Run {
        marker: char,
        length: usize,
        before: char,
    },
    Ticks {
        count: usize,
    },
    /// Within a code span; `closing` backticks stand at its end.
    Code {
        ticks: usize,
        text: String,
        length: usize,
        closing: usize,
    },
    /// Behind the `]` of a bracket that may be a link.
    Bracketed,
    Destination {
        text: String,
        length: usize,
        depth: usize,
    },
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
            again: Vec::new(),
            previous: '\n',
            active: Active::default(),
            link: None,
        }
    }

    /// Begins a block, whose text all has these attributes.
    pub(super) fn begin(&mut self, base: Attributes) {
        self.base = base;
        self.previous = '\n';
    }

    /// Returns the text that is ready.
    pub(super) fn take(&mut self) -> std::vec::Drain<'_, (char, Attributes)> {
        self.ready.drain(..)
    }

    /// Parses the next character of the block.
    pub(super) fn push(&mut self, c: char) {
        self.again.push(c);
        while let Some(c) = self.again.pop() {
            self.step(c);
        }
    }

    /// Ends the block: markers that are still open are text.
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
            while let Some(c) = self.again.pop() {
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
            State::Ticks { count } if count > LONGEST_SPAN => {
                self.ticks(count);
                self.character(c);
            }
            State::Ticks { count } => {
                self.state = State::Code { ticks: count, text: String::new(), length: 0, closing: 0 };
                self.step(c);
            }
            State::Code { ticks, text, length, closing } if c == '`' && length < LONGEST_SPAN => {
                self.state = State::Code { ticks, text, length: length + 1, closing: closing + 1 };
            }
            State::Code { ticks, text, length, closing } if closing == ticks || length >= LONGEST_SPAN => {
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

    /// Adds a node; it is shown at once if no marker is open.
    fn hold(&mut self, node: Node) {
        self.held.push_back(node);
        while self.held.len() > LONGEST_SPAN || self.openers.len() > MOST_OPEN {
            if self.openers.pop_front().is_none() {
                break;
            }
            self.release();
        }
        if self.openers.is_empty() {
            self.release();
        }
    }

    /// Shows what stands before the first open marker.
    fn release(&mut self) {
        let end = self.openers.front().map_or(usize::MAX, |opener| opener.node);
        while self.first < end
            && let Some(node) = self.held.pop_front()
        {
            self.first += 1;
            self.show(node);
        }
    }

    fn show(&mut self, node: Node) {
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

    /// Adds a run of markers (<https://spec.commonmark.org/0.31.2/#delimiter-run>): it closes what it can, and opens with the rest.
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
            // In `2*3*4` and `a**b` they are operators, and not emphasis within a word.
            _ => (left && !(before.is_ascii_alphanumeric() && after.is_ascii_alphanumeric()), right),
        };
        let mut rest = length;
        let mut closed = Active::default();
        while can_close && rest > 0 {
            let Some(at) = self.opener_of(marker, rest, length, can_open) else { break };
            let node = self.openers[at].node;
            // Markers between the two match nothing any more.
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

    /// Returns the last open run that this one may close.
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

    /// A bracket that is no link: both of its ends are text.
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
            _ if length >= LONGEST_DESTINATION => self.no_destination(&text, Some(c)),
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

    /// What looked like a destination is text; it is read once more.
    fn no_destination(&mut self, text: &str, next: Option<char>) {
        self.again.extend(next);
        self.again.extend(text.chars().rev());
        self.unlinked();
        self.text('(');
    }

    /// Backticks that begin no code span.
    fn ticks(&mut self, count: usize) {
        (0..count).for_each(|_| self.text('`'));
    }

    /// Ends a code span that is closed, or else reads its text once more as something else.
    fn end_code(&mut self, ticks: usize, mut text: String, length: usize, closing: usize, next: Option<char>) {
        self.again.extend(next);
        if closing == ticks && length > closing {
            self.previous = '`';
            return self.hold(Node::Code { ticks, text });
        }
        (0..closing).for_each(|_| text.push('`'));
        self.again.extend(text.chars().rev());
        self.ticks(ticks);
    }
}

/// The text of a code span without the blank that sets backticks at its ends apart.
fn unpadded(text: &str) -> &str {
    match text.strip_prefix(' ').and_then(|text| text.strip_suffix(' ')) {
        Some(inner) if !inner.trim().is_empty() => inner,
        _ => text,
    }
}

/// The URL of a link's destination, which a title may follow.
fn url(destination: &str) -> Option<String> {
    let destination = destination.trim();
    let (url, title) = match destination.strip_prefix('<') {
        Some(rest) => rest.split_once('>')?,
        None => destination.split_once(char::is_whitespace).unwrap_or((destination, "")),
    };
    let title = title.trim();
    let is_title = title.is_empty()
        || title.len() > 1
            && (title.starts_with('"') && title.ends_with('"') || title.starts_with('\'') && title.ends_with('\''));
    is_title.then(|| url.to_owned())
}
