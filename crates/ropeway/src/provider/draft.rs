//! An answer in the making: what the decoders of all dialects put their pieces into.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::reply::{Reply, ReplyEvent, StopReason, Usage};
use crate::lowering::LoweredTools;
use crate::message::{
    AssistantMessage, AssistantPart, AssistantText, CallArguments, ModelEndpoint, OpaquePart, Reasoning, ToolCall,
};

/// The field of a call's `extra` that holds its arguments as they were written, where writing them again gives another text.
pub(super) const WRITTEN: &str = "arguments";

/// What is wrong with a call at which the answer had become too long.
const TOO_LONG: &str = "the arguments were cut off: the answer had become too long";

/// What is wrong with a call at which the answer ended for another reason.
const BROKEN_OFF: &str = "the call was broken off before it was whole";

/// An answer in the making. Its parts are in slots, in the order they were opened.
#[derive(Debug)]
pub(super) struct Draft {
    speaker: ModelEndpoint,
    lowered: Arc<LoweredTools>,
    slots: Vec<Slot>,
    calls: usize,
    /// The calls before this slot have been handed on.
    settled: usize,
    /// Calls may grow while others are open.
    side_by_side: bool,
    /// What it has cost so far.
    pub(super) usage: Usage,
    /// Why it stopped, once that is known.
    pub(super) stop: Option<StopReason>,
    /// The provider's name for the answer.
    pub(super) id: Option<String>,
    /// The model that answers.
    pub(super) model: Option<String>,
    /// Fields of the whole message that go back to the speaker.
    pub(super) extra: Map<String, Value>,
    warnings: Vec<String>,
}

#[derive(Debug)]
enum Slot {
    Done(AssistantPart),
    Call(CallDraft),
}

#[derive(Debug)]
struct CallDraft {
    index: usize,
    id: String,
    /// The dialect's name for the tool; empty until it is known.
    wire_name: String,
    json: String,
    /// What came of the arguments before the name was known, and so could not be told yet.
    untold: String,
    extra: Map<String, Value>,
}

impl Draft {
    /// Nothing was said yet.
    pub(super) fn new(speaker: ModelEndpoint, lowered: Arc<LoweredTools>) -> Self {
        Self {
            speaker,
            lowered,
            slots: Vec::new(),
            calls: 0,
            settled: 0,
            side_by_side: false,
            usage: Usage::default(),
            stop: None,
            id: None,
            model: None,
            extra: Map::new(),
            warnings: Vec::new(),
        }
    }

    /// Calls may grow side by side: they are whole when the answer is, or when they are closed.
    pub(super) fn with_calls_side_by_side(mut self) -> Self {
        self.side_by_side = true;
        self
    }

    /// Was nothing said yet?
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// How many calls there are so far.
    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    /// Opens a slot of text.
    pub(super) fn open_text(&mut self, events: &mut Vec<ReplyEvent>) -> usize {
        self.open(Slot::Done(AssistantPart::Text(AssistantText::default())), events)
    }

    /// Opens a slot of reasoning.
    pub(super) fn open_reasoning(&mut self, events: &mut Vec<ReplyEvent>) -> usize {
        self.open(Slot::Done(AssistantPart::Reasoning(Reasoning::default())), events)
    }

    /// Takes a part that only the speaker understands.
    pub(super) fn private(&mut self, json: Map<String, Value>, events: &mut Vec<ReplyEvent>) -> usize {
        self.open(Slot::Done(AssistantPart::Opaque(OpaquePart { json })), events)
    }

    /// Opens a call. Its name may come later; a call without an id gets one, out of the answer's own name and its number.
    pub(super) fn open_call(&mut self, id: &str, wire_name: &str, events: &mut Vec<ReplyEvent>) -> usize {
        let index = self.calls;
        self.calls += 1;
        let id = match (id, &self.id) {
            ("", Some(answer)) => format!("call_{answer}_{index}"),
            ("", None) => format!("call_{index}"),
            (id, _) => id.to_owned(),
        };
        let call = CallDraft {
            index,
            id,
            wire_name: String::new(),
            json: String::new(),
            untold: String::new(),
            extra: Map::new(),
        };
        let slot = self.open(Slot::Call(call), events);
        if !wire_name.is_empty() {
            self.name_call(slot, wire_name, events);
        }
        slot
    }

