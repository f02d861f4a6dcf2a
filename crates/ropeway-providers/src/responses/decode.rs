//! Decodes a [Responses event](https://platform.openai.com/docs/api-reference/responses-streaming) stream.
//!
//! Items are announced, sent as deltas, and repeated as a whole. Servers differ in what they omit, so an item is found by its id,
//! else by its index, else by its type, and missing deltas are taken from the complete item.

use std::collections::HashMap;
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::event_frame::{EventFrame, ResponseFields};
use super::event_head::EventHead;
use super::item_fields::OUTPUT;
use super::output_item::{ItemKind, ItemRef, OutputItem, ReasoningSource};
use crate::cost::Cost;
use crate::error::{ProviderError, ProviderErrorKind};
use crate::error_mapping;
use crate::reply::{Reply, ReplyEvent, StopReason, Usage};
use crate::reply_builder::ReplyBuilder;
use ropeway_core::json;
use ropeway_core::lowering::LoweredTools;
use ropeway_core::message::{Dialect, ModelEndpoint};

/// How many of the last items are searched. Open items are among them.
const MAX_SEARCHED: usize = 1000;

/// Decodes one reply's events.
#[derive(Debug)]
pub(crate) struct ResponsesDecoder {
    reply: ReplyBuilder,
    items: Vec<OutputItem>,
    state: DecoderState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecoderState {
    Streaming,
    /// The provider has completed the reply.
    Complete,
    /// The reply ended before it was complete.
    Failed,
}

impl ResponsesDecoder {
    pub(crate) fn new(endpoint: ModelEndpoint, lowered: Arc<LoweredTools>) -> Self {
        let reply = ReplyBuilder::new(endpoint, lowered).with_parallel_calls();
        Self { reply, items: Vec::new(), state: DecoderState::Streaming }
    }

    pub(crate) fn frame(&mut self, data: &[u8], events: &mut Vec<ReplyEvent>) -> Result<(), ProviderError> {
        if self.state != DecoderState::Streaming {
            return Ok(());
        }
        if !is_object(data) {
            return self.parse(data, events);
        }
        match serde_json::from_slice::<EventHead<'_>>(data) {
            Ok(head) if (!head.is_error && self.text_event(&head, events)) || !head.is_known() => Ok(()),
            _ => self.parse(data, events),
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.state != DecoderState::Streaming
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.reply.stop.is_some()
    }

    pub(crate) fn end(&mut self, events: &mut Vec<ReplyEvent>) -> Result<Reply, ProviderError> {
        if self.state != DecoderState::Complete {
            self.state = DecoderState::Failed;
            return Err(ProviderError::truncated(Dialect::Responses));
        }
        let complete = matches!(self.reply.stop, Some(StopReason::EndTurn | StopReason::Refusal));
        for item in &mut self.items {
            item.store_incomplete(complete, &mut self.reply, events);
        }
        self.items.retain(OutputItem::has_slots);
        self.items.sort_by_key(OutputItem::first_slot);
        // Items that were received only at the end may belong before others.
        if self.items.iter().all(|item| item.output_index().is_some()) {
            self.items.sort_by_key(OutputItem::output_index);
        }
        self.reply.reorder(self.items.iter().flat_map(OutputItem::slots));
        let id = |item: &OutputItem| if item.id().is_empty() { Value::Null } else { item.id().into() };
        let ids: Vec<Value> = self.items.iter().map(id).collect();
        if !ids.is_empty() {
            self.reply.extra.insert(OUTPUT.to_owned(), ids.into());
        }
        Ok(self.reply.finish(events))
    }

