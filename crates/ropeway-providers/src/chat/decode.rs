//! Decodes a stream of [chat completion chunks](https://platform.openai.com/docs/api-reference/chat-streaming).

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::calls::CallAssembler;
use super::chunk::{CallDelta, ChatChunk, ChatDelta, ChunkChoice, LooseValue};
use super::part::FIELDS;
use super::unknown_fields;
use super::usage::read_usage;
use crate::error::{ProviderError, ProviderErrorKind};
use crate::error_mapping;
use crate::loose_object::LooseObject;
use crate::reply::{Reply, ReplyEvent, StopReason, Usage};
use crate::reply_builder::ReplyBuilder;
use ropeway_core::json;
use ropeway_core::lowering::LoweredTools;
use ropeway_core::message::{Dialect, ModelEndpoint};

/// Decodes one reply's chunks.
#[derive(Debug)]
pub(crate) struct ChatDecoder {
    reply: ReplyBuilder,
    /// The current text's slot.
    text: Option<usize>,
    refusal: Option<usize>,
    reasoning: Option<usize>,
    /// The slot for reasoning within `content`, until another part follows it.
    thinking: Option<usize>,
    calls: CallAssembler,
    /// `[DONE]` was received.
    is_finished: bool,
}

impl ChatDecoder {
    pub(crate) fn new(endpoint: ModelEndpoint, lowered: Arc<LoweredTools>) -> Self {
        Self {
            reply: ReplyBuilder::new(endpoint, lowered).with_parallel_calls(),
            text: None,
            refusal: None,
            reasoning: None,
            thinking: None,
            calls: CallAssembler::default(),
            is_finished: false,
        }
    }

