//! The schema keywords that a cast reads.

use serde_json::{Map, Value};

pub(super) fn list<'s>(map: &'s Map<String, Value>, keyword: &str) -> &'s [Value] {
    map.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the types that a schema allows; an empty list means any.
pub(super) fn types(map: &Map<String, Value>) -> Vec<&str> {
    match map.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(types)) => types.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Returns the values that a schema allows, if it lists them.
pub(super) fn options(map: &Map<String, Value>) -> Option<&[Value]> {
    map.get("const").map(std::slice::from_ref).or_else(|| map.get("enum")?.as_array().map(Vec::as_slice))
}

/// Returns `true` if the schema allows null as OpenAPI does.
pub(super) fn is_nullable(map: &Map<String, Value>) -> bool {
    map.get("nullable") == Some(&Value::Bool(true))
}

/// Returns the schemas for the first items, and the schema for all
/// others.
pub(super) fn item_schemas(map: &Map<String, Value>) -> (&[Value], Option<&Value>) {
    match (map.get("prefixItems"), map.get("items")) {
        (Some(Value::Array(first)), rest) => (first, rest),
        (_, Some(Value::Array(first))) => (first, map.get("additionalItems")),
        (_, rest) => (&[], rest),
    }
}
