//! Pages in tool, resource and prompt lists, and tool definitions.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::field::{first_entries, object, split_key, string, take};
use ropeway_core::json;
use ropeway_core::tool::{Alias, Annotations, Origin, Schema, ToolDefinition};

/// A list page ([pagination](https://modelcontextprotocol.io/specification/2025-11-25/server/utilities/pagination)).
#[derive(Clone, Debug, Default)]
pub struct Page<'a> {
    /// The raw entries.
    pub items: Vec<&'a RawValue>,
    /// Number of entries over the limit.
    pub left_out: usize,
    /// The next page's cursor.
    pub next_cursor: Option<String>,
    /// How long the list may be cached (`ttlMs`).
    pub ttl: Option<Duration>,
}

impl<'a> Page<'a> {
    /// Reads a page whose entries are in the field `key`, such as `tools`.
    pub fn read(result: &'a RawValue, key: &str) -> Self {
        Self::read_up_to(result, key, usize::MAX)
    }

    /// Reads a page with up to `most` entries, and counts the others.
    pub fn read_up_to(result: &'a RawValue, key: &str, most: usize) -> Self {
        let mut deserializer = serde_json::Deserializer::from_str(result.get());
        let [list, cursor, ttl] =
            deserializer.deserialize_map(FieldsVisitor([key, "nextCursor", "ttlMs"])).unwrap_or_default();
        let field = |raw: Option<&RawValue>| raw.and_then(|raw| json::from_str::<Value>(raw.get()).ok());
        let entries = |list: &'a RawValue| first_entries(list.get().as_bytes(), most).ok();
        let (items, left_out) = list.and_then(entries).unwrap_or_default();
        let next_cursor = match field(cursor) {
            Some(Value::String(cursor)) if !cursor.is_empty() => Some(cursor),
            // A cursor should be a string, but some servers send numbers.
            Some(Value::Number(cursor)) => Some(cursor.to_string()),
            _ => None,
        };
        let milliseconds = field(ttl).and_then(|ttl| ttl.as_f64());
        let ttl = milliseconds.map(|ms| Duration::from_millis(ms.max(0.0) as u64));
        Self { items, left_out, next_cursor, ttl }
    }
}

/// Reads a few fields from an object without storing the others.
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

/// Reads a `tools/list` entry ([tool](https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool)). Invalid
/// optional fields are kept in `extra`.
///
/// # Errors
///
/// Fails with a description if the entry is not an object or has no name.
pub fn tool_definition(server: &Alias, entry: &RawValue) -> Result<ToolDefinition, String> {
    let (entry, schemas) = match json::from_str(entry.get()) {
        Ok(ToolEntry { fields, schemas }) => (Value::Object(fields), schemas),
        // Not an object, or nested too deeply.
        Err(_) => (json::from_str(entry.get()).unwrap_or_default(), Schemas::default()),
    };
    let (name, mut entry) = split_key(entry, "name", "tool")?;
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

/// A `tools/list` entry with unparsed schemas.
struct ToolEntry {
    fields: Map<String, Value>,
    schemas: Schemas,
}

#[derive(Default)]
struct Schemas {
    input: Option<Schema>,
    output: Option<Schema>,
}

impl<'de> Deserialize<'de> for ToolEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ToolEntryVisitor)
    }
}

struct ToolEntryVisitor;

impl<'de> Visitor<'de> for ToolEntryVisitor {
    type Value = ToolEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an entry of a list of tools")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ToolEntry, A::Error> {
        let mut entry = ToolEntry { fields: Map::new(), schemas: Schemas::default() };
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
                    // If a key appears twice, the last one wins, also when the definition is serialized.
                    entry.fields.shift_remove(&key);
                }
                // `null` is ignored; other invalid values are kept.
                Some(b'n') => {}
                _ => {
                    let invalid = json::from_str(text.get()).map_err(serde::de::Error::custom)?;
                    *schema = None;
                    entry.fields.insert(key, invalid);
                }
            }
        }
        Ok(entry)
    }
}

/// Serializes a definition as a `tools/list` entry, the inverse of [`tool_definition`].
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

/// Writes a definition as a `tools/list` entry in one line. Schemas are written as the server sent them.
pub fn wire_definition_text(tool: &ToolDefinition) -> String {
    let mut text = String::from("{");
    let mut add = |key: &str, value: Cow<'_, str>| {
        let comma = if text.len() > 1 { "," } else { "" };
        text.push_str(&format!("{comma}{}:{value}", Value::from(key)));
    };
    add("name", json!(tool.name).to_string().into());
    tool.title.iter().for_each(|title| add("title", json!(title).to_string().into()));
    tool.description.iter().for_each(|words| add("description", json!(words).to_string().into()));
    add("inputSchema", one_line(tool.input_schema.text()));
    tool.output_schema.iter().for_each(|schema| add("outputSchema", one_line(schema.text())));
    if !tool.annotations.0.is_empty() {
        add("annotations", Value::Object(tool.annotations.0.clone()).to_string().into());
    }
    tool.meta.iter().for_each(|meta| add("_meta", Value::Object(meta.clone()).to_string().into()));
    tool.extra.iter().for_each(|(key, value)| add(key, value.to_string().into()));
    text.push('}');
    text
}