    /// Decodes a text event, or the start of the reply. Returns `false` for other events.
    fn text_event(&mut self, head: &EventHead<'_>, events: &mut Vec<ReplyEvent>) -> bool {
        match &*head.kind {
            "response.created" | "response.in_progress" | "response.queued" => {
                if let Some(response) = &head.response {
                    self.set_id_and_model(&response.id, &response.model);
                }
            }
            "response.output_text.delta" => self.push_text(head, false, events),
            "response.refusal.delta" => self.push_text(head, true, events),
            "response.reasoning_summary_text.delta" => self.push_reasoning(head, ReasoningSource::Summary, events),
            "response.reasoning_text.delta" => self.push_reasoning(head, ReasoningSource::Content, events),
            "response.function_call_arguments.delta" => {
                // The complete item repeats an unknown item's arguments.
                if let Some(at) = self.find(ItemKind::Call, &head.item())
                    && let Some(slot) = self.items[at].first_slot()
                {
                    self.reply.push_arguments(slot, &head.delta, events);
                }
            }
            "response.output_text.done" => self.set_text(head, &head.text, false, events),
            "response.refusal.done" => self.set_text(head, &head.refusal, true, events),
            "response.reasoning_summary_text.done" => self.set_reasoning(head, ReasoningSource::Summary, events),
            "response.reasoning_text.done" => self.set_reasoning(head, ReasoningSource::Content, events),
            "response.function_call_arguments.done" => {
                if let Some(at) = self.find(ItemKind::Call, &head.item())
                    && let Some(slot) = self.items[at].first_slot()
                    && !head.arguments.is_empty()
                {
                    self.reply.set_arguments(slot, &head.arguments, events);
                }
            }
            _ => return false,
        }
        true
    }

    fn push_text(&mut self, head: &EventHead<'_>, refusal: bool, events: &mut Vec<ReplyEvent>) {
        let at = self.find_or_open(ItemKind::Message, &head.item(), events);
        let slot = self.items[at].text_slot(head.content_index, refusal, &mut self.reply, events);
        self.reply.push_text(slot, &head.delta, events);
    }

    fn push_reasoning(&mut self, head: &EventHead<'_>, source: ReasoningSource, events: &mut Vec<ReplyEvent>) {
        let at = self.find_or_open(ItemKind::Reasoning, &head.item(), events);
        self.items[at].push_reasoning(head.reasoning(source), &head.delta, &mut self.reply, events);
    }

    /// Parses an event that is more than a text, or has an unexpected field.
    fn parse(&mut self, data: &[u8], events: &mut Vec<ReplyEvent>) -> Result<(), ProviderError> {
        match data.trim_ascii() {
            b"" => return Ok(()),
            // Sent by compatible servers, not by OpenAI.
            b"[DONE]" => {
                self.state = DecoderState::Failed;
                return Ok(());
            }
            _ => {}
        }
        match json::from_slice(data) {
            Ok(frame) => self.event(frame, events),
            Err(_) if !is_object(data) && json::from_slice::<IgnoredAny>(data).is_ok() => Ok(()),
            Err(error) => {
                self.state = DecoderState::Failed;
                let message = "an event of the reply is not JSON";
                Err(ProviderError::new(ProviderErrorKind::Unreadable, Dialect::Responses, message).with_source(error))
            }
        }
    }

