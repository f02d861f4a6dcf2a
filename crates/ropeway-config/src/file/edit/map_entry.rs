//! One map entry in another program's YAML file.

use std::ops::Range;

use serde_json::{Map, Value};

use super::lines::indent;
use super::{EditError, parse, without_positions};
use crate::file::decode;
use crate::file::node::{Entry, Node};
use crate::file::position::Position;
use crate::file::yaml_writer::map_lines;

/// Text that replaces a byte range in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TextEdit {
    /// The range in the text before all edits.
    pub range: Range<usize>,
    /// The new text.
    pub text: String,
}

/// Returns the entry `name` from the top-level map `key` in a YAML file.
///
/// # Errors
///
/// Fails if the text is not valid YAML.
pub fn map_entry(text: &str, key: &str, name: &str) -> Result<Option<Value>, EditError> {
    Ok(tree(text)?.get(key).and_then(|map| map.get(name)).map(value_of))
}

/// Returns the insertion that adds an entry to the top-level map `key` in a YAML file. Creates the map if necessary.
///
/// # Errors
///
/// Fails if the text is not valid YAML, or has to be edited by hand.
///
/// # Examples
///
/// ```
/// use ropeway_config::edit::add_map_entry;
/// use serde_json::json;
///
/// let edit = add_map_entry("extensions:\n  a: {}\n", "extensions", "b", &json!({"enabled": true}))?;
/// assert_eq!((edit.range, edit.text.as_str()), (20..20, "  b:\n    enabled: true\n"));
/// # Ok::<(), ropeway_config::edit::EditError>(())
/// ```
pub fn add_map_entry(text: &str, key: &str, name: &str, entry: &Value) -> Result<TextEdit, EditError> {
    let before = tree(text)?;
    let lines = Lines::of(text);
    let own = Map::from_iter([(name.to_owned(), entry.clone())]);
    let by_hand = || EditError::ManualEdit {
        what: format!("add these lines to `{key}`"),
        lines: map_lines(&own).iter().map(|line| format!("  {line}\n")).collect(),
    };
    let map = before.entries().iter().find(|map| map.key == key);
    let (at, new) = match map {
        None => {
            let whole = Map::from_iter([(key.to_owned(), Value::Object(own.clone()))]);
            (text.len(), lines.format(&whole, 0))
        }
        Some(map) if map.value.is_null() => {
            (lines.start(map.position.line), lines.format(&own, map.position.column + 1))
        }
        Some(map) => match map.value.entries().last() {
            Some(last) => {
                let range = lines.range(last).ok_or_else(by_hand)?;
                (range.end, lines.format(&own, last.position.column - 1))
            }
            None => {
                let line = lines.start(map.position.line - 1);
                let braces = text[line..].find("{}").ok_or_else(by_hand)?;
                (line + braces + 1, format!("{}: {entry}", Value::from(name)))
            }
        },
    };
    let is_whole_line = new.ends_with('\n') && at > 0 && !text[..at].ends_with('\n');
    let text_before = if is_whole_line { lines.newline } else { "" };
    let edit = TextEdit { range: at..at, text: format!("{text_before}{new}") };
    let is_valid = is_expected(&before, &applied(text, std::slice::from_ref(&edit)), key, name, Some(entry));
    if is_valid { Ok(edit) } else { Err(by_hand()) }
}

/// Returns the edits that remove an entry from the top-level map `key` in a YAML file. An empty map is kept.
///
/// # Errors
///
/// Fails if the text is not valid YAML, or has to be edited by hand.
pub fn remove_map_entry(text: &str, key: &str, name: &str) -> Result<Vec<TextEdit>, EditError> {
    let before = tree(text)?;
    let lines = Lines::of(text);
    let Some(map) = before.entries().iter().find(|map| map.key == key) else { return Ok(Vec::new()) };
    let Some(entry) = map.value.entries().iter().find(|entry| entry.key == name) else { return Ok(Vec::new()) };
    let by_hand = || EditError::ManualEdit {
        what: format!("remove `{name}` from `{key}`"),
        lines: format!("line {}", entry.position.line),
    };
    let mut edits = Vec::new();
    if map.value.entries().len() == 1 {
        let line = lines.start(map.position.line - 1);
        let at = line + text[line..].find(':').ok_or_else(by_hand)? + 1;
        edits.push(TextEdit { range: at..at, text: " {}".to_owned() });
    }
    edits.push(TextEdit { range: lines.range(entry).ok_or_else(by_hand)?, text: String::new() });
    let is_valid = is_expected(&before, &applied(text, &edits), key, name, None);
    if is_valid { Ok(edits) } else { Err(by_hand()) }
}

