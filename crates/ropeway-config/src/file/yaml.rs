//! The YAML parser: with anchors, aliases and merge keys, and a limit on how much they expand.

use std::collections::{BTreeMap, HashSet};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};

use super::node::{Entry, Node, NodeKind};
use super::position::Position;
use super::problem::ConfigProblem;
use super::tree_checks::{MAX_DEPTH, check_duplicate_keys, check_key_count, empty_file, too_deep};

/// Maximum bytes that aliases may add to a file.
const MAX_EXPANSION: usize = 4 << 20;

/// Maximum maps merged into one.
const MAX_MERGED: usize = 1000;

/// Parses a text with one document.
pub(super) fn parse(text: &str) -> Result<Node, ConfigProblem> {
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| {
            let position = clamp_to_text(text, position(error.marker()));
            // The scanner reaches its own depth limit before it emits the nested events.
            if error.info().contains("recursion limit") {
                return too_deep(position);
            }
            let indent = text.lines().nth(position.line.saturating_sub(1)).unwrap_or_default();
            let tab = indent.chars().take_while(|c| c.is_whitespace()).any(|c| c == '\t');
            let hint = if tab { " (indent with spaces instead of tabs)" } else { "" };
            ConfigProblem::new(position, "", format!("invalid YAML: {}{hint}", error.info()))
        })?;
        builder.take(event, position(&span.start))?;
    }
    builder.root.ok_or_else(empty_file)
}

fn position(marker: &Marker) -> Position {
    Position { line: marker.line(), column: marker.col() + 1 }
}

/// Limits a position to the text: the scanner may report one after its end.
fn clamp_to_text(text: &str, position: Position) -> Position {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut lines = text.split('\n');
    match lines.nth(position.line.saturating_sub(1)) {
        Some(line) => Position { column: position.column.clamp(1, line.chars().count() + 1), ..position },
        None => Position { line: text.split('\n').count() + 1, column: 1 },
    }
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    /// Finished values with an anchor, and their estimated bytes.
    anchors: BTreeMap<usize, (usize, Node)>,
    expanded: usize,
    root: Option<Node>,
}

/// A list or map that is not complete yet.
struct Open {
    position: Position,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, merged: Vec<Node>, key: Option<Key> },
}

struct Key {
    text: String,
    position: Position,
    merges: bool,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, position: Position) -> Result<(), ConfigProblem> {
        match event {
            Event::DocumentStart(_) if self.root.is_some() => {
                return Err(ConfigProblem::new(position, "", "file has more than one YAML document"));
            }
            Event::Scalar(text, style, anchor, tag) => {
                let quoted = tag_quotes(tag.as_deref(), position)?;
                let plain = style == ScalarStyle::Plain && !quoted;
                let node = Node { position, kind: NodeKind::Scalar { text: text.into_owned(), plain } };
                self.finish(node, anchor)?;
            }
            Event::SequenceStart(anchor, tag) => {
                tag_quotes(tag.as_deref(), position)?;
                self.open(Open { position, anchor, content: Content::List(Vec::new()) })?;
            }
            Event::MappingStart(anchor, tag) => {
                tag_quotes(tag.as_deref(), position)?;
                let content = Content::Map { entries: Vec::new(), merged: Vec::new(), key: None };
                self.open(Open { position, anchor, content })?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                let kind = match open.content {
                    Content::List(items) => NodeKind::List(items),
                    Content::Map { entries, merged, .. } => NodeKind::Map(merge(entries, merged)?),
                };
                self.finish(Node { position: open.position, kind }, open.anchor)?;
            }
            Event::Alias(anchor) => {
                let Some((estimated_bytes, node)) = self.anchors.get(&anchor) else {
                    return Err(ConfigProblem::new(position, "", "alias refers to a value that contains it"));
                };
                self.expanded += estimated_bytes;
                if self.expanded > MAX_EXPANSION {
                    return Err(too_much_expansion(position));
                }
                if self.open.len() + depth(node) > MAX_DEPTH {
                    return Err(too_deep(position));
                }
                let node = node.clone();
                self.finish(node, 0)?;
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn open(&mut self, open: Open) -> Result<(), ConfigProblem> {
        if self.open.len() >= MAX_DEPTH {
            return Err(too_deep(open.position));
        }
        self.open.push(open);
        Ok(())
    }

    /// Adds a complete value to the list or map that contains it.
    fn finish(&mut self, node: Node, anchor: usize) -> Result<(), ConfigProblem> {
        if anchor > 0 {
            let estimated_bytes = node.estimated_bytes();
            // Nested anchors keep a copy each.
            self.expanded += estimated_bytes;
            if self.expanded > MAX_EXPANSION {
                return Err(too_much_expansion(node.position));
            }
            self.anchors.insert(anchor, (estimated_bytes, node.clone()));
        }
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::List(items)) => items.push(node),
            Some(Content::Map { entries, merged, key }) => match key.take() {
                Some(Key { merges: true, .. }) => merged.push(node),
                Some(Key { text, position, .. }) => entries.push(Entry { key: text, position, value: node }),
                None => match node.kind {
                    NodeKind::Scalar { text, plain } => {
                        let merges = plain && text == "<<";
                        *key = Some(Key { text, position: node.position, merges });
                    }
                    _ => {
                        return Err(ConfigProblem::mismatch(node.position, "", node.describe(), "a scalar as the key"));
                    }
                },
            },
        }
        Ok(())
    }
}

