//! A configuration file's tree: the same for every format, with a position for each value.

use std::collections::HashMap;
use std::fmt;

use super::position::Position;
use super::problem::in_backticks;

/// A node's estimated bytes without its text.
const OVERHEAD: usize = 32;

/// Maximum characters per key in a path.
const MAX_KEY_SHOWN: usize = 100;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) position: Position,
    pub(super) kind: NodeKind,
}

/// A value's type and content.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NodeKind {
    /// A scalar. A plain one is written without quotes and may be a number, a boolean or null.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<Node>),
    /// The entries in file order.
    Map(Vec<Entry>),
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) position: Position,
    pub(super) value: Node,
}

/// A server's entry, with native keys.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ServerNode {
    /// The entry's path in the file.
    pub(super) path: String,
    pub(super) node: Node,
    /// The project directory that the server belongs to, in a file with several projects.
    pub(super) project: Option<String>,
    /// The first unsupported key that prevents the server from being started.
    pub(super) unsupported: Option<UnsupportedKey>,
}

/// Another client's unsupported key that restricts or authenticates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnsupportedKey {
    pub(super) key: String,
    pub(super) position: Position,
    /// The predicate for a sentence whose subject is the key.
    pub(super) reason: String,
}

impl fmt::Display for UnsupportedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, Position { line, column }) = (in_backticks(&self.key), self.position);
        write!(f, "{key} ({line}:{column}) {}", self.reason)
    }
}

/// An unquoted scalar's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum PlainScalar {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(f64),
    String,
}

/// Parses an unquoted scalar by YAML's core schema (<https://yaml.org/spec/1.2.2/#103-core-schema>).
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

    /// Returns a scalar's text, unless it is null.
    pub(super) fn as_str(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Scalar { text, plain: true } if parse_plain(text) == PlainScalar::Null => None,
            NodeKind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Returns `true` for null, which is also what a key without a value has.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.kind, NodeKind::Scalar { text, plain: true } if parse_plain(text) == PlainScalar::Null)
    }

    /// Returns `true` for this boolean without quotes.
    pub(super) fn is_bool(&self, value: bool) -> bool {
        matches!(&self.kind, NodeKind::Scalar { text, plain: true } if parse_plain(text) == PlainScalar::Bool(value))
    }

    /// Returns a map's entries. Empty for other values.
    pub(super) fn entries(&self) -> &[Entry] {
        match &self.kind {
            NodeKind::Map(entries) => entries,
            _ => &[],
        }
    }

    /// Returns a list's items. Empty for other values.
    pub(super) fn items(&self) -> &[Node] {
        match &self.kind {
            NodeKind::List(items) => items,
            _ => &[],
        }
    }

    /// Returns a key's value.
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

    /// Describes only the value's type, since the value may be a secret.
    pub(super) fn describe_kind(&self) -> String {
        match &self.kind {
            NodeKind::Scalar { .. } if !self.is_null() => "a string".to_owned(),
            _ => self.describe(),
        }
    }

    /// Removes the entry at a key path. Returns `false` if it does not exist.
    pub(super) fn remove(&mut self, path: &[PathStep]) -> bool {
        let ([PathStep::Key(key), rest @ ..], NodeKind::Map(entries)) = (path, &mut self.kind) else { return false };
        let Some(at) = entries.iter().position(|entry| entry.key == *key) else { return false };
        if rest.is_empty() {
            entries.remove(at);
            return true;
        }
        entries[at].value.remove(rest)
    }

    /// Estimates the bytes that a copy takes, which also bounds the work to read the value.
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

    /// Returns the position for the value at a path, or for its closest existing ancestor.
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

    /// Returns this value with keys that its maps lack taken from `below`, recursively.
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

/// Returns `true` if this key's value may contain a secret.
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