    /// Names a call, once.
    pub(super) fn name_call(&mut self, slot: usize, wire_name: &str, events: &mut Vec<ReplyEvent>) {
        let own_name = self.own_name(wire_name).to_owned();
        if let Some(Slot::Call(call)) = self.slots.get_mut(slot)
            && call.wire_name.is_empty()
        {
            call.wire_name = wire_name.to_owned();
            events.push(ReplyEvent::ToolCallStarted { index: call.index, id: call.id.clone(), name: own_name });
            if !call.untold.is_empty() {
                let json = std::mem::take(&mut call.untold);
                events.push(ReplyEvent::ToolCallDelta { index: call.index, json });
            }
        }
    }

    fn open(&mut self, slot: Slot, events: &mut Vec<ReplyEvent>) -> usize {
        // What stands before another part was not cut off.
        if !self.side_by_side {
            self.settle(events, None);
        }
        self.slots.push(slot);
        self.slots.len() - 1
    }

    /// More text.
    pub(super) fn text(&mut self, slot: usize, delta: &str, events: &mut Vec<ReplyEvent>) {
        if let Some(Slot::Done(AssistantPart::Text(part))) = self.slots.get_mut(slot)
            && !delta.is_empty()
        {
            part.text.push_str(delta);
            events.push(ReplyEvent::Text(delta.to_owned()));
        }
    }

    /// More of what the model thinks.
    pub(super) fn reasoning(&mut self, slot: usize, delta: &str, events: &mut Vec<ReplyEvent>) {
        if let Some(Slot::Done(AssistantPart::Reasoning(part))) = self.slots.get_mut(slot)
            && !delta.is_empty()
        {
            part.text.push_str(delta);
            events.push(ReplyEvent::Reasoning(delta.to_owned()));
        }
    }

    /// More of a call's arguments.
    pub(super) fn arguments(&mut self, slot: usize, delta: &str, events: &mut Vec<ReplyEvent>) {
        if let Some(Slot::Call(call)) = self.slots.get_mut(slot)
            && !delta.is_empty()
        {
            call.json.push_str(delta);
            match call.wire_name.is_empty() {
                true => call.untold.push_str(delta),
                false => events.push(ReplyEvent::ToolCallDelta { index: call.index, json: delta.to_owned() }),
            }
        }
    }

    /// The whole of a call's arguments, in the place of what came piece by piece. What is new in it is told.
    pub(super) fn all_arguments(&mut self, slot: usize, json: &str, events: &mut Vec<ReplyEvent>) {
        let Some(Slot::Call(call)) = self.slots.get_mut(slot) else { return };
        match json.strip_prefix(&call.json) {
            Some(rest) => {
                let rest = rest.to_owned();
                self.arguments(slot, &rest, events);
            }
            None => json.clone_into(&mut call.json),
        }
    }

    /// The whole of a text or of what the model thinks, in the place of what came piece by piece. What is new in it is told.
    pub(super) fn all_text(&mut self, slot: usize, whole: &str, events: &mut Vec<ReplyEvent>) {
        match (whole.strip_prefix(self.so_far(slot)), self.slots.get_mut(slot)) {
            (Some(rest), Some(Slot::Done(AssistantPart::Text(_)))) => self.text(slot, rest, events),
            (Some(rest), Some(Slot::Done(AssistantPart::Reasoning(_)))) => self.reasoning(slot, rest, events),
            (None, Some(Slot::Done(AssistantPart::Text(part)))) => whole.clone_into(&mut part.text),
            (None, Some(Slot::Done(AssistantPart::Reasoning(part)))) => whole.clone_into(&mut part.text),
            _ => {}
        }
    }

    /// A call is whole: it is handed on.
    pub(super) fn close_call(&mut self, slot: usize, events: &mut Vec<ReplyEvent>) {
        self.settle_slot(slot, None, events);
    }

    /// A call broke off: it is handed on as one that must not be made.
    pub(super) fn cut_call(&mut self, slot: usize, events: &mut Vec<ReplyEvent>) {
        self.settle_slot(slot, Some(TOO_LONG), events);
    }

    /// What came of a call's arguments so far, or of a text.
    pub(super) fn so_far(&self, slot: usize) -> &str {
        match self.slots.get(slot) {
            Some(Slot::Call(call)) => &call.json,
            Some(Slot::Done(AssistantPart::Text(part))) => &part.text,
            Some(Slot::Done(AssistantPart::Reasoning(part))) => &part.text,
            _ => "",
        }
    }

    /// What goes back to the speaker with a part.
    pub(super) fn extra(&mut self, slot: usize) -> Option<&mut Map<String, Value>> {
        match self.slots.get_mut(slot)? {
            Slot::Call(call) => Some(&mut call.extra),
            Slot::Done(AssistantPart::Text(part)) => Some(&mut part.extra),
            Slot::Done(AssistantPart::Reasoning(part)) => Some(&mut part.extra),
            Slot::Done(AssistantPart::ToolCall(call)) => Some(&mut call.extra),
            Slot::Done(AssistantPart::Opaque(part)) => Some(&mut part.json),
        }
    }

