//! JSON Schemas that are parsed on demand.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use crate::json;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// A JSON Schema. Dereferences to a [`Value`], which is parsed on first use: unparsed text takes a twentieth of the memory.
///
/// Cloning is cheap.
#[derive(Clone)]
pub struct Schema(Arc<Inner>);

struct Inner {
    text: Option<Box<RawValue>>,
    value: OnceLock<Value>,
}

impl Schema {
    /// Creates a schema from text. Lone surrogates become U+FFFD, since providers reject them.
    pub fn from_text(mut text: Box<RawValue>) -> Self {
        if let Cow::Owned(repaired) = json::without_lone_surrogates(text.get())
            && let Ok(repaired) = RawValue::from_string(repaired)
        {
            text = repaired;
        }
        Self(Arc::new(Inner { text: Some(text), value: OnceLock::new() }))
    }

    /// Returns the parsed schema without caching it, for callers that read many schemas once.
    pub fn read(&self) -> Cow<'_, Value> {
        match (self.0.value.get(), &self.0.text) {
            (None, Some(text)) => Cow::Owned(parse(text).unwrap_or_else(|_| any_object())),
            _ => Cow::Borrowed(self),
        }
    }

    /// Returns the schema's text: as the server sent it, if it comes from one.
    pub fn text(&self) -> Cow<'_, str> {
        match &self.0.text {
            Some(text) => Cow::Borrowed(text.get()),
            None => Cow::Owned(self.read().to_string()),
        }
    }

    /// Returns the parsed schema, or an error if it cannot be parsed.
    pub(crate) fn try_read(&self) -> Result<Cow<'_, Value>, serde_json::Error> {
        match (self.0.value.get(), &self.0.text) {
            // The fallback for text that cannot be parsed.
            (Some(value), Some(text)) if *value == any_object() => parse(text).map(Cow::Owned),
            (None, Some(text)) => parse(text).map(Cow::Owned),
            _ => Ok(Cow::Borrowed(self)),
        }
    }

    /// Returns why the schema cannot be parsed. An unparsable schema accepts any object.
    pub fn parse_error(&self) -> Option<String> {
        let text = self.0.text.as_ref()?;
        // Only nesting beyond the recursion limit fails here.
        parse(text).err().map(|error| error.to_string())
    }

    /// Returns `true` if both are clones of the same schema.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

fn parse(text: &RawValue) -> Result<Value, serde_json::Error> {
    json::from_str(text.get())
}

fn any_object() -> Value {
    json!({"type": "object"})
}

impl Default for Schema {
    /// Returns a schema that accepts any object.
    fn default() -> Self {
        any_object().into()
    }
}

impl Deref for Schema {
    type Target = Value;

    fn deref(&self) -> &Value {
        let read = || self.0.text.as_deref().and_then(|text| parse(text).ok()).unwrap_or_else(any_object);
        self.0.value.get_or_init(read)
    }
}

impl From<Value> for Schema {
    fn from(value: Value) -> Self {
        Self(Arc::new(Inner { text: None, value: value.into() }))
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        let same_text = || match (&self.0.text, &other.0.text) {
            (Some(one), Some(other)) => one.get() == other.get(),
            _ => false,
        };
        self.ptr_eq(other) || same_text() || self.read() == other.read()
    }
}

impl Serialize for Schema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // `RawValue` cannot be serialized into a `Value`.
        self.read().serialize(serializer)
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.text {
            Some(text) => f.write_str(text.get()),
            None => write!(f, "{}", **self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(text: &str) -> Schema {
        Schema::from_text(RawValue::from_string(text.to_owned()).expect("JSON"))
    }

    #[test]
    fn text_and_value_of_a_schema_are_equal() {
        let (text, value) = (schema(r#"{"z": 1, "a": [2]}"#), Schema::from(json!({"z": 1, "a": [2]})));
        assert_eq!(text, value);
        assert_eq!(text["a"][0], 2);
        assert_eq!(serde_json::to_string(&text).expect("JSON"), r#"{"z":1,"a":[2]}"#);
        assert_eq!(serde_json::to_value(&text).expect("JSON"), *value);
        assert_ne!(text, schema("{}"));
        assert_eq!((text.parse_error(), value.parse_error()), (None, None));
    }

    #[test]
    fn reading_does_not_cache_the_value() {
        let text = schema(r#"{"a": 1}"#);
        assert!(matches!(text.read(), Cow::Owned(_)));
        assert_eq!(text["a"], 1);
        assert!(matches!(text.read(), Cow::Borrowed(_)));
    }

    #[test]
    fn a_schema_nested_too_deeply_accepts_any_object() {
        let deep = schema(&format!("{}{}", r#"{"a":"#.repeat(400) + "1", "}".repeat(400)));
        assert_eq!(*deep, json!({"type": "object"}));
        assert!(deep.parse_error().expect("trouble").contains("recursion limit"));
    }
}
