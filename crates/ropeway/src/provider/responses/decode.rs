//! An answer as this dialect streams it: items that are announced, written piece by piece, and told again whole.
//!
//! Servers differ in what they leave out, so an item is found by its id, else by its place, else by its kind; and what was not
//! told piece by piece is taken from the whole.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::head::Head;
use super::item::OUTPUT;
use super::output::{Item, Kind, Place, Source};
use crate::json;
use crate::lowering::LoweredTools;
use crate::message::{Dialect, ModelEndpoint};
use crate::provider::draft::Draft;
use crate::provider::{Cost, ProviderError, ProviderErrorKind, Reply, ReplyEvent, StopReason, Usage, trouble};

/// Items that are still being written are among the last ones; so many are looked at.
const RECENT: usize = 1000;

/// Reads an answer.
#[derive(Debug)]
pub(crate) struct Decoder {
    draft: Draft,
    items: Vec<Item>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Answering,
    /// The answer is complete, as far as the provider is concerned.
    Whole,
    /// Nothing more will come, and the answer is not complete.
    Lost,
}

impl Decoder {
    pub(crate) fn new(speaker: ModelEndpoint, lowered: Arc<LoweredTools>) -> Self {
        let draft = Draft::new(speaker, lowered).with_calls_side_by_side();
        Self { draft, items: Vec::new(), stage: Stage::Answering }
    }

    pub(crate) fn frame(&mut self, data: &[u8], events: &mut Vec<ReplyEvent>) -> Result<(), ProviderError> {
        if self.stage != Stage::Answering {
            return Ok(());
        }
        match serde_json::from_slice::<Head<'_>>(data) {
            Ok(head) if self.delta(&head, events) || !head.is_known() => Ok(()),
            _ => self.whole_frame(data, events),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.stage != Stage::Answering
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.draft.stop.is_some()
    }

    pub(crate) fn end(&mut self, events: &mut Vec<ReplyEvent>) -> Result<Reply, ProviderError> {
        if self.stage != Stage::Whole {
            self.stage = Stage::Lost;
            return Err(ProviderError::truncated(Dialect::Responses));
        }
        let complete = matches!(self.draft.stop, Some(StopReason::EndTurn | StopReason::Refusal));
        for item in &mut self.items {
            item.keep_what_came(complete, &mut self.draft, events);
        }
        self.items.retain(Item::is_kept);
        self.items.sort_by_key(Item::first_slot);
        // What was told only at the end need not be what was said last.
        if self.items.iter().all(|item| item.output_index().is_some()) {
            self.items.sort_by_key(Item::output_index);
        }
        self.draft.arrange(self.items.iter().flat_map(Item::slots));
        let id = |item: &Item| if item.id().is_empty() { Value::Null } else { item.id().into() };
        let ids: Vec<Value> = self.items.iter().map(id).collect();
        if !ids.is_empty() {
            self.draft.extra.insert(OUTPUT.to_owned(), ids.into());
        }
        Ok(self.draft.finish(events))
    }

    /// Takes more of something, if the frame is that.
    fn delta(&mut self, head: &Head<'_>, events: &mut Vec<ReplyEvent>) -> bool {
        match &*head.kind {
            "response.output_text.delta" => self.text(head, false, events),
            "response.refusal.delta" => self.text(head, true, events),
            "response.reasoning_summary_text.delta" => self.thought(head, Source::Summary, events),
            "response.reasoning_text.delta" => self.thought(head, Source::Content, events),
            "response.function_call_arguments.delta" => {
                // Without the item there is no name yet; the arguments come again whole, with it.
                if let Some(at) = self.find(Kind::Call, &head.place())
                    && let Some(slot) = self.items[at].first_slot()
                {
                    self.draft.arguments(slot, &head.delta, events);
                }
            }
            _ => return false,
        }
        true
    }

