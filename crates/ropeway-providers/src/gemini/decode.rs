//! Decodes a `GenerateContentResponse` stream.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::frame::{
    CALL, Candidate, CandidatePart, FunctionCall, GeminiFrame, PromptFeedback, SIGNATURE, TokenCount, UsageMetadata,
};
use crate::error::{ProviderError, ProviderErrorKind};
use crate::error_mapping;
use crate::reply::{Reply, ReplyEvent, StopReason, Usage};
use crate::reply_builder::ReplyBuilder;
use ropeway_core::json;
use ropeway_core::loose_json::BorrowedText;
use ropeway_core::lowering::LoweredTools;
use ropeway_core::message::{Dialect, ModelEndpoint};

/// Decodes one reply's responses.
#[derive(Debug)]
pub(crate) struct GeminiDecoder {
    reply: ReplyBuilder,
    /// The slot that further text is appended to.
    open: Option<OpenText>,
    counts: UsageMetadata,
    /// The usage in the replies that this one continues.
    before: Usage,
    /// The token to continue with.
    token: Option<String>,
    /// The last continuation's token.
    used_token: Option<String>,
    /// A call without a name was received.
    has_nameless_call: bool,
}

/// A text slot without additional fields.
#[derive(Clone, Copy, Debug)]
struct OpenText {
    slot: usize,
    thought: bool,
}

impl GeminiDecoder {
    pub(crate) fn new(endpoint: ModelEndpoint, lowered: Arc<LoweredTools>) -> Self {
        Self {
            reply: ReplyBuilder::new(endpoint, lowered),
            open: None,
            counts: UsageMetadata::default(),
            before: Usage::default(),
            token: None,
            used_token: None,
            has_nameless_call: false,
        }
    }

    pub(crate) fn frame(&mut self, data: &[u8], events: &mut Vec<ReplyEvent>) -> Result<(), ProviderError> {
        let mut repaired = Vec::new();
        match data.trim_ascii() {
            // Sent by some gateways, not by Gemini.
            b"" | b"[DONE]" => Ok(()),
            // Errors may be wrapped in a list, and so is everything if a proxy drops `alt=sse`.
            list @ [b'[', ..] => {
                let frames: Vec<GeminiFrame<'_>> = json::from_slice_in(list, &mut repaired).map_err(unreadable)?;
                frames.into_iter().try_for_each(|frame| self.take(frame, events))
            }
            frame => self.take(json::from_slice_in(frame, &mut repaired).map_err(unreadable)?, events),
        }
    }

    /// Usage may follow at any time, so a reply ends only when the stream ends.
    pub(crate) fn is_finished(&self) -> bool {
        false
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.reply.stop.is_some()
    }

    pub(crate) fn end(&mut self, events: &mut Vec<ReplyEvent>) -> Result<Reply, ProviderError> {
        match self.reply.stop {
            None => {
                let message = "the reply was cut off: no finish reason";
                return Err(ProviderError::new(ProviderErrorKind::Truncated, Dialect::Gemini, message));
            }
            Some(StopReason::EndTurn) if self.has_nameless_call && self.reply.call_count() == 0 => {
                self.reply.stop = Some(StopReason::MalformedToolCall);
            }
            Some(_) => {}
        }
        Ok(self.reply.finish(events))
    }

    /// Returns the token to continue with, if the provider paused. The next response belongs to the same reply.
    pub(crate) fn continuation(&mut self) -> Option<String> {
        if self.reply.stop != Some(StopReason::Pause) {
            return None;
        }
        // Repeating a token would repeat the response.
        let token = self.token.take().filter(|token| self.used_token.as_ref() != Some(token))?;
        self.used_token = Some(token.clone());
        self.reply.stop = None;
        self.open = None;
        self.before = self.reply.usage;
        self.counts = UsageMetadata::default();
        Some(token)
    }

    fn take(&mut self, frame: GeminiFrame<'_>, events: &mut Vec<ReplyEvent>) -> Result<(), ProviderError> {
        if let Some(error) = frame.error {
            let error: Value = json::from_str(error.get()).map_err(unreadable)?;
            return Err(error_mapping::from_event(Dialect::Gemini, &error));
        }
        if let (None, Some(BorrowedText(id))) = (&self.reply.id, frame.response_id) {
            self.reply.id = Some(id.into_owned());
        }
        if let (None, Some(BorrowedText(model))) = (&self.reply.model, frame.model_version) {
            self.reply.model = Some(model.into_owned());
        }
        // Further candidates are sent only if `extra` requests them, and are ignored.
        let mut candidates = frame.candidates.into_iter().flatten();
        if let Some(candidate) = candidates.find(|candidate| candidate.index.is_none_or(|TokenCount(index)| index == 0))
        {
            self.candidate(candidate, events);
        }
        if let Some(feedback) = frame.prompt_feedback {
            self.feedback(feedback, events);
        }
        if let Some(counts) = frame.usage_metadata {
            self.update_usage(counts, events);
        }
        Ok(())
    }

    fn candidate(&mut self, candidate: Candidate<'_>, events: &mut Vec<ReplyEvent>) {
        for part in candidate.content.and_then(|content| content.parts).into_iter().flatten() {
            self.part(part, events);
        }
        if let Some(BorrowedText(token)) = candidate.continuation_token.filter(|token| !token.0.is_empty()) {
            self.token = Some(token.into_owned());
        }
        let Some(BorrowedText(reason)) = candidate.finish_reason else { return };
        if reason.is_empty() || reason == "FINISH_REASON_UNSPECIFIED" {
            return;
        }
        let stop = stop_reason(&reason);
        if let Some(BorrowedText(message)) = candidate.finish_message.filter(|message| !message.0.is_empty())
            && stop != StopReason::EndTurn
        {
            self.reply.warn(format!("gemini stopped with `{reason}`: {message}"), events);
        }
        self.reply.stop = Some(stop);
    }

