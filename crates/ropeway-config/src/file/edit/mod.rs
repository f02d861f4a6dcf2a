//! Edits to a `ropeway.yaml` that preserve comments and formatting.

mod lines;
mod map_entry;

use std::path::Path;

use serde_json::Value;

use self::lines::{Block, commented_item, indent, is_blank_before, replaced, splice, with_final_newline};
pub use self::map_entry::{TextEdit, add_map_entry, map_entry, remove_map_entry};
use super::node::{Entry, Node, NodeKind};
use super::position::Position;
use super::problem::{ConfigError, did_you_mean, in_backticks, nearest};
use super::raw::RawServer;
use super::yaml_writer::scalar;
use super::{decode, yaml};

/// A new file's first lines, which refer editors to the schema.
const HEADER: &str = "\
# For help in your editor: ropeway config schema > ropeway.schema.json
# yaml-language-server: $schema=ropeway.schema.json
";

/// Error returned when an edit fails. The file is unchanged.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// The file is invalid.
    #[error("could not edit an invalid file")]
    InvalidFile(#[source] ConfigError),
    /// The file has a server with this alias already.
    #[error("server `{alias}` already exists (line {line})")]
    DuplicateAlias {
        /// The alias.
        alias: String,
        /// The existing server's line.
        line: usize,
    },
    /// The file has no server with this alias.
    #[error("unknown server {}{}", in_backticks(.alias), did_you_mean(.suggestion.as_deref()))]
    UnknownServer {
        /// The alias.
        alias: String,
        /// The most similar alias in the file.
        suggestion: Option<String>,
    },
    /// `enabled_servers` refers to the server.
    #[error("`enabled_servers` refers to `{alias}` (line {line}); remove it there first")]
    StillReferenced {
        /// The alias.
        alias: String,
        /// The reference's line.
        line: usize,
    },
    /// The file cannot be edited without losing its formatting.
    #[error("could not edit the file automatically: {what}\n{lines}")]
    ManualEdit {
        /// The instruction for the user.
        what: String,
        /// The lines that the instruction refers to.
        lines: String,
    },
}

/// Writes a new file with these servers, each with comments.
pub fn write<'a>(servers: impl IntoIterator<Item = (&'a RawServer, &'a [String])>) -> String {
    let mut text = format!("{HEADER}servers:\n");
    for (index, (server, notes)) in servers.into_iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        text.push_str(&commented_item(server, notes, 2, "\n"));
    }
    if text.ends_with("servers:\n") { text.replace("servers:\n", "servers: []\n") } else { text }
}

/// Adds a server to the end of the list.
///
/// # Errors
///
/// Fails if the file is invalid, has a server with the same alias, or has to be edited by hand.
pub fn add(text: &str, server: &RawServer) -> Result<String, EditError> {
    add_with(text, server, &[])
}

