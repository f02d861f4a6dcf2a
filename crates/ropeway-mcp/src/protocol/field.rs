//! Reads typed fields from JSON objects, and leaves invalid ones in place.

use std::fmt;

use serde::de::{Deserializer as _, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Returns a JSON array's first `most` entries, and the number of others.
///
/// A one-byte entry takes much more memory when parsed, so untrusted lists are read up to a limit.
pub(crate) fn first_entries(list: &[u8], most: usize) -> Result<(Vec<&RawValue>, usize), serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(list);
    let entries = json.deserialize_seq(EntriesVisitor { most })?;
    json.end()?;
    Ok(entries)
}

struct EntriesVisitor {
    most: usize,
}

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = (Vec<&'de RawValue>, usize);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let (mut items, mut left_out) = (Vec::new(), 0);
        while items.len() < self.most {
            match list.next_element()? {
                Some(item) => items.push(item),
                None => return Ok((items, left_out)),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {
            left_out += 1;
        }
        Ok((items, left_out))
    }
}

/// Removes a field and returns its value, if it has the expected type. Removes `null`, and leaves other values in place.
pub(crate) fn take<T>(
    entry: &mut Map<String, Value>,
    key: &str,
    read: impl Fn(Value) -> Result<T, Value>,
) -> Option<T> {
    match read(entry.shift_remove(key)?) {
        Ok(value) => Some(value),
        Err(Value::Null) => None,
        Err(invalid) => {
            entry.insert(key.to_owned(), invalid);
            None
        }
    }
}

pub(crate) fn string(value: Value) -> Result<String, Value> {
    match value {
        Value::String(text) => Ok(text),
        invalid => Err(invalid),
    }
}

pub(crate) fn object(value: Value) -> Result<Map<String, Value>, Value> {
    match value {
        Value::Object(map) => Ok(map),
        invalid => Err(invalid),
    }
}

pub(crate) fn list(value: Value) -> Result<Vec<Value>, Value> {
    match value {
        Value::Array(items) => Ok(items),
        invalid => Err(invalid),
    }
}

pub(crate) fn boolean(value: Value) -> Result<bool, Value> {
    value.as_bool().ok_or(value)
}

/// Reads a non-negative integer. `5.0` counts as one.
pub(crate) fn count(value: Value) -> Result<u64, Value> {
    let whole = |number: f64| (number.fract() == 0.0 && (0.0..9e15).contains(&number)).then_some(number as u64);
    value.as_u64().or_else(|| value.as_f64().and_then(whole)).ok_or(value)
}

/// Removes the required `key` from an entry. Returns its value and the rest, or describes the problem.
pub(crate) fn split_key(entry: Value, key: &str, noun: &str) -> Result<(String, Map<String, Value>), String> {
    let Value::Object(mut entry) = entry else {
        return Err(format!("a {noun} that is not an object: {}", brief(&entry)));
    };
    match entry.shift_remove(key) {
        Some(Value::String(value)) if !value.is_empty() => Ok((value, entry)),
        invalid => Err(format!("a {noun} without a {key}: {}", brief(&invalid.unwrap_or_default()))),
    }
}

/// Returns the beginning of a value, for messages.
pub(crate) fn brief(value: &Value) -> String {
    value.to_string().chars().take(80).collect()
}
