//! Content: what a tool answers with, part by part.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use bytes::Bytes;
use bytestring::ByteString;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

/// One part of an answer.
///
/// Reading one never fails on well-formed JSON: a block of an unknown type, or one that lacks what
/// its type needs, becomes a text part that holds the block's JSON.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ContentPart {
    /// Plain text.
    Text(TextContent),
    /// A picture.
    Image(Blob),
    /// A sound.
    Audio(Blob),
    /// A resource, with its contents.
    Resource(EmbeddedResource),
    /// A resource, by its address only.
    ResourceLink(ResourceLink),
}

/// A text part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextContent {
    /// The text itself.
    pub text: String,
    /// Every other field of the block as it came: `annotations`, `_meta`, and what we do not know.
    pub extra: Map<String, Value>,
}

/// Binary data, kept as the base64 text that came over the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct Blob {
    /// The media type, such as `image/png`.
    pub mime_type: String,
    /// The data as base64 text; [`Blob::bytes`] decodes it.
    pub base64: SharedText,
    /// Every other field of the block as it came.
    pub extra: Map<String, Value>,
}

/// A resource that travels inside an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddedResource {
    /// Where the resource lives.
    pub uri: String,
    /// The media type, when the server named one.
    pub mime_type: Option<String>,
    /// What the resource holds.
    pub contents: ResourceContents,
    /// Every other field of the inner `resource` object as it came.
    pub resource_extra: Map<String, Value>,
    /// Every other field of the block as it came.
    pub extra: Map<String, Value>,
}

/// What a resource holds.
#[derive(Clone, Debug, PartialEq)]
pub enum ResourceContents {
    /// Text.
    Text(String),
    /// Binary data as base64 text.
    Blob(String),
}

/// The address of a resource that can be read from the server.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceLink {
    /// Where the resource lives.
    pub uri: String,
    /// Its name; the URI where the server gave none.
    pub name: String,
    /// The media type, when the server named one.
    pub mime_type: Option<String>,
    /// Every other field of the block as it came.
    pub extra: Map<String, Value>,
}

impl ResourceLink {
    /// The link in one line, for whoever cannot follow it.
    pub fn in_words(&self) -> String {
        let Self { uri, name, mime_type, extra, .. } = self;
        let mime_type = mime_type.as_deref().map(|mime| format!(", {mime}")).unwrap_or_default();
        let description = extra.get("description").and_then(Value::as_str);
        let description = description.map(|text| format!(": {text}")).unwrap_or_default();
        match name == uri {
            true => format!("[resource {uri}{mime_type}{description}]"),
            false => format!("[resource `{name}`, {uri}{mime_type}{description}]"),
        }
    }
}

/// Data that was said to be base64 is not.
#[derive(Debug, thiserror::Error)]
#[error("the data is not valid base64")]
pub struct Base64Error(#[source] base64::DecodeError);

impl ContentPart {
    /// A text part with nothing but text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextContent { text: text.into(), extra: Map::new() })
    }

    /// Converts the content blocks of an MCP message, such as the `content` of a `tools/call` result
    /// (<https://modelcontextprotocol.io/specification/2025-06-18/server/tools#tool-result>).
    ///
    /// Blocks of an unknown type become text parts that hold their JSON. A single block is taken as a list of one, and `null` as an
    /// empty list.
    pub fn from_blocks(blocks: Value) -> Vec<Self> {
        match blocks {
            Value::Array(blocks) => blocks.into_iter().map(Self::from_block).collect(),
            Value::Null => Vec::new(),
            block => vec![Self::from_block(block)],
        }
    }

    /// Converts one content block of an MCP message. A block of an unknown type becomes a text part that holds its JSON.
    pub fn from_block(block: Value) -> Self {
        // Deserializing would do the same, but for the spelling of some numbers.
        let field = |value| match value {
            Value::String(text) => Field::Text(text.into()),
            other => Field::Other(other),
        };
        match block {
            Value::Object(block) => {
                let mut fields = Fields::default();
                for (key, value) in block {
                    match fields.place(&key) {
                        Some(place) => *place = Some(field(value)),
                        None => fields.others.push((key, field(value))),
                    }
                }
                fields.into_part()
            }
            Value::String(text) => Self::text(text),
            other => Self::text(other.to_string()),
        }
    }

    /// The text of a text part.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(part) => Some(&part.text),
            _ => None,
        }
    }

    /// The annotations of the block (`audience`, `priority`, …), when there are any.
    pub fn annotations(&self) -> Option<&Value> {
        let extra = match self {
            Self::Text(part) => &part.extra,
            Self::Image(part) | Self::Audio(part) => &part.extra,
            Self::Resource(part) => &part.extra,
            Self::ResourceLink(part) => &part.extra,
        };
        extra.get("annotations")
    }
}