    /// Puts the slots into another order, when everything was said; those that are not named stay behind.
    pub(super) fn arrange(&mut self, order: impl IntoIterator<Item = usize>) {
        let mut slots: Vec<Option<Slot>> = std::mem::take(&mut self.slots).into_iter().map(Some).collect();
        self.slots = order.into_iter().filter_map(|at| slots.get_mut(at)?.take()).collect();
        self.slots.extend(slots.into_iter().flatten());
    }

    /// Tells what a person should know.
    pub(super) fn warn(&mut self, warning: impl Into<String>, events: &mut Vec<ReplyEvent>) {
        let warning = warning.into();
        self.warnings.push(warning.clone());
        events.push(ReplyEvent::Warning(warning));
    }

    /// Tells what it has cost so far, if that has changed.
    pub(super) fn cost(&mut self, usage: Usage, events: &mut Vec<ReplyEvent>) {
        if self.usage != usage {
            self.usage = usage;
            events.push(ReplyEvent::Usage(usage));
        }
    }

    /// Our own name for a tool; a name that nobody has stays as it is.
    fn own_name<'a>(&'a self, wire_name: &'a str) -> &'a str {
        self.lowered.by_wire_name(wire_name).map_or(wire_name, |tool| &tool.name)
    }

    /// All calls so far are whole.
    pub(super) fn settle_calls(&mut self, events: &mut Vec<ReplyEvent>) {
        self.settle(events, None);
    }

    /// Makes calls of all drafts so far, and hands them on; `cut` is what is wrong with the last.
    fn settle(&mut self, events: &mut Vec<ReplyEvent>, cut: Option<&str>) {
        let end = self.slots.len();
        for at in self.settled..end {
            self.settle_slot(at, cut.filter(|_| at + 1 == end), events);
        }
        self.settled = end;
    }

    fn settle_slot(&mut self, at: usize, cut: Option<&str>, events: &mut Vec<ReplyEvent>) {
        let Some(slot @ Slot::Call(_)) = self.slots.get_mut(at) else { return };
        let placeholder = Slot::Done(AssistantPart::Opaque(OpaquePart::default()));
        let Slot::Call(draft) = std::mem::replace(slot, placeholder) else { return };
        let index = draft.index;
        let call = self.call(draft, cut);
        events.push(ReplyEvent::ToolCall { index, call: call.clone() });
        self.slots[at] = Slot::Done(AssistantPart::ToolCall(call));
    }

    fn call(&self, draft: CallDraft, cut: Option<&str>) -> ToolCall {
        let CallDraft { id, wire_name, json, mut extra, .. } = draft;
        let arguments = match (cut, CallArguments::read(&json)) {
            (Some(problem), _) => CallArguments::broken(json, problem),
            (None, CallArguments::Object(arguments)) => {
                let tool = self.lowered.by_wire_name(&wire_name);
                let arguments = match tool {
                    Some(tool) => tool.from_wire(arguments),
                    None => arguments,
                };
                let again = tool.map_or(Cow::Borrowed(&arguments), |tool| tool.to_wire(&arguments));
                if !json.trim().is_empty() && serde_json::to_string(&again).is_ok_and(|again| again != json) {
                    extra.insert(WRITTEN.to_owned(), json.into());
                }
                CallArguments::Object(arguments)
            }
            (None, broken) => broken,
        };
        ToolCall { id, name: self.own_name(&wire_name).to_owned(), arguments, extra }
    }

    /// The whole answer. `stop` is why it ended, as far as the provider said so.
    pub(super) fn finish(&mut self, events: &mut Vec<ReplyEvent>) -> Reply {
        let stop = match self.stop.take().unwrap_or(StopReason::EndTurn) {
            // Not every server says that it waits for results.
            StopReason::EndTurn | StopReason::StopSequence if self.calls > 0 => StopReason::ToolUse,
            stop => stop,
        };
        let cut = match stop {
            StopReason::ToolUse | StopReason::EndTurn | StopReason::StopSequence | StopReason::Pause => None,
            StopReason::MaxTokens | StopReason::ContextWindow => Some(TOO_LONG),
            _ => Some(BROKEN_OFF),
        };
        self.settle(events, cut);
        let parts = std::mem::take(&mut self.slots).into_iter().filter_map(|slot| match slot {
            Slot::Done(part) => Some(part),
            Slot::Call(_) => None,
        });
        let mut message = AssistantMessage::new(parts.collect());
        message.from = Some(self.speaker.clone());
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
