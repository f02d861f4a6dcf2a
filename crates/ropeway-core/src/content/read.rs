//! Deserializes content blocks.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::media_type::{AUDIO_SIGNATURES, IMAGE_SIGNATURES, guess_type};
use super::part::{Blob, ContentPart, EmbeddedResource, ResourceContents, ResourceLink};
use super::shared_text::{SharedText, SourceBytes};
use crate::loose_json::{BorrowedText, LooseJson};

impl ContentPart {
    /// Converts an MCP message's content blocks, such as the `content` in a `tools/call` result
    /// (<https://modelcontextprotocol.io/specification/2025-06-18/server/tools#tool-result>).
    ///
    /// Blocks with an unknown type become text parts that hold their JSON. A single block is taken as a list with one element,
    /// and `null` as an empty list.
    #[doc(alias = "mapMCPContentBlocks")]
    pub fn from_blocks(blocks: Value) -> Vec<Self> {
        match blocks {
            Value::Array(blocks) => blocks.into_iter().map(Self::from_block).collect(),
            Value::Null => Vec::new(),
            block => vec![Self::from_block(block)],
        }
    }

    /// Converts an MCP message's content block. A block with an unknown type becomes a text part that holds its JSON.
    pub fn from_block(block: Value) -> Self {
        // Deserializing would change the digits of some numbers.
        let field = |value| match value {
            Value::String(text) => Field::Text(text.into()),
            other => Field::Other(other),
        };
        match block {
            Value::Object(block) => {
                let mut fields = Fields::default();
                for (key, value) in block {
                    match fields.known_field(&key) {
                        Some(field_slot) => *field_slot = Some(field(value)),
                        None => fields.others.push((key, field(value))),
                    }
                }
                fields.into_part()
            }
            Value::String(text) => Self::text(text),
            other => Self::text(other.to_string()),
        }
    }
}

/// A JSON value. Strings are separate, so that large ones are copied at most once.
enum Field {
    Text(SharedText),
    Other(Value),
}

impl Field {
    fn into_value(self) -> Value {
        match self {
            Self::Text(text) => Value::String(text.into_string()),
            Self::Other(value) => value,
        }
    }
}

/// Deserializes a field, which may share the source's memory.
struct FieldSeed<'s>(SourceBytes<'s>);

impl<'de> DeserializeSeed<'de> for FieldSeed<'_> {
    type Value = Field;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Field, D::Error> {
        Ok(match LooseJson::deserialize(deserializer)? {
            LooseJson::Text(Cow::Borrowed(text)) => Field::Text(self.0.share(text).unwrap_or_else(|| text.into())),
            LooseJson::Text(Cow::Owned(text)) => Field::Text(text.into()),
            LooseJson::Unsigned(number) => Field::Other(number.into()),
            LooseJson::Other(value) => Field::Other(value),
        })
    }
}

/// A block's fields: the known ones by name, the others in order.
#[derive(Default)]
struct Fields {
    kind: Option<Field>,
    text: Option<Field>,
    data: Option<Field>,
    mime_type: Option<Field>,
    uri: Option<Field>,
    name: Option<Field>,
    resource: Option<Field>,
    others: Vec<(String, Field)>,
}

impl Fields {
    /// Returns a known field's slot.
    fn known_field(&mut self, name: &str) -> Option<&mut Option<Field>> {
        Some(match name {
            "type" => &mut self.kind,
            "text" => &mut self.text,
            "data" => &mut self.data,
            "mimeType" => &mut self.mime_type,
            "uri" => &mut self.uri,
            "name" => &mut self.name,
            "resource" => &mut self.resource,
            _ => return None,
        })
    }

    /// Returns the remaining fields.
    fn into_map(self) -> Map<String, Value> {
        let Self { kind, text, data, mime_type, uri, name, resource, others } = self;
        if let (None, None, None, None, None, None, None, []) =
            (&kind, &text, &data, &mime_type, &uri, &name, &resource, &*others)
        {
            return Map::new();
        }
        let named = [
            ("type", kind),
            ("text", text),
            ("data", data),
            ("mimeType", mime_type),
            ("uri", uri),
            ("name", name),
            ("resource", resource),
        ];
        let named = named.into_iter().filter_map(|(key, field)| Some((key.to_owned(), field?.into_value())));
        named.chain(others.into_iter().map(|(key, field)| (key, field.into_value()))).collect()
    }

    /// Converts the block into a part by its type, or into text with its JSON.
    fn into_part(mut self) -> ContentPart {
        // Taken for the match, and put back if the block is kept as JSON.
        let kind = self.kind.take();
        match (&kind, &self) {
            (Some(Field::Text(kind)), Self { text: Some(Field::Text(_)), .. }) if &**kind == "text" => {
                let text = take_string_field(&mut self.text).unwrap_or_default();
                ContentPart::Text { text, extra: self.into_map() }
            }
            (Some(Field::Text(kind)), Self { data: Some(Field::Text(_)), .. }) if &**kind == "image" => {
                ContentPart::Image(self.into_blob(&IMAGE_SIGNATURES))
            }
            (Some(Field::Text(kind)), Self { data: Some(Field::Text(_)), .. }) if &**kind == "audio" => {
                ContentPart::Audio(self.into_blob(&AUDIO_SIGNATURES))
            }
            (Some(Field::Text(kind)), Self { uri: Some(Field::Text(_)), .. }) if &**kind == "resource_link" => {
                let uri = take_string_field(&mut self.uri).unwrap_or_default();
                let name = take_string_field(&mut self.name).unwrap_or_else(|| uri.clone());
                let mime_type = take_string_field(&mut self.mime_type);
                ContentPart::ResourceLink(ResourceLink { uri, name, mime_type, extra: self.into_map() })
            }
            (Some(Field::Text(kind)), Self { resource: Some(Field::Other(Value::Object(_))), .. })
                if &**kind == "resource" =>
            {
                self.into_resource()
            }
            _ => {
                self.kind = kind;
                as_json_text(self.into_map())
            }
        }
    }

