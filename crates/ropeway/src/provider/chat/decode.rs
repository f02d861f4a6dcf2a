//! An answer as servers of Chat Completions stream it.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::calls::Calls;
use super::wire::{CallDelta, Choice, Chunk, Delta, Known, Loose};
use super::{FIELDS, gather, usage};
use crate::json;
use crate::lowering::LoweredTools;
use crate::message::{Dialect, ModelEndpoint};
use crate::provider::draft::Draft;
use crate::provider::{ProviderError, ProviderErrorKind, Reply, ReplyEvent, StopReason, Usage, trouble};

/// Reads an answer.
#[derive(Debug)]
pub(crate) struct Decoder {
    draft: Draft,
    /// The slot that text goes to, once there is one.
    text: Option<usize>,
    refusal: Option<usize>,
    reasoning: Option<usize>,
    /// The slot of thoughts that stand in the content, until a text or something else follows them there.
    thinking: Option<usize>,
    calls: Calls,
    /// The last word, `[DONE]`, was said.
    is_over: bool,
}

impl Decoder {
    pub(crate) fn new(speaker: ModelEndpoint, lowered: Arc<LoweredTools>) -> Self {
        Self {
            draft: Draft::new(speaker, lowered).with_calls_side_by_side(),
            text: None,
            refusal: None,
            reasoning: None,
            thinking: None,
            calls: Calls::default(),
            is_over: false,
        }
    }