    fn text(&mut self, head: &Head<'_>, refusal: bool, events: &mut Vec<ReplyEvent>) {
        let at = self.find_or_open(Kind::Message, &head.place(), events);
        let slot = self.items[at].text_slot(head.content_index, refusal, &mut self.draft, events);
        self.draft.text(slot, &head.delta, events);
    }

    fn thought(&mut self, head: &Head<'_>, source: Source, events: &mut Vec<ReplyEvent>) {
        let at = self.find_or_open(Kind::Reasoning, &head.place(), events);
        self.items[at].think(head.thought(source), &head.delta, &mut self.draft, events);
    }

    /// Takes a frame that is more than a piece of text.
    fn whole_frame(&mut self, data: &[u8], events: &mut Vec<ReplyEvent>) -> Result<(), ProviderError> {
        match data.trim_ascii() {
            b"" => return Ok(()),
            // OpenAI does not send it, others do, after the answer.
            b"[DONE]" => {
                self.stage = Stage::Lost;
                return Ok(());
            }
            _ => {}
        }
        match json::from_slice(data) {
            Ok(Value::Object(frame)) => self.event(frame, events),
            Ok(_) => Ok(()),
            Err(error) => {
                self.stage = Stage::Lost;
                let words = "a piece of the answer is not JSON";
                Err(ProviderError::new(ProviderErrorKind::Unreadable, Dialect::Responses, words).with_source(error))
            }
        }
    }

    fn event(&mut self, mut frame: Map<String, Value>, events: &mut Vec<ReplyEvent>) -> Result<(), ProviderError> {
        let part = object(&mut frame, "part");
        let item = object(&mut frame, "item");
        let response = object(&mut frame, "response");
        let head = Head::of(&frame);
        let whole = |name| frame.get(name).and_then(Value::as_str).unwrap_or_default();
        if head.error.is_some() || head.kind == "error" {
            drop(head);
            return Err(self.broken_off(&Value::Object(frame)));
        }
        match (&*head.kind, response) {
            ("response.created" | "response.in_progress" | "response.queued", Some(response)) => self.name(&response),
            ("response.failed", response) => {
                return Err(self.failed(response.unwrap_or_default()));
            }
            ("response.completed" | "response.incomplete" | "response.cancelled", response) => {
                return self.over(&head.kind, response.unwrap_or_default(), events);
            }
            _ => {}
        }
        match (&*head.kind, item, part) {
            ("response.output_item.added", Some(item), _) => {
                let item = Item::new(item, head.output_index);
                let is_known = self.find_item(&item).is_some_and(|at| self.items[at].names().eq(item.names()));
                if item.id().is_empty() || !is_known {
                    self.open(item, events);
                }
            }
            ("response.output_item.done", Some(item), _) => {
                let item = Item::new(item, head.output_index);
                let at = self.find_item(&item);
                self.take_whole(at, item, events);
            }
            (kind @ ("response.content_part.added" | "response.content_part.done"), _, Some(part)) => {
                // Thoughts have parts too, which say nothing that their texts do not.
                let is_text = matches!(part.get("type").and_then(Value::as_str), Some("output_text" | "refusal"));
                if is_text {
                    let at = self.find_or_open(Kind::Message, &head.place(), events);
                    let is_new = kind.ends_with("added");
                    self.items[at].content_part(head.content_index, part, is_new, &mut self.draft, events);
                }
            }
            ("response.output_text.done", ..) => self.whole_text(&head, whole("text"), false, events),
            ("response.refusal.done", ..) => self.whole_text(&head, whole("refusal"), true, events),
            ("response.reasoning_summary_text.done", ..) => {
                self.whole_thought(&head, Source::Summary, whole("text"), events)
            }
            ("response.reasoning_text.done", ..) => self.whole_thought(&head, Source::Content, whole("text"), events),
            ("response.function_call_arguments.done", ..) => {
                if let Some(at) = self.find(Kind::Call, &head.place())
                    && let Some(slot) = self.items[at].first_slot()
                    && !whole("arguments").is_empty()
                {
                    self.draft.all_arguments(slot, whole("arguments"), events);
                }
            }
            _ => {
                self.delta(&head, events);
            }
        }
        Ok(())
    }

