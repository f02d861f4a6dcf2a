//! YAML as a tree: anchors, aliases and merge keys included, and bounded.

use std::collections::{BTreeMap, HashMap, HashSet};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};

use super::node::{DEPTH, Entry, Kind, Node, Place, too_deep};
use super::problem::{ConfigProblem, in_backticks};

/// How much a file may grow by its aliases, in bytes.
const GROWTH: usize = 4 << 20;

/// The most maps that one map may merge.
const MOST_MERGED: usize = 1000;

/// The most keys of one map.
const MOST_KEYS: usize = 10_000;

/// The tree of the one document in the text.
pub(super) fn parse(text: &str) -> Result<Node, ConfigProblem> {
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| {
            let place = within(text, place(error.marker()));
            // The scanner has a limit of its own, and meets it before we see what is nested.
            if error.info().contains("recursion limit") {
                return too_deep(place);
            }
            let indent = text.lines().nth(place.line.saturating_sub(1)).unwrap_or_default();
            let tab = indent.chars().take_while(|c| c.is_whitespace()).any(|c| c == '\t');
            let expected = if tab { "spaces, not a tab, before the first word of a line" } else { "" };
            ConfigProblem::at(place, "", format!("text that is not YAML: {}", error.info()), expected)
        })?;
        builder.take(event, place(&span.start))?;
    }
    builder.root.ok_or_else(empty)
}

/// The problem of a file in which nothing stands.
pub(super) fn empty() -> ConfigProblem {
    ConfigProblem::of_file("nothing", "a list of `servers`")
}

fn place(marker: &Marker) -> Place {
    Place { line: marker.line(), column: marker.col() + 1 }
}

/// Returns a place in the text, or the one behind its end: the scanner may look further than it reads.
fn within(text: &str, place: Place) -> Place {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut lines = text.split('\n');
    match lines.nth(place.line.saturating_sub(1)) {
        Some(line) => Place { column: place.column.clamp(1, line.chars().count() + 1), ..place },
        None => Place { line: text.split('\n').count() + 1, column: 1 },
    }
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    /// Finished values that have an anchor, with their weight.
    anchors: BTreeMap<usize, (usize, Node)>,
    grown: usize,
    root: Option<Node>,
}

/// A list or map whose end has not come yet.
struct Open {
    place: Place,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, merged: Vec<Node>, key: Option<Key> },
}

struct Key {
    text: String,
    place: Place,
    merges: bool,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, place: Place) -> Result<(), ConfigProblem> {
        match event {
            Event::DocumentStart(_) if self.root.is_some() => {
                return Err(ConfigProblem::at(place, "", "a second document", "one document in the file"));
            }
            Event::Scalar(text, style, anchor, tag) => {
                let quoted = tag_quotes(tag.as_deref(), place)?;
                let plain = style == ScalarStyle::Plain && !quoted;
                let node = Node { place, kind: Kind::Scalar { text: text.into_owned(), plain } };
                self.finish(node, anchor)?;
            }
            Event::SequenceStart(anchor, tag) => {
                tag_quotes(tag.as_deref(), place)?;
                self.open(Open { place, anchor, content: Content::List(Vec::new()) })?;
            }
            Event::MappingStart(anchor, tag) => {
                tag_quotes(tag.as_deref(), place)?;
                let content = Content::Map { entries: Vec::new(), merged: Vec::new(), key: None };
                self.open(Open { place, anchor, content })?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                let kind = match open.content {
                    Content::List(items) => Kind::List(items),
                    Content::Map { entries, merged, .. } => Kind::Map(merge(entries, merged)?),
                };
                self.finish(Node { place: open.place, kind }, open.anchor)?;
            }
            Event::Alias(anchor) => {
                let Some((weight, node)) = self.anchors.get(&anchor) else {
                    return Err(ConfigProblem::at(place, "", "an alias within its own anchor", "one that ends"));
                };
                self.grown += weight;
                if self.grown > GROWTH {
                    return Err(grown(place));
                }
                if self.open.len() + depth(node) > DEPTH {
                    return Err(too_deep(place));
                }
                let node = node.clone();
                self.finish(node, 0)?;
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn open(&mut self, open: Open) -> Result<(), ConfigProblem> {
        if self.open.len() >= DEPTH {
            return Err(too_deep(open.place));
        }
        self.open.push(open);
        Ok(())
    }

    /// A value is whole: it goes where it belongs.
    fn finish(&mut self, node: Node, anchor: usize) -> Result<(), ConfigProblem> {
        if anchor > 0 {
            let weight = node.weight();
            // Anchors within anchors are kept once for each.
            self.grown += weight;
            if self.grown > GROWTH {
                return Err(grown(node.place));
            }
            self.anchors.insert(anchor, (weight, node.clone()));
        }
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::List(items)) => items.push(node),
            Some(Content::Map { entries, merged, key }) => match key.take() {
                Some(Key { merges: true, .. }) => merged.push(node),
                Some(Key { text, place, .. }) => entries.push(Entry { key: text, place, value: node }),
                None => match node.kind {
                    Kind::Scalar { text, plain } => {
                        let merges = plain && text == "<<";
                        *key = Some(Key { text, place: node.place, merges });
                    }
                    _ => return Err(ConfigProblem::at(node.place, "", node.describe(), "a word as the key")),
                },
            },
        }
        Ok(())
    }
}