    pub(crate) fn frame(&mut self, data: &[u8], events: &mut Vec<ReplyEvent>) -> Result<(), ProviderError> {
        let data = data.trim_ascii();
        if self.is_over || data.is_empty() {
            return Ok(());
        }
        if data == b"[DONE]" {
            self.is_over = true;
            return Ok(());
        }
        let chunk = match serde_json::from_slice::<Known<Chunk<'_>>>(data) {
            Ok(Known(chunk)) => chunk,
            Err(error) => {
                let message = "the answer holds a frame that is no chunk of a chat completion";
                return Err(
                    ProviderError::new(ProviderErrorKind::Unreadable, Dialect::Chat, message).with_source(error)
                );
            }
        };
        // Older servers (vLLM) send the error bare.
        if chunk.error.is_some() || chunk.object.text() == "error" {
            let frame = json::from_slice(data).unwrap_or_default();
            return Err(trouble::in_stream(Dialect::Chat, &frame));
        }
        self.chunk(chunk, events)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.draft.stop.is_some()
    }

    pub(crate) fn end(&mut self, events: &mut Vec<ReplyEvent>) -> Result<Reply, ProviderError> {
        if self.draft.stop.is_none() {
            // A server that says `[DONE]` has said everything; but nothing at all is no answer.
            if !self.is_over || self.draft.is_empty() {
                return Err(ProviderError::truncated(Dialect::Chat));
            }
            self.draft.warn("the provider did not say why the answer ended", events);
        }
        self.calls.end(&mut self.draft, events);
        if self.refusal.is_some() {
            self.draft.stop = Some(StopReason::Refusal);
        }
        if self.draft.stop == Some(StopReason::ToolUse) && self.draft.calls() == 0 {
            // Nobody could answer a call that is not there.
            let said_something = self.text.is_some();
            let stop = if said_something { StopReason::EndTurn } else { StopReason::MalformedToolCall };
            self.draft.stop = Some(stop);
        }
        Ok(self.draft.finish(events))
    }

    fn chunk(&mut self, chunk: Chunk<'_>, events: &mut Vec<ReplyEvent>) -> Result<(), ProviderError> {
        for (field, said) in [(&mut self.draft.id, chunk.id), (&mut self.draft.model, chunk.model)] {
            if field.is_none() && !said.text().is_empty() {
                *field = Some(said.text().to_owned());
            }
        }
        // We ask for one answer, but gateways have been seen to send the choices of others along.
        let mine = chunk.choices.into_iter().map(|Known(choice)| choice).filter(|c| c.index.number().unwrap_or(0) == 0);
        for choice in mine {
            self.choice(choice, events)?;
        }
        self.cost(chunk.usage, events);
        Ok(())
    }

    fn choice(&mut self, choice: Choice<'_>, events: &mut Vec<ReplyEvent>) -> Result<(), ProviderError> {
        // A message beside the deltas says all of it again.
        match choice.message {
            Some(message) if choice.delta.is_empty() && self.draft.is_empty() => self.delta(message.0, true, events),
            _ => self.delta(choice.delta, false, events),
        }
        self.cost(choice.usage, events);
        let reason = choice.finish_reason.text();
        if let Some(error) = choice.error {
            let error: Value = json::from_str(error.get()).unwrap_or_default();
            return Err(trouble::in_stream(Dialect::Chat, &json!({ "error": error })));
        }
        if self.draft.stop.is_none() && !reason.is_empty() {
            self.draft.stop = Some(stop(reason)?);
        }
        Ok(())
    }

    fn delta(&mut self, delta: Delta<'_>, is_whole: bool, events: &mut Vec<ReplyEvent>) {
        self.reasoning(&delta, events);
        match delta.content {
            Loose::Text(text) => self.text(&text, events),
            Loose::Other(value) => {
                if let Value::Array(parts) = *value {
                    parts.into_iter().for_each(|part| self.part(part, events));
                }
            }
            Loose::Nothing => {}
        }
        self.refusal(delta.refusal.text(), events);
        if let Some(function) = delta.function_call {
            // The way of 2023, one call only.
            let index = Loose::Text("0".into());
            let call = CallDelta { index, function: function.0, ..CallDelta::default() };
            self.calls.take(call, &mut self.draft, events);
        }
        for Known(call) in delta.tool_calls {
            self.calls.take(call, &mut self.draft, events);
        }
        match is_whole {
            true => gather::whole(&mut self.draft.extra, delta.others),
            false => gather::pieces(&mut self.draft.extra, delta.others),
        }
    }

    fn text(&mut self, text: &str, events: &mut Vec<ReplyEvent>) {
        if text.is_empty() {
            return;
        }
        // Behind thoughts in the content a new text begins, so that they go back in their order.
        let goes_on = self.thinking.take().is_none();
        let slot = match self.text {
            Some(slot) if goes_on => slot,
            _ => *self.text.insert(self.draft.open_text(events)),
        };
        self.draft.text(slot, text, events);
    }

    /// A part of a message, with servers that send several.
    fn part(&mut self, part: Value, events: &mut Vec<ReplyEvent>) {
        match (part["type"].as_str(), &part) {
            (_, Value::String(text)) => self.text(text, events),
            (Some("text" | "output_text") | None, _) if part["text"].is_string() => {
                self.text(part["text"].as_str().unwrap_or_default(), events);
            }
            (Some("refusal"), _) => self.refusal(part["refusal"].as_str().unwrap_or_default(), events),
            (Some("thinking"), _) => {
                let thoughts: String = match &part["thinking"] {
                    Value::String(text) => text.clone(),
                    Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
                    _ => String::new(),
                };
                self.think_aloud(&thoughts, events);
            }
            _ => {
                if let Value::Object(json) = part {
                    self.draft.private(json, events);
                    // What follows stands behind it.
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
                let slot = self.draft.open_text(events);
                self.from(slot, "refusal");
                *self.refusal.insert(slot)
            }
        };
        self.draft.text(slot, text, events);
    }

    /// What the model thinks; servers call it by one name, by the other, or say it twice.
    fn reasoning(&mut self, delta: &Delta<'_>, events: &mut Vec<ReplyEvent>) {
        match (delta.reasoning_content.text(), delta.reasoning.text()) {
            ("", "") if delta.others.is_empty() => {}
            ("", "") => self.think(&gather::shown(&delta.others), &[], events),
            (text, "") => self.think(text, &["reasoning_content"], events),
            ("", text) => self.think(text, &["reasoning"], events),
            (text, same) if text == same => self.think(text, &["reasoning_content", "reasoning"], events),
            (text, other) => {
                self.think(text, &["reasoning_content"], events);
                match self.draft.extra.get_mut("reasoning") {
                    Some(Value::String(before)) => before.push_str(other),
                    _ => _ = self.draft.extra.insert("reasoning".to_owned(), other.into()),
                }
            }
        }
    }

    fn think(&mut self, text: &str, fields: &[&str], events: &mut Vec<ReplyEvent>) {
        if text.is_empty() {
            return;
        }
        let slot = match self.reasoning {
            Some(slot) => slot,
            None => *self.reasoning.insert(self.draft.open_reasoning(events)),
        };
        fields.iter().for_each(|field| self.from(slot, field));
        self.draft.reasoning(slot, text, events);
    }

    /// Thoughts between the texts of the content.
    fn think_aloud(&mut self, text: &str, events: &mut Vec<ReplyEvent>) {
        if text.is_empty() {
            return;
        }
        let slot = match self.thinking {
            Some(slot) => slot,
            None => *self.thinking.insert(self.draft.open_reasoning(events)),
        };
        self.from(slot, "content");
        self.draft.reasoning(slot, text, events);
    }

    /// Notes the field that a part came in: it goes back in the same.
    fn from(&mut self, slot: usize, field: &str) {
        let Some(extra) = self.draft.extra(slot) else { return };
        let fields = extra.entry(FIELDS).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(fields) = fields
            && !fields.iter().any(|known| known == field)
        {
            fields.push(field.into());
        }
    }

    fn cost(&mut self, usage: Option<&RawValue>, events: &mut Vec<ReplyEvent>) {
        let Some(usage) = usage.and_then(|raw| json::from_str::<Value>(raw.get()).ok()) else { return };
        let usage = usage::read(&usage);
        if usage != Usage::default() {
            self.draft.cost(usage, events);
        }
    }
}

fn stop(reason: &str) -> Result<StopReason, ProviderError> {
    Ok(match reason {
        "stop" => StopReason::EndTurn,
        "tool_calls" | "function_call" => StopReason::ToolUse,
        "length" => StopReason::MaxTokens,
        // Mistral.
        "model_length" => StopReason::ContextWindow,
        "content_filter" => StopReason::ContentFilter,
        "error" => {
            let message = "the provider ended the answer with an error";
            return Err(ProviderError::new(ProviderErrorKind::Server, Dialect::Chat, message));
        }
        // DeepSeek.
        "insufficient_system_resource" => {
            let message = "the provider broke the answer off: it has too much to do";
            return Err(ProviderError::new(ProviderErrorKind::Overloaded, Dialect::Chat, message));
        }
        other => StopReason::Other(other.to_owned()),
    })
}
