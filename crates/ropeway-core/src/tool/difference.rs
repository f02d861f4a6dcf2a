//! Describes the difference between two versions of a tool definition.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::definition::ToolDefinition;
use crate::invisible::hides_text;

/// Maximum number of changes that are described; the rest is counted.
const MAX_CHANGES: usize = 20;

/// Maximum characters in a name or value.
const MAX_CHARS: usize = 60;

/// Describes the changes between two versions of a definition, such as "description changed". Returns an empty list if they are equal.
///
/// The server's definitions are compared first. If those are equal, the definitions with the configuration's changes are
/// compared. The text is bounded and contains no control characters.
pub fn differences(old: &ToolDefinition, new: &ToolDefinition) -> Vec<String> {
    let mut words = ChangeList::default();
    words.compare(old.original(), new.original());
    if words.0.is_empty() {
        words.compare(old, new);
    }
    if old.provenance.server.is_some()
        && new.provenance.server.is_some()
        && old.provenance.server != new.provenance.server
    {
        words.push("the command or URL of the server changed".to_owned());
    }
    words.bounded()
}

/// The changes so far, at most [`MAX_CHANGES`], and how many followed.
#[derive(Default)]
struct ChangeList(Vec<String>, usize);

impl ChangeList {
    fn push(&mut self, words: String) {
        if self.0.len() >= MAX_CHANGES {
            self.1 += 1;
        } else if !self.0.contains(&words) {
            self.0.push(words);
        }
    }

    fn count(&self) -> usize {
        self.0.len() + self.1
    }

    fn bounded(self) -> Vec<String> {
        let mut changes = self.0;
        if self.1 > 0 {
            changes.push(format!("{} more changes", self.1));
        }
        changes
    }

    fn compare(&mut self, old: &ToolDefinition, new: &ToolDefinition) {
        self.text("description", old.description.as_deref(), new.description.as_deref());
        self.text("title", old.title.as_deref(), new.title.as_deref());
        self.arguments(&old.input_schema.read(), &new.input_schema.read());
        self.output(old, new);
        self.hints(&old.annotations.0, &new.annotations.0);
    }

    fn text(&mut self, what: &str, old: Option<&str>, new: Option<&str>) {
        match (old, new) {
            (None, Some(_)) => self.push(format!("{what} added")),
            (Some(_), None) => self.push(format!("{what} removed")),
            (Some(old), Some(new)) if old != new => self.push(format!("{what} changed")),
            _ => {}
        }
    }

    fn arguments(&mut self, old: &Value, new: &Value) {
        if same_json(old, new) {
            return;
        }
        let before = self.count();
        let (was_required, is_required) = (required(old), required(new));
        let (properties, others) = (properties(old), properties(new));
        for (name, schema) in others {
            let shown = name_of(name);
            let needed = is_required.contains(name.as_str());
            match properties.get(name) {
                None if needed => self.push(format!("required argument {shown} added")),
                None => self.push(format!("argument {shown} added")),
                Some(earlier) => {
                    match (was_required.contains(name.as_str()), needed) {
                        (false, true) => self.push(format!("argument {shown} is now required")),
                        (true, false) => self.push(format!("argument {shown} is no longer required")),
                        _ => {}
                    }
                    self.argument(&shown, earlier, schema);
                }
            }
        }
        for name in properties.keys().filter(|name| !others.contains_key(name.as_str())) {
            self.push(format!("argument {} removed", name_of(name)));
        }
        // Required arguments without a schema.
        for name in is_required.difference(&was_required).filter(|name| !others.contains_key(**name)) {
            self.push(format!("argument {} is now required", name_of(name)));
        }
        for name in was_required.difference(&is_required).filter(|name| !properties.contains_key(**name)) {
            self.push(format!("argument {} is no longer required", name_of(name)));
        }
        if self.count() == before || !same_json(&rest(old), &rest(new)) {
            self.push("input schema changed".to_owned());
        }
    }

    fn argument(&mut self, name: &str, old: &Value, new: &Value) {
        if same_json(old, new) {
            return;
        }
        let before = self.count();
        let (was, is) = (kind(old), kind(new));
        if was != is {
            self.push(format!("argument {name} is now {is}, was {was}"));
        }
        self.text(&format!("description of argument {name}"), text_of(old), text_of(new));
        if old.get("enum") != new.get("enum") {
            self.push(format!("allowed values of argument {name} changed"));
        }
        if old.get("default") != new.get("default") {
            self.push(format!("default of argument {name} changed"));
        }
        if self.count() == before {
            self.push(format!("schema of argument {name} changed"));
        }
    }

