//! Decodes an [Anthropic Messages stream](https://docs.anthropic.com/en/docs/build-with-claude/streaming).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::event::{AnthropicEvent, EventDelta, MessageStart, StopDetails, UsageCounts};
use crate::error::{ProviderError, ProviderErrorKind};
use crate::error_mapping;
use crate::reply::{Reply, ReplyEvent, StopReason, Usage};
use crate::reply_builder::ReplyBuilder;
use ropeway_core::json;
use ropeway_core::lowering::LoweredTools;
use ropeway_core::message::{Dialect, ModelEndpoint};

/// Decodes one reply's events.
#[derive(Debug)]
pub(crate) struct AnthropicDecoder {
    reply: ReplyBuilder,
    /// The open blocks by their index.
    open: BTreeMap<u64, OpenBlock>,
    /// Input tokens outside the cache; the reply counts their sum.
    uncached_input: u64,
    is_finished: bool,
}

/// A block that is still receiving deltas.
#[derive(Debug)]
struct OpenBlock {
    slot: usize,
    kind: BlockKind,
}

#[derive(Debug)]
enum BlockKind {
    Text,
    Thinking,
    /// A call. If the arguments are given at its start, later deltas replace them.
    Call {
        given: bool,
    },
    /// A block with an unknown type, and its input as JSON text.
    Opaque {
        input: String,
    },
}

impl AnthropicDecoder {
    pub(crate) fn new(endpoint: ModelEndpoint, lowered: Arc<LoweredTools>) -> Self {
        Self {
            reply: ReplyBuilder::new(endpoint, lowered),
            open: BTreeMap::new(),
            uncached_input: 0,
            is_finished: false,
        }
    }

    pub(crate) fn frame(&mut self, data: &[u8], events: &mut Vec<ReplyEvent>) -> Result<(), ProviderError> {
        if self.is_finished {
            return Ok(());
        }
        let frame: AnthropicEvent<'_> = match serde_json::from_slice(data) {
            Ok(frame) => frame,
            Err(error) => return not_an_event(data, error),
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
                self.update_usage(frame.usage, events);
                self.keep_container(delta.container);
                self.stop(&delta, events);
            }
            "message_stop" => self.is_finished = true,
            "error" => return Err(error(data)),
            // Some servers report an error without the event's type.
            "" if frame.error.is_some() => return Err(error(data)),
            _ => {}
        }
        Ok(())
    }

    /// A reply with a stop reason is complete, even if the server omits `message_stop`.
    pub(crate) fn end(&mut self, events: &mut Vec<ReplyEvent>) -> Result<Reply, ProviderError> {
        if !self.is_finished && self.reply.stop.is_none() {
            return Err(ProviderError::truncated(Dialect::Anthropic));
        }
        while let Some((_, block)) = self.open.pop_first() {
            self.close(block);
        }
        Ok(self.reply.finish(events))
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.reply.stop.is_some()
    }

    fn start(&mut self, message: Option<&RawValue>, events: &mut Vec<ReplyEvent>) {
        let Some(start) = read::<MessageStart<'_>>(message) else { return };
        if !start.id.0.is_empty() {
            self.reply.id = Some(start.id.0.into_owned());
        }
        if !start.model.0.is_empty() {
            self.reply.model = Some(start.model.0.into_owned());
        }
        self.update_usage(start.usage, events);
        self.keep_container(start.container);
    }

    fn start_block(&mut self, index: u64, block: Option<&RawValue>, events: &mut Vec<ReplyEvent>) {
        let Some(mut block) = read_value::<Map<String, Value>>(block) else { return };
        let reply = &mut self.reply;
        let (slot, kind) = match block.get("type").and_then(Value::as_str).unwrap_or_default() {
            "text" => {
                let slot = reply.open_text(events);
                reply.push_text(slot, &take(&mut block, "text"), events);
                (slot, BlockKind::Text)
            }
            "thinking" => {
                let slot = reply.open_reasoning(events);
                reply.push_reasoning(slot, &take(&mut block, "thinking"), events);
                (slot, BlockKind::Thinking)
            }
            "tool_use" => {
                let slot = reply.open_call(&take(&mut block, "id"), &take(&mut block, "name"), events);
                let input = match block.shift_remove("input") {
                    None | Some(Value::Null) => String::new(),
                    Some(Value::Object(input)) if input.is_empty() => String::new(),
                    Some(Value::String(input)) => input,
                    Some(input) => input.to_string(),
                };
                reply.push_arguments(slot, &input, events);
                (slot, BlockKind::Call { given: !input.is_empty() })
            }
            _ => {
                let slot = reply.push_opaque(std::mem::take(&mut block), events);
                (slot, BlockKind::Opaque { input: String::new() })
            }
        };
        block.shift_remove("type");
        if let Some(extra) = reply.extra_mut(slot) {
            extra.extend(block);
        }
        if let Some(before) = self.open.insert(index, OpenBlock { slot, kind }) {
            self.close(before);
        }
    }

    fn delta(&mut self, index: u64, delta: &EventDelta<'_>, data: &[u8], events: &mut Vec<ReplyEvent>) {
        let reply = &mut self.reply;
        let kind = &*delta.kind.0;
        let block = match self.open.get_mut(&index) {
            Some(block) => block,
            // Deltas for a block that was not opened are accepted.
            None => {
                let (slot, kind) = match kind {
                    "text_delta" => (reply.open_text(events), BlockKind::Text),
                    "thinking_delta" => (reply.open_reasoning(events), BlockKind::Thinking),
                    _ => return,
                };
                self.open.entry(index).or_insert(OpenBlock { slot, kind })
            }
        };
        let slot = block.slot;
        match (&mut block.kind, kind) {
            (BlockKind::Text, "text_delta") => reply.push_text(slot, &delta.text.0, events),
            (BlockKind::Thinking, "thinking_delta") => reply.push_reasoning(slot, &delta.thinking.0, events),
            (BlockKind::Call { given }, "input_json_delta") if !delta.partial_json.0.is_empty() => {
                if std::mem::take(given) {
                    reply.set_arguments(slot, &delta.partial_json.0, events);
                } else {
                    reply.push_arguments(slot, &delta.partial_json.0, events);
                }
            }
            (BlockKind::Opaque { input }, "input_json_delta") => input.push_str(&delta.partial_json.0),
            (BlockKind::Thinking | BlockKind::Opaque { .. }, "signature_delta") => {
                if let Some(extra) = reply.extra_mut(slot) {
                    extra.insert("signature".to_owned(), delta.signature.0.as_ref().into());
                }
            }
            (BlockKind::Text | BlockKind::Opaque { .. }, "citations_delta") => {
                if let (Some(extra), Some(citation)) = (reply.extra_mut(slot), read_value::<Value>(delta.citation)) {
                    merge_field(extra, "citations", Value::Array(vec![citation]));
                }
            }
            (BlockKind::Opaque { .. }, _) => {
                if let Some(extra) = reply.extra_mut(slot) {
                    merge_delta(extra, data);
                }
            }
            _ => {}
        }
    }

    /// Parses an opaque block's input once it is complete.
    fn close(&mut self, block: OpenBlock) {
        if let BlockKind::Opaque { input } = block.kind
            && let Some(extra) = self.reply.extra_mut(block.slot)
            && let Ok(input @ Value::Object(_)) = json::from_str(&input)
        {
            extra.insert("input".to_owned(), input);
        }
    }

    /// Updates the usage. Its counts are totals, not increments.
    fn update_usage(&mut self, counts: Option<&RawValue>, events: &mut Vec<ReplyEvent>) {
        let Some(counts) = read::<UsageCounts>(counts) else { return };
        let mut usage: Usage = self.reply.usage;
        let details = counts.output_tokens_details.unwrap_or_default();
        for (now, number) in [
            (&mut self.uncached_input, counts.input_tokens),
            (&mut usage.output, counts.output_tokens),
            (&mut usage.cache_read, counts.cache_read_input_tokens),
            (&mut usage.cache_write, counts.cache_creation_input_tokens),
            (&mut usage.reasoning, details.thinking_tokens),
        ] {
            *now = number.0.unwrap_or(*now);
        }
        usage.input = self.uncached_input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
        self.reply.set_usage(usage, events);
    }

    /// Keeps the code execution container, which the next request names.
    fn keep_container(&mut self, container: Option<&RawValue>) {
        if let Some(container @ Value::Object(_)) = read_value(container) {
            self.reply.extra.insert("container".to_owned(), container);
        }
    }

    fn stop(&mut self, delta: &EventDelta<'_>, events: &mut Vec<ReplyEvent>) {
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
        if stop == StopReason::Refusal && self.reply.stop != Some(StopReason::Refusal) {
            let details: StopDetails<'_> = read(delta.stop_details).unwrap_or_default();
            let about = match &*details.category.0 {
                "" => String::new(),
                category => format!(" (`{category}`)"),
            };
            match &*details.explanation.0 {
                "" if about.is_empty() => {}
                "" => self.reply.warn(format!("the model refused to answer{about}"), events),
                explanation => self.reply.warn(format!("the model refused to answer{about}: {explanation}"), events),
            }
        }
        self.reply.stop = Some(stop);
    }
}

