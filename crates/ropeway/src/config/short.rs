//! Settings that can be said in short, or in full.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Unexpected, Visitor};

/// A setting in short, or a map in full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Short<S, T> {
    /// In short.
    Short(S),
    /// In full.
    Full(T),
}

/// What can stand in short for a whole map.
trait Abbreviation: Sized {
    const EXPECTED: &'static str;

    fn from_truth(_: bool) -> Option<Self> {
        None
    }

    fn from_list<'de, A: SeqAccess<'de>>(_: A) -> Option<Result<Self, A::Error>> {
        None
    }
}

impl Abbreviation for bool {
    const EXPECTED: &'static str = "`true`, `false` or a map";

    fn from_truth(truth: bool) -> Option<Self> {
        Some(truth)
    }
}

impl Abbreviation for Vec<String> {
    const EXPECTED: &'static str = "a list of globs or a map";

    fn from_list<'de, A: SeqAccess<'de>>(list: A) -> Option<Result<Self, A::Error>> {
        Some(Self::deserialize(SeqAccessDeserializer::new(list)))
    }
}

impl<'de, S: Abbreviation, T: Deserialize<'de>> Deserialize<'de> for Short<S, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Both<S, T>(PhantomData<(S, T)>);
        impl<'de, S: Abbreviation, T: Deserialize<'de>> Visitor<'de> for Both<S, T> {
            type Value = Short<S, T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(S::EXPECTED)
            }

            fn visit_bool<E: de::Error>(self, truth: bool) -> Result<Self::Value, E> {
                let short = S::from_truth(truth).map(Short::Short);
                short.ok_or_else(|| E::invalid_type(Unexpected::Bool(truth), &self))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                let short = S::from_list(list).unwrap_or_else(|| Err(de::Error::invalid_type(Unexpected::Seq, &self)));
                short.map(Short::Short)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Short::Full)
            }
        }
        deserializer.deserialize_any(Both(PhantomData))
    }
}

impl<S: JsonSchema, T: JsonSchema> JsonSchema for Short<S, T> {
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