    fn feedback(&mut self, feedback: PromptFeedback<'_>, events: &mut Vec<ReplyEvent>) {
        let Some(BorrowedText(reason)) = feedback.block_reason else { return };
        if reason.is_empty() || reason == "BLOCK_REASON_UNSPECIFIED" {
            return;
        }
        let message =
            feedback.block_reason_message.map(|BorrowedText(message)| format!(": {message}")).unwrap_or_default();
        self.reply.warn(format!("gemini blocked the prompt with `{reason}`{message}"), events);
        self.reply.stop = Some(StopReason::ContentFilter);
    }

    fn update_usage(&mut self, new: UsageMetadata, events: &mut Vec<ReplyEvent>) {
        let counts = &mut self.counts;
        *counts = UsageMetadata {
            prompt: new.prompt.or(counts.prompt),
            tool_use: new.tool_use.or(counts.tool_use),
            cached: new.cached.or(counts.cached),
            candidates: new.candidates.or(counts.candidates),
            thoughts: new.thoughts.or(counts.thoughts),
        };
        let number = |count: Option<TokenCount>| count.map_or(0, |TokenCount(count)| count);
        let mut usage = self.before;
        usage += Usage {
            input: number(counts.prompt) + number(counts.tool_use),
            output: number(counts.candidates) + number(counts.thoughts),
            cache_read: number(counts.cached),
            cache_write: 0,
            reasoning: number(counts.thoughts),
            cost: None,
        };
        self.reply.set_usage(usage, events);
    }

    fn part(&mut self, part: CandidatePart<'_>, events: &mut Vec<ReplyEvent>) {
        let CandidatePart { text, thought, signature, call, rest: mut extra } = part;
        if let Some(signature) = signature.filter(|signature| !signature.is_empty()) {
            extra.insert(SIGNATURE.to_owned(), signature.into());
        }
        match (call, text) {
            (Some(call), text) => {
                // A part should have only one of both; neither is dropped.
                self.text(text.unwrap_or_default(), thought, Map::new(), events);
                self.call(call, extra, events);
            }
            (None, Some(text)) => self.text(text, thought, extra, events),
            (None, None) => {
                if thought {
                    extra.insert("thought".to_owned(), true.into());
                }
                if !extra.is_empty() {
                    self.open = None;
                    self.reply.push_opaque(extra, events);
                }
            }
        }
    }

    /// Appends text, or starts a new part if the text has additional fields that must stay with it.
    fn text(&mut self, text: Cow<'_, str>, thought: bool, extra: Map<String, Value>, events: &mut Vec<ReplyEvent>) {
        let slot = match self.open {
            _ if text.is_empty() && extra.is_empty() => return,
            Some(open) if open.thought == thought && extra.is_empty() => open.slot,
            _ => {
                let slot = if thought { self.reply.open_reasoning(events) } else { self.reply.open_text(events) };
                self.open = extra.is_empty().then_some(OpenText { slot, thought });
                if let Some(fields) = self.reply.extra_mut(slot) {
                    *fields = extra;
                }
                slot
            }
        };
        if thought {
            self.reply.push_reasoning(slot, &text, events);
        } else {
            self.reply.push_text(slot, &text, events);
        }
    }

    fn call(&mut self, call: FunctionCall<'_>, mut extra: Map<String, Value>, events: &mut Vec<ReplyEvent>) {
        let Some(name) = call.name.filter(|name| !name.is_empty()) else {
            self.has_nameless_call = true;
            self.reply.warn("the model called a tool without a name", events);
            return;
        };
        self.open = None;
        let id = call.id.filter(|id| !id.is_empty());
        let slot = self.reply.open_call(id.as_deref().unwrap_or_default(), &name, events);
        if let Some(arguments) = call.arguments {
            // Compact JSON equals the serialized arguments, so no raw copy has to be kept.
            self.reply.push_arguments(slot, &json::compact(arguments.get()), events);
        }
        let mut fields = call.rest;
        if let Some(id) = id {
            fields.insert("id".to_owned(), id.into());
        }
        if !fields.is_empty() {
            extra.insert(CALL.to_owned(), fields.into());
        }
        if let Some(fields) = self.reply.extra_mut(slot) {
            *fields = extra;
        }
        // Calls are complete when received, even if the reply is cut off later.
        self.reply.close_calls(events);
    }
}

/// Maps a [`FinishReason`](https://ai.google.dev/api/generate-content#FinishReason). Gemini has none for tool calls.
fn stop_reason(reason: &str) -> StopReason {
    match &*reason.to_ascii_uppercase() {
        "STOP" => StopReason::EndTurn,
        "MAX_TOKENS" => StopReason::MaxTokens,
        "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" => StopReason::ContentFilter,
        "CONTINUATION" => StopReason::Pause,
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS" => StopReason::MalformedToolCall,
        upper if upper.starts_with("IMAGE_") => StopReason::ContentFilter,
        _ => StopReason::Other(reason.to_owned()),
    }
}

fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> ProviderError {
    let message = "an event of the reply is not a gemini response";
    ProviderError::new(ProviderErrorKind::Unreadable, Dialect::Gemini, message).with_source(error)
}
