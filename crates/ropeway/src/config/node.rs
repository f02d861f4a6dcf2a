//! A configuration file as a tree: one shape for every format, each part with its place.

use std::collections::HashMap;
use std::fmt;

use super::problem::{ConfigProblem, in_backticks};

/// How deep lists and maps may lie within each other.
pub(super) const DEPTH: usize = 100;

/// What a value weighs in addition to its text.
const WEIGHT: usize = 32;

/// Maximum characters of a key in the path of a problem.
const KEY_SHOWN: usize = 100;

/// Where something begins: line and column, both from one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// A value of the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) kind: Kind,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// A text; a plain one was written without quotes, and may be a number, a truth or nothing.
    Scalar { text: String, plain: bool },
    /// Several values.
    List(Vec<Node>),
    /// Values under keys, in the order of the file.
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) place: Place,
    pub(super) value: Node,
}

/// A server as it stands in a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Written {
    /// Its path in the file.
    pub(super) path: String,
    /// What is written, in our own words.
    pub(super) node: Node,
    /// The key of another client for which the server is not started.
    pub(super) refusal: Option<Refusal>,
}

/// A key of another client that restricts or authenticates and that cannot be honoured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) key: String,
    pub(super) place: Place,
    /// What is wrong with it, as the end of a sentence that begins with the key.
    pub(super) reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, Place { line, column }) = (in_backticks(&self.key), self.place);
        write!(f, "{key} ({line}:{column}) {}", self.reason)
    }
}

/// What a text without quotes means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Plain {
    Nothing,
    Truth(bool),
    Whole(i64),
    Large(u64),
    Fraction(f64),
    Text,
}

/// The meaning of a text without quotes, by YAML's core schema.
pub(super) fn plain(text: &str) -> Plain {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Plain::Nothing,
        "true" | "True" | "TRUE" => return Plain::Truth(true),
        "false" | "False" | "FALSE" => return Plain::Truth(false),
        _ => {}
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Plain::Text;
    }
    let radix = |prefix: &str, radix| {
        text.strip_prefix(prefix)
            .filter(|digits| !digits.starts_with(['+', '-']))
            .and_then(|digits| u64::from_str_radix(digits, radix).ok())
    };
    if let Some(number) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        return i64::try_from(number).map_or(Plain::Large(number), Plain::Whole);
    }
    if let Ok(number) = text.parse() {
        return Plain::Whole(number);
    }
    if let Ok(number) = text.parse() {
        return Plain::Large(number);
    }
    let is_number =
        unsigned.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'));
    match text.parse::<f64>() {
        Ok(number) if is_number && number.is_finite() => Plain::Fraction(number),
        _ => Plain::Text,
    }
}

impl Node {
    /// A text as in quotes.
    pub(super) fn text(place: Place, text: impl Into<String>) -> Self {
        Self { place, kind: Kind::Scalar { text: text.into(), plain: false } }
    }

    /// A map.
    pub(super) fn map(place: Place, entries: Vec<Entry>) -> Self {
        Self { place, kind: Kind::Map(entries) }
    }

