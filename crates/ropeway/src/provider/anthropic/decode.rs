//! An answer as Anthropic Messages streams it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::frame::{Cost, Delta, Frame, Start, StopDetails};
use crate::json;
use crate::lowering::LoweredTools;
use crate::message::{Dialect, ModelEndpoint};
use crate::provider::draft::Draft;
use crate::provider::{ProviderError, ProviderErrorKind, Reply, ReplyEvent, StopReason, Usage, trouble};

/// Reads an answer.
#[derive(Debug)]
pub(crate) struct Decoder {
    draft: Draft,
    /// The blocks that are being written, by the numbers that the server gives them.
    open: BTreeMap<u64, Block>,
    /// What was read and not found in a cache; the draft counts the sum.
    fresh_input: u64,
    over: bool,
}

/// A block that is being written.
#[derive(Debug)]
struct Block {
    slot: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Text,
    Thinking,
    /// A call. Some servers give its arguments at the start; should they then come piece by piece, the pieces count.
    Call {
        given: bool,
    },
    /// A block that we do not know, and the JSON text that came for its input.
    Private {
        input: String,
    },
}

impl Decoder {
    pub(crate) fn new(speaker: ModelEndpoint, lowered: Arc<LoweredTools>) -> Self {
        Self { draft: Draft::new(speaker, lowered), open: BTreeMap::new(), fresh_input: 0, over: false }
    }