    fn output(&mut self, old: &ToolDefinition, new: &ToolDefinition) {
        match (&old.output_schema, &new.output_schema) {
            (None, Some(_)) => self.push("output schema added".to_owned()),
            (Some(_), None) => self.push("output schema removed".to_owned()),
            (Some(old), Some(new)) if !same_json(&old.read(), &new.read()) => {
                self.push("output schema changed".to_owned())
            }
            _ => {}
        }
    }

    fn hints(&mut self, old: &Map<String, Value>, new: &Map<String, Value>) {
        for (name, value) in new {
            match (old.get(name), value) {
                (Some(Value::Bool(was)), Value::Bool(is)) if was != is => {
                    self.push(format!("hint {} changed to {is}", name_of(name)));
                }
                (None, value) => self.push(format!("hint {} added: {}", name_of(name), value_of(value))),
                (Some(was), is) if !same_json(was, is) => {
                    self.push(format!("hint {} changed to {}", name_of(name), value_of(is)));
                }
                _ => {}
            }
        }
        for name in old.keys().filter(|name| !new.contains_key(name.as_str())) {
            self.push(format!("hint {} removed", name_of(name)));
        }
    }
}

/// Returns `true` if two values are equal, ignoring key order.
fn same_json(old: &Value, new: &Value) -> bool {
    // `Map` ignores key order, even with `preserve_order`.
    old == new
}

fn properties(schema: &Value) -> &Map<String, Value> {
    static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    schema.get("properties").and_then(Value::as_object).unwrap_or(&NONE)
}

fn required(schema: &Value) -> BTreeSet<&str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Returns a schema without the keywords that are compared argument by argument.
fn rest(schema: &Value) -> Value {
    let mut rest = schema.clone();
    if let Some(fields) = rest.as_object_mut() {
        fields.shift_remove("properties");
        fields.shift_remove("required");
    }
    rest
}

fn text_of(schema: &Value) -> Option<&str> {
    schema.get("description").and_then(Value::as_str)
}

/// Describes an argument's type.
fn kind(schema: &Value) -> String {
    match schema.get("type") {
        Some(Value::String(kind)) => match kind.as_str() {
            "array" | "object" | "integer" => format!("an {kind}"),
            "null" => "null".to_owned(),
            _ => format!("a {}", visible(kind, MAX_CHARS)),
        },
        Some(Value::Array(kinds)) => {
            let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).take(8).collect();
            format!("one of {}", visible(&kinds.join(", "), MAX_CHARS))
        }
        _ => "of any type".to_owned(),
    }
}

fn name_of(name: &str) -> String {
    format!("`{}`", visible(name, MAX_CHARS))
}

fn value_of(value: &Value) -> String {
    visible(&value.to_string(), MAX_CHARS)
}

/// Escapes control and formatting characters in server text.
pub fn escape_invisible(text: &str) -> String {
    visible(text, usize::MAX)
}

