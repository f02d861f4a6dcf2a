//! Builds a reply from any dialect's events.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::reply::{Reply, ReplyEvent, StopReason, Usage};
use ropeway_core::lowering::LoweredTools;
use ropeway_core::message::{AssistantMessage, AssistantPart, AssistantText, CallArguments, ModelEndpoint, ToolCall};

/// The field in a call's `extra` with the arguments as the model wrote them, if serializing them again changes the text.
pub(super) const RAW_ARGUMENTS: &str = "arguments";

/// The problem when the maximum length cut off a call.
const TOO_LONG: &str = "the arguments were cut off: the reply reached its maximum length";

/// The problem when a call was cut off for another reason.
const CUT_OFF: &str = "the call was cut off before it was complete";

/// A reply under construction. Its parts are in slots, in the order they were opened.
#[derive(Debug)]
pub(super) struct ReplyBuilder {
    endpoint: ModelEndpoint,
    lowered: Arc<LoweredTools>,
    slots: Vec<PartSlot>,
    calls: usize,
    /// The calls before this slot were emitted.
    settled: usize,
    /// Several calls may be open at once.
    parallel_calls: bool,
    /// Usage so far.
    pub(super) usage: Usage,
    /// The stop reason, once it is known.
    pub(super) stop: Option<StopReason>,
    /// The provider's reply id.
    pub(super) id: Option<String>,
    /// The model that replies.
    pub(super) model: Option<String>,
    /// Message fields that are sent back to the endpoint.
    pub(super) extra: Map<String, Value>,
    warnings: Vec<String>,
}

#[derive(Debug)]
enum PartSlot {
    Done(AssistantPart),
    Call(CallBuilder),
}

#[derive(Debug)]
struct CallBuilder {
    index: usize,
    id: String,
    /// The dialect's name for the tool; empty until it is known.
    wire_name: String,
    json: String,
    /// Arguments that arrived before the name, and were not emitted yet.
    pending: String,
    extra: Map<String, Value>,
}

impl ReplyBuilder {
    pub(super) fn new(endpoint: ModelEndpoint, lowered: Arc<LoweredTools>) -> Self {
        Self {
            endpoint,
            lowered,
            slots: Vec::new(),
            calls: 0,
            settled: 0,
            parallel_calls: false,
            usage: Usage::default(),
            stop: None,
            id: None,
            model: None,
            extra: Map::new(),
            warnings: Vec::new(),
        }
    }