    fn whole_text(&mut self, head: &Head<'_>, text: &str, refusal: bool, events: &mut Vec<ReplyEvent>) {
        let at = self.find_or_open(Kind::Message, &head.place(), events);
        let slot = self.items[at].text_slot(head.content_index, refusal, &mut self.draft, events);
        if !text.is_empty() {
            self.draft.all_text(slot, text, events);
        }
    }

    fn whole_thought(&mut self, head: &Head<'_>, source: Source, text: &str, events: &mut Vec<ReplyEvent>) {
        let at = self.find_or_open(Kind::Reasoning, &head.place(), events);
        self.items[at].thought(head.thought(source), text, &mut self.draft, events);
    }

    fn broken_off(&mut self, error: &Value) -> ProviderError {
        self.stage = Stage::Lost;
        trouble::in_stream(Dialect::Responses, error)
    }

    fn failed(&mut self, mut response: Map<String, Value>) -> ProviderError {
        match response.remove("error").filter(|error| !error.is_null()) {
            Some(error) => self.broken_off(&error),
            None => {
                self.stage = Stage::Lost;
                ProviderError::new(
                    ProviderErrorKind::Server,
                    Dialect::Responses,
                    "the provider failed and did not say why",
                )
            }
        }
    }

    /// Learns what the answer is called and who gives it.
    fn name(&mut self, response: &Map<String, Value>) {
        let text = |name| response.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        if let Some(id) = text("id") {
            self.draft.id = Some(id.to_owned());
        }
        if let Some(model) = text("model") {
            self.draft.model = Some(model.to_owned());
        }
    }

    /// The answer is over. What was not told before is in here.
    fn over(
        &mut self,
        kind: &str,
        mut response: Map<String, Value>,
        events: &mut Vec<ReplyEvent>,
    ) -> Result<(), ProviderError> {
        self.name(&response);
        // Not everybody tells by the event what became of the answer.
        let status = match response.get("status").and_then(Value::as_str) {
            Some(status @ ("failed" | "cancelled" | "incomplete")) => status.to_owned(),
            _ => kind.trim_start_matches("response.").to_owned(),
        };
        if status == "failed" {
            return Err(self.failed(response));
        }
        if let Some(Value::Array(output)) = response.remove("output") {
            self.reconcile(output, events);
        }
        let reason =
            response.get("incomplete_details").and_then(|details| details.get("reason")).and_then(Value::as_str);
        let refused = self.items.iter().any(Item::is_refusal);
        self.draft.stop = Some(match (&*status, reason) {
            ("completed", _) if refused => StopReason::Refusal,
            ("completed", _) => StopReason::EndTurn,
            ("incomplete", Some("max_output_tokens")) => StopReason::MaxTokens,
            ("incomplete", Some("content_filter")) => StopReason::ContentFilter,
            ("incomplete", Some(reason)) => StopReason::Other(reason.to_owned()),
            (status, _) => StopReason::Other(status.to_owned()),
        });
        if let Some(usage) = response.get("usage").and_then(usage) {
            self.draft.cost(usage, events);
        }
        self.stage = Stage::Whole;
        Ok(())
    }

