//! An output item that is being received.

use serde_json::{Map, Value, json};

use super::item_fields::{ITEM, PART, remaining_call_fields, remove_output_fields, text_field};
use crate::reply::ReplyEvent;
use crate::reply_builder::ReplyBuilder;

/// The separator between two reasoning texts in one item.
const BREAK: &str = "\n\n";

/// An item's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ItemKind {
    Message,
    Reasoning,
    Call,
    /// A type that only the provider understands.
    Opaque,
}

/// The item that an event refers to.
pub(super) struct ItemRef<'a> {
    /// The item's id; empty if unknown.
    pub(super) id: &'a str,
    pub(super) output_index: Option<u64>,
}

/// The list in an item that holds a reasoning text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReasoningSource {
    Summary,
    Content,
}

/// A reasoning text, by its list and index.
pub(super) type ReasoningRef = (ReasoningSource, u64);

/// An output item and its slots in the reply.
#[derive(Debug)]
pub(super) struct OutputItem {
    kind: ItemKind,
    /// The id; empty if unknown.
    id: String,
    /// The id that the call's result refers to.
    call_id: String,
    output_index: Option<u64>,
    /// The item's fields, until they are stored in the reply.
    json: Map<String, Value>,
    /// The item's slots, by the content part's index.
    slots: Vec<(u64, usize)>,
    /// The reasoning texts that were emitted, with their offsets.
    reasoning: Vec<(ReasoningRef, usize)>,
    refusal: bool,
    /// The complete item was received.
    complete: bool,
}

impl OutputItem {
    /// Creates an item from its fields.
    pub(super) fn new(mut json: Map<String, Value>, output_index: Option<u64>) -> Self {
        remove_output_fields(&mut json);
        let kind = match json.get("type").and_then(Value::as_str) {
            Some("message") => ItemKind::Message,
            Some("reasoning") => ItemKind::Reasoning,
            Some("function_call") => ItemKind::Call,
            _ => ItemKind::Opaque,
        };
        let text = |name| json.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (id, call_id) = (text("id"), if kind == ItemKind::Call { text("call_id") } else { String::new() });
        let (slots, reasoning) = (Vec::new(), Vec::new());
        Self { kind, id, call_id, output_index, json, slots, reasoning, refusal: false, complete: false }
    }

    /// Creates an item for a delta that precedes it.
    pub(super) fn unannounced(kind: ItemKind, item: &ItemRef<'_>) -> Self {
        let mut json = Map::new();
        if !item.id.is_empty() {
            json.insert("id".to_owned(), item.id.into());
        }
        let fields = match kind {
            ItemKind::Message => json!({"type": "message", "role": "assistant", "status": "in_progress"}),
            _ => json!({"type": "reasoning", "summary": []}),
        };
        if let Value::Object(fields) = fields {
            json.extend(fields);
        }
        Self::new(json, item.output_index)
    }

    /// Returns the item as it would have been announced, without content.
    pub(super) fn announced(&self) -> Self {
        let mut json = Map::new();
        for name in ["type", "id", "call_id", "name"] {
            json.extend(self.json.get(name).map(|value| (name.to_owned(), value.clone())));
        }
        Self::new(json, self.output_index)
    }

    pub(super) fn kind(&self) -> ItemKind {
        self.kind
    }

    pub(super) fn output_index(&self) -> Option<u64> {
        self.output_index
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the item's ids, the most reliable first.
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        [&*self.call_id, &*self.id].into_iter().filter(|id| !id.is_empty())
    }

    /// Returns `true` until the complete item is received.
    pub(super) fn is_open(&self) -> bool {
        !self.complete
    }

    /// Returns `true` if the item contains a refusal.
    pub(super) fn is_refusal(&self) -> bool {
        self.refusal
    }

