//! Tool results.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use crate::content::{ContentPart, PartSeed, SourceBytes, plain_text, visit_as_text};
use crate::conversions::conversions;
use crate::loose_json::BorrowedText;

/// A tool call's result (<https://modelcontextprotocol.io/specification/2025-06-18/server/tools#tool-result>).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ToolOutput {
    /// The result's content.
    pub content: Vec<ContentPart>,
    /// Structured content; `Some(Value::Null)` for an explicit `null`.
    pub structured: Option<Value>,
    /// Whether the tool reported a failure.
    pub is_error: bool,
    /// The result's `_meta`.
    pub meta: Option<Map<String, Value>>,
    /// The result's other fields.
    pub extra: Map<String, Value>,
}

impl ToolOutput {
    /// Creates a result with one text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![ContentPart::text(text)], ..Self::default() }
    }

    /// Creates a failed result.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }

    /// Creates a structured result, with its JSON as text for clients without structured content.
    pub fn structured(value: Value) -> Self {
        Self { structured: Some(value.clone()), ..Self::text(value.to_string()) }
    }

    /// Returns the result's text, or `None` if some parts are not text.
    pub fn plain_text(&self) -> Option<String> {
        plain_text(&self.content)
    }
}

conversions!(ToolOutput {
    part: ContentPart => Self { content: vec![part], ..Self::default() };
    content: Vec<ContentPart> => Self { content, ..Self::default() };
    value: Value => Self::structured(value);
    text: String => Self::text(text);
    text: &str => Self::text(text);
});

/// `content` in all forms that servers send: an array of blocks, one block, or another value, which becomes text.
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
            visit_as_text!(Content, |part| Content(vec![part]));
            fn visit_unit<E>(self) -> Result<Content, E> {
                Ok(Content(Vec::new()))
            }
        }
        deserializer.deserialize_any(ContentVisitor(self.0))
    }
}

/// Parses a `tools/call` result in one pass. Fails on invalid JSON only.
impl<'de> Deserialize<'de> for ToolOutput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        OutputSeed(SourceBytes::default()).deserialize(deserializer)
    }
}

impl ToolOutput {
    /// Parses a result. Large data shares the message's memory.
    pub fn read(message: &bytes::Bytes) -> Result<Self, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_slice(message);
        let output = OutputSeed(SourceBytes(Some(message))).deserialize(&mut deserializer)?;
        deserializer.end().map(|()| output)
    }

    /// Converts a result's fields.
    pub fn from_fields(fields: Map<String, Value>) -> Self {
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

    /// Sets a field other than `content`.
    fn insert(&mut self, key: Cow<'_, str>, value: Value) {
        match (&*key, value) {
            ("structuredContent", value) => self.structured = Some(value),
            ("isError", Value::Bool(flag)) => self.is_error = flag,
            ("isError" | "_meta", Value::Null) => {}
            ("isError", value) => {
                // Some servers send "true" or 1.
                self.is_error = !matches!(&value, Value::String(s) if s != "true") && value != 0;
                self.extra.insert(key.into_owned(), value);
            }
            ("_meta", Value::Object(meta)) => self.meta = Some(meta),
            // `complete` is the default; other result types are kept.
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
                while let Some(BorrowedText(key)) = map.next_key()? {
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
    fn an_unknown_block_does_not_affect_the_others() {
        let output =
            read(json!({"content": [{"type": "text", "text": "a"}, {"type": "hologram"}, 3], "isError": false}));
        assert_eq!(output.plain_text().as_deref(), Some("a\n{\"type\":\"hologram\"}\n3"));
    }

    #[test]
    fn fields_of_other_results_are_kept() {
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
    fn wrong_types_of_optional_fields_are_accepted() {
        assert_eq!(read(json!({"content": "plain"})).plain_text().as_deref(), Some("plain"));
        assert_eq!(read(json!({"content": {"type": "text", "text": "one"}})).plain_text().as_deref(), Some("one"));
        assert_eq!(read(json!({"content": null, "_meta": null, "isError": null})), ToolOutput::default());
        assert!(read(json!({"isError": "true"})).is_error);
        assert!(!read(json!({"isError": "false"})).is_error);
        assert_eq!(read(json!({"_meta": 3})).extra["_meta"], json!(3));
    }

    #[test]
    fn an_output_round_trips_without_loss() {
        let wire = json!({"content": [{"type": "text", "text": "a"}], "structuredContent": {"b": 1}, "isError": true, "_meta": {"c": 2}, "later": [3]});
        assert_eq!(serde_json::to_value(read(wire.clone())).expect("JSON"), wire);
    }
}
