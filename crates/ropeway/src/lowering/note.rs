//! Notes: what a dialect does not take of a schema, told in its description.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use super::written::Object;

/// How long one note may be, in bytes.
const LONGEST: usize = 300;

/// How long all notes on one schema may be, in bytes.
const LONGEST_ALL: usize = 2_000;

/// What is to be told of one schema.
#[derive(Debug, Default)]
pub(super) struct Notes {
    text: String,
}

impl Notes {
    /// Tells something in words.
    pub(super) fn say(&mut self, words: &str) {
        if words.is_empty() || self.text.len() + words.len() > LONGEST_ALL {
            return;
        }
        if !self.text.is_empty() {
            self.text.push_str(", ");
        }
        self.text.push_str(words);
    }

    /// Tells what a keyword says.
    pub(super) fn keyword(&mut self, keyword: &str, value: &Value) {
        match value {
            Value::String(text) => self.say(&format!("{keyword}: {}", short(text))),
            value => self.json(keyword, value),
        }
    }

    /// Tells what a keyword says, as JSON.
    pub(super) fn json(&mut self, keyword: &str, value: &impl Serialize) {
        let text = serde_json::to_string(value).unwrap_or_default();
        self.say(&format!("{keyword}: {}", short(&text)));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The notes in brackets.
    pub(super) fn bracketed(&self) -> String {
        format!("({})", self.text)
    }

    /// A text with the notes behind it.
    pub(super) fn after<'t>(&self, text: Option<&'t str>) -> Option<Cow<'t, str>> {
        match text {
            text if self.is_empty() => text.map(Cow::Borrowed),
            None | Some("") => Some(Cow::Owned(self.bracketed())),
            Some(text) => Some(Cow::Owned(format!("{text} {}", self.bracketed()))),
        }
    }

    /// Puts the notes into a schema's description.
    pub(super) fn append_to(&self, schema: &mut Object<'_>) {
        if !self.is_empty() {
            let text = self.after(schema.value("description").and_then(Value::as_str)).map(Cow::into_owned);
            schema.set("description", Value::from(text));
        }
    }
}

/// A text cut to what a note may be.
pub(super) fn short(text: &str) -> Cow<'_, str> {
    match text.len() > LONGEST {
        true => Cow::Owned(format!("{}…", &text[..text.floor_char_boundary(LONGEST)])),
        false => Cow::Borrowed(text),
    }
}