/// Truncates server text, and escapes control and formatting characters.
fn visible(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for (number, c) in text.chars().enumerate() {
        if number == most {
            shown.push('…');
            break;
        }
        if hides_text(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::tool::{Annotations, Digest, is_same_definition};

    fn tool(schema: Value, hints: Value) -> ToolDefinition {
        let mut definition = ToolDefinition::new("note").with_description("Writes a note").with_input_schema(schema);
        definition.annotations = Annotations(hints.as_object().cloned().unwrap_or_default());
        definition
    }

    fn words(old: &ToolDefinition, new: &ToolDefinition) -> Vec<String> {
        differences(old, new).iter().map(ToString::to_string).collect()
    }

    fn note() -> ToolDefinition {
        tool(
            json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}),
            json!({"readOnlyHint": true}),
        )
    }

    #[test]
    fn the_order_of_keys_is_not_a_difference() {
        let one = tool(json!({"a": 1, "properties": {"x": {"type": "string", "title": "X"}}}), json!({"a": 1, "b": 2}));
        let other =
            tool(json!({"properties": {"x": {"title": "X", "type": "string"}}, "a": 1}), json!({"b": 2, "a": 1}));
        assert_eq!(words(&one, &other), [""; 0]);
        assert!(is_same_definition(&one, &other));
    }

    #[test]
    fn comparing_a_hundred_thousand_changes_takes_linear_time() {
        let many = |prefix: &str| {
            let names: Vec<String> = (0..100_000).map(|nth| format!("{prefix}{nth}")).collect();
            let properties: Map<String, Value> =
                names.iter().map(|name| (name.clone(), json!({"type": "string"}))).collect();
            tool(json!({"type": "object", "properties": properties, "required": names}), json!({}))
        };
        let words = words(&many("a"), &many("b"));
        assert_eq!(words.len(), MAX_CHANGES + 1);
        assert_eq!(words.last().map(String::as_str), Some("199980 more changes"));
    }

    #[test]
    fn every_change_of_a_tool_is_described() {
        let shell = tool(
            json!({"type": "object", "properties": {"text": {"type": "array"}, "shell": {"type": "string"}}, "required": ["text", "shell"]}),
            json!({"readOnlyHint": false, "destructiveHint": true}),
        )
        .with_description("Runs a command");
        assert_eq!(
            words(&note(), &shell),
            [
                "description changed",
                "argument `text` is now an array, was a string",
                "required argument `shell` added",
                "hint `readOnlyHint` changed to false",
                "hint `destructiveHint` added: true",
            ]
        );
    }

    #[test]
    fn added_removed_and_required_arguments_are_described() {
        let with = |properties: Value, required: Value| {
            tool(json!({"properties": properties, "required": required}), json!({}))
        };
        let string = json!({"type": "string"});
        let cases = [
            (with(json!({"a": string, "b": string}), json!([])), "argument `b` added"),
            (with(json!({}), json!([])), "argument `a` removed"),
            (with(json!({"a": string}), json!(["a"])), "argument `a` is now required"),
            (with(json!({"a": string}), json!(["z"])), "argument `z` is now required"),
            (
                with(json!({"a": {"type": ["string", "null"]}}), json!([])),
                "argument `a` is now one of string, null, was a string",
            ),
            (
                with(json!({"a": {"type": "string", "description": "x"}}), json!([])),
                "description of argument `a` added",
            ),
            (
                with(json!({"a": {"type": "string", "enum": ["x"]}}), json!([])),
                "allowed values of argument `a` changed",
            ),
            (with(json!({"a": {"type": "string", "maxLength": 1}}), json!([])), "schema of argument `a` changed"),
        ];
        for (new, said) in cases {
            assert_eq!(words(&with(json!({"a": string}), json!([])), &new), [said]);
        }
        let back = with(json!({"a": string}), json!(["a"]));
        assert_eq!(words(&back, &with(json!({"a": string}), json!([]))), ["argument `a` is no longer required"]);
    }

    #[test]
    fn every_difference_has_a_description() {
        let plain = tool(json!({"properties": {"a": {}}}), json!({}));
        let cases = [
            (tool(json!({"properties": {"a": {}}, "additionalProperties": false}), json!({})), "input schema changed"),
            (tool(json!({"properties": {"a": {}}}), json!({"x": {"y": 1}})), r#"hint `x` added: {"y":1}"#),
            (plain.clone().with_output_schema(json!({})), "output schema added"),
        ];
        for (new, said) in cases {
            assert_eq!(words(&plain, &new), [said]);
        }
        let mut untold = plain.clone();
        untold.description = None;
        assert_eq!(words(&plain, &untold), ["description removed"]);
    }

    #[test]
    fn changes_of_the_host_do_not_hide_those_of_the_server() {
        let described = |by_server: &str| {
            let mut definition = note().with_description("by the host");
            definition.provenance.original = Some(Arc::new(note().with_description(by_server)));
            definition
        };
        assert_eq!(words(&described("old"), &described("new")), ["description changed"]);
        let mut moved = described("old");
        moved.provenance.server = Some(Digest::of_bytes(b"there"));
        let mut here = described("old");
        here.provenance.server = Some(Digest::of_bytes(b"here"));
        assert_eq!(words(&here, &moved), ["the command or URL of the server changed"]);
    }

    #[test]
    fn descriptions_are_bounded_and_escaped() {
        let properties: Map<String, Value> = (0..100).map(|n| (format!("{n}"), json!({}))).collect();
        let said = words(&note(), &tool(json!({"properties": properties}), json!({})));
        assert_eq!((said.len(), said[20].as_str()), (21, "83 more changes"));
        let evil =
            tool(json!({"properties": {"\u{1b}[2J\u{202e}x\u{2800}\u{3164}": {}, "a".repeat(1000): {}}}), json!({}));
        let said = words(&tool(json!({"properties": {}}), json!({})), &evil);
        assert_eq!(said[0], r"argument `\u{1b}[2J\u{202e}x\u{2800}\u{3164}` added");
        assert_eq!(said[1], format!("argument `{}…` added", "a".repeat(60)));
    }
}
