//! Values with several notations: strings, durations, byte sizes, and ordered maps.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Unexpected, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde::{Deserialize as DeriveDeserialize, Serialize as DeriveSerialize};
use serde_json::Number;

use crate::settings::{MAX_TIMEOUT, Rate};

/// Defines the record of a map: every key is optional unless it is a `String`, and keys without a value are not written.
macro_rules! record {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)+ }) => {
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        $(#[$meta])*
        #[serde(deny_unknown_fields)]
        #[non_exhaustive]
        pub struct $name {
            $(
                $(#[$field_meta])*
                #[serde(skip_serializing_if = "crate::file::raw::values::is_default")]
                pub $field: $type,
            )+
        }
    };
}
pub(super) use record;

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Implements `JsonSchema` for a value with several notations.
macro_rules! inline_schema {
    ($type:ty, $name:literal, $schema:tt) => {
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    };
}
pub(super) use inline_schema;

/// Deserializes a string or a number.
pub(super) fn scalar<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &'static str,
    from_text: fn(&str) -> Option<T>,
    from_number: fn(f64) -> Option<T>,
) -> Result<T, D::Error> {
    struct ScalarVisitor<T>(&'static str, fn(&str) -> Option<T>, fn(f64) -> Option<T>);
    impl<'de, T> Visitor<'de> for ScalarVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            self.1(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
            self.visit_f64(number as f64)
        }

        fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
            self.2(number).ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
        }

        // With the feature `arbitrary_precision` of `serde_json`, some numbers are maps.
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            match Number::deserialize(MapAccessDeserializer::new(map)).ok().and_then(|number| number.as_f64()) {
                Some(number) => self.visit_f64(number),
                None => Err(de::Error::invalid_type(Unexpected::Map, &self)),
            }
        }
    }
    deserializer.deserialize_any(ScalarVisitor(expected, from_text, from_number))
}

/// A string that may contain secrets or references. Accepts numbers and booleans as well. The `Debug` output is redacted.
#[derive(Clone, Default, PartialEq, Eq, DeriveSerialize, DeriveDeserialize)]
#[serde(transparent)]
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

inline_schema!(RawText, "Text", { "type": ["string", "number", "boolean"] });

/// A duration: `30s`, `500ms`, `2m`, `1h`, `7d`, or a number of seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawDuration(pub Duration);

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

impl<'de> Deserialize<'de> for RawDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a duration such as `30s`, `500ms` or `2m`, or a number of seconds";
        scalar(deserializer, expected, Self::parse, Self::seconds)
    }
}

inline_schema!(RawDuration, "Duration", {
    "type": ["string", "number"],
    "pattern": "^[0-9]+(\\.[0-9]+)? ?(ms|s|m|min|h|d)?$",
    "minimum": 0,
    "examples": ["30s", "500ms", "2m", 45],
});

/// A number of bytes: `64M`, `64MiB`, `512K`, or a number without unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, DeriveSerialize)]
#[serde(transparent)]
pub struct RawByteSize(pub usize);

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

impl<'de> Deserialize<'de> for RawByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let whole = |number: f64| (number >= 0.0 && number.fract() == 0.0).then_some(Self(number as usize));
        scalar(deserializer, "a number of bytes such as `64M` or `512K`", Self::parse, whole)
    }
}

inline_schema!(RawByteSize, "ByteSize", {
    "type": ["string", "integer"],
    "pattern": "^[0-9]+ ?([kKmMgG]([iI]?[bB])?|[bB])?$",
    "minimum": 0,
    "examples": ["64M", "512K"],
});

/// A number of requests per time: `10/s`, `600/m`, `1000/h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, DeriveSerialize)]
#[serde(transparent)]
pub struct RawRate(pub Rate);

impl<'de> Deserialize<'de> for RawRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parse = |text: &str| text.parse().ok().map(Self);
        scalar(deserializer, "a rate such as `10/s`, `600/m` or `1000/h`", parse, |_| None)
    }
}

inline_schema!(RawRate, "Rate", {
    "type": "string",
    "pattern": "^ *(0*[1-9][0-9]{0,5}|0*1000000) */ *[smh] *$",
    "examples": ["10/s", "600/m"],
});

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
