//! Changes to the text of a `ropeway.yaml` that leave everything else as it is.

use std::path::Path;

use serde_json::Value;

use super::emit::{dashed, map_lines, scalar};
use super::node::{Entry, Kind, Node, Place};
use super::problem::{ConfigError, in_backticks, nearest};
use super::raw::RawServer;
use super::{decode, yaml};

/// The first lines of a new file: where editors find what may stand in it.
const HEADER: &str = "\
# For help in your editor: ropeway config schema > ropeway.schema.json
# yaml-language-server: $schema=ropeway.schema.json
";

/// Why a file was not changed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// The file is broken already.
    #[error("the file cannot be changed while it is broken")]
    Broken(#[source] ConfigError),
    /// There is a server of that name.
    #[error("line {line} has a server `{alias}` already")]
    Taken {
        /// The name.
        alias: String,
        /// Where it is.
        line: usize,
    },
    /// There is no server of that name.
    #[error("there is no server {}{}", in_backticks(.alias), meant(.suggestion.as_deref()))]
    Unknown {
        /// The name.
        alias: String,
        /// The name that was probably meant.
        suggestion: Option<String>,
    },
    /// Something else in the file names the server.
    #[error("`enabled_servers` names `{alias}` too, in line {line}; take it out there first")]
    StillNamed {
        /// The name.
        alias: String,
        /// Where it is named.
        line: usize,
    },
    /// The file is written in a way that only a person can change without loss.
    #[error("the file has to be changed by hand: {what}\n{lines}")]
    ByHand {
        /// What to do.
        what: String,
        /// The lines that it is about.
        lines: String,
    },
}

fn meant(suggestion: Option<&str>) -> String {
    suggestion.map(|suggestion| format!(" (did you mean `{suggestion}`?)")).unwrap_or_default()
}

/// A new file with these servers, each with lines to be said about it.
pub fn write<'a>(servers: impl IntoIterator<Item = (&'a RawServer, &'a [String])>) -> String {
    let mut text = format!("{HEADER}servers:\n");
    for (index, (server, notes)) in servers.into_iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        text.push_str(&noted(server, notes, 2, "\n"));
    }
    if text.ends_with("servers:\n") { text.replace("servers:\n", "servers: []\n") } else { text }
}

/// The text with one more server at the end of its list.
pub fn add(text: &str, server: &RawServer) -> Result<String, EditError> {
    add_with(text, server, &[])
}