    /// Returns `true` if the item has a slot in the reply.
    pub(super) fn has_slots(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Returns the item's slots, in its content's order.
    pub(super) fn slots(&self) -> impl Iterator<Item = usize> {
        let mut slots = self.slots.clone();
        slots.sort_by_key(|(index, _)| *index);
        slots.into_iter().map(|(_, slot)| slot)
    }

    pub(super) fn first_slot(&self) -> Option<usize> {
        self.slots.first().map(|(_, slot)| *slot)
    }

    fn text(&self, name: &str) -> &str {
        self.json.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Opens a slot in the reply. A message opens one for each content part instead.
    pub(super) fn open(&mut self, reply: &mut ReplyBuilder, events: &mut Vec<ReplyEvent>) {
        let slot = match self.kind {
            ItemKind::Message => return,
            ItemKind::Reasoning => reply.open_reasoning(events),
            ItemKind::Call => reply.open_call(&self.call_id, self.text("name"), events),
            ItemKind::Opaque => reply.push_opaque(std::mem::take(&mut self.json), events),
        };
        self.slots.push((0, slot));
    }

    /// Returns a content part's slot: the one with this index, or the last one without an index.
    pub(super) fn text_slot(
        &mut self,
        index: Option<u64>,
        refusal: bool,
        reply: &mut ReplyBuilder,
        events: &mut Vec<ReplyEvent>,
    ) -> usize {
        self.refusal |= refusal;
        let found = match index {
            Some(index) => self.slots.iter().rfind(|(other, _)| *other == index),
            None => self.slots.last(),
        };
        match found {
            Some((_, slot)) => *slot,
            None => {
                let part = if refusal { json!({"type": "refusal", "refusal": ""}) } else { Value::Null };
                self.open_text(index.unwrap_or_default(), part, reply, events)
            }
        }
    }

    fn open_text(&mut self, index: u64, part: Value, reply: &mut ReplyBuilder, events: &mut Vec<ReplyEvent>) -> usize {
        let slot = reply.open_text(events);
        self.slots.push((index, slot));
        if let Some(extra) = reply.extra_mut(slot) {
            let part = match part {
                Value::Null => json!({"type": "output_text", "text": "", "annotations": []}),
                part => part,
            };
            extra.insert(PART.to_owned(), part);
        }
        slot
    }

    /// Adds a content part, announced or complete.
    pub(super) fn content_part(
        &mut self,
        index: Option<u64>,
        mut part: Map<String, Value>,
        is_new: bool,
        reply: &mut ReplyBuilder,
        events: &mut Vec<ReplyEvent>,
    ) {
        remove_output_fields(&mut part);
        let (text, refusal) = take_text(&mut part);
        // Without an index, parts follow one another.
        let index = index.or(is_new.then_some(self.slots.len() as u64));
        let slot = self.text_slot(index, refusal, reply, events);
        if let Some(extra) = reply.extra_mut(slot) {
            extra.insert(PART.to_owned(), part.into());
        }
        if !text.is_empty() {
            reply.set_text(slot, &text, events);
        }
    }

    /// Appends to a reasoning text.
    pub(super) fn push_reasoning(
        &mut self,
        text: ReasoningRef,
        delta: &str,
        reply: &mut ReplyBuilder,
        events: &mut Vec<ReplyEvent>,
    ) {
        let Some(slot) = self.first_slot() else { return };
        if self.reasoning.last().is_none_or(|(current, _)| *current != text) && !delta.is_empty() {
            if !reply.content(slot).is_empty() {
                reply.push_reasoning(slot, BREAK, events);
            }
            self.reasoning.push((text, reply.content(slot).len()));
        }
        reply.push_reasoning(slot, delta, events);
    }

    /// Completes a reasoning text. Some deltas may have been emitted before.
    pub(super) fn complete_reasoning(
        &mut self,
        text: ReasoningRef,
        whole: &str,
        reply: &mut ReplyBuilder,
        events: &mut Vec<ReplyEvent>,
    ) {
        let Some(slot) = self.first_slot() else { return };
        let emitted = match self.reasoning.last() {
            Some((current, start)) if *current == text => reply.content(slot).get(*start..).unwrap_or_default(),
            // Another text has started since.
            _ if self.reasoning.iter().any(|(other, _)| *other == text) => return,
            _ => "",
        };
        if let Some(rest) = whole.strip_prefix(emitted) {
            self.push_reasoning(text, rest, reply, events);
        }
    }

    /// Replaces the item by the complete one.
    pub(super) fn complete(&mut self, whole: Self, reply: &mut ReplyBuilder, events: &mut Vec<ReplyEvent>) {
        self.output_index = whole.output_index.or(self.output_index);
        if self.complete {
            return;
        }
        (self.id, self.json, self.complete) = (whole.id, whole.json, true);
        let is_cut = self.text("status") == "incomplete";
        self.store(reply, events);
        match (self.kind, self.first_slot()) {
            (ItemKind::Call, Some(slot)) if is_cut => reply.close_truncated_call(slot, events),
            (ItemKind::Call, Some(slot)) => reply.close_call(slot, events),
            _ => {}
        }
    }

    /// Stores an item that was never completed.
    pub(super) fn store_incomplete(&mut self, complete: bool, reply: &mut ReplyBuilder, events: &mut Vec<ReplyEvent>) {
        if self.complete || (self.kind == ItemKind::Message && self.slots.is_empty()) {
            return;
        }
        if let Some(status) = self.json.get_mut("status") {
            *status = if complete { "completed" } else { "incomplete" }.into();
        }
        self.store(reply, events);
    }

    /// Stores the item in its slots, and emits the content that was not emitted yet.
    fn store(&mut self, reply: &mut ReplyBuilder, events: &mut Vec<ReplyEvent>) {
        let mut json = std::mem::take(&mut self.json);
        if self.kind == ItemKind::Message {
            self.store_content(json.shift_remove("content"), reply, events);
        }
        let Some(slot) = self.first_slot() else { return };
        match self.kind {
            ItemKind::Message => {}
            ItemKind::Reasoning => {
                let text = reasoning_text(&json);
                if !text.is_empty() {
                    reply.set_text(slot, &text, events);
                }
            }
            ItemKind::Call => {
                if let Some(name) = json.get("name").and_then(Value::as_str).filter(|name| !name.is_empty()) {
                    reply.name_call(slot, name, events);
                }
                match json.get("arguments") {
                    Some(Value::String(text)) if !text.is_empty() => reply.set_arguments(slot, text, events),
                    Some(Value::Object(arguments)) => {
                        reply.set_arguments(slot, &Value::from(arguments.clone()).to_string(), events);
                    }
                    _ => {}
                }
                json = remaining_call_fields(json);
            }
            ItemKind::Opaque if json.is_empty() => return,
            ItemKind::Opaque => {
                if let Some(fields) = reply.extra_mut(slot) {
                    *fields = json;
                }
                return;
            }
        }
        if let Some(extra) = reply.extra_mut(slot) {
            extra.insert(ITEM.to_owned(), json.into());
        }
    }

    fn store_content(&mut self, content: Option<Value>, reply: &mut ReplyBuilder, events: &mut Vec<ReplyEvent>) {
        if let Some(Value::Array(content)) = content {
            for (index, part) in content.into_iter().enumerate() {
                if let Value::Object(part) = part {
                    self.content_part(Some(index as u64), part, false, reply, events);
                }
            }
        }
        if self.slots.is_empty() {
            // A message without content is stored in an empty text.
            self.slots.push((0, reply.open_text(events)));
        }
    }
}

/// Takes the text out of a content part. Returns `true` for a refusal.
fn take_text(part: &mut Map<String, Value>) -> (String, bool) {
    let field = text_field(part);
    let text = match part.get_mut(field) {
        Some(Value::String(text)) => std::mem::take(text),
        _ => String::new(),
    };
    (text, field == "refusal")
}

/// Returns a reasoning item's readable text.
fn reasoning_text(item: &Map<String, Value>) -> String {
    let texts = ["summary", "content"].into_iter().filter_map(|field| item.get(field)?.as_array()).flatten();
    let texts: Vec<&str> =
        texts.filter_map(|part| part.get("text")?.as_str()).filter(|text| !text.is_empty()).collect();
    texts.join(BREAK)
}
