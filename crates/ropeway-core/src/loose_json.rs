//! Lenient deserialization for JSON from other programs, without copying strings.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

/// A string, borrowed if it has no escapes. (In an `Option` or as a key, a `Cow` alone would always be owned.)
#[derive(Debug, serde::Deserialize)]
#[serde(transparent)]
pub struct BorrowedText<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// Any JSON value. Strings are borrowed if possible, and common numbers need no allocation.
pub enum LooseJson<'a> {
    /// A string.
    Text(Cow<'a, str>),
    /// An integer without a sign.
    Unsigned(u64),
    /// Anything else.
    Other(Value),
}

impl<'de: 'a, 'a> Deserialize<'de> for LooseJson<'a> {
    #[inline]
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LooseJsonVisitor)
    }
}

struct LooseJsonVisitor;

/// Implements the visitor methods for other scalars.
macro_rules! visit_scalars {
    ($($method:ident($value:ident: $scalar:ty) => $json:expr;)*) => {$(
        fn $method<E>(self, $value: $scalar) -> Result<Self::Value, E> {
            Ok(LooseJson::Other($json))
        }
    )*};
}

impl<'de> Visitor<'de> for LooseJsonVisitor {
    type Value = LooseJson<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(LooseJson::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(LooseJson::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(LooseJson::Text(Cow::Owned(text)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(LooseJson::Unsigned(number))
    }

    visit_scalars! {
        visit_bool(value: bool) => value.into();
        visit_i64(value: i64) => value.into();
        visit_f64(value: f64) => value.into();
        // Only used with arbitrary precision.
        visit_i128(value: i128) => Number::from_i128(value).map_or_else(|| value.to_string().into(), Value::Number);
        visit_u128(value: u128) => Number::from_u128(value).map_or_else(|| value.to_string().into(), Value::Number);
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(LooseJson::Other(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        Value::deserialize(SeqAccessDeserializer::new(list)).map(LooseJson::Other)
    }

    // With arbitrary precision, some numbers are maps that only `Value` understands.
    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Self::Value, A::Error> {
        Value::deserialize(MapAccessDeserializer::new(object)).map(LooseJson::Other)
    }
}
