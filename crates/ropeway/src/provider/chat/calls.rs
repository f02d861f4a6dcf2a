//! The calls of an answer: which piece belongs to which.

use serde_json::Value;

use super::gather;
use super::wire::{CallDelta, unquoted};
use crate::json;
use crate::provider::ReplyEvent;
use crate::provider::draft::Draft;

/// The calls of an answer so far.
#[derive(Debug, Default)]
pub(super) struct Calls(Vec<Call>);

#[derive(Debug)]
struct Call {
    slot: usize,
    index: Option<u64>,
    /// The id as it came; empty if none did.
    id: String,
    named: bool,
}

/// Where a piece belongs.
enum Place {
    /// To this call.
    Known(usize),
    /// To one that begins with it.
    New,
    /// It was said before, or says nothing.
    Nowhere,
}

impl Calls {
    /// Takes a piece of a call.
    pub(super) fn take(&mut self, delta: CallDelta<'_>, draft: &mut Draft, events: &mut Vec<ReplyEvent>) {
        let (id, name) = (delta.id.text(), delta.function.name.text());
        let arguments = delta.function.arguments.map(unquoted).unwrap_or_default();
        let index = delta.index.number();
        let at = match self.place(index, id, name, &arguments, draft) {
            Place::Known(at) => at,
            Place::New => {
                let slot = draft.open_call(id, "", events);
                self.0.push(Call { slot, index, id: id.to_owned(), named: false });
                self.0.len() - 1
            }
            Place::Nowhere => return,
        };
        let call = &mut self.0[at];
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        if !call.named && !name.is_empty() {
            call.named = true;
            draft.name_call(call.slot, name, events);
        }
        match delta.function.arguments {
            Some(raw) if !raw.get().starts_with('"') => draft.all_arguments(call.slot, &arguments, events),
            _ => draft.arguments(call.slot, &arguments, events),
        }
        if let Some(extra) = draft.extra(call.slot) {
            gather::whole(extra, delta.others);
            if !delta.function.others.is_empty() {
                let function = extra.entry("function").or_insert_with(|| Value::Object(Default::default()));
                if let Value::Object(function) = function {
                    gather::whole(function, delta.function.others);
                }
            }
        }
    }

    /// Calls that never got a name are told of without one.
    pub(super) fn end(&self, draft: &mut Draft, events: &mut Vec<ReplyEvent>) {
        for call in self.0.iter().filter(|call| !call.named) {
            draft.name_call(call.slot, "", events);
        }
    }

    fn place(&self, index: Option<u64>, id: &str, name: &str, arguments: &str, draft: &Draft) -> Place {
        let by_id = |call: &Call| call.id == id && (call.index == index || call.index.is_none() || index.is_none());
        let by_index = |call: &Call| call.index == index;
        let same_call = if id.is_empty() { None } else { self.0.iter().rposition(by_id) };
        let found = same_call.or_else(|| match index {
            Some(_) => self.0.iter().rposition(by_index),
            // A server without indexes writes one call after the other.
            None => self.0.len().checked_sub(1),
        });
        let Some(at) = found else {
            let says_nothing = id.is_empty() && name.is_empty() && arguments.is_empty();
            return if says_nothing { Place::Nowhere } else { Place::New };
        };
        let call = &self.0[at];
        let same_id = !id.is_empty() && id == call.id;
        let other_id = !id.is_empty() && !call.id.is_empty() && !same_id;
        // A name begins a call where nothing else does: no index, or an id that the call before never had.
        let begins = index.is_none() && !same_id || !id.is_empty() && call.id.is_empty();
        if other_id || begins && call.named && !name.is_empty() {
            return Place::New;
        }
        // Some number all calls with 0 and give them no ids: a call that is whole cannot go on, so this is the next one.
        let so_far = draft.so_far(call.slot);
        let is_whole = || json::from_str::<serde_json::Map<String, Value>>(so_far).is_ok();
        // Reading is for the end: a server that says the name with each piece must not make us read all of them each time.
        let may_be_next = || so_far.trim_end().ends_with('}') && arguments.trim_start().starts_with('{');
        if call.named && !name.is_empty() && may_be_next() && is_whole() {
            let said_before = !id.is_empty() && so_far == arguments;
            return if said_before { Place::Nowhere } else { Place::New };
        }
        Place::Known(at)
    }
}
