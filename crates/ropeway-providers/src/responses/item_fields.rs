//! How a message's parts keep the output items they came from, so that the items can be sent back unchanged.
//!
//! A message item becomes one text per content part. The first text keeps the item's fields as [`ITEM`]. Each text keeps its
//! content part's fields as [`PART`], without the text itself. Reasoning keeps its whole item, a call the fields that the call
//! itself does not have. The message keeps all item ids as [`OUTPUT`], which reveals removed items.

use serde_json::{Map, Value};

use crate::normalize::NormalizedPart;
use ropeway_core::message::AssistantMessage;

/// The field in a part's `extra` with its item.
pub(super) const ITEM: &str = "item";

/// The field in a text's `extra` with its content part, whose text is empty.
pub(super) const PART: &str = "part";

/// The field in a message's `extra` with its items' ids, in order.
pub(super) const OUTPUT: &str = "output";

/// Item fields that the call itself has.
const CALL_FIELDS: [&str; 3] = ["call_id", "name", "arguments"];

/// Removes fields that the API rejects in input, and fields that only SDKs add.
pub(super) fn remove_output_fields(json: &mut Map<String, Value>) {
    for field in ["created_by", "parsed", "parsed_arguments"] {
        json.shift_remove(field);
    }
    if json.get("id").is_some_and(Value::is_null) {
        json.shift_remove("id");
    }
}

/// Removes the fields that the call itself has.
pub(super) fn remaining_call_fields(mut item: Map<String, Value>) -> Map<String, Value> {
    for field in CALL_FIELDS {
        item.shift_remove(field);
    }
    item
}

/// Returns the name of the field with a content part's text.
pub(super) fn text_field(part: &Map<String, Value>) -> &'static str {
    match part.get("type").and_then(Value::as_str) {
        Some("refusal") => "refusal",
        _ => "text",
    }
}

/// Returns a part's item.
pub(super) fn item_of(extra: &Map<String, Value>) -> Option<&Map<String, Value>> {
    extra.get(ITEM).and_then(Value::as_object)
}

/// Returns a text's content part.
pub(super) fn part_of(extra: &Map<String, Value>) -> Option<&Map<String, Value>> {
    extra.get(PART).and_then(Value::as_object)
}

/// Returns `true` if a message's parts are still all of its items, in their order.
///
/// The API rejects reasoning without the item that follows it, and vice versa.
pub(super) fn is_unchanged(message: &AssistantMessage, parts: &[NormalizedPart<'_>]) -> bool {
    let Some(expected) = message.extra.get(OUTPUT).and_then(Value::as_array) else { return true };
    let mut found = Vec::with_capacity(parts.len());
    for part in parts {
        let item = match part {
            NormalizedPart::Text(text) if text.extra.contains_key(ITEM) => item_of(&text.extra),
            // Belongs to the previous text's item.
            NormalizedPart::Text(text) if text.extra.contains_key(PART) => continue,
            NormalizedPart::Text(_) => None,
            NormalizedPart::Reasoning(reasoning) => item_of(&reasoning.extra),
            NormalizedPart::Call(call) => call.extra.and_then(item_of),
            NormalizedPart::Opaque(json) => Some(*json),
        };
        let Some(item) = item else { return false };
        found.push(item.get("id").and_then(Value::as_str));
    }
    found.into_iter().eq(expected.iter().map(Value::as_str))
}
