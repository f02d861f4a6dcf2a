//! The schema for a tool's structured result.
//!
//! Since 2026-07-28 it may have any type. Before, it has the type `object`, and the TypeScript SDK 1 compiles it when it lists the tools:
//! one that does not compile breaks the list. A client without the schema does not check the result, so the schema is removed then.

use serde_json::Value;

use super::members::Change;
use super::{is_string, kept_if, object_of, object_schema};
use crate::catalog::uris::percent_decoded;
use ropeway_mcp::protocol::Era;

/// Keywords whose values are schema maps.
const SCHEMA_MAPS: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// Keywords whose values are data.
const DATA: [&str; 4] = ["enum", "const", "default", "examples"];

const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// Checks an output schema for clients in an era.
pub(super) fn check(schema: &str, era: Era) -> Change {
    if era == Era::Modern {
        return object_of(schema, |key, value| if key == "$schema" { kept_if(is_string(value)) } else { Change::Keep });
    }
    let Some(checked) =
        Some(schema).filter(|schema| schema.starts_with('{')).and_then(|schema| object_schema(schema, era).ok())
    else {
        return Change::Remove;
    };
    // A schema that is nested too deeply for the parser is not used either.
    match serde_json::from_str::<Value>(&checked) {
        Ok(parsed) if compiles(&parsed, &parsed) => {}
        _ => return Change::Remove,
    }
    if checked == schema { Change::Keep } else { Change::Replace(checked.into_owned()) }
}

/// Returns `true` if a validator can compile a schema: its types exist, and its references lead to schemas.
fn compiles(schema: &Value, root: &Value) -> bool {
    let Value::Object(members) = schema else { return true };
    members.iter().all(|(key, value)| match (key.as_str(), value) {
        ("type", Value::String(name)) => TYPES.contains(&name.as_str()),
        ("type", Value::Array(names)) => {
            names.iter().all(|name| name.as_str().is_some_and(|name| TYPES.contains(&name)))
        }
        ("type", _) => false,
        ("$ref", Value::String(reference)) => resolves(reference, root),
        (key, _) if DATA.contains(&key) => true,
        (key, Value::Object(schemas)) if SCHEMA_MAPS.contains(&key) => {
            schemas.values().all(|schema| compiles(schema, root))
        }
        (_, Value::Array(schemas)) => schemas.iter().all(|schema| compiles(schema, root)),
        (_, schema) => compiles(schema, root),
    })
}

/// Returns `true` if a reference leads to a part of the schema. Validators do not fetch others.
fn resolves(reference: &str, root: &Value) -> bool {
    let named = |key: &str, name: &str| has_name(root, key, name);
    match reference.strip_prefix('#') {
        Some("") => true,
        Some(pointer) if pointer.starts_with('/') => {
            root.pointer(pointer).is_some() || root.pointer(&percent_decoded(pointer)).is_some()
        }
        Some(anchor) => named("$anchor", anchor) || named("$dynamicAnchor", anchor) || named("$id", reference),
        None => named("$id", reference),
    }
}

fn has_name(schema: &Value, key: &str, name: &str) -> bool {
    match schema {
        Value::Object(members) => {
            members.get(key).is_some_and(|value| value == name)
                || members.values().any(|inner| has_name(inner, key, name))
        }
        Value::Array(items) => items.iter().any(|inner| has_name(inner, key, name)),
        _ => false,
    }
}