/// A file's lines.
struct Lines<'a> {
    lines: Vec<&'a str>,
    newline: &'static str,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        Self { lines: text.split_inclusive('\n').collect(), newline }
    }

    /// Returns a line's start offset, or the end offset.
    fn start(&self, index: usize) -> usize {
        self.lines.iter().take(index).map(|line| line.len()).sum()
    }

    /// Returns the byte range for an entry that starts on its own line, without blank lines after it.
    fn range(&self, entry: &Entry) -> Option<Range<usize>> {
        let (first, column) = (entry.position.line.checked_sub(1)?, entry.position.column.checked_sub(1)?);
        if indent(self.lines.get(first)?) != column {
            return None;
        }
        let belongs = |line: &&&str| line.trim().is_empty() || indent(line) > column;
        let mut end = first + 1 + self.lines[first + 1..].iter().take_while(belongs).count();
        while self.lines[end - 1].trim().is_empty() {
            end -= 1;
        }
        Some(self.start(first)..self.start(end))
    }

    fn format(&self, map: &Map<String, Value>, indent: usize) -> String {
        let line = |line: String| format!("{}{line}{}", " ".repeat(indent), self.newline);
        map_lines(map).into_iter().map(line).collect()
    }
}

fn tree(text: &str) -> Result<Node, EditError> {
    let is_empty = text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    if is_empty { Ok(Node::map(Position::default(), Vec::new())) } else { parse(text) }
}

fn value_of(node: &Node) -> Value {
    decode::decode(node, "").unwrap_or_default()
}

fn applied(text: &str, edits: &[TextEdit]) -> String {
    let mut applied = text.to_owned();
    for edit in edits.iter().rev() {
        applied.replace_range(edit.range.clone(), &edit.text);
    }
    applied
}

/// Returns `true` if a text has the expected entry, and otherwise the same content as before.
fn is_expected(before: &Node, edited: &str, key: &str, name: &str, expected: Option<&Value>) -> bool {
    let Ok(after) = tree(edited) else { return false };
    let others = |tree: &Node| -> Vec<Entry> {
        without_positions(tree).entries().iter().filter(|entry| entry.key != key).cloned().collect()
    };
    let siblings = |tree: &Node| -> Vec<Entry> {
        let map = tree.get(key).map(without_positions);
        map.iter().flat_map(Node::entries).filter(|entry| entry.key != name).cloned().collect()
    };
    let now = after.get(key).and_then(|map| map.get(name)).map(value_of);
    now.as_ref() == expected && others(&after) == others(before) && siblings(&after) == siblings(before)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FILES: &[&str] = &[
        "",
        "# mine\n",
        "GOOSE_MODEL: x # mine",
        "GOOSE_MODEL: x\nextensions:\n  a:\n    type: builtin\n    args:\n    - one\n\n# about the end\nlast: 1\n",
        "extensions:\n    a: {type: builtin}\n    # about b\n    b:\n        cmd: |\n            x\n\n",
        "extensions: {} # none\nlast: 1\n",
        "extensions:\nlast: 1\n",
        "extensions:\r\n  a:\r\n    type: builtin\r\nlast: 1",
        "extensions:\n  a:\n    type: builtin",
    ];

    fn entry() -> Value {
        json!({"name": "ropeway", "args": ["serve", "--stdio"], "enabled": true, "timeout": 300})
    }

    #[test]
    fn an_added_entry_is_found_and_removed() {
        for text in FILES {
            let edit = add_map_entry(text, "extensions", "ropeway", &entry()).expect(text);
            let added = applied(text, &[edit]);
            assert_eq!(map_entry(&added, "extensions", "ropeway").expect("YAML"), Some(entry()), "{added}");
            assert_eq!(added.contains("\r\n"), text.contains("\r\n"));
            let Ok(edits) = remove_map_entry(&added, "extensions", "ropeway") else {
                assert!(text.contains("{} #"), "{added}");
                continue;
            };
            let removed = applied(&added, &edits);
            assert_eq!(map_entry(&removed, "extensions", "ropeway").expect("YAML"), None, "{removed}");
            assert!(removed.replace("extensions: {}", "extensions:").contains(text.trim_end()), "{removed}");
        }
    }

    #[test]
    fn other_forms_are_edited_by_hand() {
        for text in ["extensions: {a: {type: builtin}}\n", "extensions: ~\n", "extensions: [a]\n", "- list\n"] {
            let added = add_map_entry(text, "extensions", "ropeway", &entry());
            assert!(matches!(added, Err(EditError::ManualEdit { .. })), "{text}: {added:?}");
        }
        assert!(matches!(map_entry("a: [", "extensions", "x"), Err(EditError::InvalidFile(_))));
        assert!(remove_map_entry("extensions: {ropeway: {a: 1}}\n", "extensions", "ropeway").is_err());
    }
}
