//! Small values that people write in more than one way: texts, waits, sizes, and pairs in their order.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Unexpected, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Number;

/// A text that may be a secret, or hold one; a number or a truth in the file is its text.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Text(pub String);

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<T: Into<String>> From<T> for Text {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

impl JsonSchema for Text {
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

/// A length of time: `30s`, `500ms`, `2m`, or a number of seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait(pub Duration);

const A_WAIT: &str = "a length of time such as `30s`, `500ms` or `2m`, or a number of seconds";

impl Wait {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let at = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let seconds = match text[at..].trim_start() {
            "ms" => 0.001,
            "" | "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        Self::seconds(text[..at].parse::<f64>().ok()? * seconds)
    }

    fn seconds(seconds: f64) -> Option<Self> {
        Duration::try_from_secs_f64(seconds).ok().map(|wait| Self(wait.min(super::server::A_YEAR)))
    }
}

impl Serialize for Wait {
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

/// A fraction as JSON text with arbitrary precision shows it: as a map that only a [`Number`] understands.
pub(super) fn fraction<'de, A: MapAccess<'de>>(map: A) -> Option<f64> {
    Number::deserialize(MapAccessDeserializer::new(map)).ok()?.as_f64()
}

impl<'de> Deserialize<'de> for Wait {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Waits;
        impl<'de> Visitor<'de> for Waits {
            type Value = Wait;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(A_WAIT)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Wait, E> {
                Wait::parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Wait, E> {
                self.visit_f64(number as f64)
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Wait, E> {
                Wait::seconds(number).ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Wait, A::Error> {
                match fraction(map) {
                    Some(number) => self.visit_f64(number),
                    None => Err(de::Error::invalid_type(Unexpected::Map, &self)),
                }
            }
        }
        deserializer.deserialize_any(Waits)
    }
}

impl JsonSchema for Wait {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Wait".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "number"],
            "pattern": "^[0-9]+(\\.[0-9]+)? ?(ms|s|m|min|h)?$",
            "minimum": 0,
            "examples": ["30s", "500ms", "2m", 45],
        })
    }
}

/// A number of bytes: `64M`, `64MiB`, `512K`, or a plain number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size(pub usize);

const A_SIZE: &str = "a number of bytes such as `64M` or `512K`";

impl Size {
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

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0 as u64)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sizes;
        impl Visitor<'_> for Sizes {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(A_SIZE)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                Size::parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Size, E> {
                usize::try_from(number).map(Size).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
            }
        }
        deserializer.deserialize_any(Sizes)
    }
}

impl JsonSchema for Size {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Size".into()
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

/// Values under names, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pairs<T>(pub Vec<(String, T)>);

impl<T> Pairs<T> {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for Pairs<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<N: Into<String>, V: Into<T>, T> FromIterator<(N, V)> for Pairs<T> {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl<T: Serialize> Serialize for Pairs<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pairs<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for All<T> {
            type Value = Pairs<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<T>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(All(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Pairs<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Pairs_of_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "additionalProperties": generator.subschema_for::<T>() })
    }
}
