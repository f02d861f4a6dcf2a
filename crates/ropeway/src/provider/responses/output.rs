//! An output item in the making: where its texts go, and what is kept of it.

use serde_json::{Map, Value, json};

use super::item::{ITEM, PART, rest_of_call, text_field, tidy};
use crate::provider::ReplyEvent;
use crate::provider::draft::Draft;

/// What stands between two thoughts of one item.
const BREAK: &str = "\n\n";

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Message,
    Reasoning,
    Call,
    /// One that only the provider understands.
    Private,
}

/// Where an event belongs, as far as it says so.
pub(super) struct Place<'a> {
    /// The id of the item; empty if it is not said.
    pub(super) id: &'a str,
    pub(super) output_index: Option<u64>,
}

/// Where a thought stands in its item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Summary,
    Content,
}

/// A thought, by its source and its number there.
pub(super) type Thought = (Source, u64);

/// An output item in the making.
#[derive(Debug)]
pub(super) struct Item {
    kind: Kind,
    /// The id; empty if it has none.
    id: String,
    /// What its result is told by, if it is a call.
    call_id: String,
    output_index: Option<u64>,
    /// The item as it came, until it is kept.
    json: Map<String, Value>,
    /// The draft's slots that hold it, by the number of the content part.
    slots: Vec<(u64, usize)>,
    /// The thoughts that were told, and where they begin in the text.
    thoughts: Vec<(Thought, usize)>,
    refusal: bool,
    /// It was told whole.
    complete: bool,
}

impl Item {
    /// An item as it came.
    pub(super) fn new(mut json: Map<String, Value>, output_index: Option<u64>) -> Self {
        tidy(&mut json);
        let kind = match json.get("type").and_then(Value::as_str) {
            Some("message") => Kind::Message,
            Some("reasoning") => Kind::Reasoning,
            Some("function_call") => Kind::Call,
            _ => Kind::Private,
        };
        let text = |name| json.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (id, call_id) = (text("id"), if kind == Kind::Call { text("call_id") } else { String::new() });
        let (slots, thoughts) = (Vec::new(), Vec::new());
        Self { kind, id, call_id, output_index, json, slots, thoughts, refusal: false, complete: false }
    }

    /// An item of which a piece came before it did.
    pub(super) fn unannounced(kind: Kind, place: &Place<'_>) -> Self {
        let mut json = Map::new();
        if !place.id.is_empty() {
            json.insert("id".to_owned(), place.id.into());
        }
        let fields = match kind {
            Kind::Message => json!({"type": "message", "role": "assistant", "status": "in_progress"}),
            _ => json!({"type": "reasoning", "summary": []}),
        };
        if let Value::Object(fields) = fields {
            json.extend(fields);
        }
        Self::new(json, place.output_index)
    }

