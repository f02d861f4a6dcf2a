//! Entries in clients' JSON files, which may have comments and trailing commas.

use jsonc_parser::ast::{Object, ObjectProp, Value as Node};
use jsonc_parser::common::Ranged as _;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::Value;

use super::edit::{Edit, EntryEditor, FileProblem};

/// Maximum file nesting.
const MAX_DEPTH: usize = 100;

/// The indentation for a file that shows none.
const INDENT: &str = "  ";

/// A client's file whose entries are members of one object.
pub(crate) struct JsonEntries {
    /// The member with the entries: `mcpServers`.
    pub(crate) key: &'static str,
}

impl EntryEditor for JsonEntries {
    fn entry(&self, text: &str, name: &str) -> Result<Option<Value>, FileProblem> {
        let Some(root) = root(text)? else { return Ok(None) };
        let Some(entries) = self.entries(text, &root)? else { return Ok(None) };
        Ok(member(text, entries, name)?.map(|member| value(&member.value, 0)))
    }

    fn add(&self, text: &str, name: &str, entry: &Value) -> Result<Vec<Edit>, FileProblem> {
        let Some(root) = root(text)? else {
            let file = format!("{{\n{INDENT}{}\n}}\n", self.container(name, entry, INDENT, 1));
            return Ok(vec![Edit::insert(text.len(), file)]);
        };
        let layout = Layout::of(text, &root);
        match self.entries(text, &root)? {
            Some(entries) => {
                let member = |depth| format!("{}: {}", quoted(name), pretty(entry, &layout.indent, depth));
                Ok(insertions(text, entries, &layout, 2, member))
            }
            None => {
                let member = |depth| self.container(name, entry, &layout.indent, depth);
                Ok(insertions(text, &root, &layout, 1, member))
            }
        }
    }

    fn remove(&self, text: &str, name: &str) -> Result<Vec<Edit>, FileProblem> {
        let Some(root) = root(text)? else { return Ok(Vec::new()) };
        let Some(entries) = self.entries(text, &root)? else { return Ok(Vec::new()) };
        Ok(removal(text, entries, name))
    }
}

impl JsonEntries {
    fn entries<'a, 'b>(&self, text: &str, root: &'b Object<'a>) -> Result<Option<&'b Object<'a>>, FileProblem> {
        match member(text, root, self.key)?.map(|member| &member.value) {
            None => Ok(None),
            Some(Node::Object(entries)) => Ok(Some(entries)),
            Some(_) => Err(FileProblem(format!("`{}` is not an object", self.key))),
        }
    }

    /// Formats the member with the entries and one entry in it.
    fn container(&self, name: &str, entry: &Value, indent: &str, depth: usize) -> String {
        let (outer, inner) = (indent.repeat(depth), indent.repeat(depth + 1));
        let entry = pretty(entry, indent, depth + 1);
        format!("{}: {{\n{inner}{}: {entry}\n{outer}}}", quoted(self.key), quoted(name))
    }
}

/// Returns a file's object, or `None` for an empty file.
fn root(text: &str) -> Result<Option<Object<'_>>, FileProblem> {
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options)
        .map_err(|error| FileProblem(format!("invalid JSON: {}", error.to_string().to_lowercase())))?;
    match parsed.value {
        None => Ok(None),
        Some(Node::Object(root)) => Ok(Some(root)),
        Some(_) => Err(FileProblem("it is not a JSON object".to_owned())),
    }
}

/// Returns the member with this name. Programs differ in which of two duplicates they use, so those are an error.
fn member<'a, 'b>(text: &str, object: &'b Object<'a>, name: &str) -> Result<Option<&'b ObjectProp<'a>>, FileProblem> {
    let mut named = object.properties.iter().filter(|member| member.name.as_str() == name);
    let (first, second) = (named.next(), named.next());
    if let (Some(first), Some(second)) = (first, second) {
        let (first, second) = (line_of(text, first.start()), line_of(text, second.start()));
        return Err(FileProblem(format!("duplicate key `{name}` in lines {first} and {second}")));
    }
    Ok(first)
}

/// Returns the line number at a position.
fn line_of(text: &str, position: usize) -> usize {
    text[..position].matches('\n').count() + 1
}

