//! An output: what a tool answered.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use crate::content::{ContentPart, FieldName, PartSeed, SourceBytes, plain_text};

/// What a tool answered, in full.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ToolOutput {
    /// The parts of the answer.
    pub content: Vec<ContentPart>,
    /// The structured result; `Some(Value::Null)` when the server said `null`.
    pub structured: Option<Value>,
    /// The tool itself reports that it failed.
    pub is_error: bool,
    /// The answer's `_meta`.
    pub meta: Option<Map<String, Value>>,
    /// Every other field of the result as it came.
    pub extra: Map<String, Value>,
}

impl ToolOutput {
    /// An answer of one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![ContentPart::text(text)], ..Self::default() }
    }

    /// A failure that the tool itself reports.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }

    /// A structured answer, with its JSON as text for those who read only that.
    pub fn structured(value: Value) -> Self {
        Self { structured: Some(value.clone()), ..Self::text(value.to_string()) }
    }

    /// The answer as one string when it is text only.
    pub fn plain_text(&self) -> Option<String> {
        plain_text(&self.content)
    }
}

impl From<ContentPart> for ToolOutput {
    fn from(part: ContentPart) -> Self {
        Self { content: vec![part], ..Self::default() }
    }
}

impl From<Vec<ContentPart>> for ToolOutput {
    fn from(content: Vec<ContentPart>) -> Self {
        Self { content, ..Self::default() }
    }
}

impl From<Value> for ToolOutput {
    fn from(value: Value) -> Self {
        Self::structured(value)
    }
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for ToolOutput {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

/// `content` as servers write it: an array of blocks, one block, or something else that is kept as text.
struct Content(Vec<ContentPart>);

struct ContentSeed<'s>(SourceBytes<'s>);

impl<'de> DeserializeSeed<'de> for ContentSeed<'_> {
    type Value = Content;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Content, D::Error> {
        struct ContentVisitor<'s>(SourceBytes<'s>);
        impl<'de> Visitor<'de> for ContentVisitor<'_> {
            type Value = Content;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of content blocks")
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Content, A::Error> {
                let mut parts = Vec::with_capacity(1);
                while let Some(part) = seq.next_element_seed(PartSeed(self.0))? {
                    parts.push(part);
                }
                Ok(Content(parts))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Content, A::Error> {
                let part = PartSeed(self.0).deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                Ok(Content(vec![part]))
            }
            fn visit_i128<E>(self, value: i128) -> Result<Content, E> {
                Ok(Content(vec![ContentPart::text(value.to_string())]))
            }
            fn visit_u128<E>(self, value: u128) -> Result<Content, E> {
                Ok(Content(vec![ContentPart::text(value.to_string())]))
            }
            fn visit_str<E>(self, text: &str) -> Result<Content, E> {
                Ok(Content(vec![ContentPart::text(text)]))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Content, E> {
                Ok(Content(vec![ContentPart::text(value.to_string())]))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Content, E> {
                Ok(Content(vec![ContentPart::text(value.to_string())]))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
                Ok(Content(vec![ContentPart::text(value.to_string())]))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Content, E> {
                Ok(Content(vec![ContentPart::text(value.to_string())]))
            }
            fn visit_unit<E>(self) -> Result<Content, E> {
                Ok(Content(Vec::new()))
            }
        }
        deserializer.deserialize_any(ContentVisitor(self.0))
    }
}

/// Reads a `tools/call` result in one pass; only broken JSON fails.
impl<'de> Deserialize<'de> for ToolOutput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        OutputSeed(SourceBytes::default()).deserialize(deserializer)
    }
}

