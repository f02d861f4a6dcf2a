//! The tree of a configuration file: the same for every format, with a position for each value.

use std::collections::HashMap;
use std::fmt;

use super::position::Position;
use super::problem::in_backticks;

/// The estimated bytes of a node without its text.
const OVERHEAD: usize = 32;

/// Maximum characters of a key in a path.
const MAX_KEY_SHOWN: usize = 100;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) position: Position,
    pub(super) kind: NodeKind,
}

/// The type and the content of a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NodeKind {
    /// A scalar. A plain one is written without quotes and may be a number, a boolean or null.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<Node>),
    /// The entries in the order of the file.
    Map(Vec<Entry>),
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) position: Position,
    pub(super) value: Node,
}

/// The entry of a server, with native keys.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ServerNode {
    /// The path of the entry in the file.
    pub(super) path: String,
    pub(super) node: Node,
    /// The directory of the project that the server belongs to, in a file with several projects.
    pub(super) project: Option<String>,
    /// The first unsupported key that prevents the server from being started.
    pub(super) unsupported: Option<UnsupportedKey>,
}

/// An unsupported key of another client that restricts or authenticates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnsupportedKey {
    pub(super) key: String,
    pub(super) position: Position,
    /// The predicate of a sentence whose subject is the key.
    pub(super) reason: String,
}

impl fmt::Display for UnsupportedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, Position { line, column }) = (in_backticks(&self.key), self.position);
        write!(f, "{key} ({line}:{column}) {}", self.reason)
    }
}

/// The value of a scalar without quotes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum PlainScalar {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(f64),
    String,
}

/// Parses a scalar without quotes by the core schema of YAML (<https://yaml.org/spec/1.2.2/#103-core-schema>).
pub(super) fn parse_plain(text: &str) -> PlainScalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return PlainScalar::Null,
        "true" | "True" | "TRUE" => return PlainScalar::Bool(true),
        "false" | "False" | "FALSE" => return PlainScalar::Bool(false),
        _ => {}
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return PlainScalar::String;
    }
    let radix = |prefix: &str, radix| {
        text.strip_prefix(prefix)
            .filter(|digits| !digits.starts_with(['+', '-']))
            .and_then(|digits| u64::from_str_radix(digits, radix).ok())
    };
    if let Some(number) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        return i64::try_from(number).map_or(PlainScalar::UInt(number), PlainScalar::Int);
    }
    if let Ok(number) = text.parse() {
        return PlainScalar::Int(number);
    }
    if let Ok(number) = text.parse() {
        return PlainScalar::UInt(number);
    }
    let is_number =
        unsigned.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'));
    match text.parse::<f64>() {
        Ok(number) if is_number && number.is_finite() => PlainScalar::Float(number),
        _ => PlainScalar::String,
    }
}

impl Node {
    /// Creates a quoted scalar.
    pub(super) fn string(position: Position, text: impl Into<String>) -> Self {
        Self { position, kind: NodeKind::Scalar { text: text.into(), plain: false } }
    }

    pub(super) fn map(position: Position, entries: Vec<Entry>) -> Self {
        Self { position, kind: NodeKind::Map(entries) }
    }

