//! Inline Markdown pieces: markers, code spans and links.

#[derive(Debug)]
pub(super) enum Node {
    Char(char),
    Code {
        ticks: usize,
        text: String,
    },
    /// Repeated `*`, `_` or `~`.
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

/// Nesting depth changes for each kind of emphasis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Active {
    pub(super) bold: i32,
    pub(super) italic: i32,
    pub(super) struck: i32,
}

impl Active {
    pub(super) fn add(&mut self, other: Self) {
        self.bold += other.bold;
        self.italic += other.italic;
        self.struck += other.struck;
    }

    pub(super) fn switch(&mut self, marker: char, length: usize, by: i32) {
        match (marker, length) {
            ('~', _) => self.struck += by,
            (_, 2) => self.bold += by,
            _ => self.italic += by,
        }
    }
}

/// A marker that a later one may close.
#[derive(Debug)]
pub(super) struct Opener {
    pub(super) node: usize,
    pub(super) kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Run { marker: char, can_close: bool },
    Bracket,
}

#[derive(Debug, Default)]
pub(super) enum State {
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
    /// Inside a code span that ends in `closing` backticks so far.
    Code {
        ticks: usize,
        text: String,
        length: usize,
        closing: usize,
    },
    /// After the `]` of a possible link.
    Bracketed,
    Destination {
        text: String,
        length: usize,
        depth: usize,
    },
}

/// Removes the space that separates a code span from its backticks.
pub(super) fn unpadded(text: &str) -> &str {
    match text.strip_prefix(' ').and_then(|text| text.strip_suffix(' ')) {
        Some(inner) if !inner.trim().is_empty() => inner,
        _ => text,
    }
}

/// Returns a link destination's URL; the destination may have a title.
pub(super) fn url(destination: &str) -> Option<String> {
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