    /// The text of a scalar that is not nothing.
    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar { text, plain: true } if plain(text) == Plain::Nothing => None,
            Kind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Whether nothing is there.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(&self.kind, Kind::Scalar { text, plain: true } if plain(text) == Plain::Nothing)
    }

    /// The entries of a map; none for everything else.
    pub(super) fn entries(&self) -> &[Entry] {
        match &self.kind {
            Kind::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a list; none for everything else.
    pub(super) fn items(&self) -> &[Node] {
        match &self.kind {
            Kind::List(items) => items,
            _ => &[],
        }
    }

    /// The value under a key.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// Whether this is a map.
    pub(super) fn is_map(&self) -> bool {
        matches!(self.kind, Kind::Map(_))
    }

    /// What is there, in words.
    pub(super) fn describe(&self) -> String {
        match &self.kind {
            _ if self.is_nothing() => "nothing".to_owned(),
            Kind::Scalar { text, .. } => in_backticks(text),
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "a map".to_owned(),
        }
    }

    /// The same without its value, for what may be a secret.
    pub(super) fn describe_kind(&self) -> String {
        match &self.kind {
            Kind::Scalar { .. } if !self.is_nothing() => "a text".to_owned(),
            _ => self.describe(),
        }
    }

    /// Removes the entry that these keys lead to. Returns false if they lead nowhere.
    pub(super) fn remove(&mut self, path: &[Step]) -> bool {
        let ([Step::Key(key), rest @ ..], Kind::Map(entries)) = (path, &mut self.kind) else { return false };
        let Some(at) = entries.iter().position(|entry| entry.key == *key) else { return false };
        if rest.is_empty() {
            entries.remove(at);
            return true;
        }
        entries[at].value.remove(rest)
    }

    /// Returns about how many bytes a copy of the value takes, which also bounds the work to read it.
    pub(super) fn weight(&self) -> usize {
        WEIGHT
            + match &self.kind {
                Kind::Scalar { text, .. } => text.len(),
                Kind::List(items) => items.iter().map(Self::weight).sum(),
                Kind::Map(entries) => entries.iter().map(|entry| WEIGHT + entry.key.len() + entry.value.weight()).sum(),
            }
    }

    /// The place of what a path leads to, or of the last part of it that is there.
    pub(super) fn place_of(&self, path: &[Step]) -> Place {
        let mut node = self;
        for step in path {
            let next = match step {
                Step::Key(key) => node.get(key),
                Step::Index(index) => node.items().get(*index),
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        node.place
    }

    /// These settings over those: maps are laid over each other key by key, everything else is replaced.
    pub(super) fn over(self, below: &Node) -> Node {
        match (self.kind, &below.kind) {
            (Kind::Map(above), Kind::Map(below)) => {
                let mut entries = above;
                let known: HashMap<String, usize> =
                    entries.iter().enumerate().map(|(at, entry)| (entry.key.clone(), at)).collect();
                for entry in below {
                    match known.get(&entry.key) {
                        Some(&at) => {
                            let value = std::mem::replace(&mut entries[at].value, Node::text(Place::default(), ""));
                            entries[at].value = value.over(&entry.value);
                        }
                        None => entries.push(entry.clone()),
                    }
                }
                Node { place: self.place, kind: Kind::Map(entries) }
            }
            (kind, _) => Node { place: self.place, kind },
        }
    }
}

/// One step from a value to a value within it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// Whether what stands under this key may be a secret, or hold one.
pub(super) fn is_private(key: &str) -> bool {
    matches!(key, "args" | "auth" | "env" | "headers" | "preset" | "url")
}

/// The name that a key begins with. What follows, if anything does, is a value that stands there by mistake.
pub(super) fn name_only(key: &str) -> String {
    match key.find(|c: char| matches!(c, '=' | ':') || c.is_whitespace()) {
        Some(end) => format!("{}***", &key[..end]),
        None => key.to_owned(),
    }
}

/// The steps as people write them: `servers[2].timeouts.connect`.
pub(super) fn path_text(base: &str, steps: &[Step]) -> String {
    let mut path = base.to_owned();
    let mut hides = false;
    for step in steps {
        match step {
            Step::Key(key) => {
                let shown = if hides { name_only(key) } else { key.clone() };
                hides |= is_private(key);
                let key = match shown.char_indices().nth(KEY_SHOWN) {
                    Some((end, _)) => format!("{}…", &shown[..end]),
                    None => shown,
                };
                let key = key.as_str();
                let odd = key.is_empty() || key.contains(|c: char| matches!(c, '.' | '[' | ']') || c.is_whitespace());
                match (odd, path.is_empty()) {
                    (true, _) => path.push_str(&format!("[{key:?}]")),
                    (false, true) => path.push_str(key),
                    (false, false) => path.push_str(&format!(".{key}")),
                }
            }
            Step::Index(index) => path.push_str(&format!("[{index}]")),
        }
    }
    path
}

/// How many bytes of a line are counted at most to know a column.
const STRIDE: usize = 1024;

/// Where the lines of a text begin: for parsers that count bytes.
pub(super) struct Lines<'a> {
    text: &'a str,
    /// Places that are known, with their bytes: where each line begins, and some within long lines.
    known: Vec<(usize, Place)>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut known = Vec::new();
        let mut start = 0;
        let last = (text.is_empty() || text.ends_with('\n')).then_some("");
        for (index, line) in text.split_inclusive('\n').chain(last).enumerate() {
            let mut place = Place { line: index + 1, column: 1 };
            let mut at = 0;
            known.push((start, place));
            while line.len() - at > STRIDE {
                let next = line.floor_char_boundary(at + STRIDE);
                place.column += line[at..next].chars().count();
                at = next;
                known.push((start + at, place));
            }
            start += line.len();
        }
        Self { text, known }
    }

    /// The place of a byte.
    pub(super) fn place(&self, at: usize) -> Place {
        let at = self.text.floor_char_boundary(at);
        let after = self.known.partition_point(|(known, _)| *known <= at);
        let (known, place) = self.known[after.saturating_sub(1)];
        Place { column: place.column + self.text[known..at].chars().count(), ..place }
    }
}

/// The problem of a file that is nested too deep.
pub(super) fn too_deep(place: Place) -> ConfigProblem {
    ConfigProblem::at(place, "", format!("more than {DEPTH} lists and maps within each other"), "fewer")
}

#[cfg(test)]
mod tests {
    use super::{Lines, Place};

    #[test]
    fn every_byte_has_its_place_in_long_and_short_lines() {
        for text in
            [String::new(), "a\n".into(), "é\nb".into(), format!("é{}\n\n{}", "ä€x".repeat(900), "y".repeat(2050))]
        {
            let lines = Lines::new(&text);
            for (at, _) in text.char_indices().chain([(text.len(), ' ')]) {
                let before = &text[..at];
                let line = before.matches('\n').count() + 1;
                let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
                assert_eq!(lines.place(at), Place { line, column });
            }
        }
    }
}
