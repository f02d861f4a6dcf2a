//! The parts of an encoded reply that the dialects share.

use serde_json::Value;

/// A reply in a dialect's format: its content, and its end.
pub(super) struct EncodedReply {
    pub(super) content: String,
    pub(super) end: String,
}

/// Splits a text into words.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(' ')
}

/// Formats an event with data.
pub(super) fn data(json: &Value) -> String {
    format!("data: {json}\n\n")
}

/// Formats an event that is named after its data's type.
pub(super) fn named(json: &Value) -> String {
    let name = json["type"].as_str().unwrap_or_default();
    format!("event: {name}\ndata: {json}\n\n")
}