/// Removes line breaks, which would end a message on a pipe.
pub fn one_line(text: Cow<'_, str>) -> Cow<'_, str> {
    if memchr::memchr2(b'\n', b'\r', text.as_bytes()).is_some() { json::compact(&text).into() } else { text }
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
    fn a_tool_without_a_valid_schema_takes_any_object() {
        for entry in
            [json!({"name": "a"}), json!({"name": "a", "inputSchema": true}), json!({"name": "a", "inputSchema": null})]
        {
            assert_eq!(*tool(entry).input_schema, json!({"type": "object"}));
        }
    }

    #[test]
    fn a_schema_keeps_its_text_and_key_order() {
        let schema = r##"{"zeta":1,"$schema":"x","type":"object","properties":{"b":{"$ref":"#/$defs/d"},"a":{"if":{},"then":true}},"$defs":{"d":{}},"anyOf":[]}"##;
        let entry = format!(r#"{{"name":"a","outputSchema":{schema},"inputSchema":{schema}}}"#);
        let tool = tool(serde_json::from_str(&entry).expect("JSON"));
        assert_eq!(tool.input_schema.to_string(), schema);
        assert_eq!(tool.output_schema.expect("a schema").to_string(), schema);
    }

    #[test]
    fn invalid_fields_of_a_tool_are_kept() {
        let entry = json!({"name": "a", "description": 3, "icons": [{"sizes": "48x48"}], "execution": {"taskSupport": "required"},
            "inputSchema": {"type": "object", "z": 1, "a": 2}, "annotations": "none", "title": null});
        let tool = tool(entry);
        assert_eq!(tool.description, None);
        assert_eq!(tool.extra.keys().collect::<Vec<_>>(), ["icons", "execution", "description", "annotations"]);
        assert_eq!(tool.input_schema.to_string(), r#"{"type":"object","z":1,"a":2}"#);
    }

    #[test]
    fn a_tool_with_a_deeply_nested_schema_is_kept() {
        let deep = format!("{}1{}", r#"{"a":"#.repeat(300), "}".repeat(300));
        let entry = RawValue::from_string(format!(r#"{{"name":"a","inputSchema":{deep}}}"#)).expect("JSON");
        let tool = tool_definition(&"s".into(), &entry).expect("a tool");
        assert!(tool.input_schema.parse_error().is_some());
    }

    #[test]
    fn a_definition_is_serialized_as_it_was_received() {
        let entry = json!({"name": "a", "title": "A", "description": "d", "inputSchema": {"z": 1, "a": 2},
            "outputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}, "_meta": {"k": 1}, "icons": []});
        let tool = tool(entry.clone());
        assert_eq!(wire_definition(&tool), entry);
        assert_eq!(wire_definition_text(&tool), entry.to_string());
    }

    #[test]
    fn a_definition_keeps_the_text_of_its_schemas() {
        let schema = "{\"maximum\":1e400, \"minimum\":0.10}";
        let entry = RawValue::from_string(format!(r#"{{"name":"a","inputSchema":{schema}}}"#)).expect("JSON");
        let tool = tool_definition(&"s".into(), &entry).expect("a tool");
        assert_eq!(wire_definition_text(&tool), entry.get());
        let pretty =
            RawValue::from_string("{\"name\":\"a\",\"inputSchema\":{\n\"a\":\r\n1}}".to_owned()).expect("JSON");
        let tool = tool_definition(&"s".into(), &pretty).expect("a tool");
        assert_eq!(wire_definition_text(&tool), r#"{"name":"a","inputSchema":{"a":1}}"#);
    }

    #[test]
    fn the_last_of_two_schemas_wins() {
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
    fn an_invalid_tool_is_described() {
        assert_eq!(tool_definition(&"s".into(), &raw(&json!(3))), Err("a tool that is not an object: 3".into()));
        assert_eq!(tool_definition(&"s".into(), &raw(&json!({"name": ""}))), Err("a tool without a name: \"\"".into()));
    }

    #[test]
    fn a_page_is_read_with_any_optional_fields() {
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
    fn entries_over_the_limit_are_counted() {
        let result = raw(&json!({"tools": [1, 2, 3, 4, 5], "nextCursor": "n"}));
        let page = Page::read_up_to(&result, "tools", 2);
        assert_eq!((page.items.len(), page.left_out, page.next_cursor.as_deref()), (2, 3, Some("n")));
    }
}