fn grown(place: Place) -> ConfigProblem {
    let found = format!("anchors and aliases that make the file grow past {} MiB", GROWTH >> 20);
    ConfigProblem::at(place, "", found, "fewer of them")
}

/// Whether a tag makes a text of what would be a number; only YAML's own tags are known.
fn tag_quotes(tag: Option<&Tag>, place: Place) -> Result<bool, ConfigProblem> {
    match tag {
        None => Ok(false),
        Some(tag) if tag.handle == "!" && tag.suffix.is_empty() => Ok(true),
        Some(tag) if tag.is_yaml_core_schema() => Ok(tag.suffix == "str"),
        Some(_) => Err(ConfigProblem::at(place, "", "a tag", "none: a text that begins with `!` needs quotes")),
    }
}

/// The entries of a map with those of the maps that it merges; its own win, then the first.
fn merge(mut entries: Vec<Entry>, merged: Vec<Node>) -> Result<Vec<Entry>, ConfigProblem> {
    check_keys(&entries)?;
    check_count(&entries)?;
    if merged.is_empty() {
        return Ok(entries);
    }
    let mut known: HashSet<String> = entries.iter().map(|entry| entry.key.clone()).collect();
    let mut count = 0;
    for node in merged {
        let maps = match node.kind {
            Kind::List(maps) => maps,
            kind => vec![Node { place: node.place, kind }],
        };
        count += maps.len();
        if count > MOST_MERGED {
            let found = format!("{count} maps to merge into one");
            return Err(ConfigProblem::at(node.place, "", found, format!("at most {MOST_MERGED}")));
        }
        for map in maps {
            let Kind::Map(more) = map.kind else {
                return Err(ConfigProblem::at(map.place, "", map.describe(), "a map to merge"));
            };
            entries.extend(more.into_iter().filter(|entry| known.insert(entry.key.clone())));
            check_count(&entries)?;
        }
    }
    Ok(entries)
}

/// Refuses a map that is so large that work on it would take long.
pub(super) fn check_count(entries: &[Entry]) -> Result<(), ConfigProblem> {
    match entries.get(MOST_KEYS) {
        None => Ok(()),
        Some(Entry { place, .. }) => {
            let found = format!("a map with {} keys", entries.len());
            Err(ConfigProblem::at(*place, "", found, format!("at most {MOST_KEYS}")))
        }
    }
}

/// Every key only once.
pub(super) fn check_keys(entries: &[Entry]) -> Result<(), ConfigProblem> {
    let mut known = HashMap::new();
    for entry in entries {
        if let Some(first) = known.insert(entry.key.as_str(), entry.place) {
            let (Place { line, column }, key) = (first, in_backticks(&entry.key));
            let found = format!("the key {key} a second time");
            return Err(ConfigProblem::at(
                entry.place,
                "",
                found,
                format!("it once; it is at {line}:{column} already"),
            ));
        }
    }
    Ok(())
}

fn depth(node: &Node) -> usize {
    match &node.kind {
        Kind::Scalar { .. } => 0,
        Kind::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Kind::Map(entries) => 1 + entries.iter().map(|entry| depth(&entry.value)).max().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_maps_and_keys_are_bounded() {
        let start = std::time::Instant::now();
        let found = |text: &str| parse(text).expect_err("too much").found;
        let keys: String = (0..60_000).map(|number| format!("k{number}: 1\n")).collect();
        assert_eq!(found(&keys), "a map with 60000 keys");
        let many = "*e, ".repeat(100_000);
        assert_eq!(found(&format!("e: &e {{}}\nd:\n  <<: [{many}]\n")), "100000 maps to merge into one");
        assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
        let merged = parse("a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 0}").expect("a tree");
        let Some(Node { kind: Kind::Map(entries), .. }) = merged.get("c") else { panic!("a map: {merged:?}") };
        let entries: Vec<_> = entries.iter().map(|entry| (entry.key.as_str(), entry.value.as_text())).collect();
        assert_eq!(entries, [("x", Some("0")), ("y", Some("1")), ("z", Some("2"))]);
    }
}
