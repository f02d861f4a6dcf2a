//! Lists: pages of tools, resources and prompts, and what a tool in one means.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::field::{keyed, object, string, take};
use crate::tool::{Alias, Annotations, Origin, ToolDefinition};

/// One page of a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The entries as they came.
    pub items: Vec<Value>,
    /// How to ask for the next page.
    pub next_cursor: Option<String>,
    /// How long the list may be kept, when the server said so.
    pub ttl: Option<Duration>,
}

impl Page {
    /// Reads a page of the list under `key` (`tools`, `resources`, …).
    pub fn read(mut result: Value, key: &str) -> Self {
        let items = match result.get_mut(key).map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        let next_cursor = match result.get("nextCursor") {
            Some(Value::String(cursor)) if !cursor.is_empty() => Some(cursor.clone()),
            // A cursor should be a string; one that is a number still tells the way.
            Some(Value::Number(cursor)) => Some(cursor.to_string()),
            _ => None,
        };
        let ttl = result.get("ttlMs").and_then(Value::as_f64).map(|ms| Duration::from_millis(ms.max(0.0) as u64));
        Self { items, next_cursor, ttl }
    }
}

/// What an entry of `tools/list` means; the words tell why it cannot be a tool.
///
/// Odd fields do not spoil the tool: they are kept among its `extra` fields.
pub fn tool_definition(server: &Alias, entry: Value) -> Result<ToolDefinition, String> {
    let (name, mut entry) = keyed(entry, "name", "tool")?;
    let mut tool = ToolDefinition::new(name);
    tool.origin = Origin::Server { server: server.clone(), tool: tool.name.as_str().into() };
    tool.title = take(&mut entry, "title", string);
    tool.description = take(&mut entry, "description", string);
    tool.input_schema = Arc::new(take(&mut entry, "inputSchema", object).map_or_else(any_object, Value::Object));
    tool.output_schema = take(&mut entry, "outputSchema", object).map(|schema| Arc::new(Value::Object(schema)));
    tool.annotations = Annotations(take(&mut entry, "annotations", object).unwrap_or_default());
    tool.meta = take(&mut entry, "_meta", object);
    tool.extra = entry;
    Ok(tool)
}

/// A definition as an entry of `tools/list`, under its own name: what [`tool_definition`] reads.
pub fn wire_definition(tool: &ToolDefinition) -> Value {
    let mut entry = Map::new();
    entry.insert("name".to_owned(), json!(tool.name));
    entry.extend(tool.title.iter().map(|title| ("title".to_owned(), json!(title))));
    entry.extend(tool.description.iter().map(|text| ("description".to_owned(), json!(text))));
    entry.insert("inputSchema".to_owned(), (*tool.input_schema).clone());
    entry.extend(tool.output_schema.iter().map(|schema| ("outputSchema".to_owned(), (**schema).clone())));
    if !tool.annotations.0.is_empty() {
        entry.insert("annotations".to_owned(), Value::Object(tool.annotations.0.clone()));
    }
    entry.extend(tool.meta.iter().map(|meta| ("_meta".to_owned(), Value::Object(meta.clone()))));
    entry.extend(tool.extra.clone());
    Value::Object(entry)
}

fn any_object() -> Value {
    json!({"type": "object"})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(entry: Value) -> ToolDefinition {
        tool_definition(&"s".into(), entry).expect("a tool")
    }

    #[test]
    fn a_tool_without_a_usable_schema_takes_any_object() {
        for entry in
            [json!({"name": "a"}), json!({"name": "a", "inputSchema": true}), json!({"name": "a", "inputSchema": null})]
        {
            assert_eq!(*tool(entry).input_schema, json!({"type": "object"}));
        }
    }

    #[test]
    fn a_schema_goes_through_untouched_key_order_included() {
        let schema = r##"{"zeta":1,"$schema":"x","type":"object","properties":{"b":{"$ref":"#/$defs/d"},"a":{"if":{},"then":true}},"$defs":{"d":{}},"anyOf":[]}"##;
        let entry = format!(r#"{{"name":"a","outputSchema":{schema},"inputSchema":{schema}}}"#);
        let tool = tool(serde_json::from_str(&entry).expect("JSON"));
        assert_eq!(tool.input_schema.to_string(), schema);
        assert_eq!(tool.output_schema.expect("a schema").to_string(), schema);
    }

    #[test]
    fn odd_fields_are_kept_and_do_not_spoil_the_tool() {
        let entry = json!({"name": "a", "description": 3, "icons": [{"sizes": "48x48"}], "execution": {"taskSupport": "required"},
            "inputSchema": {"type": "object", "z": 1, "a": 2}, "annotations": "none", "title": null});
        let tool = tool(entry);
        assert_eq!(tool.description, None);
        assert_eq!(tool.extra.keys().collect::<Vec<_>>(), ["icons", "execution", "description", "annotations"]);
        assert_eq!(tool.input_schema.to_string(), r#"{"type":"object","z":1,"a":2}"#);
    }

    #[test]
    fn what_cannot_be_a_tool_says_why() {
        assert_eq!(tool_definition(&"s".into(), json!(3)), Err("a tool that is not an object: 3".into()));
        assert_eq!(tool_definition(&"s".into(), json!({"name": ""})), Err("a tool without a name: \"\"".into()));
    }

    #[test]
    fn a_page_is_read_whatever_its_optional_fields_are() {
        let page = Page::read(json!({"tools": [1, 2], "nextCursor": 7, "ttlMs": -1, "cacheScope": "shared"}), "tools");
        assert_eq!(
            page,
            Page { items: vec![json!(1), json!(2)], next_cursor: Some("7".into()), ttl: Some(Duration::ZERO) }
        );
        assert_eq!(Page::read(json!({"tools": null, "nextCursor": null}), "tools"), Page::default());
        assert_eq!(Page::read(json!([]), "tools"), Page::default());
        assert_eq!(Page::read(json!({"nextCursor": ""}), "tools").next_cursor, None);
    }
}
