//! A serde deserializer for trees, whose errors have positions.

use std::borrow::Cow;

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Number;

use super::decode_error::{DecodeError, Key};
use super::node::{
    Entry, Node, NodeKind, PathStep, PlainScalar, format_path, may_hold_secret, parse_plain, redact_key,
};
use super::problem::{ConfigProblem, MAX_PROBLEMS, one_of};

/// Maximum keys that a message lists for a value that is not a map.
const MAX_LISTED_KEYS: usize = 10;

/// Maximum estimated bytes that [`decode_all`] reads in all passes over a tree.
const MAX_READ: usize = 96 << 20;

/// Decodes a tree, or returns its first problem. `base` is the tree's path in the file.
pub(super) fn decode<T: DeserializeOwned>(node: &Node, base: &str) -> Result<T, ConfigProblem> {
    T::deserialize(Decoder { node, redacts: false, exact: false })
        .map_err(|error| error.into_problem(node.position, base))
}

/// Decodes a tree without its invalid parts, and returns all problems. The record is `None` if the rest is incomplete.
///
/// Every problem takes another pass over the tree. For a large tree, or one with more than [`MAX_PROBLEMS`], decoding stops
/// early and returns the problems so far without a record.
pub(super) fn decode_all<T: DeserializeOwned>(node: &Node, base: &str) -> (Option<T>, Vec<ConfigProblem>) {
    let mut problems = Vec::new();
    let mut left_out: Vec<String> = Vec::new();
    let mut rest = Cow::Borrowed(node);
    let mut passes = 0;
    let mut most = 1;
    loop {
        let error = match T::deserialize(Decoder { node: &rest, redacts: false, exact: false }) {
            Ok(record) => return (Some(record), problems),
            Err(error) => error,
        };
        if passes == 0 {
            // One more than is reported, so that the error is marked as truncated.
            most = (MAX_READ / node.estimated_bytes()).clamp(1, MAX_PROBLEMS + 1);
        }
        passes += 1;
        let invalid = error.invalid_entry();
        // A key that is missing because it was removed or misspelled is reported already.
        let is_reported =
            matches!(error.key.as_deref(), Some(Key::Missing(key)) if left_out.iter().any(|known| known == key));
        left_out.extend(error.suggestion.as_deref().map(str::to_owned));
        left_out.extend(invalid.first().map(|step| format_path("", std::slice::from_ref(step))));
        if !is_reported {
            problems.push(error.into_problem(node.position, base));
        }
        if passes >= most {
            return (None, problems);
        }
        let rest = rest.to_mut();
        let is_removed = rest.remove(&invalid) || invalid.get(..1).is_some_and(|first| rest.remove(first));
        if !is_removed {
            return (None, problems);
        }
    }
}

/// Decodes a file in which every value is a secret.
pub(super) fn decode_secrets<T: DeserializeOwned>(node: &Node) -> Result<T, ConfigProblem> {
    T::deserialize(Decoder { node, redacts: true, exact: false }).map_err(|error| error.into_problem(node.position, ""))
}

struct Decoder<'a> {
    node: &'a Node,
    /// The values may be secrets, so messages do not contain them.
    redacts: bool,
    /// Numbers are passed through as JSON and keep their digits.
    exact: bool,
}

/// The keys whose values are JSON for servers and models.
const JSON_KEYS: [&str; 2] = ["preset", "provider_options"];

impl<'a> Decoder<'a> {
    fn mismatch(&self, expected: &str) -> DecodeError {
        DecodeError::new(expected).redact(self.redacts).within(self.node)
    }

    fn unsigned<T: TryFrom<u64>>(&self) -> Result<T, DecodeError> {
        let number = match &self.node.kind {
            NodeKind::Scalar { text, plain: true } => match parse_plain(text) {
                PlainScalar::Int(number) => u64::try_from(number).ok(),
                PlainScalar::UInt(number) => Some(number),
                _ => None,
            },
            _ => None,
        };
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| self.mismatch("a non-negative integer"))
    }
}

macro_rules! unsigned_integers {
    ($($method:ident $visit:ident),*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
            visitor.$visit(self.unsigned()?)
        })*
    };
}

