//! Assembles tool calls from their deltas.
//!
//! Compatible servers omit ids or indexes, repeat names, or send index 0 for all calls.

use serde_json::Value;

use super::chunk::{CallDelta, string_or_json};
use super::unknown_fields;
use crate::reply::ReplyEvent;
use crate::reply_builder::ReplyBuilder;
use ropeway_core::json;

/// A reply's calls so far.
#[derive(Debug, Default)]
pub(super) struct CallAssembler(Vec<AssembledCall>);

#[derive(Debug)]
struct AssembledCall {
    slot: usize,
    index: Option<u64>,
    /// The id; empty if none was received.
    id: String,
    named: bool,
}

/// The call that a delta belongs to.
enum CallMatch {
    Existing(usize),
    New,
    /// The delta is empty or a repetition.
    None,
}

impl CallAssembler {
    /// Adds a delta.
    pub(super) fn push(&mut self, delta: CallDelta<'_>, reply: &mut ReplyBuilder, events: &mut Vec<ReplyEvent>) {
        let (id, name) = (delta.id.text(), delta.function.name.text());
        let arguments = delta.function.arguments.map(string_or_json).unwrap_or_default();
        let index = delta.index.number();
        let at = match self.find(index, id, name, &arguments, reply) {
            CallMatch::Existing(at) => at,
            CallMatch::New => {
                let slot = reply.open_call(id, "", events);
                self.0.push(AssembledCall { slot, index, id: id.to_owned(), named: false });
                self.0.len() - 1
            }
            CallMatch::None => return,
        };
        let call = &mut self.0[at];
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        if !call.named && !name.is_empty() {
            call.named = true;
            reply.name_call(call.slot, name, events);
        }
        match delta.function.arguments {
            Some(raw) if !raw.get().starts_with('"') => reply.set_arguments(call.slot, &arguments, events),
            _ => reply.push_arguments(call.slot, &arguments, events),
        }
        if let Some(extra) = reply.extra_mut(call.slot) {
            unknown_fields::replace(extra, delta.unknown);
            if !delta.function.unknown.is_empty() {
                let function = extra.entry("function").or_insert_with(|| Value::Object(Default::default()));
                if let Value::Object(function) = function {
                    unknown_fields::replace(function, delta.function.unknown);
                }
            }
        }
    }

    /// Emits the calls that never got a name.
    pub(super) fn finish(&self, reply: &mut ReplyBuilder, events: &mut Vec<ReplyEvent>) {
        for call in self.0.iter().filter(|call| !call.named) {
            reply.name_call(call.slot, "", events);
        }
    }

    fn find(&self, index: Option<u64>, id: &str, name: &str, arguments: &str, reply: &ReplyBuilder) -> CallMatch {
        let by_id =
            |call: &AssembledCall| call.id == id && (call.index == index || call.index.is_none() || index.is_none());
        let by_index = |call: &AssembledCall| call.index == index;
        let same_call = if id.is_empty() { None } else { self.0.iter().rposition(by_id) };
        let found = same_call.or_else(|| match index {
            Some(_) => self.0.iter().rposition(by_index),
            // Without indexes, calls follow one another.
            None => self.0.len().checked_sub(1),
        });
        let Some(at) = found else {
            let is_empty = id.is_empty() && name.is_empty() && arguments.is_empty();
            return if is_empty { CallMatch::None } else { CallMatch::New };
        };
        let call = &self.0[at];
        let same_id = !id.is_empty() && id == call.id;
        let other_id = !id.is_empty() && !call.id.is_empty() && !same_id;
        // A name starts a call if nothing else does: without an index, or with an id that the previous call lacks.
        let starts = index.is_none() && !same_id || !id.is_empty() && call.id.is_empty();
        if other_id || starts && call.named && !name.is_empty() {
            return CallMatch::New;
        }
        // Some servers send index 0 and no id for all calls: a complete call cannot continue, so this is the next one.
        let so_far = reply.content(call.slot);
        let is_complete = || json::from_str::<serde_json::Map<String, Value>>(so_far).is_ok();
        // Parsing is the last check: a server that repeats the name in each delta must not cause quadratic work.
        let may_be_next = || so_far.trim_end().ends_with('}') && arguments.trim_start().starts_with('{');
        if call.named && !name.is_empty() && may_be_next() && is_complete() {
            let is_repetition = !id.is_empty() && so_far == arguments;
            return if is_repetition { CallMatch::None } else { CallMatch::New };
        }
        CallMatch::Existing(at)
    }
}