/// Adds a server with comments above it.
///
/// # Errors
///
/// Fails like [`add`].
pub fn add_with(text: &str, server: &RawServer, notes: &[String]) -> Result<String, EditError> {
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let item = |indent: usize, newline: &str| commented_item(server, notes, indent, newline);
    let by_hand = || EditError::ManualEdit { what: "add these lines to `servers`".to_owned(), lines: item(2, "\n") };
    let is_empty = text
        .lines()
        .all(|line| line.trim_start_matches('\u{feff}').trim().is_empty() || line.trim_start().starts_with('#'));
    if is_empty {
        let head = if text.trim().is_empty() { HEADER.to_owned() } else { with_final_newline(text, newline) };
        let added = format!("{head}servers:{newline}{}", item(2, newline));
        // Comments may contain control characters, which are invalid in YAML.
        parse(added.trim_start_matches('\u{feff}'))?;
        return Ok(added);
    }
    let tree = parse(text)?;
    if let Some(taken) = server_index(&tree, &server.alias) {
        let line = servers(&tree)[taken].position.line;
        return Err(EditError::DuplicateAlias { alias: server.alias.clone(), line });
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let entry = tree.entries().iter().find(|entry| entry.key == "servers");
    let edited = match entry {
        None => format!("{}servers:{newline}{}", with_final_newline(text, newline), item(2, newline)),
        Some(entry) => match servers(&tree).last() {
            Some(last) => {
                let block = Block::of(&lines, last).ok_or_else(by_hand)?;
                let gap = is_blank_before(&lines, servers(&tree));
                let mut new = if gap { newline.to_owned() } else { String::new() };
                new.push_str(&item(block.indent, newline));
                splice(&lines, block.end..block.end, &new, newline)
            }
            None => {
                let index = entry.position.line - 1;
                let line = lines.get(index).ok_or_else(by_hand)?;
                let first = replaced(line, "[]", "").ok_or_else(by_hand)?;
                let new = format!("{}{}", with_final_newline(&first, newline), item(2, newline));
                splice(&lines, index..index + 1, &new, newline)
            }
        },
    };
    let mut expected: Vec<Node> = servers(&tree).iter().map(without_positions).collect();
    let added = parse(&edited).ok().filter(|edited| {
        let new = servers(edited).last();
        expected.extend(new.map(without_positions));
        let is_new = new.is_some_and(|new| decode::decode::<RawServer>(new, "").is_ok_and(|new| new == *server));
        is_new && is_equivalent(edited, &tree, &expected)
    });
    added.map(|_| edited).ok_or_else(by_hand)
}

/// Returns a file's servers without its defaults. Invalid entries are skipped.
///
/// # Errors
///
/// Fails if the text is not valid YAML.
pub fn servers_of(text: &str) -> Result<Vec<RawServer>, EditError> {
    let tree = parse(text)?;
    Ok(servers(&tree).iter().filter_map(|server| decode::decode(server, "").ok()).collect())
}

/// Replaces strings in a server's entry, for example secrets by references.
///
/// # Errors
///
/// Fails if the file is invalid or has no such server, or if anything other than single-line strings differs.
pub fn update(text: &str, server: &RawServer) -> Result<String, EditError> {
    let tree = parse(text)?;
    let alias = &server.alias;
    let Some(index) = server_index(&tree, alias) else {
        return Err(EditError::UnknownServer { alias: alias.clone(), suggestion: None });
    };
    let node = &servers(&tree)[index];
    let by_hand = || EditError::ManualEdit {
        what: format!("change the server `{alias}`"),
        lines: format!("line {}", node.position.line),
    };
    let written = decode::decode::<RawServer>(node, "").map_err(|_| by_hand())?;
    let values = |server: &RawServer| serde_json::to_value(server).map_err(|_| by_hand());
    let mut changes = Vec::new();
    changed_texts(&values(&written)?, &values(server)?, &mut changes);
    let mut scalars = Vec::new();
    scalars_of(node, &mut scalars);
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    // Starts at the end, so that earlier positions stay valid.
    scalars.sort_by_key(|(position, _)| std::cmp::Reverse(*position));
    for (position, old) in scalars {
        let Some((_, new)) = changes.iter().find(|(changed, _)| changed == old) else { continue };
        let line = lines.get_mut(position.line - 1).ok_or_else(by_hand)?;
        let start = line.char_indices().nth(position.column - 1).map(|(at, _)| at).ok_or_else(by_hand)?;
        let length = scalar_length(&line[start..], old).ok_or_else(by_hand)?;
        line.replace_range(start..start + length, &scalar(new));
    }
    let edited = lines.concat();
    let is_valid = parse(&edited).is_ok_and(|after| {
        let mut expected: Vec<Node> = servers(&tree).iter().map(without_positions).collect();
        let Some(new) = servers(&after).get(index) else { return false };
        expected[index] = without_positions(new);
        decode::decode::<RawServer>(new, "").is_ok_and(|new| new == *server) && is_equivalent(&after, &tree, &expected)
    });
    if is_valid { Ok(edited) } else { Err(by_hand()) }
}

/// Collects the strings that differ between two values: before and after.
fn changed_texts(before: &Value, after: &Value, changes: &mut Vec<(String, String)>) {
    match (before, after) {
        (Value::String(before), Value::String(after)) if before != after => {
            changes.push((before.clone(), after.clone()));
        }
        (Value::Array(before), Value::Array(after)) => {
            before.iter().zip(after).for_each(|(before, after)| changed_texts(before, after, changes));
        }
        (Value::Object(before), Value::Object(after)) => {
            for (key, before) in before {
                if let Some(after) = after.get(key) {
                    changed_texts(before, after, changes);
                }
            }
        }
        _ => {}
    }
}

/// Collects a tree's scalars with their positions.
fn scalars_of<'a>(node: &'a Node, scalars: &mut Vec<(Position, &'a str)>) {
    match &node.kind {
        NodeKind::Scalar { text, .. } => scalars.push((node.position, text)),
        NodeKind::List(items) => items.iter().for_each(|item| scalars_of(item, scalars)),
        NodeKind::Map(entries) => entries.iter().for_each(|entry| scalars_of(&entry.value, scalars)),
    }
}

/// Returns the length, with quotes, of the scalar at the start of a line.
fn scalar_length(line: &str, text: &str) -> Option<usize> {
    match line.chars().next()? {
        '\'' => {
            let quoted = format!("'{}'", text.replace('\'', "''"));
            line.starts_with(&quoted).then_some(quoted.len())
        }
        '"' => {
            // The escapes are verified when the edited file is parsed.
            let mut escaped = false;
            let end = line.char_indices().skip(1).find(|(_, c)| {
                let ends = *c == '"' && !escaped;
                escaped = *c == '\\' && !escaped;
                ends
            });
            end.map(|(at, _)| at + 1)
        }
        _ => line.starts_with(text).then_some(text.len()),
    }
}

/// Removes a server and the comment directly above it.
///
/// # Errors
///
/// Fails if the file is invalid or has no such server, if `enabled_servers` refers to it, or if the file has to be edited by hand.
pub fn remove(text: &str, alias: &str) -> Result<String, EditError> {
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let tree = parse(text)?;
    let Some(index) = server_index(&tree, alias) else {
        let aliases = servers(&tree).iter().filter_map(|server| server.get("alias")?.as_str());
        let suggestion = nearest(alias, aliases).map(str::to_owned);
        return Err(EditError::UnknownServer { alias: alias.to_owned(), suggestion });
    };
    let named = tree.get("enabled_servers").map(Node::items).unwrap_or_default();
    if let Some(named) = named.iter().find(|named| named.as_str() == Some(alias)) {
        return Err(EditError::StillReferenced { alias: alias.to_owned(), line: named.position.line });
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let server = &servers(&tree)[index];
    let by_hand = || EditError::ManualEdit {
        what: format!("remove the server `{alias}`"),
        lines: format!(
            "line {}: {}",
            server.position.line,
            lines.get(server.position.line - 1).map_or("", |line| line.trim())
        ),
    };
    let block = Block::of(&lines, server).ok_or_else(by_hand)?;
    let mut range = block.start..block.end;
    let is_comment = |line: &str| line.trim_start().starts_with('#') && indent(line) == block.indent;
    while range.start > 0 && is_comment(lines[range.start - 1]) {
        range.start -= 1;
    }
    // Removes the blank line above the server as well, or the one below the first server.
    let is_blank = |index: usize| lines.get(index).is_none_or(|line| line.trim().is_empty());
    let is_last = index + 1 == servers(&tree).len();
    if range.start > 0 && is_blank(range.start - 1) && (is_last || is_blank(range.end)) {
        range.start -= 1;
    } else if index == 0 && !is_last && is_blank(range.end) {
        range.end += 1;
    }
    let mut edited = splice(&lines, range, "", newline);
    if servers(&tree).len() == 1 {
        let position = tree.entries().iter().find(|entry| entry.key == "servers").map(|entry| entry.position.line - 1);
        let mut lines: Vec<String> = edited.split_inclusive('\n').map(str::to_owned).collect();
        if let Some(line) = position.and_then(|position| lines.get_mut(position)) {
            *line = line.replacen("servers:", "servers: []", 1);
        }
        edited = lines.concat();
    }
    let mut expected: Vec<Node> = servers(&tree).iter().map(without_positions).collect();
    expected.remove(index);
    let is_valid = parse(&edited).is_ok_and(|edited| is_equivalent(&edited, &tree, &expected));
    if is_valid { Ok(edited) } else { Err(by_hand()) }
}

fn parse(text: &str) -> Result<Node, EditError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let tree = yaml::parse(text);
    tree.map_err(|problem| EditError::InvalidFile(ConfigError::new(Path::new("ropeway.yaml"), vec![problem])))
}

fn servers(tree: &Node) -> &[Node] {
    tree.get("servers").map(Node::items).unwrap_or_default()
}

fn server_index(tree: &Node, alias: &str) -> Option<usize> {
    servers(tree).iter().position(|server| server.get("alias").and_then(Node::as_str) == Some(alias))
}

/// Returns `true` if a file has the expected servers, and otherwise the same content as before.
fn is_equivalent(edited: &Node, before: &Node, expected: &[Node]) -> bool {
    let others = |tree: &Node| -> Vec<Entry> {
        without_positions(tree).entries().iter().filter(|entry| entry.key != "servers").cloned().collect()
    };
    let now: Vec<Node> = servers(edited).iter().map(without_positions).collect();
    now == expected && others(edited) == others(before)
}

/// Returns a value without positions.
fn without_positions(node: &Node) -> Node {
    let position = Position::default();
    let kind = match &node.kind {
        NodeKind::Scalar { text, plain } => NodeKind::Scalar { text: text.clone(), plain: *plain },
        NodeKind::List(items) => NodeKind::List(items.iter().map(without_positions).collect()),
        NodeKind::Map(entries) => {
            let entry =
                |entry: &Entry| Entry { key: entry.key.clone(), position, value: without_positions(&entry.value) };
            NodeKind::Map(entries.iter().map(entry).collect())
        }
    };
    Node { position, kind }
}