fn too_much_expansion(position: Position) -> ConfigProblem {
    ConfigProblem::new(position, "", format!("aliases expand the file by more than {} MiB", MAX_EXPANSION >> 20))
}

/// Returns `true` if a tag makes the scalar a string. Rejects tags other than YAML's own.
fn tag_quotes(tag: Option<&Tag>, position: Position) -> Result<bool, ConfigProblem> {
    match tag {
        None => Ok(false),
        Some(tag) if tag.handle == "!" && tag.suffix.is_empty() => Ok(true),
        Some(tag) if tag.is_yaml_core_schema() => Ok(tag.suffix == "str"),
        Some(_) => Err(ConfigProblem::new(position, "", "unknown YAML tag; quote a string that starts with `!`")),
    }
}

/// Adds merged maps' entries to a map. Its own entries win, then the first merged map's.
fn merge(mut entries: Vec<Entry>, merged: Vec<Node>) -> Result<Vec<Entry>, ConfigProblem> {
    check_duplicate_keys(&entries)?;
    check_key_count(&entries)?;
    if merged.is_empty() {
        return Ok(entries);
    }
    let mut known: HashSet<String> = entries.iter().map(|entry| entry.key.clone()).collect();
    let mut count = 0;
    for node in merged {
        let maps = match node.kind {
            NodeKind::List(maps) => maps,
            kind => vec![Node { position: node.position, kind }],
        };
        count += maps.len();
        if count > MAX_MERGED {
            let message = format!("too many merged maps: {count} (maximum: {MAX_MERGED})");
            return Err(ConfigProblem::new(node.position, "", message));
        }
        for map in maps {
            let NodeKind::Map(more) = map.kind else {
                return Err(ConfigProblem::mismatch(map.position, "", map.describe(), "a map to merge"));
            };
            entries.extend(more.into_iter().filter(|entry| known.insert(entry.key.clone())));
            check_key_count(&entries)?;
        }
    }
    Ok(entries)
}

fn depth(node: &Node) -> usize {
    match &node.kind {
        NodeKind::Scalar { .. } => 0,
        NodeKind::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        NodeKind::Map(entries) => 1 + entries.iter().map(|entry| depth(&entry.value)).max().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_maps_and_keys_are_limited() {
        let start = std::time::Instant::now();
        let found = |text: &str| parse(text).expect_err("too much").found;
        let keys: String = (0..60_000).map(|number| format!("k{number}: 1\n")).collect();
        assert_eq!(found(&keys), "too many keys in a map: 60000 (maximum: 10000)");
        let many = "*e, ".repeat(100_000);
        assert_eq!(found(&format!("e: &e {{}}\nd:\n  <<: [{many}]\n")), "too many merged maps: 100000 (maximum: 1000)");
        assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
        let merged = parse("a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 0}").expect("a tree");
        let Some(Node { kind: NodeKind::Map(entries), .. }) = merged.get("c") else { panic!("a map: {merged:?}") };
        let entries: Vec<_> = entries.iter().map(|entry| (entry.key.as_str(), entry.value.as_str())).collect();
        assert_eq!(entries, [("x", Some("0")), ("y", Some("1")), ("z", Some("2"))]);
    }
}
