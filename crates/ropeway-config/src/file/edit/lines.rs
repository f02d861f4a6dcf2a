//! Lines in a `ropeway.yaml`: the format for new servers, and the ranges that existing ones occupy.

use serde_json::Value;

use crate::file::node::Node;
use crate::file::raw::RawServer;
use crate::file::yaml_writer::{list_item, map_lines};

/// Formats a server as a list item, with comments above it.
pub(super) fn commented_item(server: &RawServer, notes: &[String], indent: usize, newline: &str) -> String {
    // Other clients' descriptions may contain characters that are invalid in YAML.
    let printable = |line: &str| line.replace(|c: char| !is_printable(c), " ");
    let note = |line: &str| format!("{}# {}{newline}", " ".repeat(indent), printable(line));
    let notes: String = notes.iter().flat_map(|note| note.lines()).map(note).collect();
    notes + &lines_of(server, indent, newline)
}

/// Returns `true` for characters that a comment may contain on one line (<https://yaml.org/spec/1.2.2/#51-character-set>).
fn is_printable(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Formats a server as a list item, with this indentation.
fn lines_of(server: &RawServer, indent: usize, newline: &str) -> String {
    let Ok(Value::Object(map)) = serde_json::to_value(server) else { return String::new() };
    let line = |line: String| format!("{}{line}{newline}", " ".repeat(indent));
    list_item(map_lines(&map)).into_iter().map(line).collect()
}

/// A list item's line range.
pub(super) struct Block {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) indent: usize,
}

impl Block {
    /// Returns `None` if the item does not start with a dash on its own line.
    pub(super) fn of(lines: &[&str], item: &Node) -> Option<Self> {
        let start = item.position.line.checked_sub(1)?;
        let first = lines.get(start)?.trim_start_matches('\u{feff}');
        let dash = first.trim_start().strip_prefix('-')?;
        let indent = indent(first);
        if !dash.starts_with(char::is_whitespace) || item.position.column <= indent + 1 {
            return None;
        }
        let belongs = |line: &&&str| line.trim().is_empty() || self::indent(line) > indent;
        let mut end = start + 1 + lines[start + 1..].iter().take_while(belongs).count();
        while end > start + 1 && lines[end - 1].trim().is_empty() {
            end -= 1;
        }
        Some(Self { start, end, indent })
    }
}

pub(super) fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Returns `true` if the file has blank lines between servers.
pub(super) fn is_blank_before(lines: &[&str], servers: &[Node]) -> bool {
    let Some(last) = servers.get(1..).and_then(<[Node]>::last) else { return false };
    let above = lines[..last.position.line - 1].iter().rev();
    above.into_iter().find(|line| !line.trim_start().starts_with('#')).is_some_and(|line| line.trim().is_empty())
}

/// Adds a missing line break at the end.
pub(super) fn with_final_newline(text: &str, newline: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}{newline}") }
}

pub(super) fn splice(lines: &[&str], range: std::ops::Range<usize>, new: &str, newline: &str) -> String {
    let before = lines[..range.start].concat();
    let before = if new.is_empty() { before } else { with_final_newline(&before, newline) };
    format!("{before}{new}{}", lines[range.end..].concat())
}

/// Replaces the value in a `key: value` line. Returns the line unchanged if it has no value, and `None` if it has another one.
pub(super) fn replaced(line: &str, word: &str, new: &str) -> Option<String> {
    let (key, rest) = line.split_once(':')?;
    let value = rest.split('#').next().unwrap_or(rest);
    match value.trim() {
        "" => Some(line.to_owned()),
        value if value == word => Some(format!("{key}:{}", rest.replacen(&format!(" {word}"), new, 1))),
        _ => None,
    }
}