impl<'de> de::Deserializer<'de> for Decoder<'_> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let Self { node, redacts, exact } = self;
        let is_json = |text: &str| exact && serde_json::from_str::<Number>(text).is_ok();
        let value = match &node.kind {
            NodeKind::Scalar { text, plain: false } => visitor.visit_str(text),
            // Parses the text instead of the number, which loses the sign in `-0`.
            NodeKind::Scalar { text, plain: true } if is_json(text) => {
                let mut json = serde_json::Deserializer::from_reader(text.as_bytes());
                de::Deserializer::deserialize_any(&mut json, visitor).map_err(DecodeError::custom)
            }
            NodeKind::Scalar { text, plain: true } => match parse_plain(text) {
                PlainScalar::Null => visitor.visit_unit(),
                PlainScalar::Bool(truth) => visitor.visit_bool(truth),
                PlainScalar::Int(number) if number >= 0 => visitor.visit_u64(number.unsigned_abs()),
                PlainScalar::Int(number) => visitor.visit_i64(number),
                PlainScalar::UInt(number) => visitor.visit_u64(number),
                PlainScalar::Float(number) => visitor.visit_f64(number),
                PlainScalar::String => visitor.visit_str(text),
            },
            NodeKind::List(items) => visitor.visit_seq(ListAccess { items: items.iter().enumerate(), redacts, exact }),
            NodeKind::Map(entries) => {
                visitor.visit_map(EntryAccess { entries: entries.iter(), value: None, redacts, exact })
            }
        };
        value.map_err(|error| error.redact(redacts).within(node))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let NodeKind::Scalar { text, plain: is_plain } = &self.node.kind else {
            return Err(self.mismatch("`true` or `false`"));
        };
        match parse_plain(text) {
            PlainScalar::Bool(truth) if *is_plain => visitor.visit_bool(truth),
            _ => {
                let suggestion = match text.to_lowercase().as_str() {
                    "yes" | "y" | "on" | "1" | "true" => Some("true"),
                    "no" | "n" | "off" | "0" | "false" => Some("false"),
                    _ => None,
                };
                Err(self.mismatch("`true` or `false`").suggest(suggestion))
            }
        }
    }

    unsigned_integers!(deserialize_u8 visit_u8, deserialize_u16 visit_u16, deserialize_u32 visit_u32, deserialize_u64 visit_u64);

    /// Accepts every scalar except null.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.node.as_str() {
            Some(text) => {
                visitor.visit_str(text).map_err(|error: DecodeError| error.redact(self.redacts).within(self.node))
            }
            None => Err(self.mismatch("a string")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.node.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.node.kind {
            NodeKind::List(_) => self.deserialize_any(visitor),
            _ if self.node.is_null() => {
                visitor.visit_seq(ListAccess { items: [].iter().enumerate(), redacts: false, exact: false })
            }
            _ => Err(self.mismatch("a list")),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.node.kind {
            NodeKind::Map(_) => self.deserialize_any(visitor),
            _ if self.node.is_null() => {
                visitor.visit_map(EntryAccess { entries: [].iter(), value: None, redacts: false, exact: false })
            }
            _ => Err(self.mismatch("a map")),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match self.node.kind {
            NodeKind::Map(_) => self.deserialize_any(visitor),
            _ if fields.len() > MAX_LISTED_KEYS => Err(self.mismatch("a map")),
            _ => Err(self.mismatch(&format!("a map with {}", one_of(fields.iter().copied())))),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let Some(text) = self.node.as_str() else { return Err(self.mismatch(&one_of(variants.iter().copied()))) };
        let variant: StrDeserializer<'_, DecodeError> = text.into_deserializer();
        visitor.visit_enum(variant).map_err(|error| error.within(self.node))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct ignored_any
    }
}

struct ListAccess<'a> {
    items: std::iter::Enumerate<std::slice::Iter<'a, Node>>,
    redacts: bool,
    exact: bool,
}

impl<'de> de::SeqAccess<'de> for ListAccess<'_> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DecodeError> {
        let Some((index, item)) = self.items.next() else { return Ok(None) };
        let value = seed.deserialize(Decoder { node: item, redacts: self.redacts, exact: self.exact });
        value.map(Some).map_err(|error| error.redact(self.redacts).within(item).after(PathStep::Index(index)))
    }
}

struct EntryAccess<'a> {
    entries: std::slice::Iter<'a, Entry>,
    value: Option<&'a Entry>,
    redacts: bool,
    exact: bool,
}

impl<'de> de::MapAccess<'de> for EntryAccess<'_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        let Some(entry) = self.entries.next() else { return Ok(None) };
        self.value = Some(entry);
        let key = Node::string(entry.position, entry.key.as_str());
        let decoded = seed.deserialize(Decoder { node: &key, redacts: self.redacts, exact: false });
        decoded.map(Some).map_err(|error| {
            let error = if self.redacts { error.found("unknown key") } else { error };
            error.within(&key).of_unknown_key(&entry.key)
        })
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DecodeError> {
        let Some(entry) = self.value.take() else { return Err(DecodeError::new("a value")) };
        let redacts = self.redacts || may_hold_secret(&entry.key);
        let name = if self.redacts { redact_key(&entry.key) } else { entry.key.clone() };
        let exact = self.exact || JSON_KEYS.contains(&entry.key.as_str());
        let value = seed.deserialize(Decoder { node: &entry.value, redacts, exact });
        value.map_err(|error| error.redact(redacts).within(&entry.value).after(PathStep::Key(name)))
    }
}
