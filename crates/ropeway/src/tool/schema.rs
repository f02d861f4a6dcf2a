//! A JSON Schema as it came: text, understood when somebody looks into it.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use crate::json;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// A JSON Schema. It reads as a [`Value`]; as long as nobody looks into it, it is the text that the server sent, which takes
/// a twentieth of the memory.
///
/// Cheap to clone.
#[derive(Clone)]
pub struct Schema(Arc<Inner>);

struct Inner {
    text: Option<Box<RawValue>>,
    value: OnceLock<Value>,
}

impl Schema {
    /// The text of a schema.
    ///
    /// Lone surrogates in it become U+FFFD: the text goes on to models, whose servers could not read it.
    pub fn from_text(mut text: Box<RawValue>) -> Self {
        if let Cow::Owned(repaired) = json::without_lone_surrogates(text.get())
            && let Ok(repaired) = RawValue::from_string(repaired)
        {
            text = repaired;
        }
        Self(Arc::new(Inner { text: Some(text), value: OnceLock::new() }))
    }

    /// The schema as a value that is not kept, for whoever looks into many of them once.
    pub fn read(&self) -> Cow<'_, Value> {
        match (self.0.value.get(), &self.0.text) {
            (None, Some(text)) => Cow::Owned(parse(text).unwrap_or_else(|_| anything())),
            _ => Cow::Borrowed(self),
        }
    }

    /// The same; an error where it cannot be understood.
    pub(crate) fn try_read(&self) -> Result<Cow<'_, Value>, serde_json::Error> {
        match (self.0.value.get(), &self.0.text) {
            // That is what stands for text that cannot be understood.
            (Some(value), Some(text)) if *value == anything() => parse(text).map(Cow::Owned),
            (None, Some(text)) => parse(text).map(Cow::Owned),
            _ => Ok(Cow::Borrowed(self)),
        }
    }

    /// Why it cannot be understood, and counts as one that takes any object.
    pub fn parse_error(&self) -> Option<String> {
        let text = self.0.text.as_ref()?;
        // What is nested too deeply is the one thing that text of a server can be and a value cannot.
        parse(text).err().map(|error| error.to_string())
    }

    /// Is it the same schema, not only an equal one?
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

fn parse(text: &RawValue) -> Result<Value, serde_json::Error> {
    json::from_str(text.get())
}

fn anything() -> Value {
    json!({"type": "object"})
}

impl Default for Schema {
    /// Any object.
    fn default() -> Self {
        anything().into()
    }
}

impl Deref for Schema {
    type Target = Value;

    fn deref(&self) -> &Value {
        let read = || self.0.text.as_deref().and_then(|text| parse(text).ok()).unwrap_or_else(anything);
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
        // Not the text: into a value or a map it could not be written.
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
    fn text_and_value_are_the_same_schema() {
        let (text, value) = (schema(r#"{"z": 1, "a": [2]}"#), Schema::from(json!({"z": 1, "a": [2]})));
        assert_eq!(text, value);
        assert_eq!(text["a"][0], 2);
        assert_eq!(serde_json::to_string(&text).expect("JSON"), r#"{"z":1,"a":[2]}"#);
        assert_eq!(serde_json::to_value(&text).expect("JSON"), *value);
        assert_ne!(text, schema("{}"));
        assert_eq!((text.parse_error(), value.parse_error()), (None, None));
    }

    #[test]
    fn looking_once_leaves_the_text_alone() {
        let text = schema(r#"{"a": 1}"#);
        assert!(matches!(text.read(), Cow::Owned(_)));
        assert_eq!(text["a"], 1);
        assert!(matches!(text.read(), Cow::Borrowed(_)));
    }

    #[test]
    fn what_is_nested_too_deeply_takes_any_object_and_says_so() {
        let deep = schema(&format!("{}{}", r#"{"a":"#.repeat(400) + "1", "}".repeat(400)));
        assert_eq!(*deep, json!({"type": "object"}));
        assert!(deep.parse_error().expect("trouble").contains("recursion limit"));
    }
}