impl ToolOutput {
    /// Reads a result out of its message; large data goes on sharing the message's memory.
    #[cfg(feature = "mcp")]
    pub(crate) fn read(message: &bytes::Bytes) -> Result<Self, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_slice(message);
        let output = OutputSeed(SourceBytes(Some(message))).deserialize(&mut deserializer)?;
        deserializer.end().map(|()| output)
    }

    /// Makes an output of the fields of a result.
    #[cfg(feature = "mcp")]
    pub(crate) fn from_fields(fields: Map<String, Value>) -> Self {
        let mut output = Self::default();
        for (key, value) in fields {
            match (key.as_str(), value) {
                ("content", Value::Array(blocks)) => {
                    output.content = blocks.into_iter().map(ContentPart::from_block).collect();
                }
                ("content", Value::Null) => output.content.clear(),
                ("content", block) => output.content = vec![ContentPart::from_block(block)],
                (_, value) => output.insert(key.into(), value),
            }
        }
        output
    }

    /// Takes a field of a result; its content is not one of them.
    fn insert(&mut self, key: Cow<'_, str>, value: Value) {
        match (&*key, value) {
            ("structuredContent", value) => self.structured = Some(value),
            ("isError", Value::Bool(flag)) => self.is_error = flag,
            ("isError" | "_meta", Value::Null) => {}
            ("isError", odd) => {
                // Some servers write "true" or 1.
                self.is_error = !matches!(&odd, Value::String(s) if s != "true") && odd != 0;
                self.extra.insert(key.into_owned(), odd);
            }
            ("_meta", Value::Object(meta)) => self.meta = Some(meta),
            // The usual kind of result says nothing; another one tells how to go on.
            ("resultType", kind) if kind == "complete" => {}
            (_, value) => {
                self.extra.insert(key.into_owned(), value);
            }
        }
    }
}

struct OutputSeed<'s>(SourceBytes<'s>);

impl<'de> DeserializeSeed<'de> for OutputSeed<'_> {
    type Value = ToolOutput;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ToolOutput, D::Error> {
        struct OutputVisitor<'s>(SourceBytes<'s>);
        impl<'de> Visitor<'de> for OutputVisitor<'_> {
            type Value = ToolOutput;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a tool result object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ToolOutput, A::Error> {
                let mut output = ToolOutput::default();
                while let Some(FieldName(key)) = map.next_key()? {
                    match &*key {
                        "content" => output.content = map.next_value_seed(ContentSeed(self.0))?.0,
                        _ => output.insert(key, map.next_value()?),
                    }
                }
                Ok(output)
            }
        }
        deserializer.deserialize_map(OutputVisitor(self.0))
    }
}

impl Serialize for ToolOutput {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("content", &self.content)?;
        if let Some(structured) = &self.structured {
            map.serialize_entry("structuredContent", structured)?;
        }
        if self.is_error {
            map.serialize_entry("isError", &true)?;
        }
        if let Some(meta) = &self.meta {
            map.serialize_entry("_meta", meta)?;
        }
        for (key, value) in &self.extra {
            if key != "isError" {
                map.serialize_entry(key, value)?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(result: Value) -> ToolOutput {
        serde_json::from_str(&result.to_string()).expect("an object always reads")
    }

    #[test]
    fn one_odd_block_does_not_spoil_the_others() {
        let output =
            read(json!({"content": [{"type": "text", "text": "a"}, {"type": "hologram"}, 3], "isError": false}));
        assert_eq!(output.plain_text().as_deref(), Some("a\n{\"type\":\"hologram\"}\n3"));
    }

    #[test]
    fn a_result_is_read_as_a_tool_result_whatever_else_it_looks_like() {
        let output =
            read(json!({"content": [{"type": "text", "text": "a"}], "action": "accept", "messages": [], "tools": []}));
        assert_eq!(output.plain_text().as_deref(), Some("a"));
        assert_eq!(output.extra.keys().collect::<Vec<_>>(), ["action", "messages", "tools"]);
    }

    #[test]
    fn an_explicit_null_counts_as_structured_content() {
        assert_eq!(read(json!({"content": [], "structuredContent": null})).structured, Some(Value::Null));
        assert_eq!(read(json!({"content": []})).structured, None);
    }

    #[test]
    fn wrong_json_types_in_optional_fields_are_taken_as_well_as_can_be() {
        assert_eq!(read(json!({"content": "plain"})).plain_text().as_deref(), Some("plain"));
        assert_eq!(read(json!({"content": {"type": "text", "text": "one"}})).plain_text().as_deref(), Some("one"));
        assert_eq!(read(json!({"content": null, "_meta": null, "isError": null})), ToolOutput::default());
        assert!(read(json!({"isError": "true"})).is_error);
        assert!(!read(json!({"isError": "false"})).is_error);
        assert_eq!(read(json!({"_meta": 3})).extra["_meta"], json!(3));
    }

    #[test]
    fn an_output_goes_from_wire_to_wire_without_loss() {
        let wire = json!({"content": [{"type": "text", "text": "a"}], "structuredContent": {"b": 1}, "isError": true, "_meta": {"c": 2}, "later": [3]});
        assert_eq!(serde_json::to_value(read(wire.clone())).expect("JSON"), wire);
    }
}
