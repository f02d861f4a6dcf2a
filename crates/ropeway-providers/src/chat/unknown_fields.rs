//! Merges unknown delta fields, so that they can be sent back with the message.

use serde_json::{Map, Value};

use super::chunk::UnknownFields;
use ropeway_core::json;

/// OpenRouter's field with signed and encrypted reasoning (<https://openrouter.ai/docs/use-cases/reasoning-tokens>).
const DETAILS: &str = "reasoning_details";

/// How many details are searched for the one that a delta continues. Few are open at once, but a reply may have thousands.
const MAX_SEARCHED: usize = 16;

/// Merges a delta's unknown fields.
pub(super) fn merge(extra: &mut Map<String, Value>, unknown: UnknownFields<'_>) {
    for (name, raw) in unknown {
        let Ok(value) = json::from_str(raw.get()) else { continue };
        match (extra.get_mut(&*name), value) {
            (Some(Value::Array(list)), Value::Array(more)) if name == DETAILS => {
                more.into_iter().for_each(|detail| add_detail(list, detail));
            }
            (Some(Value::String(before)), Value::String(value)) if !is_appended(&name) => *before = value,
            (Some(before), value) => merge_value(before, value),
            (None, Value::Array(more)) if name == DETAILS => {
                let mut list = Vec::new();
                more.into_iter().for_each(|detail| add_detail(&mut list, detail));
                extra.insert(name.into_owned(), list.into());
            }
            (None, value) => _ = extra.insert(name.into_owned(), value),
        }
    }
}

/// Returns `true` for strings that deltas append to. Other strings are replaced, since most servers repeat them.
fn is_appended(name: &str) -> bool {
    name.starts_with("reasoning") || name == "refusal"
}

/// Takes complete fields; later values replace earlier ones.
pub(super) fn replace(extra: &mut Map<String, Value>, unknown: UnknownFields<'_>) {
    for (name, raw) in unknown {
        if let Ok(value) = json::from_str(raw.get()) {
            extra.insert(name.into_owned(), value);
        }
    }
}

/// Appends to strings and lists, merges objects, and replaces everything else.
fn merge_value(before: &mut Value, more: Value) {
    match (before, more) {
        (Value::String(text), Value::String(more)) => text.push_str(&more),
        (Value::Array(list), Value::Array(more)) => list.extend(more),
        (Value::Object(object), Value::Object(more)) => {
            for (name, value) in more {
                match object.get_mut(&name) {
                    // Identifiers are repeated, not continued.
                    Some(before) if !matches!(name.as_str(), "id" | "type" | "format" | "name") => {
                        merge_value(before, value)
                    }
                    _ => _ = object.insert(name, value),
                }
            }
        }
        (before, more) if !more.is_null() => *before = more,
        _ => {}
    }
}

/// Adds a detail, or appends to the one with the same type and index. Encrypted details are complete, one per call, and may share
/// an index.
fn add_detail(list: &mut Vec<Value>, detail: Value) {
    let is_delta = matches!(detail["type"].as_str(), Some("reasoning.text" | "reasoning.summary"));
    let (kind, index) = (&detail["type"], &detail["index"]);
    let same = |other: &Value| {
        if other["index"] != *index || other["type"] != *kind {
            return false;
        }
        let ids = (&other["id"], &detail["id"]);
        ids.0.is_null() || ids.1.is_null() || ids.0 == ids.1
    };
    let found = match detail["index"] {
        _ if !is_delta => None,
        // Without an index, only adjacent details are merged.
        Value::Null => list.len().checked_sub(1).filter(|&last| same(&list[last])),
        _ => (list.len().saturating_sub(MAX_SEARCHED)..list.len()).rev().find(|&at| same(&list[at])),
    };
    let (Some(Value::Object(before)), Value::Object(more)) = (found.map(|at| &mut list[at]), &detail) else {
        return list.push(detail);
    };
    for (name, value) in more {
        match (before.get_mut(name), value) {
            (Some(Value::String(text)), Value::String(more)) if matches!(name.as_str(), "text" | "summary") => {
                text.push_str(more);
            }
            (_, Value::Null) => {}
            _ => _ = before.insert(name.clone(), value.clone()),
        }
    }
}

/// Returns the readable reasoning in the details.
pub(super) fn reasoning_text(unknown: &UnknownFields<'_>) -> String {
    let Some((_, raw)) = unknown.iter().find(|(name, _)| name == DETAILS) else { return String::new() };
    let details: Vec<Value> = json::from_str(raw.get()).unwrap_or_default();
    details.iter().filter_map(|detail| detail["text"].as_str().or(detail["summary"].as_str())).collect()
}