    fn into_blob(mut self, signatures: &[(&str, &'static str)]) -> Blob {
        let base64 = take_text(&mut self.data).unwrap_or_default();
        let mime_type =
            take_string_field(&mut self.mime_type).unwrap_or_else(|| guess_type(&base64, signatures).to_owned());
        Blob { mime_type, base64, extra: self.into_map() }
    }

    fn into_resource(mut self) -> ContentPart {
        let mut inner = match self.resource.take().map(Field::into_value) {
            Some(Value::Object(inner)) => inner,
            _ => Map::new(),
        };
        let contents = match (take_string(&mut inner, "text"), take_string(&mut inner, "blob")) {
            (Some(text), None) => ResourceContents::Text(text),
            (None, Some(blob)) => ResourceContents::Blob(blob),
            (text, blob) => {
                // A resource with neither or both is kept as JSON.
                inner.extend(text.map(|text| ("text".to_owned(), Value::String(text))));
                inner.extend(blob.map(|blob| ("blob".to_owned(), Value::String(blob))));
                self.kind = Some(Field::Text("resource".into()));
                self.resource = Some(Field::Other(Value::Object(inner)));
                return as_json_text(self.into_map());
            }
        };
        let uri = take_string(&mut inner, "uri").unwrap_or_default();
        let mime_type = take_string(&mut inner, "mimeType");
        ContentPart::Resource(EmbeddedResource {
            uri,
            mime_type,
            contents,
            resource_extra: inner,
            extra: self.into_map(),
        })
    }
}

fn take_string_field(field: &mut Option<Field>) -> Option<String> {
    take_text(field).map(|text| text.into_string())
}

/// Takes a string, and leaves values with other types.
fn take_text(field: &mut Option<Field>) -> Option<SharedText> {
    match field.take() {
        Some(Field::Text(text)) => Some(text),
        // `null` counts as missing.
        Some(Field::Other(Value::Null)) => None,
        other => {
            *field = other;
            None
        }
    }
}

fn take_string(map: &mut Map<String, Value>, name: &str) -> Option<String> {
    if !map.get(name)?.is_string() {
        return None;
    }
    match map.shift_remove(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

fn as_json_text(block: Map<String, Value>) -> ContentPart {
    // With arbitrary precision, the parser represents a number as a map with one string, which only `Value` can read.
    let number = match block.values().next() {
        Some(Value::String(_)) if block.len() == 1 => Value::deserialize(&block).ok(),
        _ => None,
    };
    ContentPart::text(number.unwrap_or(Value::Object(block)).to_string())
}

impl<'de> Deserialize<'de> for ContentPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        PartSeed(SourceBytes::default()).deserialize(deserializer)
    }
}

/// Implements visitor methods for scalars, which become text parts.
macro_rules! visit_as_text {
    ($value:ty, $wrap:expr) => {
        visit_as_text! {
            $value, $wrap, visit_str: &str, visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64,
            visit_i128: i128, visit_u128: u128
        }
    };
    ($value:ty, $wrap:expr, $($method:ident: $scalar:ty),*) => {$(
        fn $method<E>(self, value: $scalar) -> Result<$value, E> {
            Ok($wrap(ContentPart::text(value.to_string())))
        }
    )*};
}
pub(crate) use visit_as_text;

/// Deserializes a part, which may share the source's memory.
pub(crate) struct PartSeed<'s>(pub(crate) SourceBytes<'s>);

impl<'de> DeserializeSeed<'de> for PartSeed<'_> {
    type Value = ContentPart;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ContentPart, D::Error> {
        struct PartVisitor<'s>(SourceBytes<'s>);
        impl<'de> Visitor<'de> for PartVisitor<'_> {
            type Value = ContentPart;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a content block")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ContentPart, A::Error> {
                let mut fields = Fields::default();
                while let Some(BorrowedText(key)) = map.next_key()? {
                    // Other fields are rarely large.
                    let source = if key == "data" { self.0 } else { SourceBytes::default() };
                    let field = map.next_value_seed(FieldSeed(source))?;
                    match fields.known_field(&key) {
                        Some(field_slot) => *field_slot = Some(field),
                        None => fields.others.push((key.into_owned(), field)),
                    }
                }
                Ok(fields.into_part())
            }
            // A plain value instead of a block becomes text.
            visit_as_text!(ContentPart, std::convert::identity);
            fn visit_unit<E>(self) -> Result<ContentPart, E> {
                Ok(ContentPart::text("null"))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<ContentPart, A::Error> {
                let value = Value::deserialize(de::value::SeqAccessDeserializer::new(seq))?;
                Ok(ContentPart::text(value.to_string()))
            }
        }
        deserializer.deserialize_any(PartVisitor(self.0))
    }
}