    pub(crate) fn frame(&mut self, data: &[u8], events: &mut Vec<ReplyEvent>) -> Result<(), ProviderError> {
        if self.over {
            return Ok(());
        }
        let frame: Frame<'_> = match serde_json::from_slice(data) {
            Ok(frame) => frame,
            Err(error) => return odd(data, error),
        };
        let index = frame.index.0.unwrap_or_default();
        let delta = frame.delta.unwrap_or_default();
        match &*frame.kind.0 {
            "content_block_delta" => self.delta(index, &delta, data, events),
            "content_block_start" => self.start_block(index, frame.content_block, events),
            "content_block_stop" => {
                if let Some(block) = self.open.remove(&index) {
                    self.close(block);
                }
            }
            "message_start" => self.start(frame.message, events),
            "message_delta" => {
                self.cost(frame.usage, events);
                self.container(delta.container);
                self.stop(&delta, events);
            }
            "message_stop" => self.over = true,
            "error" => return Err(error(data)),
            // A server that fails outside of the protocol says no more than this.
            "" if frame.error.is_some() => return Err(error(data)),
            _ => {}
        }
        Ok(())
    }

    /// A server that says why it stopped has said everything; not all of them also say that it is over.
    pub(crate) fn end(&mut self, events: &mut Vec<ReplyEvent>) -> Result<Reply, ProviderError> {
        if !self.over && self.draft.stop.is_none() {
            return Err(ProviderError::truncated(Dialect::Anthropic));
        }
        while let Some((_, block)) = self.open.pop_first() {
            self.close(block);
        }
        Ok(self.draft.finish(events))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.draft.stop.is_some()
    }

    fn start(&mut self, message: Option<&RawValue>, events: &mut Vec<ReplyEvent>) {
        let Some(start) = read::<Start<'_>>(message) else { return };
        if !start.id.0.is_empty() {
            self.draft.id = Some(start.id.0.into_owned());
        }
        if !start.model.0.is_empty() {
            self.draft.model = Some(start.model.0.into_owned());
        }
        self.cost(start.usage, events);
        self.container(start.container);
    }

    fn start_block(&mut self, index: u64, block: Option<&RawValue>, events: &mut Vec<ReplyEvent>) {
        let Some(mut block) = read_value::<Map<String, Value>>(block) else { return };
        let draft = &mut self.draft;
        let (slot, kind) = match block.get("type").and_then(Value::as_str).unwrap_or_default() {
            "text" => {
                let slot = draft.open_text(events);
                draft.text(slot, &take(&mut block, "text"), events);
                (slot, Kind::Text)
            }
            "thinking" => {
                let slot = draft.open_reasoning(events);
                draft.reasoning(slot, &take(&mut block, "thinking"), events);
                (slot, Kind::Thinking)
            }
            "tool_use" => {
                let slot = draft.open_call(&take(&mut block, "id"), &take(&mut block, "name"), events);
                let input = match block.shift_remove("input") {
                    None | Some(Value::Null) => String::new(),
                    Some(Value::Object(input)) if input.is_empty() => String::new(),
                    Some(Value::String(input)) => input,
                    Some(input) => input.to_string(),
                };
                draft.arguments(slot, &input, events);
                (slot, Kind::Call { given: !input.is_empty() })
            }
            _ => {
                let slot = draft.private(std::mem::take(&mut block), events);
                (slot, Kind::Private { input: String::new() })
            }
        };
        block.shift_remove("type");
        if let Some(extra) = draft.extra(slot) {
            extra.extend(block);
        }
        if let Some(before) = self.open.insert(index, Block { slot, kind }) {
            self.close(before);
        }
    }

    fn delta(&mut self, index: u64, delta: &Delta<'_>, data: &[u8], events: &mut Vec<ReplyEvent>) {
        let draft = &mut self.draft;
        let kind = &*delta.kind.0;
        let block = match self.open.get_mut(&index) {
            Some(block) => block,
            // What is said in a block that nobody opened is said all the same.
            None => {
                let (slot, kind) = match kind {
                    "text_delta" => (draft.open_text(events), Kind::Text),
                    "thinking_delta" => (draft.open_reasoning(events), Kind::Thinking),
                    _ => return,
                };
                self.open.entry(index).or_insert(Block { slot, kind })
            }
        };
        let slot = block.slot;
        match (&mut block.kind, kind) {
            (Kind::Text, "text_delta") => draft.text(slot, &delta.text.0, events),
            (Kind::Thinking, "thinking_delta") => draft.reasoning(slot, &delta.thinking.0, events),
            (Kind::Call { given }, "input_json_delta") if !delta.partial_json.0.is_empty() => {
                match std::mem::take(given) {
                    true => draft.all_arguments(slot, &delta.partial_json.0, events),
                    false => draft.arguments(slot, &delta.partial_json.0, events),
                }
            }
            (Kind::Private { input }, "input_json_delta") => input.push_str(&delta.partial_json.0),
            (Kind::Thinking | Kind::Private { .. }, "signature_delta") => {
                if let Some(extra) = draft.extra(slot) {
                    extra.insert("signature".to_owned(), delta.signature.0.as_ref().into());
                }
            }
            (Kind::Text | Kind::Private { .. }, "citations_delta") => {
                if let (Some(extra), Some(citation)) = (draft.extra(slot), read_value::<Value>(delta.citation)) {
                    add(extra, "citations", Value::Array(vec![citation]));
                }
            }
            (Kind::Private { .. }, _) => {
                if let Some(extra) = draft.extra(slot) {
                    add_all(extra, data);
                }
            }
            _ => {}
        }
    }

    /// A block is whole: what came as text and is JSON becomes JSON.
    fn close(&mut self, block: Block) {
        if let Kind::Private { input } = block.kind
            && let Some(extra) = self.draft.extra(block.slot)
            && let Ok(input @ Value::Object(_)) = json::from_str(&input)
        {
            extra.insert("input".to_owned(), input);
        }
    }

    /// Costs are told as they stand, not as they grow.
    fn cost(&mut self, cost: Option<&RawValue>, events: &mut Vec<ReplyEvent>) {
        let Some(cost) = read::<Cost>(cost) else { return };
        let mut usage: Usage = self.draft.usage;
        let details = cost.output_tokens_details.unwrap_or_default();
        for (now, number) in [
            (&mut self.fresh_input, cost.input_tokens),
            (&mut usage.output, cost.output_tokens),
            (&mut usage.cache_read, cost.cache_read_input_tokens),
            (&mut usage.cache_write, cost.cache_creation_input_tokens),
            (&mut usage.reasoning, details.thinking_tokens),
        ] {
            *now = number.0.unwrap_or(*now);
        }
        usage.input = self.fresh_input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
        self.draft.cost(usage, events);
    }

    /// The container that the model's code runs in: the next request names it.
    fn container(&mut self, container: Option<&RawValue>) {
        if let Some(container @ Value::Object(_)) = read_value(container) {
            self.draft.extra.insert("container".to_owned(), container);
        }
    }

    fn stop(&mut self, delta: &Delta<'_>, events: &mut Vec<ReplyEvent>) {
        let stop = match &*delta.stop_reason.0 {
            "" => return,
            "end_turn" => StopReason::EndTurn,
            "tool_use" => StopReason::ToolUse,
            "stop_sequence" => StopReason::StopSequence,
            "max_tokens" => StopReason::MaxTokens,
            "model_context_window_exceeded" => StopReason::ContextWindow,
            "pause_turn" => StopReason::Pause,
            "refusal" => StopReason::Refusal,
            other => StopReason::Other(other.to_owned()),
        };
        if stop == StopReason::Refusal && self.draft.stop != Some(StopReason::Refusal) {
            let details: StopDetails<'_> = read(delta.stop_details).unwrap_or_default();
            let about = match &*details.category.0 {
                "" => String::new(),
                category => format!(" (`{category}`)"),
            };
            match &*details.explanation.0 {
                "" if about.is_empty() => {}
                "" => self.draft.warn(format!("the model refuses to answer{about}"), events),
                explanation => self.draft.warn(format!("the model refuses to answer{about}: {explanation}"), events),
            }
        }
        self.draft.stop = Some(stop);
    }
}