    /// The same item before anything of it was told.
    pub(super) fn announced(&self) -> Self {
        let mut json = Map::new();
        for name in ["type", "id", "call_id", "name"] {
            json.extend(self.json.get(name).map(|value| (name.to_owned(), value.clone())));
        }
        Self::new(json, self.output_index)
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn output_index(&self) -> Option<u64> {
        self.output_index
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// What it may be known by, the surest first.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        [&*self.call_id, &*self.id].into_iter().filter(|name| !name.is_empty())
    }

    /// Is more of it to come?
    pub(super) fn is_open(&self) -> bool {
        !self.complete
    }

    /// Has the model refused in it?
    pub(super) fn is_refusal(&self) -> bool {
        self.refusal
    }

    /// Was there anything to keep of it?
    pub(super) fn is_kept(&self) -> bool {
        !self.slots.is_empty()
    }

    /// The draft's slots that hold it, in the order of the content.
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

    /// Takes its place in the draft; a message does so when there is something in it.
    pub(super) fn open(&mut self, draft: &mut Draft, events: &mut Vec<ReplyEvent>) {
        let slot = match self.kind {
            Kind::Message => return,
            Kind::Reasoning => draft.open_reasoning(events),
            Kind::Call => draft.open_call(&self.call_id, self.text("name"), events),
            Kind::Private => draft.private(std::mem::take(&mut self.json), events),
        };
        self.slots.push((0, slot));
    }

    /// The slot of a content part: the one of this number, or the last one if there is no number.
    pub(super) fn text_slot(
        &mut self,
        index: Option<u64>,
        refusal: bool,
        draft: &mut Draft,
        events: &mut Vec<ReplyEvent>,
    ) -> usize {
        self.refusal |= refusal;
        let found = match index {
            Some(index) => self.slots.iter().rfind(|(number, _)| *number == index),
            None => self.slots.last(),
        };
        match found {
            Some((_, slot)) => *slot,
            None => {
                let part = if refusal { json!({"type": "refusal", "refusal": ""}) } else { Value::Null };
                self.open_text(index.unwrap_or_default(), part, draft, events)
            }
        }
    }

    fn open_text(&mut self, index: u64, part: Value, draft: &mut Draft, events: &mut Vec<ReplyEvent>) -> usize {
        let slot = draft.open_text(events);
        self.slots.push((index, slot));
        if let Some(extra) = draft.extra(slot) {
            let part = match part {
                Value::Null => json!({"type": "output_text", "text": "", "annotations": []}),
                part => part,
            };
            extra.insert(PART.to_owned(), part);
        }
        slot
    }

    /// A content part, empty as it is announced or whole.
    pub(super) fn content_part(
        &mut self,
        index: Option<u64>,
        mut part: Map<String, Value>,
        is_new: bool,
        draft: &mut Draft,
        events: &mut Vec<ReplyEvent>,
    ) {
        tidy(&mut part);
        let (text, refusal) = take_text(&mut part);
        // A server that does not number its parts tells of one after the other.
        let index = index.or(is_new.then_some(self.slots.len() as u64));
        let slot = self.text_slot(index, refusal, draft, events);
        if let Some(extra) = draft.extra(slot) {
            extra.insert(PART.to_owned(), part.into());
        }
        if !text.is_empty() {
            draft.all_text(slot, &text, events);
        }
    }

    /// More of a thought.
    pub(super) fn think(&mut self, thought: Thought, delta: &str, draft: &mut Draft, events: &mut Vec<ReplyEvent>) {
        let Some(slot) = self.first_slot() else { return };
        if self.thoughts.last().is_none_or(|(current, _)| *current != thought) && !delta.is_empty() {
            if !draft.so_far(slot).is_empty() {
                draft.reasoning(slot, BREAK, events);
            }
            self.thoughts.push((thought, draft.so_far(slot).len()));
        }
        draft.reasoning(slot, delta, events);
    }

    /// The whole of a thought, of which something may have been told.
    pub(super) fn thought(&mut self, thought: Thought, text: &str, draft: &mut Draft, events: &mut Vec<ReplyEvent>) {
        let Some(slot) = self.first_slot() else { return };
        let told = match self.thoughts.last() {
            Some((current, start)) if *current == thought => draft.so_far(slot).get(*start..).unwrap_or_default(),
            // Another one has begun since.
            _ if self.thoughts.iter().any(|(told, _)| *told == thought) => return,
            _ => "",
        };
        if let Some(rest) = text.strip_prefix(told) {
            self.think(thought, rest, draft, events);
        }
    }

    /// The item as it is in the end.
    pub(super) fn complete(&mut self, whole: Self, draft: &mut Draft, events: &mut Vec<ReplyEvent>) {
        self.output_index = whole.output_index.or(self.output_index);
        if self.complete {
            return;
        }
        (self.id, self.json, self.complete) = (whole.id, whole.json, true);
        let is_cut = self.text("status") == "incomplete";
        self.keep(draft, events);
        match (self.kind, self.first_slot()) {
            (Kind::Call, Some(slot)) if is_cut => draft.cut_call(slot, events),
            (Kind::Call, Some(slot)) => draft.close_call(slot, events),
            _ => {}
        }
    }

    /// Keeps what came of an item that was never told whole.
    pub(super) fn keep_what_came(&mut self, complete: bool, draft: &mut Draft, events: &mut Vec<ReplyEvent>) {
        if self.complete || (self.kind == Kind::Message && self.slots.is_empty()) {
            return;
        }
        if let Some(status) = self.json.get_mut("status") {
            *status = if complete { "completed" } else { "incomplete" }.into();
        }
        self.keep(draft, events);
    }

    /// Puts the item into its slots, and tells what was not told of it.
    fn keep(&mut self, draft: &mut Draft, events: &mut Vec<ReplyEvent>) {
        let mut json = std::mem::take(&mut self.json);
        if self.kind == Kind::Message {
            self.keep_content(json.shift_remove("content"), draft, events);
        }
        let Some(slot) = self.first_slot() else { return };
        match self.kind {
            Kind::Message => {}
            Kind::Reasoning => {
                let text = thoughts(&json);
                if !text.is_empty() {
                    draft.all_text(slot, &text, events);
                }
            }
            Kind::Call => {
                if let Some(name) = json.get("name").and_then(Value::as_str).filter(|name| !name.is_empty()) {
                    draft.name_call(slot, name, events);
                }
                match json.get("arguments") {
                    Some(Value::String(text)) if !text.is_empty() => draft.all_arguments(slot, text, events),
                    Some(Value::Object(arguments)) => {
                        draft.all_arguments(slot, &Value::from(arguments.clone()).to_string(), events);
                    }
                    _ => {}
                }
                json = rest_of_call(json);
            }
            Kind::Private if json.is_empty() => return,
            Kind::Private => {
                if let Some(kept) = draft.extra(slot) {
                    *kept = json;
                }
                return;
            }
        }
        if let Some(extra) = draft.extra(slot) {
            extra.insert(ITEM.to_owned(), json.into());
        }
    }

    fn keep_content(&mut self, content: Option<Value>, draft: &mut Draft, events: &mut Vec<ReplyEvent>) {
        if let Some(Value::Array(content)) = content {
            for (index, part) in content.into_iter().enumerate() {
                if let Value::Object(part) = part {
                    self.content_part(Some(index as u64), part, false, draft, events);
                }
            }
        }
        if self.slots.is_empty() {
            // A message without content is kept in a text without content.
            self.slots.push((0, draft.open_text(events)));
        }
    }
}

/// Takes the text out of a content part, and tells whether it is a refusal.
fn take_text(part: &mut Map<String, Value>) -> (String, bool) {
    let field = text_field(part);
    let text = match part.get_mut(field) {
        Some(Value::String(text)) => std::mem::take(text),
        _ => String::new(),
    };
    (text, field == "refusal")
}

/// Everything that is shown of a reasoning item.
fn thoughts(item: &Map<String, Value>) -> String {
    let texts = ["summary", "content"].into_iter().filter_map(|field| item.get(field)?.as_array()).flatten();
    let texts: Vec<&str> =
        texts.filter_map(|part| part.get("text")?.as_str()).filter(|text| !text.is_empty()).collect();
    texts.join(BREAK)
}