/// Handles data that is not an event. JSON in another shape and other dialects' `[DONE]` are ignored.
fn not_an_event(data: &[u8], cause: serde_json::Error) -> Result<(), ProviderError> {
    let bare = data.trim_ascii();
    if bare.is_empty() || bare == b"[DONE]" || json::from_slice::<Value>(data).is_ok() {
        return Ok(());
    }
    let message = "an event of the reply is not JSON";
    Err(ProviderError::new(ProviderErrorKind::Unreadable, Dialect::Anthropic, message).with_source(cause))
}

fn error(data: &[u8]) -> ProviderError {
    let frame = json::from_slice(data).unwrap_or_default();
    error_mapping::from_event(Dialect::Anthropic, &frame)
}

/// Reads a part of an event. A part in another shape is ignored.
fn read<'a, T: serde::Deserialize<'a>>(json: Option<&'a RawValue>) -> Option<T> {
    json.and_then(|json| serde_json::from_str(json.get()).ok())
}

/// Like [`read`], for JSON whose numbers keep all digits.
fn read_value<T: serde::de::DeserializeOwned>(json: Option<&RawValue>) -> Option<T> {
    json.and_then(|json| json::from_str(json.get()).ok())
}

fn take(block: &mut Map<String, Value>, name: &str) -> String {
    match block.shift_remove(name) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    }
}

/// Merges a delta into a block with an unknown type.
fn merge_delta(block: &mut Map<String, Value>, data: &[u8]) {
    let Ok(Value::Object(mut frame)) = json::from_slice(data) else { return };
    let Some(Value::Object(delta)) = frame.shift_remove("delta") else { return };
    for (name, value) in delta {
        if name != "type" {
            merge_field(block, &name, value);
        }
    }
}

/// Appends to strings and lists, and replaces everything else.
fn merge_field(block: &mut Map<String, Value>, name: &str, value: Value) {
    match (block.get_mut(name), value) {
        (Some(Value::String(text)), Value::String(more)) => text.push_str(&more),
        (Some(Value::Array(list)), Value::Array(more)) => list.extend(more),
        (_, value) => {
            block.insert(name.to_owned(), value);
        }
    }
}
