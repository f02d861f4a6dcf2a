//! An output item in the parts of an answer: how it is kept, so that it can go back exactly as it came.
//!
//! A message is as many texts as it has content parts. The first holds the item's own fields as [`ITEM`], each holds those of
//! its content part as [`PART`], without the text itself. Reasoning holds its whole item, a call what is not said in other
//! fields. The answer holds the ids of all of them as [`OUTPUT`], so that it shows if some were taken out since.

use serde_json::{Map, Value};

use crate::message::AssistantMessage;
use crate::provider::history::Part;

/// The field of a part's `extra` that holds the item it came in.
pub(super) const ITEM: &str = "item";

/// The field of a text's `extra` that holds the content part it came in; its text is left empty there.
pub(super) const PART: &str = "part";

/// The field of an answer's `extra` that holds the ids of its items, in order.
pub(super) const OUTPUT: &str = "output";

/// Fields of a call that stand in the call itself.
const SAID_ELSEWHERE: [&str; 3] = ["call_id", "name", "arguments"];

/// Takes out what providers do not want back, and what only SDKs have put in.
pub(super) fn tidy(json: &mut Map<String, Value>) {
    for field in ["created_by", "parsed", "parsed_arguments"] {
        json.shift_remove(field);
    }
    if json.get("id").is_some_and(Value::is_null) {
        json.shift_remove("id");
    }
}

/// What there is to keep of a call beside its id, its name and its arguments.
pub(super) fn rest_of_call(mut item: Map<String, Value>) -> Map<String, Value> {
    for field in SAID_ELSEWHERE {
        item.shift_remove(field);
    }
    item
}

/// The field of a content part that holds its text.
pub(super) fn text_field(part: &Map<String, Value>) -> &'static str {
    match part.get("type").and_then(Value::as_str) {
        Some("refusal") => "refusal",
        _ => "text",
    }
}

/// The item that something came in.
pub(super) fn item_of(extra: &Map<String, Value>) -> Option<&Map<String, Value>> {
    extra.get(ITEM).and_then(Value::as_object)
}

/// The content part that a text came in.
pub(super) fn part_of(extra: &Map<String, Value>) -> Option<&Map<String, Value>> {
    extra.get(PART).and_then(Value::as_object)
}

/// Are the parts of an answer still the items that came, all of them and in their order?
///
/// The provider refuses reasoning without the item that it led to, and the other way round.
pub(super) fn is_whole(answer: &AssistantMessage, parts: &[Part<'_>]) -> bool {
    let Some(came) = answer.extra.get(OUTPUT).and_then(Value::as_array) else { return true };
    let mut there = Vec::with_capacity(parts.len());
    for part in parts {
        let item = match part {
            Part::Text(text) if text.extra.contains_key(ITEM) => item_of(&text.extra),
            // It goes on with the item before.
            Part::Text(text) if text.extra.contains_key(PART) => continue,
            Part::Text(_) => None,
            Part::Reasoning(reasoning) => item_of(&reasoning.extra),
            Part::Call(call) => call.extra.and_then(item_of),
            Part::Private(private) => Some(&private.json),
        };
        let Some(item) = item else { return false };
        there.push(item.get("id").and_then(Value::as_str));
    }
    there.into_iter().eq(came.iter().map(Value::as_str))
}
