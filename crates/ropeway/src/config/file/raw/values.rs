//! Values with several notations: strings, durations, byte sizes, and ordered maps.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Unexpected, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Number;

use crate::config::settings::MAX_TIMEOUT;

/// A string that may contain secrets or references. Accepts numbers and booleans as well. The `Debug` output is redacted.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RawText(pub String);

impl fmt::Debug for RawText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<T: Into<String>> From<T> for RawText {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl Serialize for RawText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RawText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

impl JsonSchema for RawText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number", "boolean"] })
    }
}

/// A duration: `30s`, `500ms`, `2m`, `1h`, `7d`, or a number of seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawDuration(pub Duration);

const DURATION: &str = "a duration such as `30s`, `500ms` or `2m`, or a number of seconds";

impl RawDuration {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let at = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let seconds = match text[at..].trim_start() {
            "ms" => 0.001,
            "" | "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 24.0 * 3600.0,
            _ => return None,
        };
        Self::seconds(text[..at].parse::<f64>().ok()? * seconds)
    }

    fn seconds(seconds: f64) -> Option<Self> {
        Duration::try_from_secs_f64(seconds).ok().map(|wait| Self(wait.min(MAX_TIMEOUT)))
    }
}

impl Serialize for RawDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let milliseconds = self.0.as_millis();
        let text = if milliseconds.is_multiple_of(1000) {
            format!("{}s", milliseconds / 1000)
        } else {
            format!("{milliseconds}ms")
        };
        serializer.serialize_str(&text)
    }
}

/// Decodes the map that stands for a number when `serde_json` has the feature `arbitrary_precision`.
pub(super) fn decode_number<'de, A: MapAccess<'de>>(map: A) -> Option<f64> {
    Number::deserialize(MapAccessDeserializer::new(map)).ok()?.as_f64()
}

impl<'de> Deserialize<'de> for RawDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DurationVisitor;
        impl<'de> Visitor<'de> for DurationVisitor {
            type Value = RawDuration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(DURATION)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawDuration, E> {
                RawDuration::parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<RawDuration, E> {
                self.visit_f64(number as f64)
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<RawDuration, E> {
                RawDuration::seconds(number).ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawDuration, A::Error> {
                match decode_number(map) {
                    Some(number) => self.visit_f64(number),
                    None => Err(de::Error::invalid_type(Unexpected::Map, &self)),
                }
            }
        }
        deserializer.deserialize_any(DurationVisitor)
    }
}

impl JsonSchema for RawDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "number"],
            "pattern": "^[0-9]+(\\.[0-9]+)? ?(ms|s|m|min|h|d)?$",
            "minimum": 0,
            "examples": ["30s", "500ms", "2m", 45],
        })
    }
}

/// A number of bytes: `64M`, `64MiB`, `512K`, or a number without unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawByteSize(pub usize);

const BYTE_SIZE: &str = "a number of bytes such as `64M` or `512K`";

impl RawByteSize {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let unit: usize = match text[at..].trim_start().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "kib" => 1 << 10,
            "m" | "mb" | "mib" => 1 << 20,
            "g" | "gb" | "gib" => 1 << 30,
            _ => return None,
        };
        text[..at].parse::<usize>().ok()?.checked_mul(unit).map(Self)
    }
}

impl Serialize for RawByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0 as u64)
    }
}

impl<'de> Deserialize<'de> for RawByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ByteSizeVisitor;
        impl Visitor<'_> for ByteSizeVisitor {
            type Value = RawByteSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(BYTE_SIZE)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawByteSize, E> {
                RawByteSize::parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<RawByteSize, E> {
                usize::try_from(number)
                    .map(RawByteSize)
                    .map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
            }
        }
        deserializer.deserialize_any(ByteSizeVisitor)
    }
}

impl JsonSchema for RawByteSize {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ByteSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "integer"],
            "pattern": "^[0-9]+ ?([kKmMgG]([iI]?[bB])?|[bB])?$",
            "minimum": 0,
            "examples": ["64M", "512K"],
        })
    }
}

/// A map with its entries in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawMap<T>(pub Vec<(String, T)>);

impl<T> RawMap<T> {
    /// Returns `true` if the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for RawMap<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<N: Into<String>, V: Into<T>, T> FromIterator<(N, V)> for RawMap<T> {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl<T: Serialize> Serialize for RawMap<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for RawMap<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MapVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for MapVisitor<T> {
            type Value = RawMap<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawMap<T>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(RawMap(pairs))
            }
        }
        deserializer.deserialize_map(MapVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for RawMap<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Map_of_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "additionalProperties": generator.subschema_for::<T>() })
    }
}
