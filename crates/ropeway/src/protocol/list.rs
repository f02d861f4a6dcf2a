//! Lists: pages of tools, resources and prompts, and what a tool in one means.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::field::{first_entries, keyed, object, string, take};
use crate::json;
use crate::tool::{Alias, Annotations, Origin, Schema, ToolDefinition};

/// One page of a list.
#[derive(Clone, Debug, Default)]
pub struct Page<'a> {
    /// The entries as they came.
    pub items: Vec<&'a RawValue>,
    /// How many entries there were beyond those.
    pub left_out: usize,
    /// How to ask for the next page.
    pub next_cursor: Option<String>,
    /// How long the list may be kept, when the server said so.
    pub ttl: Option<Duration>,
}

impl<'a> Page<'a> {
    /// Reads a page of the list under `key` (`tools`, `resources`, …).
    pub fn read(result: &'a RawValue, key: &str) -> Self {
        Self::read_up_to(result, key, usize::MAX)
    }

    /// Reads a page of the list under `key`, with up to `most` entries; the others are only counted.
    pub fn read_up_to(result: &'a RawValue, key: &str, most: usize) -> Self {
        let mut deserializer = serde_json::Deserializer::from_str(result.get());
        let [list, cursor, ttl] =
            deserializer.deserialize_map(FieldsVisitor([key, "nextCursor", "ttlMs"])).unwrap_or_default();
        let field = |raw: Option<&RawValue>| raw.and_then(|raw| json::from_str::<Value>(raw.get()).ok());
        let entries = |list: &'a RawValue| first_entries(list.get().as_bytes(), most).ok();
        let (items, left_out) = list.and_then(entries).unwrap_or_default();
        let next_cursor = match field(cursor) {
            Some(Value::String(cursor)) if !cursor.is_empty() => Some(cursor),
            // A cursor should be a string; one that is a number still tells the way.
            Some(Value::Number(cursor)) => Some(cursor.to_string()),
            _ => None,
        };
        let milliseconds = field(ttl).and_then(|ttl| ttl.as_f64());
        let ttl = milliseconds.map(|ms| Duration::from_millis(ms.max(0.0) as u64));
        Self { items, left_out, next_cursor, ttl }
    }
}

/// Picks a few fields of an object; however many others there are, they take no memory.
struct FieldsVisitor<'k, const N: usize>([&'k str; N]);

impl<'de, const N: usize> Visitor<'de> for FieldsVisitor<'_, N> {
    type Value = [Option<&'de RawValue>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a page of a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = [None; N];
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match self.0.iter().position(|wanted| *wanted == key) {
                Some(at) => fields[at] = Some(map.next_value()?),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(fields)
    }
}

/// What an entry of `tools/list` means; the words tell why it cannot be a tool.
///
/// Odd fields do not spoil the tool: they are kept among its `extra` fields.
pub fn tool_definition(server: &Alias, entry: &RawValue) -> Result<ToolDefinition, String> {
    let (entry, schemas) = match json::from_str(entry.get()) {
        Ok(Entry { fields, schemas }) => (Value::Object(fields), schemas),
        // It is JSON, so it is no object, or one that is nested too deeply.
        Err(_) => (json::from_str(entry.get()).unwrap_or_default(), Schemas::default()),
    };
    let (name, mut entry) = keyed(entry, "name", "tool")?;
    let mut tool = ToolDefinition::new(name);
    tool.origin = Origin::Server { server: server.clone(), tool: tool.name.as_str().into() };
    tool.title = take(&mut entry, "title", string);
    tool.description = take(&mut entry, "description", string);
    tool.input_schema = schemas.input.unwrap_or_default();
    tool.output_schema = schemas.output;
    tool.annotations = Annotations(take(&mut entry, "annotations", object).unwrap_or_default());
    tool.meta = take(&mut entry, "_meta", object);
    tool.extra = entry;
    Ok(tool)
}

/// An entry of `tools/list`, whose schemas stay text.
struct Entry {
    fields: Map<String, Value>,
    schemas: Schemas,
}

#[derive(Default)]
struct Schemas {
    input: Option<Schema>,
    output: Option<Schema>,
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntryVisitor)
    }
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = Entry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an entry of a list of tools")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entry, A::Error> {
        let mut entry = Entry { fields: Map::new(), schemas: Schemas::default() };
        while let Some(key) = map.next_key::<String>()? {
            let schema = match key.as_str() {
                "inputSchema" => &mut entry.schemas.input,
                "outputSchema" => &mut entry.schemas.output,
                _ => {
                    entry.fields.insert(key, map.next_value()?);
                    continue;
                }
            };
            let text: Box<RawValue> = map.next_value()?;
            match text.get().as_bytes().first() {
                Some(b'{') => {
                    *schema = Some(Schema::from_text(text));
                    // Of a key that is there twice the last counts, also when it is written again.
                    entry.fields.shift_remove(&key);
                }
                // A `null` is as good as nothing; anything else is odd, and kept.
                Some(b'n') => {}
                _ => {
                    let odd = json::from_str(text.get()).map_err(serde::de::Error::custom)?;
                    *schema = None;
                    entry.fields.insert(key, odd);
                }
            }
        }
        Ok(entry)
    }
}