fn value(node: &Node<'_>, depth: usize) -> Value {
    match node {
        _ if depth > MAX_DEPTH => Value::Null,
        Node::StringLit(text) => Value::String(text.value.clone().into_owned()),
        Node::NumberLit(number) => serde_json::from_str(number.value).unwrap_or_default(),
        Node::BooleanLit(truth) => Value::Bool(truth.value),
        Node::NullKeyword(_) => Value::Null,
        Node::Array(array) => array.elements.iter().map(|item| value(item, depth + 1)).collect(),
        Node::Object(object) => {
            let member = |member: &ObjectProp<'_>| (member.name.as_str().to_owned(), value(&member.value, depth + 1));
            Value::Object(object.properties.iter().map(member).collect())
        }
    }
}

/// How a file is indented.
struct Layout {
    indent: String,
    newline: &'static str,
}

impl Layout {
    /// Takes the indentation from the first member that begins a line.
    fn of(text: &str, root: &Object<'_>) -> Self {
        let start = root.properties.first().map_or(0, |member| member.start());
        let line = text[..start].rfind('\n').map(|newline| &text[newline + 1..start]);
        let indent = line.filter(|line| !line.is_empty() && line.chars().all(|c| c == ' ' || c == '\t'));
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        Self { indent: indent.unwrap_or(INDENT).to_owned(), newline }
    }
}

/// Returns the insertions that add a member at the end of an object, whose members are `depth` levels deep.
fn insertions(
    text: &str,
    object: &Object<'_>,
    layout: &Layout,
    depth: usize,
    member: impl Fn(usize) -> String,
) -> Vec<Edit> {
    let Layout { indent, newline } = layout;
    let member = member(depth).replace('\n', newline);
    let (inner, outer) = (indent.repeat(depth), indent.repeat(depth - 1));
    let close = object.end() - 1;
    let Some(last) = object.properties.last() else {
        let is_empty = text[object.start() + 1..close].trim().is_empty();
        // Comments stay before the member.
        let at = if is_empty { object.start() + 1 } else { end_of_content(text, object.start() + 1, close) };
        let end = if text[at..close].contains('\n') { String::new() } else { format!("{newline}{outer}") };
        return vec![Edit::insert(at, format!("{newline}{inner}{member}{end}"))];
    };
    let is_one_line = !text[object.start()..close].contains('\n');
    if is_one_line {
        return vec![Edit::insert(last.end(), format!(", {}", one_line(&member)))];
    }
    let comma = comma_after(text, last.end(), close);
    // A comment behind the last member stays on its line.
    let at = end_of_content(text, comma.map_or(last.end(), |comma| comma + 1), close);
    match comma {
        Some(_) => vec![Edit::insert(at, format!("{newline}{inner}{member},"))],
        None => vec![Edit::insert(last.end(), ","), Edit::insert(at, format!("{newline}{inner}{member}"))],
    }
}

/// Returns the edits that remove a member, its line and the comma that it needed.
fn removal(text: &str, object: &Object<'_>, name: &str) -> Vec<Edit> {
    let Some(at) = object.properties.iter().position(|member| member.name.as_str() == name) else { return Vec::new() };
    let (member, close) = (&object.properties[at], object.end() - 1);
    let comma = comma_after(text, member.end(), close);
    let start = text[..member.start()].trim_end_matches([' ', '\t', '\r', '\n']).len();
    let end = comma.map_or(member.end(), |comma| comma + 1);
    let is_only = object.properties.len() == 1;
    if is_only && text[object.start() + 1..start.max(object.start() + 1)].trim().is_empty() {
        let rest = &text[end..close];
        let end = if rest.trim().is_empty() { close } else { end };
        return vec![Edit::remove(object.start() + 1..end)];
    }
    let is_last = at + 1 == object.properties.len();
    match at.checked_sub(1).map(|before| &object.properties[before]) {
        // Without a trailing comma, the comma behind the member before it goes, too.
        Some(before) if is_last && comma.is_none() => {
            let comma = comma_after(text, before.end(), member.start());
            match comma {
                Some(comma) if comma + 1 >= start => vec![Edit::remove(comma..end)],
                Some(comma) => vec![Edit::remove(comma..comma + 1), Edit::remove(start..end)],
                None => vec![Edit::remove(start..end)],
            }
        }
        Some(_) => vec![Edit::remove(start..end)],
        None => {
            let rest = &text[end..close];
            let space = rest.len() - rest.trim_start_matches([' ', '\t']).len();
            // The line break after the first member stays before the second one.
            let end = if rest[space..].starts_with(['\r', '\n']) { end } else { end + space };
            vec![Edit::remove(start.max(object.start() + 1)..end)]
        }
    }
}

