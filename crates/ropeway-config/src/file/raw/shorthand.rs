//! Settings with a short form and a full form.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Unexpected, Visitor};

/// A setting in its short form, such as `true` or a list, or as a map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum RawShorthand<S, T> {
    /// The short form.
    Short(S),
    /// The full form, a map.
    Full(T),
}

/// A type that is the short form of a map.
trait ShortForm: Sized {
    const EXPECTED: &'static str;

    fn from_bool(_: bool) -> Option<Self> {
        None
    }

    fn from_list<'de, A: SeqAccess<'de>>(_: A) -> Option<Result<Self, A::Error>> {
        None
    }
}

impl ShortForm for bool {
    const EXPECTED: &'static str = "`true`, `false` or a map";

    fn from_bool(truth: bool) -> Option<Self> {
        Some(truth)
    }
}

impl ShortForm for Vec<String> {
    const EXPECTED: &'static str = "a list of globs or a map";

    fn from_list<'de, A: SeqAccess<'de>>(list: A) -> Option<Result<Self, A::Error>> {
        Some(Self::deserialize(SeqAccessDeserializer::new(list)))
    }
}

impl<'de, S: ShortForm, T: Deserialize<'de>> Deserialize<'de> for RawShorthand<S, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ShorthandVisitor<S, T>(PhantomData<(S, T)>);
        impl<'de, S: ShortForm, T: Deserialize<'de>> Visitor<'de> for ShorthandVisitor<S, T> {
            type Value = RawShorthand<S, T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(S::EXPECTED)
            }

            fn visit_bool<E: de::Error>(self, truth: bool) -> Result<Self::Value, E> {
                let short = S::from_bool(truth).map(RawShorthand::Short);
                short.ok_or_else(|| E::invalid_type(Unexpected::Bool(truth), &self))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                let short = S::from_list(list).unwrap_or_else(|| Err(de::Error::invalid_type(Unexpected::Seq, &self)));
                short.map(RawShorthand::Short)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(RawShorthand::Full)
            }
        }
        deserializer.deserialize_any(ShorthandVisitor(PhantomData))
    }
}

/// Deserializes a setting whose key must not be without a value: it would look like a setting, and do nothing.
pub(super) fn not_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl<S: JsonSchema, T: JsonSchema> JsonSchema for RawShorthand<S, T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}_or_{}", S::schema_name(), T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [generator.subschema_for::<S>(), generator.subschema_for::<T>()] })
    }
}