    /// Returns the text of a scalar other than null.
    pub(super) fn as_str(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Scalar { text, plain: true } if parse_plain(text) == PlainScalar::Null => None,
            NodeKind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Returns `true` for null, which is also the value of a key without one.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.kind, NodeKind::Scalar { text, plain: true } if parse_plain(text) == PlainScalar::Null)
    }

    /// Returns `true` for this boolean without quotes.
    pub(super) fn is_bool(&self, value: bool) -> bool {
        matches!(&self.kind, NodeKind::Scalar { text, plain: true } if parse_plain(text) == PlainScalar::Bool(value))
    }

    /// Returns the entries of a map. Empty for other values.
    pub(super) fn entries(&self) -> &[Entry] {
        match &self.kind {
            NodeKind::Map(entries) => entries,
            _ => &[],
        }
    }

    /// Returns the items of a list. Empty for other values.
    pub(super) fn items(&self) -> &[Node] {
        match &self.kind {
            NodeKind::List(items) => items,
            _ => &[],
        }
    }

    /// Returns the value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    pub(super) fn is_map(&self) -> bool {
        matches!(self.kind, NodeKind::Map(_))
    }

    /// Describes the value for a message.
    pub(super) fn describe(&self) -> String {
        match &self.kind {
            NodeKind::Scalar { text, .. } if text == "~" && self.is_null() => {
                "no value: `~` without quotes is null".to_owned()
            }
            _ if self.is_null() => "no value".to_owned(),
            NodeKind::Scalar { text, .. } => in_backticks(text),
            NodeKind::List(_) => "a list".to_owned(),
            NodeKind::Map(_) => "a map".to_owned(),
        }
    }

    /// Describes the type of the value, which may be a secret.
    pub(super) fn describe_kind(&self) -> String {
        match &self.kind {
            NodeKind::Scalar { .. } if !self.is_null() => "a string".to_owned(),
            _ => self.describe(),
        }
    }

    /// Removes the entry at a path of keys. Returns `false` if it does not exist.
    pub(super) fn remove(&mut self, path: &[PathStep]) -> bool {
        let ([PathStep::Key(key), rest @ ..], NodeKind::Map(entries)) = (path, &mut self.kind) else { return false };
        let Some(at) = entries.iter().position(|entry| entry.key == *key) else { return false };
        if rest.is_empty() {
            entries.remove(at);
            return true;
        }
        entries[at].value.remove(rest)
    }

    /// Estimates the bytes of a copy of the value, which also bounds the work of reading it.
    pub(super) fn estimated_bytes(&self) -> usize {
        OVERHEAD
            + match &self.kind {
                NodeKind::Scalar { text, .. } => text.len(),
                NodeKind::List(items) => items.iter().map(Self::estimated_bytes).sum(),
                NodeKind::Map(entries) => {
                    entries.iter().map(|entry| OVERHEAD + entry.key.len() + entry.value.estimated_bytes()).sum()
                }
            }
    }

    /// Returns the position of the value at a path, or of its closest existing ancestor.
    pub(super) fn position_of(&self, path: &[PathStep]) -> Position {
        let mut node = self;
        for step in path {
            let next = match step {
                PathStep::Key(key) => node.get(key),
                PathStep::Index(index) => node.items().get(*index),
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        node.position
    }

    /// Returns this value with the missing keys of maps taken from `below`, recursively.
    pub(super) fn merge_over(self, below: &Node) -> Node {
        match (self.kind, &below.kind) {
            (NodeKind::Map(above), NodeKind::Map(below)) => {
                let mut entries = above;
                let known: HashMap<String, usize> =
                    entries.iter().enumerate().map(|(at, entry)| (entry.key.clone(), at)).collect();
                for entry in below {
                    match known.get(&entry.key) {
                        Some(&at) => {
                            let value =
                                std::mem::replace(&mut entries[at].value, Node::string(Position::default(), ""));
                            entries[at].value = value.merge_over(&entry.value);
                        }
                        None => entries.push(entry.clone()),
                    }
                }
                Node { position: self.position, kind: NodeKind::Map(entries) }
            }
            (kind, _) => Node { position: self.position, kind },
        }
    }
}

/// A step from a value to a value inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PathStep {
    Key(String),
    Index(usize),
}

/// Returns `true` if the value of this key may contain a secret.
pub(super) fn may_hold_secret(key: &str) -> bool {
    matches!(key, "args" | "auth" | "env" | "headers" | "preset" | "url")
}

/// Returns the name at the start of a key, with the rest redacted: in `TOKEN=secret:`, a value is part of the key by mistake.
pub(super) fn redact_key(key: &str) -> String {
    match key.find(|c: char| matches!(c, '=' | ':') || c.is_whitespace()) {
        Some(end) => format!("{}***", &key[..end]),
        None => key.to_owned(),
    }
}

/// Formats a path, such as `servers[2].timeouts.connect`.
pub(super) fn format_path(base: &str, steps: &[PathStep]) -> String {
    let mut path = base.to_owned();
    let mut redacts = false;
    for step in steps {
        match step {
            PathStep::Key(key) => {
                let shown = if redacts { redact_key(key) } else { key.clone() };
                redacts |= may_hold_secret(key);
                let key = match shown.char_indices().nth(MAX_KEY_SHOWN) {
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
            PathStep::Index(index) => path.push_str(&format!("[{index}]")),
        }
    }
    path
}
