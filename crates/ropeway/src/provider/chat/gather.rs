//! Gathering: fields that nobody knows, put together out of the pieces they come in.

use serde_json::{Map, Value};

use super::wire::Others;
use crate::json;

/// The field in which OpenRouter keeps what models thought, signed and encrypted.
const DETAILS: &str = "reasoning_details";

/// How far back a piece of a detail looks for the others: servers write few side by side, but an answer may have thousands.
const NEAR: usize = 16;

/// Adds the unknown fields of a piece of the message.
pub(super) fn pieces(extra: &mut Map<String, Value>, others: Others<'_>) {
    for (name, raw) in others {
        let Ok(value) = json::from_str(raw.get()) else { continue };
        match (extra.get_mut(&*name), value) {
            (Some(Value::Array(list)), Value::Array(more)) if name == DETAILS => {
                more.into_iter().for_each(|detail| add_detail(list, detail));
            }
            (Some(Value::String(before)), Value::String(value)) if !grows(&name) => *before = value,
            (Some(before), value) => add(before, value),
            (None, Value::Array(more)) if name == DETAILS => {
                let mut list = Vec::new();
                more.into_iter().for_each(|detail| add_detail(&mut list, detail));
                extra.insert(name.into_owned(), list.into());
            }
            (None, value) => _ = extra.insert(name.into_owned(), value),
        }
    }
}

/// Does a text of the message grow? Of others nobody knows, and more of them are said anew with each piece than continued.
fn grows(name: &str) -> bool {
    name.starts_with("reasoning") || name == "refusal"
}

/// Takes unknown fields that come whole: the last word counts.
pub(super) fn whole(extra: &mut Map<String, Value>, others: Others<'_>) {
    for (name, raw) in others {
        if let Ok(value) = json::from_str(raw.get()) {
            extra.insert(name.into_owned(), value);
        }
    }
}

/// Texts grow, lists grow, objects grow field by field; everything else is replaced.
fn add(before: &mut Value, more: Value) {
    match (before, more) {
        (Value::String(text), Value::String(more)) => text.push_str(&more),
        (Value::Array(list), Value::Array(more)) => list.extend(more),
        (Value::Object(object), Value::Object(more)) => {
            for (name, value) in more {
                match object.get_mut(&name) {
                    // A name is said again, not continued.
                    Some(before) if !matches!(name.as_str(), "id" | "type" | "format" | "name") => add(before, value),
                    _ => _ = object.insert(name, value),
                }
            }
        }
        (before, more) if !more.is_null() => *before = more,
        _ => {}
    }
}

/// Adds a detail, or a piece of one: pieces have the same type and index. What is encrypted comes whole, one for each call, and
/// may share its index with others.
fn add_detail(list: &mut Vec<Value>, detail: Value) {
    let grows = matches!(detail["type"].as_str(), Some("reasoning.text" | "reasoning.summary"));
    let (kind, index) = (&detail["type"], &detail["index"]);
    let same = |other: &Value| {
        if other["index"] != *index || other["type"] != *kind {
            return false;
        }
        let ids = (&other["id"], &detail["id"]);
        ids.0.is_null() || ids.1.is_null() || ids.0 == ids.1
    };
    let place = match detail["index"].is_null() {
        _ if !grows => None,
        // Without an index only neighbours belong together.
        true => list.len().checked_sub(1).filter(|&last| same(&list[last])),
        false => (list.len().saturating_sub(NEAR)..list.len()).rev().find(|&at| same(&list[at])),
    };
    let (Some(Value::Object(before)), Value::Object(more)) = (place.map(|at| &mut list[at]), &detail) else {
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

/// What details show of the thoughts.
pub(super) fn shown(others: &Others<'_>) -> String {
    let Some((_, raw)) = others.iter().find(|(name, _)| name == DETAILS) else { return String::new() };
    let details: Vec<Value> = json::from_str(raw.get()).unwrap_or_default();
    details.iter().filter_map(|detail| detail["text"].as_str().or(detail["summary"].as_str())).collect()
}