/// The parts as one string, joined by newlines, when all of them are text.
pub fn plain_text(parts: &[ContentPart]) -> Option<String> {
    match parts {
        [ContentPart::Text(only)] => Some(only.text.clone()),
        _ => {
            let texts: Option<Vec<&str>> = parts.iter().map(ContentPart::as_text).collect();
            Some(texts?.join("\n"))
        }
    }
}

impl Blob {
    /// Encodes bytes.
    pub fn new(mime_type: impl Into<String>, bytes: &[u8]) -> Self {
        Self { mime_type: mime_type.into(), base64: STANDARD.encode(bytes).into(), extra: Map::new() }
    }

    /// Decodes the data; line breaks and missing padding are forgiven.
    pub fn bytes(&self) -> Result<Vec<u8>, Base64Error> {
        decode_base64(&self.base64)
    }
}

/// Decodes base64 text as servers write it: padded or not, in one line or in many.
pub fn decode_base64(text: &str) -> Result<Vec<u8>, Base64Error> {
    let decode = |text: &str| match text.trim_end_matches('=') {
        bare if bare.len() == text.len() => STANDARD_NO_PAD.decode(text),
        _ => STANDARD.decode(text),
    };
    let first = decode(text);
    match first {
        Ok(bytes) => Ok(bytes),
        Err(_) if text.contains(|c: char| c.is_ascii_whitespace()) => {
            let compact: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
            decode(&compact).map_err(Base64Error)
        }
        Err(error) => Err(Base64Error(error)),
    }
}

/// Returns the media type that the first bytes of a file tell, for images, sounds and PDFs.
///
/// The name of a file does not say what is in it, and providers refuse an image that is not of its declared type.
pub fn sniff_media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => Some("audio/wav"),
        [_, _, _, _, b'f', b't', b'y', b'p', b'a', b'v', b'i', b'f' | b's', ..] => Some("image/avif"),
        [_, _, _, _, b'f', b't', b'y', b'p', b'h', b'e', b'i', b'c' | b'x', ..] => Some("image/heic"),
        [_, _, _, _, b'f', b't', b'y', b'p', b'm', b'i', b'f', b'1', ..] => Some("image/heif"),
        [b'B', b'M', ..] => Some("image/bmp"),
        [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => Some("image/tiff"),
        [b'I', b'D', b'3', ..] => Some("audio/mpeg"),
        [b'O', b'g', b'g', b'S', ..] => Some("audio/ogg"),
        [b'%', b'P', b'D', b'F', ..] => Some("application/pdf"),
        _ => None,
    }
}

/// How the base64 of common pictures begins.
const PICTURES: [(&str, &str); 4] =
    [("iVBORw0KGgo", "image/png"), ("/9j/", "image/jpeg"), ("R0lGOD", "image/gif"), ("UklGR", "image/webp")];

/// How the base64 of common sounds begins.
const SOUNDS: [(&str, &str); 3] = [("UklGR", "audio/wav"), ("T2dnUw", "audio/ogg"), ("SUQz", "audio/mpeg")];