    /// Takes from the whole output what did not come as an item of its own. Nothing in it is told twice.
    fn reconcile(&mut self, output: Vec<Value>, events: &mut Vec<ReplyEvent>) {
        let whole = output.into_iter().zip(0..).filter_map(|(item, place)| match item {
            Value::Object(item) => Some(Item::new(item, Some(place))),
            _ => None,
        });
        let whole: Vec<Item> = whole.collect();
        // A name that several have is nobody's.
        let mut by_name: HashMap<(Kind, &str), Option<usize>> = HashMap::new();
        let mut by_place: HashMap<(Kind, Option<u64>), usize> = HashMap::new();
        for (at, item) in self.items.iter().enumerate() {
            for name in item.names() {
                let named = by_name.entry((item.kind(), name)).or_insert(Some(at));
                *named = named.filter(|named| *named == at);
            }
            by_place.entry((item.kind(), item.output_index())).or_insert(at);
        }
        let mut is_free = vec![true; self.items.len()];
        let mut claim = |at: Option<usize>| at.filter(|at| std::mem::take(&mut is_free[*at]));
        let named = |item: &Item| item.names().find_map(|name| *by_name.get(&(item.kind(), name))?);
        let mut places: Vec<Option<usize>> = whole.iter().map(|item| claim(named(item))).collect();
        // Some servers have no ids, or others each time.
        for (item, found) in whole.iter().zip(&mut places) {
            *found = found.or_else(|| claim(by_place.get(&(item.kind(), item.output_index())).copied()));
        }
        // The rest are the same in the same order.
        let mut left: HashMap<Kind, Vec<usize>> = HashMap::new();
        for at in (0..is_free.len()).rev().filter(|at| is_free[*at]) {
            left.entry(self.items[at].kind()).or_default().push(at);
        }
        for (item, found) in whole.into_iter().zip(places) {
            let at = found.or_else(|| left.get_mut(&item.kind()).and_then(Vec::pop));
            self.take_whole(at, item, events);
        }
    }

    /// Takes an item that is complete: the one at this place, or a new one.
    fn take_whole(&mut self, at: Option<usize>, whole: Item, events: &mut Vec<ReplyEvent>) {
        let at = at.unwrap_or_else(|| self.open(whole.announced(), events));
        self.items[at].complete(whole, &mut self.draft, events);
    }

    fn open(&mut self, mut item: Item, events: &mut Vec<ReplyEvent>) -> usize {
        item.open(&mut self.draft, events);
        self.items.push(item);
        self.items.len() - 1
    }

    fn find(&self, kind: Kind, place: &Place<'_>) -> Option<usize> {
        let recent = self.items.len().saturating_sub(RECENT);
        let find = |wanted: &dyn Fn(&Item) -> bool| {
            let found = self.items[recent..].iter().rposition(|item| item.kind() == kind && wanted(item))?;
            Some(recent + found)
        };
        let by_id = || find(&|item| item.id() == place.id);
        let by_place = |place: u64| find(&|item| item.is_open() && item.output_index() == Some(place));
        match (place.id, place.output_index) {
            ("", None) => find(&Item::is_open),
            ("", Some(place)) => by_place(place),
            (_, None) => by_id(),
            (_, Some(place)) => by_id().or_else(|| by_place(place)),
        }
    }

    /// Finds the item that this one is; ids are not always different.
    fn find_item(&self, item: &Item) -> Option<usize> {
        let found = self.find(item.kind(), &Place { id: item.id(), output_index: item.output_index() })?;
        (self.items[found].is_open() || self.items[found].names().eq(item.names())).then_some(found)
    }

    fn find_or_open(&mut self, kind: Kind, place: &Place<'_>, events: &mut Vec<ReplyEvent>) -> usize {
        match self.find(kind, place) {
            Some(at) => at,
            None => self.open(Item::unannounced(kind, place), events),
        }
    }
}

fn object(frame: &mut Map<String, Value>, name: &str) -> Option<Map<String, Value>> {
    match frame.get_mut(name).map(Value::take) {
        Some(Value::Object(object)) => Some(object),
        _ => None,
    }
}

fn usage(usage: &Value) -> Option<Usage> {
    usage.as_object()?;
    let count = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
    Some(Usage {
        input: count("/input_tokens"),
        output: count("/output_tokens"),
        cache_read: count("/input_tokens_details/cached_tokens"),
        cache_write: count("/input_tokens_details/cache_write_tokens"),
        reasoning: count("/output_tokens_details/reasoning_tokens"),
        cost: Cost::of_usage(usage),
    })
}