/// Returns the position of the comma after a member, past comments.
fn comma_after(text: &str, from: usize, to: usize) -> Option<usize> {
    pieces(text, from, to).find(|(_, piece)| *piece == ",").map(|(at, _)| at)
}

/// Returns the end of the last comment on the same line, or `from`.
fn end_of_content(text: &str, from: usize, to: usize) -> usize {
    let line = text[from..to].find(['\n', '\r']).map_or(to, |newline| from + newline);
    let comment = pieces(text, from, to).take_while(|(at, _)| *at < line).last();
    comment.map_or(from, |(at, piece)| at + piece.len())
}

/// Iterates over commas and comments between two members.
fn pieces(text: &str, from: usize, to: usize) -> impl Iterator<Item = (usize, &str)> {
    let mut at = from;
    std::iter::from_fn(move || {
        let rest = &text[at..to];
        let start = at + (rest.len() - rest.trim_start().len());
        let rest = &text[start..to];
        let length = if rest.starts_with("//") {
            rest.find(['\n', '\r']).unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else {
            rest.chars().next()?.len_utf8()
        };
        at = start + length;
        Some((start, &rest[..length]))
    })
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Formats a value over several lines. Lists stay on one line.
fn pretty(value: &Value, indent: &str, depth: usize) -> String {
    match value {
        Value::Object(members) if !members.is_empty() => {
            let (inner, outer) = (indent.repeat(depth + 1), indent.repeat(depth));
            let member = |(key, value): (&String, &Value)| {
                format!("{inner}{}: {}", quoted(key), pretty(value, indent, depth + 1))
            };
            format!("{{\n{}\n{outer}}}", members.iter().map(member).collect::<Vec<_>>().join(",\n"))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(ToString::to_string).collect();
            format!("[{}]", items.join(", "))
        }
        value => value.to_string(),
    }
}

/// Joins a formatted member's lines.
fn one_line(member: &str) -> String {
    let joined = member.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    joined.replace("{ ", "{").replace(" }", "}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FILES: &[&str] = &[
        "",
        "{}",
        "{}\n",
        "{\n}\n",
        "{ }",
        "{\"mcpServers\": {}}",
        "{\"mcpServers\":{\"a\":{\"command\":\"x\"}}}",
        "{\n  \"mcpServers\": {}\n}\n",
        "{\n  \"mcpServers\": {\n  }\n}\n",
        "{\n\t\"theme\": \"dark\", // mine\n\t\"mcpServers\": {\n\t\t\"a\": {\"command\": \"x\"} // last\n\t\t// end\n\t}\n}",
        "// head\n{\n  \"mcpServers\": {\n    \"a\": {},\n    \"b\": {}, /* c */\n  },\n  \"x\": [1, 2],\n}\n",
        "{\r\n  \"mcpServers\": {\r\n    \"a\": {}\r\n  }\r\n}\r\n",
        "{\n  \"mcpServers\": {\n    // none yet\n  }\n}\n",
        "{\n  \"other\": {\"mcpServers\": {\"ropeway\": 1}}\n}\n",
    ];

    const JSON: JsonEntries = JsonEntries { key: "mcpServers" };

    fn entry() -> Value {
        json!({"command": "/bin/ropeway", "args": ["serve", "--stdio"]})
    }

    #[test]
    fn an_added_entry_is_found_and_everything_else_is_kept() {
        for text in FILES {
            let edits = JSON.add(text, "ropeway", &entry()).expect("edits");
            let edited = Edit::apply(&edits, text).expect("edits that fit");
            assert_eq!(JSON.entry(&edited, "ropeway"), Ok(Some(entry())), "{text}\n{edited}");
            for (comment, name) in [("// mine", "a"), ("// last", "a"), ("/* c */", "b")] {
                assert_eq!(text.contains(comment), edited.contains(comment), "{edited}");
                if text.contains(comment) {
                    assert_eq!(JSON.entry(text, name), JSON.entry(&edited, name), "{edited}");
                }
            }
            assert_eq!(Edit::apply(&Edit::undo(&edits), &edited).as_deref(), Some(*text));
        }
    }

    #[test]
    fn a_removed_entry_leaves_a_valid_file() {
        for text in FILES {
            let edited = Edit::apply(&JSON.add(text, "ropeway", &entry()).expect("edits"), text).expect("a text");
            let removed = Edit::apply(&JSON.remove(&edited, "ropeway").expect("edits"), &edited).expect("a text");
            assert_eq!(JSON.entry(&removed, "ropeway"), Ok(None), "{removed}");
            for name in ["a", "b"] {
                assert_eq!(JSON.entry(text, name), JSON.entry(&removed, name), "{text}\n{removed}");
            }
        }
    }

    #[test]
    fn an_entry_is_removed_from_any_position() {
        for (text, expected) in [
            ("{\"mcpServers\": {\"ropeway\": {}}}", "{\"mcpServers\": {}}"),
            ("{\"mcpServers\": {\"ropeway\": {}, \"a\": 1}}", "{\"mcpServers\": {\"a\": 1}}"),
            ("{\"mcpServers\": {\"a\": 1, \"ropeway\": {}}}", "{\"mcpServers\": {\"a\": 1}}"),
            (
                "{\"mcpServers\": {\n  \"a\": 1,\n  \"ropeway\": {},\n  \"b\": 2\n}}",
                "{\"mcpServers\": {\n  \"a\": 1,\n  \"b\": 2\n}}",
            ),
            ("{\"mcpServers\": {\n  \"ropeway\": {},\n  \"b\": 2\n}}", "{\"mcpServers\": {\n  \"b\": 2\n}}"),
            (
                "{\"mcpServers\": {\n  \"a\": 1, // one\n  \"ropeway\": {}\n}}",
                "{\"mcpServers\": {\n  \"a\": 1 // one\n}}",
            ),
        ] {
            let removed = Edit::apply(&JSON.remove(text, "ropeway").expect("edits"), text);
            assert_eq!(removed.as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn the_indentation_of_the_file_is_used() {
        let text = "{\n\t\"mcpServers\": {\n\t\t\"a\": {}\n\t}\n}\n";
        let edited = Edit::apply(&JSON.add(text, "ropeway", &json!({"url": "u"})).expect("edits"), text);
        let expected =
            "{\n\t\"mcpServers\": {\n\t\t\"a\": {},\n\t\t\"ropeway\": {\n\t\t\t\"url\": \"u\"\n\t\t}\n\t}\n}\n";
        assert_eq!(edited.as_deref(), Some(expected));
    }

    #[test]
    fn duplicate_keys_are_refused_with_both_lines() {
        for (text, name) in [
            ("{\n  \"mcpServers\": {},\n  \"mcpServers\": {\"ropeway\": {}}\n}\n", "mcpServers"),
            ("{\"mcpServers\": {\n  \"ropeway\": {},\n  \"ropeway\": {}\n}}\n", "ropeway"),
        ] {
            let problem = FileProblem(format!("duplicate key `{name}` in lines 2 and 3"));
            assert_eq!(JSON.entry(text, "ropeway"), Err(problem.clone()), "{text}");
            if name == "mcpServers" {
                assert_eq!(JSON.add(text, "ropeway", &entry()), Err(problem.clone()), "{text}");
                assert_eq!(JSON.remove(text, "ropeway"), Err(problem), "{text}");
            }
        }
    }

    #[test]
    fn a_file_that_is_not_an_object_is_not_edited() {
        for text in ["[]", "{", "{\"mcpServers\": []}", "\"x\""] {
            assert!(JSON.add(text, "ropeway", &entry()).is_err(), "{text}");
        }
    }
}