/// The same, with lines to be said about the server.
pub fn add_with(text: &str, server: &RawServer, notes: &[String]) -> Result<String, EditError> {
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let item = |indent: usize, newline: &str| noted(server, notes, indent, newline);
    let by_hand = || EditError::ByHand { what: "add these lines to `servers`".to_owned(), lines: item(2, "\n") };
    let is_empty = text
        .lines()
        .all(|line| line.trim_start_matches('\u{feff}').trim().is_empty() || line.trim_start().starts_with('#'));
    if is_empty {
        let head = if text.trim().is_empty() { HEADER.to_owned() } else { ended(text, newline) };
        let added = format!("{head}servers:{newline}{}", item(2, newline));
        // Comments may hold control characters, which no YAML may.
        parse(added.trim_start_matches('\u{feff}'))?;
        return Ok(added);
    }
    let tree = parse(text)?;
    if let Some(taken) = position(&tree, &server.alias) {
        let line = servers(&tree)[taken].place.line;
        return Err(EditError::Taken { alias: server.alias.clone(), line });
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let entry = tree.entries().iter().find(|entry| entry.key == "servers");
    let edited = match entry {
        None => format!("{}servers:{newline}{}", ended(text, newline), item(2, newline)),
        Some(entry) => match servers(&tree).last() {
            Some(last) => {
                let block = Block::of(&lines, last).ok_or_else(by_hand)?;
                let gap = is_blank_before(&lines, servers(&tree));
                let mut new = if gap { newline.to_owned() } else { String::new() };
                new.push_str(&item(block.indent, newline));
                splice(&lines, block.end..block.end, &new, newline)
            }
            None => {
                let index = entry.place.line - 1;
                let line = lines.get(index).ok_or_else(by_hand)?;
                let first = replaced(line, "[]", "").ok_or_else(by_hand)?;
                let new = format!("{}{}", ended(&first, newline), item(2, newline));
                splice(&lines, index..index + 1, &new, newline)
            }
        },
    };
    let mut expected: Vec<Node> = servers(&tree).iter().map(bare).collect();
    let added = parse(&edited).ok().filter(|edited| {
        let new = servers(edited).last();
        expected.extend(new.map(bare));
        let meant = new.is_some_and(|new| decode::decode::<RawServer>(new, "").is_ok_and(|new| new == *server));
        meant && same(edited, &tree, &expected)
    });
    added.map(|_| edited).ok_or_else(by_hand)
}

/// The servers of a file as they are written, without what the rest of the file says of all servers. Entries that cannot be
/// understood are left out.
pub fn servers_of(text: &str) -> Result<Vec<RawServer>, EditError> {
    let tree = parse(text)?;
    Ok(servers(&tree).iter().filter_map(|server| decode::decode(server, "").ok()).collect())
}

/// The text with other values in the entry of a server, such as references in place of secrets; everything else stays as it is.
///
/// Only texts may differ from what is written. A text on several lines has to be changed by hand.
pub fn update(text: &str, server: &RawServer) -> Result<String, EditError> {
    let tree = parse(text)?;
    let alias = &server.alias;
    let Some(index) = position(&tree, alias) else {
        return Err(EditError::Unknown { alias: alias.clone(), suggestion: None });
    };
    let node = &servers(&tree)[index];
    let by_hand = || EditError::ByHand {
        what: format!("change the server `{alias}`"),
        lines: format!("line {}", node.place.line),
    };
    let written = decode::decode::<RawServer>(node, "").map_err(|_| by_hand())?;
    let values = |server: &RawServer| serde_json::to_value(server).map_err(|_| by_hand());
    let mut changes = Vec::new();
    changed_texts(&values(&written)?, &values(server)?, &mut changes);
    let mut scalars = Vec::new();
    scalars_of(node, &mut scalars);
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    // From the end of each line, so that places before stay where they are.
    scalars.sort_by_key(|(place, _)| std::cmp::Reverse(*place));
    for (place, old) in scalars {
        let Some((_, new)) = changes.iter().find(|(changed, _)| changed == old) else { continue };
        let line = lines.get_mut(place.line - 1).ok_or_else(by_hand)?;
        let start = line.char_indices().nth(place.column - 1).map(|(at, _)| at).ok_or_else(by_hand)?;
        let length = scalar_length(&line[start..], old).ok_or_else(by_hand)?;
        line.replace_range(start..start + length, &scalar(new));
    }
    let edited = lines.concat();
    let is_right = parse(&edited).is_ok_and(|after| {
        let mut expected: Vec<Node> = servers(&tree).iter().map(bare).collect();
        let Some(new) = servers(&after).get(index) else { return false };
        expected[index] = bare(new);
        decode::decode::<RawServer>(new, "").is_ok_and(|new| new == *server) && same(&after, &tree, &expected)
    });
    if is_right { Ok(edited) } else { Err(by_hand()) }
}

/// The texts that differ between two values of one shape: as they were, and as they are to be.
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

/// The texts below a node, each with its place.
fn scalars_of<'a>(node: &'a Node, scalars: &mut Vec<(Place, &'a str)>) {
    match &node.kind {
        Kind::Scalar { text, .. } => scalars.push((node.place, text)),
        Kind::List(items) => items.iter().for_each(|item| scalars_of(item, scalars)),
        Kind::Map(entries) => entries.iter().for_each(|entry| scalars_of(&entry.value, scalars)),
    }
}

/// How many bytes the beginning of a line takes to say a text: plain, or in quotes.
fn scalar_length(line: &str, text: &str) -> Option<usize> {
    match line.chars().next()? {
        '\'' => {
            let quoted = format!("'{}'", text.replace('\'', "''"));
            line.starts_with(&quoted).then_some(quoted.len())
        }
        '"' => {
            // Whatever the escapes are, the text that they mean is compared when all is done.
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

/// The text without the server of that name, and without the comment right above it.
pub fn remove(text: &str, alias: &str) -> Result<String, EditError> {
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let tree = parse(text)?;
    let Some(index) = position(&tree, alias) else {
        let aliases = servers(&tree).iter().filter_map(|server| server.get("alias")?.as_text());
        let suggestion = nearest(alias, aliases).map(str::to_owned);
        return Err(EditError::Unknown { alias: alias.to_owned(), suggestion });
    };
    let named = tree.get("enabled_servers").map(Node::items).unwrap_or_default();
    if let Some(named) = named.iter().find(|named| named.as_text() == Some(alias)) {
        return Err(EditError::StillNamed { alias: alias.to_owned(), line: named.place.line });
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let server = &servers(&tree)[index];
    let by_hand = || EditError::ByHand {
        what: format!("take the server `{alias}` out"),
        lines: format!(
            "line {}: {}",
            server.place.line,
            lines.get(server.place.line - 1).map_or("", |line| line.trim())
        ),
    };
    let block = Block::of(&lines, server).ok_or_else(by_hand)?;
    let mut range = block.start..block.end;
    let is_comment = |line: &str| line.trim_start().starts_with('#') && indent(line) == block.indent;
    while range.start > 0 && is_comment(lines[range.start - 1]) {
        range.start -= 1;
    }
    // The blank line that set the server apart goes with it: the one above, or for the first the one below.
    let is_blank = |index: usize| lines.get(index).is_none_or(|line| line.trim().is_empty());
    let is_last = index + 1 == servers(&tree).len();
    if range.start > 0 && is_blank(range.start - 1) && (is_last || is_blank(range.end)) {
        range.start -= 1;
    } else if index == 0 && !is_last && is_blank(range.end) {
        range.end += 1;
    }
    let mut edited = splice(&lines, range, "", newline);
    if servers(&tree).len() == 1 {
        // A list of nothing has to say so.
        let place = tree.entries().iter().find(|entry| entry.key == "servers").map(|entry| entry.place.line - 1);
        let mut lines: Vec<String> = edited.split_inclusive('\n').map(str::to_owned).collect();
        if let Some(line) = place.and_then(|place| lines.get_mut(place)) {
            *line = line.replacen("servers:", "servers: []", 1);
        }
        edited = lines.concat();
    }
    let mut expected: Vec<Node> = servers(&tree).iter().map(bare).collect();
    expected.remove(index);
    let is_right = parse(&edited).is_ok_and(|edited| same(&edited, &tree, &expected));
    if is_right { Ok(edited) } else { Err(by_hand()) }
}

fn parse(text: &str) -> Result<Node, EditError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let tree = yaml::parse(text);
    tree.map_err(|problem| EditError::Broken(ConfigError::new(Path::new("ropeway.yaml"), vec![problem])))
}

fn servers(tree: &Node) -> &[Node] {
    tree.get("servers").map(Node::items).unwrap_or_default()
}

fn position(tree: &Node, alias: &str) -> Option<usize> {
    servers(tree).iter().position(|server| server.get("alias").and_then(Node::as_text) == Some(alias))
}

/// A server as an item of a list, below what is said about it.
fn noted(server: &RawServer, notes: &[String], indent: usize, newline: &str) -> String {
    // A description of another client's file may hold what no YAML file can.
    let printable = |line: &str| line.replace(|c: char| !is_printable(c), " ");
    let note = |line: &str| format!("{}# {}{newline}", " ".repeat(indent), printable(line));
    let notes: String = notes.iter().flat_map(|note| note.lines()).map(note).collect();
    notes + &lines_of(server, indent, newline)
}

/// Whether a comment may hold the character (<https://yaml.org/spec/1.2.2/#51-character-set>) and stays on its line.
fn is_printable(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// A server as an item of a list, with this indentation before the dash.
fn lines_of(server: &RawServer, indent: usize, newline: &str) -> String {
    let Ok(Value::Object(map)) = serde_json::to_value(server) else { return String::new() };
    let line = |line: String| format!("{}{line}{newline}", " ".repeat(indent));
    dashed(map_lines(&map)).into_iter().map(line).collect()
}

/// The lines of one item of a list.
struct Block {
    start: usize,
    /// The line after the last.
    end: usize,
    indent: usize,
}

impl Block {
    /// None when the item does not begin with a dash of its own line.
    fn of(lines: &[&str], item: &Node) -> Option<Self> {
        let start = item.place.line.checked_sub(1)?;
        let first = lines.get(start)?.trim_start_matches('\u{feff}');
        let dash = first.trim_start().strip_prefix('-')?;
        let indent = indent(first);
        if !dash.starts_with(char::is_whitespace) || item.place.column <= indent + 1 {
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

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Whether the file leaves a blank line between its servers.
fn is_blank_before(lines: &[&str], servers: &[Node]) -> bool {
    let Some(last) = servers.get(1..).and_then(<[Node]>::last) else { return false };
    let above = lines[..last.place.line - 1].iter().rev();
    above.into_iter().find(|line| !line.trim_start().starts_with('#')).is_some_and(|line| line.trim().is_empty())
}

/// The text with its last line ended.
fn ended(text: &str, newline: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}{newline}") }
}

fn splice(lines: &[&str], range: std::ops::Range<usize>, new: &str, newline: &str) -> String {
    let before = lines[..range.start].concat();
    let before = if new.is_empty() { before } else { ended(&before, newline) };
    format!("{before}{new}{}", lines[range.end..].concat())
}

/// The line with a word after its first colon replaced; as it is when nothing but a comment stands there.
fn replaced(line: &str, word: &str, new: &str) -> Option<String> {
    let (key, rest) = line.split_once(':')?;
    let value = rest.split('#').next().unwrap_or(rest);
    match value.trim() {
        "" => Some(line.to_owned()),
        value if value == word => Some(format!("{key}:{}", rest.replacen(&format!(" {word}"), new, 1))),
        _ => None,
    }
}

/// Whether a file means the same as before, but for its servers, which are as expected.
fn same(edited: &Node, before: &Node, expected: &[Node]) -> bool {
    let others = |tree: &Node| -> Vec<Entry> {
        let bare = bare(tree);
        bare.entries().iter().filter(|entry| entry.key != "servers").cloned().collect()
    };
    let now: Vec<Node> = servers(edited).iter().map(bare).collect();
    now == expected && others(edited) == others(before)
}

/// The value without its places.
fn bare(node: &Node) -> Node {
    let place = Place::default();
    let kind = match &node.kind {
        Kind::Scalar { text, plain } => Kind::Scalar { text: text.clone(), plain: *plain },
        Kind::List(items) => Kind::List(items.iter().map(bare).collect()),
        Kind::Map(entries) => {
            let entry = |entry: &Entry| Entry { key: entry.key.clone(), place, value: bare(&entry.value) };
            Kind::Map(entries.iter().map(entry).collect())
        }
    };
    Node { place, kind }
}