/// A definition as an entry of `tools/list`, under its own name: what [`tool_definition`] reads.
pub fn wire_definition(tool: &ToolDefinition) -> Value {
    let mut entry = Map::new();
    entry.insert("name".to_owned(), json!(tool.name));
    entry.extend(tool.title.iter().map(|title| ("title".to_owned(), json!(title))));
    entry.extend(tool.description.iter().map(|text| ("description".to_owned(), json!(text))));
    entry.insert("inputSchema".to_owned(), tool.input_schema.read().into_owned());
    entry.extend(tool.output_schema.iter().map(|schema| ("outputSchema".to_owned(), schema.read().into_owned())));
    if !tool.annotations.0.is_empty() {
        entry.insert("annotations".to_owned(), Value::Object(tool.annotations.0.clone()));
    }
    entry.extend(tool.meta.iter().map(|meta| ("_meta".to_owned(), Value::Object(meta.clone()))));
    entry.extend(tool.extra.clone());
    Value::Object(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(value: &Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).expect("JSON")
    }

    fn tool(entry: Value) -> ToolDefinition {
        tool_definition(&"s".into(), &raw(&entry)).expect("a tool")
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
    fn a_schema_that_is_nested_too_deeply_does_not_spoil_the_tool() {
        let deep = format!("{}1{}", r#"{"a":"#.repeat(300), "}".repeat(300));
        let entry = RawValue::from_string(format!(r#"{{"name":"a","inputSchema":{deep}}}"#)).expect("JSON");
        let tool = tool_definition(&"s".into(), &entry).expect("a tool");
        assert!(tool.input_schema.parse_error().is_some());
    }

    #[test]
    fn a_definition_written_down_is_read_again() {
        let entry = json!({"name": "a", "title": "A", "description": "d", "inputSchema": {"z": 1, "a": 2},
            "outputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}, "_meta": {"k": 1}, "icons": []});
        assert_eq!(wire_definition(&tool(entry.clone())), entry);
    }

    #[test]
    fn of_a_schema_that_is_there_twice_the_last_counts_also_when_it_is_written() {
        for (entry, expected) in [
            (r#"{"name":"a","inputSchema":"","inputSchema":{"z":1}}"#, json!({"z": 1})),
            (r#"{"name":"a","inputSchema":{"z":1},"inputSchema":""}"#, json!({"type": "object"})),
        ] {
            let entry = RawValue::from_string(entry.to_owned()).expect("JSON");
            let tool = tool_definition(&"s".into(), &entry).expect("a tool");
            assert_eq!(*tool.input_schema, expected);
            assert_eq!(tool_definition(&"s".into(), &raw(&wire_definition(&tool))).as_ref(), Ok(&tool));
        }
    }

    #[test]
    fn what_cannot_be_a_tool_says_why() {
        assert_eq!(tool_definition(&"s".into(), &raw(&json!(3))), Err("a tool that is not an object: 3".into()));
        assert_eq!(tool_definition(&"s".into(), &raw(&json!({"name": ""}))), Err("a tool without a name: \"\"".into()));
    }

    #[test]
    fn a_page_is_read_whatever_its_optional_fields_are() {
        let read = |result: Value| {
            let result = raw(&result);
            let Page { items, next_cursor, ttl, left_out } = Page::read(&result, "tools");
            assert_eq!(left_out, 0);
            (items.iter().map(|item| item.get().to_owned()).collect::<Vec<_>>(), next_cursor, ttl)
        };
        let page = read(json!({"tools": [1, {"a": 2}], "nextCursor": 7, "ttlMs": -1, "cacheScope": "shared"}));
        assert_eq!(page, (vec!["1".into(), r#"{"a":2}"#.into()], Some("7".into()), Some(Duration::ZERO)));
        for empty in [json!({"tools": null, "nextCursor": null}), json!([]), json!({"nextCursor": ""}), json!(7)] {
            assert_eq!(read(empty), (vec![], None, None));
        }
    }

    #[test]
    fn entries_beyond_the_most_are_counted_and_what_follows_them_is_read() {
        let result = raw(&json!({"tools": [1, 2, 3, 4, 5], "nextCursor": "n"}));
        let page = Page::read_up_to(&result, "tools", 2);
        assert_eq!((page.items.len(), page.left_out, page.next_cursor.as_deref()), (2, 3, Some("n")));
    }
}