    fn event(&mut self, mut frame: EventFrame, events: &mut Vec<ReplyEvent>) -> Result<(), ProviderError> {
        let part = object(&mut frame.fields, "part");
        let item = object(&mut frame.fields, "item");
        let head = EventHead::of(&frame);
        if head.is_error || head.kind == "error" {
            drop(head);
            return Err(self.reported_error(&Value::Object(frame.fields)));
        }
        if self.text_event(&head, events) {
            return Ok(());
        }
        match (&*head.kind, item, part) {
            ("response.failed", ..) => {
                drop(head);
                return Err(self.failed(&frame.response.unwrap_or_default()));
            }
            ("response.completed" | "response.incomplete" | "response.cancelled", ..) => {
                let kind = head.kind.into_owned();
                return self.complete(&kind, frame.response.unwrap_or_default(), events);
            }
            ("response.output_item.added", Some(item), _) => {
                let item = OutputItem::new(item, head.output_index);
                let is_known = self.find_item(&item).is_some_and(|at| self.items[at].ids().eq(item.ids()));
                if item.id().is_empty() || !is_known {
                    self.open(item, events);
                }
            }
            ("response.output_item.done", Some(item), _) => {
                let item = OutputItem::new(item, head.output_index);
                let at = self.find_item(&item);
                self.complete_item(at, item, events);
            }
            (kind @ ("response.content_part.added" | "response.content_part.done"), _, Some(part)) => {
                // The content parts repeat the reasoning texts.
                let is_text = matches!(part.get("type").and_then(Value::as_str), Some("output_text" | "refusal"));
                if is_text {
                    let at = self.find_or_open(ItemKind::Message, &head.item(), events);
                    let is_new = kind.ends_with("added");
                    self.items[at].content_part(head.content_index, part, is_new, &mut self.reply, events);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn set_text(&mut self, head: &EventHead<'_>, text: &str, refusal: bool, events: &mut Vec<ReplyEvent>) {
        let at = self.find_or_open(ItemKind::Message, &head.item(), events);
        let slot = self.items[at].text_slot(head.content_index, refusal, &mut self.reply, events);
        if !text.is_empty() {
            self.reply.set_text(slot, text, events);
        }
    }

    fn set_reasoning(&mut self, head: &EventHead<'_>, source: ReasoningSource, events: &mut Vec<ReplyEvent>) {
        let at = self.find_or_open(ItemKind::Reasoning, &head.item(), events);
        self.items[at].complete_reasoning(head.reasoning(source), &head.text, &mut self.reply, events);
    }

    fn reported_error(&mut self, error: &Value) -> ProviderError {
        self.state = DecoderState::Failed;
        error_mapping::from_event(Dialect::Responses, error)
    }

    fn failed(&mut self, response: &ResponseFields) -> ProviderError {
        if !response.error.is_null() {
            return self.reported_error(&response.error);
        }
        self.state = DecoderState::Failed;
        ProviderError::new(ProviderErrorKind::Server, Dialect::Responses, "the provider failed without a reason")
    }

    fn set_id_and_model(&mut self, id: &str, model: &str) {
        if !id.is_empty() {
            self.reply.id = Some(id.to_owned());
        }
        if !model.is_empty() {
            self.reply.model = Some(model.to_owned());
        }
    }

    /// Completes the reply with the final response, which may hold items that were not sent before.
    fn complete(
        &mut self,
        kind: &str,
        response: ResponseFields,
        events: &mut Vec<ReplyEvent>,
    ) -> Result<(), ProviderError> {
        self.set_id_and_model(response.id.as_str().unwrap_or_default(), response.model.as_str().unwrap_or_default());
        // Some servers send `response.completed` with another status.
        let status = match response.status.as_str() {
            Some(status @ ("failed" | "cancelled" | "incomplete")) => status,
            _ => kind.trim_start_matches("response."),
        };
        if status == "failed" {
            return Err(self.failed(&response));
        }
        if let Value::Array(output) = response.output {
            self.reconcile(output, events);
        }
        let reason = response.incomplete_details.get("reason").and_then(Value::as_str);
        let refused = self.items.iter().any(OutputItem::is_refusal);
        self.reply.stop = Some(match (status, reason) {
            ("completed", _) if refused => StopReason::Refusal,
            ("completed", _) => StopReason::EndTurn,
            ("incomplete", Some("max_output_tokens")) => StopReason::MaxTokens,
            ("incomplete", Some("content_filter")) => StopReason::ContentFilter,
            ("incomplete", Some(reason)) => StopReason::Other(reason.to_owned()),
            (status, _) => StopReason::Other(status.to_owned()),
        });
        if let Some(usage) = usage(&response.usage) {
            self.reply.set_usage(usage, events);
        }
        self.state = DecoderState::Complete;
        Ok(())
    }

    /// Matches the final response's items with those received before, and adds the others.
    fn reconcile(&mut self, output: Vec<Value>, events: &mut Vec<ReplyEvent>) {
        let whole = output.into_iter().zip(0..).filter_map(|(item, place)| match item {
            Value::Object(item) => Some(OutputItem::new(item, Some(place))),
            _ => None,
        });
        let whole: Vec<OutputItem> = whole.collect();
        // An id that several items share identifies none of them.
        let mut by_id: HashMap<(ItemKind, &str), Option<usize>> = HashMap::new();
        let mut by_index: HashMap<(ItemKind, Option<u64>), usize> = HashMap::new();
        for (at, item) in self.items.iter().enumerate() {
            for id in item.ids() {
                let found = by_id.entry((item.kind(), id)).or_insert(Some(at));
                *found = found.filter(|found| *found == at);
            }
            by_index.entry((item.kind(), item.output_index())).or_insert(at);
        }
        let mut is_free = vec![true; self.items.len()];
        let mut claim = |at: Option<usize>| at.filter(|at| std::mem::take(&mut is_free[*at]));
        let find_by_id = |item: &OutputItem| item.ids().find_map(|id| *by_id.get(&(item.kind(), id))?);
        let mut matches: Vec<Option<usize>> = whole.iter().map(|item| claim(find_by_id(item))).collect();
        // Some servers send no ids, or different ones each time.
        for (item, found) in whole.iter().zip(&mut matches) {
            *found = found.or_else(|| claim(by_index.get(&(item.kind(), item.output_index())).copied()));
        }
        // The remaining items are matched by type, in order.
        let mut left: HashMap<ItemKind, Vec<usize>> = HashMap::new();
        for at in (0..is_free.len()).rev().filter(|at| is_free[*at]) {
            left.entry(self.items[at].kind()).or_default().push(at);
        }
        for (item, found) in whole.into_iter().zip(matches) {
            let at = found.or_else(|| left.get_mut(&item.kind()).and_then(Vec::pop));
            self.complete_item(at, item, events);
        }
    }

    /// Completes the item at this index, or adds a new one.
    fn complete_item(&mut self, at: Option<usize>, whole: OutputItem, events: &mut Vec<ReplyEvent>) {
        let at = at.unwrap_or_else(|| self.open(whole.announced(), events));
        self.items[at].complete(whole, &mut self.reply, events);
    }

    fn open(&mut self, mut item: OutputItem, events: &mut Vec<ReplyEvent>) -> usize {
        item.open(&mut self.reply, events);
        self.items.push(item);
        self.items.len() - 1
    }

    fn find(&self, kind: ItemKind, item: &ItemRef<'_>) -> Option<usize> {
        let recent = self.items.len().saturating_sub(MAX_SEARCHED);
        let find = |wanted: &dyn Fn(&OutputItem) -> bool| {
            let found = self.items[recent..].iter().rposition(|item| item.kind() == kind && wanted(item))?;
            Some(recent + found)
        };
        let by_id = || find(&|other| other.id() == item.id);
        let by_index = |index: u64| find(&|other| other.is_open() && other.output_index() == Some(index));
        match (item.id, item.output_index) {
            ("", None) => find(&OutputItem::is_open),
            ("", Some(index)) => by_index(index),
            (_, None) => by_id(),
            (_, Some(index)) => by_id().or_else(|| by_index(index)),
        }
    }

    /// Finds an item that was received before. Ids are not always unique.
    fn find_item(&self, item: &OutputItem) -> Option<usize> {
        let found = self.find(item.kind(), &ItemRef { id: item.id(), output_index: item.output_index() })?;
        (self.items[found].is_open() || self.items[found].ids().eq(item.ids())).then_some(found)
    }

    fn find_or_open(&mut self, kind: ItemKind, item: &ItemRef<'_>, events: &mut Vec<ReplyEvent>) -> usize {
        match self.find(kind, item) {
            Some(at) => at,
            None => self.open(OutputItem::unannounced(kind, item), events),
        }
    }
}

/// Returns `true` if JSON text is an object. An array must not be decoded as a struct.
fn is_object(data: &[u8]) -> bool {
    data.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(data).trim_ascii_start().starts_with(b"{")
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