    /// Allows several open calls. They are complete when the reply ends, or when they are closed.
    pub(super) fn with_parallel_calls(mut self) -> Self {
        self.parallel_calls = true;
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn call_count(&self) -> usize {
        self.calls
    }

    /// Opens a text slot.
    pub(super) fn open_text(&mut self, events: &mut Vec<ReplyEvent>) -> usize {
        self.open(PartSlot::Done(AssistantPart::Text(AssistantText::default())), events)
    }

    /// Opens a reasoning slot.
    pub(super) fn open_reasoning(&mut self, events: &mut Vec<ReplyEvent>) -> usize {
        self.open(PartSlot::Done(AssistantPart::Reasoning(AssistantText::default())), events)
    }

    /// Adds a part that only the endpoint understands.
    pub(super) fn push_opaque(&mut self, json: Map<String, Value>, events: &mut Vec<ReplyEvent>) -> usize {
        self.open(PartSlot::Done(AssistantPart::Opaque { json }), events)
    }

    /// Opens a call. Its name may follow later. A call without an id gets one from the reply's id and its index.
    pub(super) fn open_call(&mut self, id: &str, wire_name: &str, events: &mut Vec<ReplyEvent>) -> usize {
        let index = self.calls;
        self.calls += 1;
        let id = match (id, &self.id) {
            ("", Some(reply)) => format!("call_{reply}_{index}"),
            ("", None) => format!("call_{index}"),
            (id, _) => id.to_owned(),
        };
        let call = CallBuilder {
            index,
            id,
            wire_name: String::new(),
            json: String::new(),
            pending: String::new(),
            extra: Map::new(),
        };
        let slot = self.open(PartSlot::Call(call), events);
        if !wire_name.is_empty() {
            self.name_call(slot, wire_name, events);
        }
        slot
    }

    /// Sets a call's name, once.
    pub(super) fn name_call(&mut self, slot: usize, wire_name: &str, events: &mut Vec<ReplyEvent>) {
        let own_name = self.own_name(wire_name).to_owned();
        if let Some(PartSlot::Call(call)) = self.slots.get_mut(slot)
            && call.wire_name.is_empty()
        {
            call.wire_name = wire_name.to_owned();
            events.push(ReplyEvent::ToolCallStarted { index: call.index, id: call.id.clone(), name: own_name });
            if !call.pending.is_empty() {
                let json = std::mem::take(&mut call.pending);
                events.push(ReplyEvent::ToolCallDelta { index: call.index, json });
            }
        }
    }

    fn open(&mut self, slot: PartSlot, events: &mut Vec<ReplyEvent>) -> usize {
        // A part followed by another was not cut off.
        if !self.parallel_calls {
            self.settle(events, None);
        }
        self.slots.push(slot);
        self.slots.len() - 1
    }

    /// Appends text.
    pub(super) fn push_text(&mut self, slot: usize, delta: &str, events: &mut Vec<ReplyEvent>) {
        if let Some(PartSlot::Done(AssistantPart::Text(part))) = self.slots.get_mut(slot)
            && !delta.is_empty()
        {
            part.text.push_str(delta);
            events.push(ReplyEvent::Text(delta.to_owned()));
        }
    }

    /// Appends reasoning.
    pub(super) fn push_reasoning(&mut self, slot: usize, delta: &str, events: &mut Vec<ReplyEvent>) {
        if let Some(PartSlot::Done(AssistantPart::Reasoning(part))) = self.slots.get_mut(slot)
            && !delta.is_empty()
        {
            part.text.push_str(delta);
            events.push(ReplyEvent::Reasoning(delta.to_owned()));
        }
    }

    /// Appends a call's arguments.
    pub(super) fn push_arguments(&mut self, slot: usize, delta: &str, events: &mut Vec<ReplyEvent>) {
        if let Some(PartSlot::Call(call)) = self.slots.get_mut(slot)
            && !delta.is_empty()
        {
            call.json.push_str(delta);
            if call.wire_name.is_empty() {
                call.pending.push_str(delta);
            } else {
                events.push(ReplyEvent::ToolCallDelta { index: call.index, json: delta.to_owned() });
            }
        }
    }

    /// Replaces a call's arguments with the complete ones, and emits the difference.
    pub(super) fn set_arguments(&mut self, slot: usize, json: &str, events: &mut Vec<ReplyEvent>) {
        let Some(PartSlot::Call(call)) = self.slots.get_mut(slot) else { return };
        match json.strip_prefix(&call.json) {
            Some(rest) => {
                let rest = rest.to_owned();
                self.push_arguments(slot, &rest, events);
            }
            None => json.clone_into(&mut call.json),
        }
    }

    /// Replaces text or reasoning by the complete one, and emits the difference.
    pub(super) fn set_text(&mut self, slot: usize, whole: &str, events: &mut Vec<ReplyEvent>) {
        match (whole.strip_prefix(self.content(slot)), self.slots.get_mut(slot)) {
            (Some(rest), Some(PartSlot::Done(AssistantPart::Text(_)))) => self.push_text(slot, rest, events),
            (Some(rest), Some(PartSlot::Done(AssistantPart::Reasoning(_)))) => self.push_reasoning(slot, rest, events),
            (None, Some(PartSlot::Done(AssistantPart::Text(part)))) => whole.clone_into(&mut part.text),
            (None, Some(PartSlot::Done(AssistantPart::Reasoning(part)))) => whole.clone_into(&mut part.text),
            _ => {}
        }
    }

    /// Emits a complete call.
    pub(super) fn close_call(&mut self, slot: usize, events: &mut Vec<ReplyEvent>) {
        self.settle_slot(slot, None, events);
    }

    /// Emits a call that was cut off, as one with invalid arguments.
    pub(super) fn close_truncated_call(&mut self, slot: usize, events: &mut Vec<ReplyEvent>) {
        self.settle_slot(slot, Some(TOO_LONG), events);
    }

    /// Returns a slot's arguments or text so far.
    pub(super) fn content(&self, slot: usize) -> &str {
        match self.slots.get(slot) {
            Some(PartSlot::Call(call)) => &call.json,
            Some(PartSlot::Done(AssistantPart::Text(part))) => &part.text,
            Some(PartSlot::Done(AssistantPart::Reasoning(part))) => &part.text,
            _ => "",
        }
    }

    /// Returns the part's fields that are sent back to the endpoint.
    pub(super) fn extra_mut(&mut self, slot: usize) -> Option<&mut Map<String, Value>> {
        match self.slots.get_mut(slot)? {
            PartSlot::Call(call) => Some(&mut call.extra),
            PartSlot::Done(AssistantPart::Text(part)) => Some(&mut part.extra),
            PartSlot::Done(AssistantPart::Reasoning(part)) => Some(&mut part.extra),
            PartSlot::Done(AssistantPart::ToolCall(call)) => Some(&mut call.extra),
            PartSlot::Done(AssistantPart::Opaque { json }) => Some(json),
        }
    }

    /// Reorders the slots. Slots that are not in `order` follow at the end.
    pub(super) fn reorder(&mut self, order: impl IntoIterator<Item = usize>) {
        let mut slots: Vec<Option<PartSlot>> = std::mem::take(&mut self.slots).into_iter().map(Some).collect();
        self.slots = order.into_iter().filter_map(|at| slots.get_mut(at)?.take()).collect();
        self.slots.extend(slots.into_iter().flatten());
    }

    /// Emits a warning.
    pub(super) fn warn(&mut self, warning: impl Into<String>, events: &mut Vec<ReplyEvent>) {
        let warning = warning.into();
        self.warnings.push(warning.clone());
        events.push(ReplyEvent::Warning(warning));
    }

    /// Sets the usage so far, and emits it if it changed.
    pub(super) fn set_usage(&mut self, usage: Usage, events: &mut Vec<ReplyEvent>) {
        if self.usage != usage {
            self.usage = usage;
            events.push(ReplyEvent::Usage(usage));
        }
    }

    /// Returns a tool's name in the request. An unknown name is kept.
    fn own_name<'a>(&'a self, wire_name: &'a str) -> &'a str {
        self.lowered.by_wire_name(wire_name).map_or(wire_name, |tool| &tool.name)
    }

    /// Emits all calls so far as complete.
    pub(super) fn close_calls(&mut self, events: &mut Vec<ReplyEvent>) {
        self.settle(events, None);
    }

    /// Emits all open calls. `problem` applies to the last one, if it is a call.
    fn settle(&mut self, events: &mut Vec<ReplyEvent>, problem: Option<&str>) {
        let end = self.slots.len();
        for at in self.settled..end {
            self.settle_slot(at, problem.filter(|_| at + 1 == end), events);
        }
        self.settled = end;
    }

    fn settle_slot(&mut self, at: usize, problem: Option<&str>, events: &mut Vec<ReplyEvent>) {
        let Some(slot @ PartSlot::Call(_)) = self.slots.get_mut(at) else { return };
        let placeholder = PartSlot::Done(AssistantPart::Opaque { json: Map::new() });
        let PartSlot::Call(builder) = std::mem::replace(slot, placeholder) else { return };
        let index = builder.index;
        let call = self.build_call(builder, problem);
        events.push(ReplyEvent::ToolCall { index, call: call.clone() });
        self.slots[at] = PartSlot::Done(AssistantPart::ToolCall(call));
    }

    fn build_call(&self, builder: CallBuilder, problem: Option<&str>) -> ToolCall {
        let CallBuilder { id, wire_name, json, mut extra, .. } = builder;
        let arguments = match (problem, CallArguments::read(&json)) {
            (Some(problem), _) => CallArguments::broken(json, problem),
            (None, CallArguments::Object(arguments)) => {
                let tool = self.lowered.by_wire_name(&wire_name);
                let arguments = match tool {
                    Some(tool) => tool.from_wire(arguments),
                    None => arguments,
                };
                let again = tool.map_or(Cow::Borrowed(&arguments), |tool| tool.to_wire(&arguments));
                if !json.trim().is_empty() && serde_json::to_string(&again).is_ok_and(|again| again != json) {
                    extra.insert(RAW_ARGUMENTS.to_owned(), json.into());
                }
                CallArguments::Object(arguments)
            }
            (None, broken) => broken,
        };
        ToolCall { id, name: self.own_name(&wire_name).to_owned(), arguments, extra }
    }

    /// Emits the open calls and returns the complete reply.
    pub(super) fn finish(&mut self, events: &mut Vec<ReplyEvent>) -> Reply {
        let stop = match self.stop.take().unwrap_or(StopReason::EndTurn) {
            // Some servers report that the turn has ended although they wait for results.
            StopReason::EndTurn | StopReason::StopSequence if self.calls > 0 => StopReason::ToolUse,
            stop => stop,
        };
        let problem = match stop {
            StopReason::ToolUse | StopReason::EndTurn | StopReason::StopSequence | StopReason::Pause => None,
            StopReason::MaxTokens | StopReason::ContextWindow => Some(TOO_LONG),
            _ => Some(CUT_OFF),
        };
        self.settle(events, problem);
        let parts = std::mem::take(&mut self.slots).into_iter().filter_map(|slot| match slot {
            PartSlot::Done(part) => Some(part),
            PartSlot::Call(_) => None,
        });
        let mut message = AssistantMessage::new(parts.collect());
        message.from = Some(self.endpoint.clone());
        message.extra = std::mem::take(&mut self.extra);
        Reply {
            message,
            stop,
            usage: self.usage,
            id: self.id.take(),
            model: self.model.take(),
            warnings: std::mem::take(&mut self.warnings),
        }
    }
}