/// A frame that is no event. JSON of an unknown shape is passed over like any unknown event, and so is the mark that servers of
/// another dialect end with.
fn odd(data: &[u8], cause: serde_json::Error) -> Result<(), ProviderError> {
    let bare = data.trim_ascii();
    if bare.is_empty() || bare == b"[DONE]" || json::from_slice::<Value>(data).is_ok() {
        return Ok(());
    }
    let words = "an event of the answer is not JSON";
    Err(ProviderError::new(ProviderErrorKind::Unreadable, Dialect::Anthropic, words).with_source(cause))
}

fn error(data: &[u8]) -> ProviderError {
    let frame = json::from_slice(data).unwrap_or_default();
    trouble::in_stream(Dialect::Anthropic, &frame)
}

/// Reads a part of a frame; one of another shape than usual is not there.
fn read<'a, T: serde::Deserialize<'a>>(json: Option<&'a RawValue>) -> Option<T> {
    json.and_then(|json| serde_json::from_str(json.get()).ok())
}

/// The same for JSON that is kept as it came, whatever numbers it holds.
fn read_value<T: serde::de::DeserializeOwned>(json: Option<&RawValue>) -> Option<T> {
    json.and_then(|json| json::from_str(json.get()).ok())
}

fn take(block: &mut Map<String, Value>, name: &str) -> String {
    match block.shift_remove(name) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    }
}

/// Keeps what is new in a block that we do not know.
fn add_all(block: &mut Map<String, Value>, data: &[u8]) {
    let Ok(Value::Object(mut frame)) = json::from_slice(data) else { return };
    let Some(Value::Object(delta)) = frame.shift_remove("delta") else { return };
    for (name, value) in delta {
        if name != "type" {
            add(block, &name, value);
        }
    }
}

/// Texts and lists grow, everything else is as it was said last.
fn add(block: &mut Map<String, Value>, name: &str, value: Value) {
    match (block.get_mut(name), value) {
        (Some(Value::String(text)), Value::String(more)) => text.push_str(&more),
        (Some(Value::Array(list)), Value::Array(more)) => list.extend(more),
        (_, value) => {
            block.insert(name.to_owned(), value);
        }
    }
}
