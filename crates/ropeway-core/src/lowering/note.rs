//! Notes in a description about keywords that a dialect does not accept.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use super::cow_value::CowObject;

/// Maximum note length in bytes.
const MAX_LENGTH: usize = 300;

/// Maximum length of all notes on a schema in bytes.
const MAX_TOTAL_LENGTH: usize = 2_000;

/// One schema's notes.
#[derive(Debug, Default)]
pub(super) struct Notes {
    text: String,
}

impl Notes {
    /// Adds text.
    pub(super) fn add_text(&mut self, words: &str) {
        if words.is_empty() || self.text.len() + words.len() > MAX_TOTAL_LENGTH {
            return;
        }
        if !self.text.is_empty() {
            self.text.push_str(", ");
        }
        self.text.push_str(words);
    }

    /// Adds a keyword and its value.
    pub(super) fn keyword(&mut self, keyword: &str, value: &Value) {
        match value {
            Value::String(text) => self.add_text(&format!("{keyword}: {}", short(text))),
            value => self.json(keyword, value),
        }
    }

    /// Adds a keyword and its value as JSON.
    pub(super) fn json(&mut self, keyword: &str, value: &impl Serialize) {
        let text = serde_json::to_string(value).unwrap_or_default();
        self.add_text(&format!("{keyword}: {}", short(&text)));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns the notes in parentheses.
    pub(super) fn bracketed(&self) -> String {
        format!("({})", self.text)
    }

    /// Appends the notes to a text.
    pub(super) fn appended_to<'t>(&self, text: Option<&'t str>) -> Option<Cow<'t, str>> {
        match text {
            text if self.is_empty() => text.map(Cow::Borrowed),
            None | Some("") => Some(Cow::Owned(self.bracketed())),
            Some(text) => Some(Cow::Owned(format!("{text} {}", self.bracketed()))),
        }
    }

    /// Appends the notes to a schema's description.
    pub(super) fn append_to(&self, schema: &mut CowObject<'_>) {
        if !self.is_empty() {
            let text = self.appended_to(schema.value("description").and_then(Value::as_str)).map(Cow::into_owned);
            schema.set("description", Value::from(text));
        }
    }
}

/// Truncates a text to the maximum note length.
pub(super) fn short(text: &str) -> Cow<'_, str> {
    if text.len() > MAX_LENGTH {
        Cow::Owned(format!("{}…", &text[..text.floor_char_boundary(MAX_LENGTH)]))
    } else {
        Cow::Borrowed(text)
    }
}