/// The media type of data whose server did not name it, told from its first bytes.
fn guess_type(base64: &str, signs: &[(&str, &'static str)]) -> &'static str {
    signs.iter().find(|(sign, _)| base64.starts_with(sign)).map_or("application/octet-stream", |(_, mime)| mime)
}

/// Text that may share the memory of the message it came in. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct SharedText(ByteString);

impl std::ops::Deref for SharedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<String> for SharedText {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&str> for SharedText {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl Serialize for SharedText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

/// What JSON is read from, so that large data can share its memory.
#[derive(Clone, Copy, Default)]
pub(crate) struct Source<'s>(pub(crate) Option<&'s Bytes>);

impl Source<'_> {
    /// Text smaller than this is copied: sharing it would keep a whole message alive for little.
    const LARGE: usize = 16 << 10;

    /// The text as a part of what is read, if it is large enough for that to pay.
    fn share(&self, text: &str) -> Option<SharedText> {
        let whole = self.0.filter(|_| text.len() >= Self::LARGE)?;
        let offset = (text.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
        if offset + text.len() > whole.len() {
            return None;
        }
        ByteString::try_from(whole.slice(offset..offset + text.len())).ok().map(SharedText)
    }
}

/// A JSON value that keeps strings apart, so that a large one is copied once and only once, or not at all.
enum Field {
    Text(SharedText),
    Other(Value),
}

impl Field {
    fn into_value(self) -> Value {
        match self {
            Self::Text(text) => Value::String(text.0.into()),
            Self::Other(value) => value,
        }
    }
}

/// Reads a field, sharing the memory of the source where that pays.
struct FieldSeed<'s>(Source<'s>);

impl<'de> DeserializeSeed<'de> for FieldSeed<'_> {
    type Value = Field;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Field, D::Error> {
        struct FieldVisitor<'s>(Source<'s>);
        impl<'de> Visitor<'de> for FieldVisitor<'_> {
            type Value = Field;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any JSON value")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Field, E> {
                Ok(Field::Text(self.0.share(text).unwrap_or_else(|| text.into())))
            }
            fn visit_str<E>(self, text: &str) -> Result<Field, E> {
                Ok(Field::Text(text.into()))
            }
            fn visit_string<E>(self, text: String) -> Result<Field, E> {
                Ok(Field::Text(text.into()))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Field, E> {
                Ok(Field::Other(value.into()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Field, E> {
                Ok(Field::Other(value.into()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Field, E> {
                Ok(Field::Other(value.into()))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Field, E> {
                Ok(Field::Other(value.into()))
            }
            // Only values with arbitrary precision hold such numbers.
            fn visit_i128<E>(self, value: i128) -> Result<Field, E> {
                Ok(Field::Other(Number::from_i128(value).map_or_else(|| value.to_string().into(), Value::Number)))
            }
            fn visit_u128<E>(self, value: u128) -> Result<Field, E> {
                Ok(Field::Other(Number::from_u128(value).map_or_else(|| value.to_string().into(), Value::Number)))
            }
            fn visit_unit<E>(self) -> Result<Field, E> {
                Ok(Field::Other(Value::Null))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Field, A::Error> {
                Value::deserialize(de::value::SeqAccessDeserializer::new(seq)).map(Field::Other)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Field, A::Error> {
                Value::deserialize(de::value::MapAccessDeserializer::new(map)).map(Field::Other)
            }
        }
        deserializer.deserialize_any(FieldVisitor(self.0))
    }
}

/// The name of a field, borrowed from the JSON where that is possible.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct Key<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// The fields of a block: those that make up a part apart, the others in the order they came.
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
    /// Where a field of this name is kept; `None` for the others.
    fn place(&mut self, name: &str) -> Option<&mut Option<Field>> {
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

    /// What is left when a part has taken what it needs.
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

    /// The block as the part that its type names, or as text that holds its JSON.
    fn into_part(mut self) -> ContentPart {
        // Taken out for the look at it, and put back where the block is kept as it came.
        let kind = self.kind.take();
        match (&kind, &self) {
            (Some(Field::Text(kind)), Self { text: Some(Field::Text(_)), .. }) if &**kind == "text" => {
                let text = take_string_field(&mut self.text).unwrap_or_default();
                ContentPart::Text(TextContent { text, extra: self.into_map() })
            }
            (Some(Field::Text(kind)), Self { data: Some(Field::Text(_)), .. }) if &**kind == "image" => {
                ContentPart::Image(self.into_blob(&PICTURES))
            }
            (Some(Field::Text(kind)), Self { data: Some(Field::Text(_)), .. }) if &**kind == "audio" => {
                ContentPart::Audio(self.into_blob(&SOUNDS))
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

    fn into_blob(mut self, signs: &[(&str, &'static str)]) -> Blob {
        let base64 = take_text(&mut self.data).unwrap_or_default();
        let mime_type = take_string_field(&mut self.mime_type).unwrap_or_else(|| guess_type(&base64, signs).to_owned());
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
                // Neither or both: not a resource that we can read, so it is passed on as it came.
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
    take_text(field).map(|text| text.0.into())
}

/// Takes a string out; a field of another JSON type stays.
fn take_text(field: &mut Option<Field>) -> Option<SharedText> {
    match field.take() {
        Some(Field::Text(text)) => Some(text),
        // A `null` is as good as nothing.
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
    // With arbitrary precision the parser shows a number as a map of one text, which only a `Value` understands.
    let number = match block.values().next() {
        Some(Value::String(_)) if block.len() == 1 => Value::deserialize(&block).ok(),
        _ => None,
    };
    ContentPart::text(number.unwrap_or(Value::Object(block)).to_string())
}

impl<'de> Deserialize<'de> for ContentPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        PartSeed(Source::default()).deserialize(deserializer)
    }
}

/// Reads a part, sharing the memory of the source where that pays.
pub(crate) struct PartSeed<'s>(pub(crate) Source<'s>);

impl<'de> DeserializeSeed<'de> for PartSeed<'_> {
    type Value = ContentPart;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ContentPart, D::Error> {
        struct PartVisitor<'s>(Source<'s>);
        impl<'de> Visitor<'de> for PartVisitor<'_> {
            type Value = ContentPart;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a content block")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ContentPart, A::Error> {
                let mut fields = Fields::default();
                while let Some(Key(key)) = map.next_key()? {
                    // Only data is large as a rule and wanted as it came.
                    let source = if key == "data" { self.0 } else { Source::default() };
                    let field = map.next_value_seed(FieldSeed(source))?;
                    match fields.place(&key) {
                        Some(place) => *place = Some(field),
                        None => fields.others.push((key.into_owned(), field)),
                    }
                }
                Ok(fields.into_part())
            }
            // A bare value where a block should be: kept, as text.
            fn visit_str<E>(self, text: &str) -> Result<ContentPart, E> {
                Ok(ContentPart::text(text))
            }
            fn visit_bool<E>(self, value: bool) -> Result<ContentPart, E> {
                Ok(ContentPart::text(value.to_string()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<ContentPart, E> {
                Ok(ContentPart::text(value.to_string()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<ContentPart, E> {
                Ok(ContentPart::text(value.to_string()))
            }
            fn visit_f64<E>(self, value: f64) -> Result<ContentPart, E> {
                Ok(ContentPart::text(value.to_string()))
            }
            fn visit_i128<E>(self, value: i128) -> Result<ContentPart, E> {
                Ok(ContentPart::text(value.to_string()))
            }
            fn visit_u128<E>(self, value: u128) -> Result<ContentPart, E> {
                Ok(ContentPart::text(value.to_string()))
            }
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

impl Serialize for ContentPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let extra = match self {
            Self::Text(part) => {
                map.serialize_entry("type", "text")?;
                map.serialize_entry("text", &part.text)?;
                &part.extra
            }
            Self::Image(part) | Self::Audio(part) => {
                map.serialize_entry("type", if matches!(self, Self::Image(_)) { "image" } else { "audio" })?;
                map.serialize_entry("data", &part.base64)?;
                map.serialize_entry("mimeType", &part.mime_type)?;
                &part.extra
            }
            Self::Resource(part) => {
                map.serialize_entry("type", "resource")?;
                map.serialize_entry("resource", &InnerResource(part))?;
                &part.extra
            }
            Self::ResourceLink(part) => {
                map.serialize_entry("type", "resource_link")?;
                map.serialize_entry("uri", &part.uri)?;
                map.serialize_entry("name", &part.name)?;
                if let Some(mime_type) = &part.mime_type {
                    map.serialize_entry("mimeType", mime_type)?;
                }
                &part.extra
            }
        };
        for (key, value) in extra {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// The `resource` object inside a resource block.
struct InnerResource<'a>(&'a EmbeddedResource);

impl Serialize for InnerResource<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("uri", &self.0.uri)?;
        if let Some(mime_type) = &self.0.mime_type {
            map.serialize_entry("mimeType", mime_type)?;
        }
        match &self.0.contents {
            ResourceContents::Text(text) => map.serialize_entry("text", text)?,
            ResourceContents::Blob(blob) => map.serialize_entry("blob", blob)?,
        }
        for (key, value) in &self.0.resource_extra {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(block: Value) -> ContentPart {
        serde_json::from_str(&block.to_string()).expect("well-formed JSON always reads")
    }

    #[test]
    fn content_blocks_of_a_message_become_parts() {
        let blocks = json!([{"type": "text", "text": "a"}, {"type": "odd", "n": 1}, "plain"]);
        assert_eq!(
            ContentPart::from_blocks(blocks),
            [ContentPart::text("a"), ContentPart::text(r#"{"type":"odd","n":1}"#), ContentPart::text("plain")]
        );
        assert_eq!(ContentPart::from_blocks(json!({"type": "text", "text": "a"})), [ContentPart::text("a")]);
        assert_eq!(ContentPart::from_blocks(Value::Null), []);
    }

    #[test]
    fn every_kind_of_block_goes_from_wire_to_wire_without_loss() {
        for block in [
            json!({"type": "text", "text": "hi", "annotations": {"audience": ["system"]}, "x": 1}),
            json!({"type": "image", "data": "AAAA", "mimeType": "image/png", "_meta": {"a": null}}),
            json!({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}),
            json!({"type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/plain", "size": 3}),
            json!({"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "x", "y": 2}, "z": 1}),
            json!({"type": "resource", "resource": {"uri": "file:///a", "blob": "AAAA"}}),
        ] {
            assert_eq!(serde_json::to_value(read(block.clone())).expect("a part is JSON"), block);
        }
    }

    #[test]
    fn a_block_of_an_unknown_type_becomes_text_that_holds_its_json() {
        for block in [
            json!({"type": "hologram", "data": [1, 2]}),
            json!({"type": "text", "text": null}),
            json!({"type": "image", "data": 3}),
            json!({"type": 7}),
            json!({}),
            json!({"type": "resource", "resource": {"uri": "u", "text": "a", "blob": "b"}}),
            json!({"type": "resource", "resource": "file:///a"}),
        ] {
            let part = read(block.clone());
            let text = part.as_text().expect("a text part");
            assert_eq!(serde_json::from_str::<Value>(text).expect("JSON"), block);
        }
    }

    #[test]
    fn a_bare_value_where_a_block_should_be_is_kept_as_text() {
        assert_eq!(read(json!("hello")).as_text(), Some("hello"));
        assert_eq!(read(json!(3)).as_text(), Some("3"));
        assert_eq!(read(json!([1, {"a": 2}])).as_text(), Some("[1,{\"a\":2}]"));
        assert_eq!(read(Value::Null).as_text(), Some("null"));
    }

    #[test]
    fn a_link_without_a_name_is_called_by_its_address() {
        let ContentPart::ResourceLink(link) = read(json!({"type": "resource_link", "uri": "file:///a"})) else {
            panic!("a link");
        };
        assert_eq!(link.name, "file:///a");
    }

    #[test]
    fn a_picture_without_a_media_type_is_told_by_its_first_bytes() {
        let ContentPart::Image(png) = read(json!({"type": "image", "data": "iVBORw0KGgoAAAA="})) else {
            panic!("an image")
        };
        assert_eq!(png.mime_type, "image/png");
    }

    #[test]
    fn large_data_shares_the_memory_of_its_message() {
        let data = "QUJD".repeat(10_000);
        let message = Bytes::from(json!({"type": "image", "data": data, "mimeType": "image/png"}).to_string());
        let mut deserializer = serde_json::Deserializer::from_slice(&message);
        let part = PartSeed(Source(Some(&message))).deserialize(&mut deserializer).expect("a part");
        let ContentPart::Image(image) = part else { panic!("an image") };
        assert_eq!(&*image.base64, data);
        assert!(message.as_ptr_range().contains(&image.base64.as_ptr()));
        // What does not lie in the source is copied, whatever it is.
        assert_eq!(Source(Some(&Bytes::from_static(b"short"))).share(&data), None);
    }

    #[test]
    fn base64_is_decoded_on_demand_with_or_without_padding_and_line_breaks() {
        for text in ["aGVsbG8=", "aGVsbG8", "aGVs\nbG8=\r\n"] {
            assert_eq!(decode_base64(text).expect("base64"), b"hello");
        }
        assert!(decode_base64("not base64!").is_err());
    }

    #[test]
    fn an_answer_of_texts_reads_as_one_string_and_a_mixed_one_does_not() {
        let texts = [ContentPart::text("a"), ContentPart::text("b")];
        assert_eq!(plain_text(&texts).as_deref(), Some("a\nb"));
        assert_eq!(plain_text(&[]).as_deref(), Some(""));
        assert_eq!(plain_text(&[ContentPart::text("a"), ContentPart::Image(Blob::new("image/png", b"x"))]), None);
    }
}
