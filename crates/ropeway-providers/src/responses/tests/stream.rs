//! Streams of output items, in the styles of different servers.

use serde_json::{Map, Value, json};

/// The parts of its items that a server sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// Events have the id of their item.
    pub(super) ids: bool,
    /// Events have the indexes of their item and part.
    pub(super) places: bool,
    /// Text and arguments are sent as deltas.
    pub(super) pieces: bool,
    /// Items are announced and sent complete.
    pub(super) items: bool,
    /// The final response has all items.
    pub(super) output: bool,
}

pub(super) const CAREFUL: Style = Style { ids: true, places: true, pieces: true, items: true, output: true };

impl Style {
    /// All styles in which items are distinguishable and complete somewhere.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..32u32).filter_map(|bits| {
            let bit = |at: u32| bits >> at & 1 == 1;
            let style = Self { ids: bit(0), places: bit(1), pieces: bit(2), items: bit(3), output: bit(4) };
            ((style.ids || style.places) && (style.items || style.output)).then_some(style)
        })
    }

    /// Returns the stream of a reply with these items.
    pub(super) fn stream(self, output: &[Value]) -> Vec<Value> {
        let output: Vec<Value> = output.iter().map(|item| self.item(item)).collect();
        let mut frames = vec![json!({"type": "response.created", "response": {"id": "resp_1", "model": "m-1"}})];
        for (place, item) in output.iter().enumerate() {
            let mut events = Events { style: self, id: &item["id"], place, frames: &mut frames };
            events.item(item);
        }
        let output = if self.output { output } else { Vec::new() };
        frames.push(json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": output}}));
        frames
    }

    /// Returns the events of an item.
    pub(super) fn item(self, item: &Value) -> Value {
        let mut item = item.clone();
        if !self.ids {
            item.as_object_mut().expect("an item").shift_remove("id");
        }
        item
    }
}

struct Events<'a> {
    style: Style,
    id: &'a Value,
    place: usize,
    frames: &'a mut Vec<Value>,
}

impl Events<'_> {
    fn push(&mut self, kind: &str, fields: Value) {
        let mut frame = Map::new();
        frame.insert("type".to_owned(), format!("response.{kind}").into());
        if self.style.places {
            frame.insert("output_index".to_owned(), self.place.into());
        }
        if self.style.ids && !kind.starts_with("output_item") {
            frame.insert("item_id".to_owned(), self.id.clone());
        }
        for (name, value) in fields.as_object().expect("fields") {
            if self.style.places || !name.ends_with("_index") {
                frame.insert(name.clone(), value.clone());
            }
        }
        self.frames.push(frame.into());
    }

    fn item(&mut self, item: &Value) {
        if self.style.items {
            let mut announced = item.clone();
            for (name, empty) in [("content", json!([])), ("summary", json!([])), ("arguments", json!(""))] {
                if item.get(name).is_some() {
                    announced[name] = empty;
                }
            }
            announced["status"] = "in_progress".into();
            self.push("output_item.added", json!({ "item": announced }));
        }
        if self.style.pieces {
            match item["type"].as_str() {
                Some("message") => self.parts("content", "content_index", &item["content"]),
                Some("reasoning") => {
                    self.parts("summary", "summary_index", &item["summary"]);
                    self.parts("content", "content_index", &item["content"]);
                }
                Some("function_call") => {
                    self.text("function_call_arguments", &json!({}), "arguments", &item["arguments"])
                }
                _ => self.push("web_search_call.searching", json!({})),
            }
        }
        if self.style.items {
            self.push("output_item.done", json!({ "item": item }));
        }
    }

    fn parts(&mut self, list: &str, number: &str, parts: &Value) {
        let event = if list == "summary" { "reasoning_summary_part" } else { "content_part" };
        for (at, part) in parts.as_array().into_iter().flatten().enumerate() {
            let (kind, field) = match part["type"].as_str() {
                Some("refusal") => ("refusal", "refusal"),
                Some("summary_text") => ("reasoning_summary_text", "text"),
                Some(kind) => (kind, "text"),
                None => continue,
            };
            let mut empty = part.clone();
            empty[field] = "".into();
            self.push(&format!("{event}.added"), json!({number: at, "part": empty}));
            self.text(kind, &json!({ number: at }), field, &part[field]);
            self.push(&format!("{event}.done"), json!({number: at, "part": part}));
        }
    }

    fn text(&mut self, kind: &str, fields: &Value, field: &str, text: &Value) {
        let text = text.as_str().expect("a text");
        let middle = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
        for delta in [&text[..middle], &text[middle..]] {
            let mut fields = fields.clone();
            fields["delta"] = delta.into();
            fields["obfuscation"] = "xyz".into();
            self.push(&format!("{kind}.delta"), fields);
        }
        let mut fields = fields.clone();
        fields[field] = text.into();
        self.push(&format!("{kind}.done"), fields);
    }
}