    pub(crate) fn frame(&mut self, data: &[u8], events: &mut Vec<ReplyEvent>) -> Result<(), ProviderError> {
        let data = data.trim_ascii();
        if self.is_finished || data.is_empty() {
            return Ok(());
        }
        if data == b"[DONE]" {
            self.is_finished = true;
            return Ok(());
        }
        let chunk = match serde_json::from_slice::<LooseObject<ChatChunk<'_>>>(data) {
            Ok(LooseObject(chunk)) => chunk,
            Err(error) => {
                let message = "an event of the reply is not a chat completion chunk";
                return Err(
                    ProviderError::new(ProviderErrorKind::Unreadable, Dialect::Chat, message).with_source(error)
                );
            }
        };
        // Older servers such as vLLM send the error object itself.
        if chunk.error.is_some() || chunk.object.text() == "error" {
            let frame = json::from_slice(data).unwrap_or_default();
            return Err(error_mapping::from_event(Dialect::Chat, &frame));
        }
        self.chunk(chunk, events)
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.reply.stop.is_some()
    }

    pub(crate) fn end(&mut self, events: &mut Vec<ReplyEvent>) -> Result<Reply, ProviderError> {
        if self.reply.stop.is_none() {
            // `[DONE]` completes a reply without a finish reason, but not an empty one.
            if !self.is_finished || self.reply.is_empty() {
                return Err(ProviderError::truncated(Dialect::Chat));
            }
            self.reply.warn("the provider sent no finish reason", events);
        }
        self.calls.finish(&mut self.reply, events);
        if self.refusal.is_some() {
            self.reply.stop = Some(StopReason::Refusal);
        }
        if self.reply.stop == Some(StopReason::ToolUse) && self.reply.call_count() == 0 {
            // A reply without calls cannot wait for results.
            let stop = if self.text.is_some() { StopReason::EndTurn } else { StopReason::MalformedToolCall };
            self.reply.stop = Some(stop);
        }
        Ok(self.reply.finish(events))
    }

    fn chunk(&mut self, chunk: ChatChunk<'_>, events: &mut Vec<ReplyEvent>) -> Result<(), ProviderError> {
        for (field, value) in [(&mut self.reply.id, chunk.id), (&mut self.reply.model, chunk.model)] {
            if field.is_none() && !value.text().is_empty() {
                *field = Some(value.text().to_owned());
            }
        }
        // Requests specify one choice, but some gateways send several.
        let first =
            chunk.choices.into_iter().map(|LooseObject(choice)| choice).filter(|c| c.index.number().unwrap_or(0) == 0);
        for choice in first {
            self.choice(choice, events)?;
        }
        self.update_usage(chunk.usage, events);
        Ok(())
    }

    fn choice(&mut self, choice: ChunkChoice<'_>, events: &mut Vec<ReplyEvent>) -> Result<(), ProviderError> {
        // A message in addition to deltas repeats them.
        match choice.message {
            Some(message) if choice.delta.is_empty() && self.reply.is_empty() => self.delta(message.0, true, events),
            _ => self.delta(choice.delta, false, events),
        }
        self.update_usage(choice.usage, events);
        let reason = choice.finish_reason.text();
        if let Some(error) = choice.error {
            let error: Value = json::from_str(error.get()).unwrap_or_default();
            return Err(error_mapping::from_event(Dialect::Chat, &json!({ "error": error })));
        }
        if self.reply.stop.is_none() && !reason.is_empty() {
            self.reply.stop = Some(stop_reason(reason)?);
        }
        Ok(())
    }

    fn delta(&mut self, delta: ChatDelta<'_>, is_complete: bool, events: &mut Vec<ReplyEvent>) {
        self.reasoning(&delta, events);
        match delta.content {
            LooseValue::Text(text) => self.text(&text, events),
            LooseValue::Other(value) => {
                if let Value::Array(parts) = *value {
                    parts.into_iter().for_each(|part| self.part(part, events));
                }
            }
            LooseValue::Missing => {}
        }
        self.refusal(delta.refusal.text(), events);
        if let Some(function) = delta.function_call {
            // A field deprecated in 2023, with a single call.
            let index = LooseValue::Text("0".into());
            let call = CallDelta { index, function: function.0, ..CallDelta::default() };
            self.calls.push(call, &mut self.reply, events);
        }
        for LooseObject(call) in delta.tool_calls {
            self.calls.push(call, &mut self.reply, events);
        }
        if is_complete {
            unknown_fields::replace(&mut self.reply.extra, delta.unknown);
        } else {
            unknown_fields::merge(&mut self.reply.extra, delta.unknown);
        }
    }

    fn text(&mut self, text: &str, events: &mut Vec<ReplyEvent>) {
        if text.is_empty() {
            return;
        }
        // Text after reasoning in `content` starts a new part, which keeps their order.
        let continues = self.thinking.take().is_none();
        let slot = match self.text {
            Some(slot) if continues => slot,
            _ => *self.text.insert(self.reply.open_text(events)),
        };
        self.reply.push_text(slot, text, events);
    }

    /// Decodes a content part. Some servers send `content` as a list of parts.
    fn part(&mut self, part: Value, events: &mut Vec<ReplyEvent>) {
        match (part["type"].as_str(), &part) {
            (_, Value::String(text)) => self.text(text, events),
            (Some("text" | "output_text") | None, _) if part["text"].is_string() => {
                self.text(part["text"].as_str().unwrap_or_default(), events);
            }
            (Some("refusal"), _) => self.refusal(part["refusal"].as_str().unwrap_or_default(), events),
            (Some("thinking"), _) => {
                let reasoning: String = match &part["thinking"] {
                    Value::String(text) => text.clone(),
                    Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
                    _ => String::new(),
                };
                self.reasoning_in_content(&reasoning, events);
            }
            _ => {
                if let Value::Object(json) = part {
                    self.reply.push_opaque(json, events);
                    // Later text starts a new part.
                    (self.text, self.thinking) = (None, None);
                }
            }
        }
    }

    fn refusal(&mut self, text: &str, events: &mut Vec<ReplyEvent>) {
        if text.is_empty() {
            return;
        }
        let slot = match self.refusal {
            Some(slot) => slot,
            None => {
                let slot = self.reply.open_text(events);
                self.note_field(slot, "refusal");
                *self.refusal.insert(slot)
            }
        };
        self.reply.push_text(slot, text, events);
    }

    /// Decodes reasoning, which servers send as `reasoning_content`, `reasoning`, `reasoning_details`, or several of them.
    fn reasoning(&mut self, delta: &ChatDelta<'_>, events: &mut Vec<ReplyEvent>) {
        match (delta.reasoning_content.text(), delta.reasoning.text()) {
            ("", "") if delta.unknown.is_empty() => {}
            ("", "") => self.push_reasoning(&unknown_fields::reasoning_text(&delta.unknown), &[], events),
            (text, "") => self.push_reasoning(text, &["reasoning_content"], events),
            ("", text) => self.push_reasoning(text, &["reasoning"], events),
            (text, same) if text == same => self.push_reasoning(text, &["reasoning_content", "reasoning"], events),
            (text, other) => {
                self.push_reasoning(text, &["reasoning_content"], events);
                match self.reply.extra.get_mut("reasoning") {
                    Some(Value::String(before)) => before.push_str(other),
                    _ => _ = self.reply.extra.insert("reasoning".to_owned(), other.into()),
                }
            }
        }
    }

    fn push_reasoning(&mut self, text: &str, fields: &[&str], events: &mut Vec<ReplyEvent>) {
        if text.is_empty() {
            return;
        }
        let slot = match self.reasoning {
            Some(slot) => slot,
            None => *self.reasoning.insert(self.reply.open_reasoning(events)),
        };
        fields.iter().for_each(|field| self.note_field(slot, field));
        self.reply.push_reasoning(slot, text, events);
    }

    /// Decodes reasoning between the texts in `content`.
    fn reasoning_in_content(&mut self, text: &str, events: &mut Vec<ReplyEvent>) {
        if text.is_empty() {
            return;
        }
        let slot = match self.thinking {
            Some(slot) => slot,
            None => *self.thinking.insert(self.reply.open_reasoning(events)),
        };
        self.note_field(slot, "content");
        self.reply.push_reasoning(slot, text, events);
    }

    /// Notes the message field that a part was received in, so that it is sent back in the same field.
    fn note_field(&mut self, slot: usize, field: &str) {
        let Some(extra) = self.reply.extra_mut(slot) else { return };
        let fields = extra.entry(FIELDS).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(fields) = fields
            && !fields.iter().any(|known| known == field)
        {
            fields.push(field.into());
        }
    }

    fn update_usage(&mut self, usage: Option<&RawValue>, events: &mut Vec<ReplyEvent>) {
        let Some(usage) = usage.and_then(|raw| json::from_str::<Value>(raw.get()).ok()) else { return };
        let usage = read_usage(&usage);
        if usage != Usage::default() {
            self.reply.set_usage(usage, events);
        }
    }
}

/// Maps a finish reason.
fn stop_reason(reason: &str) -> Result<StopReason, ProviderError> {
    Ok(match reason {
        "stop" => StopReason::EndTurn,
        "tool_calls" | "function_call" => StopReason::ToolUse,
        "length" => StopReason::MaxTokens,
        // Mistral
        "model_length" => StopReason::ContextWindow,
        "content_filter" => StopReason::ContentFilter,
        "error" => {
            let message = "the provider ended the reply with an error";
            return Err(ProviderError::new(ProviderErrorKind::Server, Dialect::Chat, message));
        }
        // DeepSeek
        "insufficient_system_resource" => {
            let message = "the provider ended the reply: it is overloaded";
            return Err(ProviderError::new(ProviderErrorKind::Overloaded, Dialect::Chat, message));
        }
        other => StopReason::Other(other.to_owned()),
    })
}
