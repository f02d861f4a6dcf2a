//! An answer as Gemini streams it.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::frame::{Call, Candidate, Count, Counts, Feedback, Frame, Part, Text};
use super::{CALL, SIGNATURE};
use crate::json;
use crate::lowering::LoweredTools;
use crate::message::{Dialect, ModelEndpoint};
use crate::provider::draft::Draft;
use crate::provider::{ProviderError, ProviderErrorKind, Reply, ReplyEvent, StopReason, Usage, trouble};

/// Reads an answer.
#[derive(Debug)]
pub(crate) struct Decoder {
    draft: Draft,
    /// The slot that more text is put into.
    open: Option<Open>,
    counts: Counts,
    /// What the answers cost that this one goes on from.
    before: Usage,
    /// The token to go on with.
    token: Option<String>,
    /// The token that was gone on with last.
    used_token: Option<String>,
    /// A tool was called without a name.
    nameless: bool,
}

/// A slot of text that has nothing else with it.
#[derive(Clone, Copy, Debug)]
struct Open {
    slot: usize,
    thought: bool,
}

impl Decoder {
    pub(crate) fn new(speaker: ModelEndpoint, lowered: Arc<LoweredTools>) -> Self {
        Self {
            draft: Draft::new(speaker, lowered),
            open: None,
            counts: Counts::default(),
            before: Usage::default(),
            token: None,
            used_token: None,
            nameless: false,
        }
    }

    pub(crate) fn frame(&mut self, data: &[u8], events: &mut Vec<ReplyEvent>) -> Result<(), ProviderError> {
        let mut repaired = Vec::new();
        match data.trim_ascii() {
            // Gemini has no such end, but what stands before a model may be used to it.
            b"" | b"[DONE]" => Ok(()),
            // An error may come in a list, and so does everything where the query of the URL was lost.
            list @ [b'[', ..] => {
                let frames: Vec<Frame<'_>> = json::from_slice_in(list, &mut repaired).map_err(unreadable)?;
                frames.into_iter().try_for_each(|frame| self.take(frame, events))
            }
            frame => self.take(json::from_slice_in(frame, &mut repaired).map_err(unreadable)?, events),
        }
    }

    /// Nothing says that no usage follows: the answer is over when the stream is.
    pub(crate) fn is_over(&self) -> bool {
        false
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.draft.stop.is_some()
    }

    pub(crate) fn end(&mut self, events: &mut Vec<ReplyEvent>) -> Result<Reply, ProviderError> {
        match self.draft.stop {
            None => {
                let words = "the answer broke off: it did not say why it ended";
                return Err(ProviderError::new(ProviderErrorKind::Truncated, Dialect::Gemini, words));
            }
            Some(StopReason::EndTurn) if self.nameless && self.draft.calls() == 0 => {
                self.draft.stop = Some(StopReason::MalformedToolCall);
            }
            Some(_) => {}
        }
        Ok(self.draft.finish(events))
    }

    /// The token to go on with, if the provider has stopped in between. What comes then belongs to the same answer.
    pub(crate) fn continuation(&mut self) -> Option<String> {
        if self.draft.stop != Some(StopReason::Pause) {
            return None;
        }
        // The same token again would bring the same again.
        let token = self.token.take().filter(|token| self.used_token.as_ref() != Some(token))?;
        self.used_token = Some(token.clone());
        self.draft.stop = None;
        self.open = None;
        self.before = self.draft.usage;
        self.counts = Counts::default();
        Some(token)
    }

    fn take(&mut self, frame: Frame<'_>, events: &mut Vec<ReplyEvent>) -> Result<(), ProviderError> {
        if let Some(error) = frame.error {
            let error: Value = json::from_str(error.get()).map_err(unreadable)?;
            return Err(trouble::in_stream(Dialect::Gemini, &error));
        }
        if let (None, Some(Text(id))) = (&self.draft.id, frame.response_id) {
            self.draft.id = Some(id.into_owned());
        }
        if let (None, Some(Text(model))) = (&self.draft.model, frame.model_version) {
            self.draft.model = Some(model.into_owned());
        }
        // Others than the first are there only if the caller asked for them, and nobody would hear them.
        let mut candidates = frame.candidates.into_iter().flatten();
        if let Some(candidate) = candidates.find(|candidate| candidate.index.is_none_or(|Count(index)| index == 0)) {
            self.candidate(candidate, events);
        }
        if let Some(feedback) = frame.prompt_feedback {
            self.feedback(feedback, events);
        }
        if let Some(counts) = frame.usage_metadata {
            self.cost(counts, events);
        }
        Ok(())
    }

    fn candidate(&mut self, candidate: Candidate<'_>, events: &mut Vec<ReplyEvent>) {
        for part in candidate.content.and_then(|content| content.parts).into_iter().flatten() {
            self.part(part, events);
        }
        if let Some(Text(token)) = candidate.continuation_token.filter(|token| !token.0.is_empty()) {
            self.token = Some(token.into_owned());
        }
        let Some(Text(reason)) = candidate.finish_reason else { return };
        if reason.is_empty() || reason == "FINISH_REASON_UNSPECIFIED" {
            return;
        }
        let stop = stop(&reason);
        if let Some(Text(message)) = candidate.finish_message.filter(|message| !message.0.is_empty())
            && stop != StopReason::EndTurn
        {
            self.draft.warn(format!("gemini stopped with `{reason}`: {message}"), events);
        }
        self.draft.stop = Some(stop);
    }

    fn feedback(&mut self, feedback: Feedback<'_>, events: &mut Vec<ReplyEvent>) {
        let Some(Text(reason)) = feedback.block_reason else { return };
        if reason.is_empty() || reason == "BLOCK_REASON_UNSPECIFIED" {
            return;
        }
        let message = feedback.block_reason_message.map(|Text(message)| format!(": {message}")).unwrap_or_default();
        self.draft.warn(format!("gemini does not answer, with `{reason}`{message}"), events);
        self.draft.stop = Some(StopReason::ContentFilter);
    }

    fn cost(&mut self, new: Counts, events: &mut Vec<ReplyEvent>) {
        let counts = &mut self.counts;
        *counts = Counts {
            prompt: new.prompt.or(counts.prompt),
            tool_use: new.tool_use.or(counts.tool_use),
            cached: new.cached.or(counts.cached),
            candidates: new.candidates.or(counts.candidates),
            thoughts: new.thoughts.or(counts.thoughts),
        };
        let number = |count: Option<Count>| count.map_or(0, |Count(count)| count);
        let mut usage = self.before;
        usage += Usage {
            input: number(counts.prompt) + number(counts.tool_use),
            output: number(counts.candidates) + number(counts.thoughts),
            cache_read: number(counts.cached),
            cache_write: 0,
            reasoning: number(counts.thoughts),
            cost: None,
        };
        self.draft.cost(usage, events);
    }

    fn part(&mut self, part: Part<'_>, events: &mut Vec<ReplyEvent>) {
        let Part { text, thought, signature, call, rest: mut extra } = part;
        if let Some(signature) = signature.filter(|signature| !signature.is_empty()) {
            extra.insert(SIGNATURE.to_owned(), signature.into());
        }
        match (call, text) {
            (Some(call), text) => {
                // A part is one thing or another, but nothing that was said gets lost.
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
                    self.draft.private(extra, events);
                }
            }
        }
    }

    /// Pieces of a text become one, unless one of them has something with it that must stay where it is.
    fn text(&mut self, text: Cow<'_, str>, thought: bool, extra: Map<String, Value>, events: &mut Vec<ReplyEvent>) {
        let slot = match self.open {
            _ if text.is_empty() && extra.is_empty() => return,
            Some(open) if open.thought == thought && extra.is_empty() => open.slot,
            _ => {
                let slot = match thought {
                    true => self.draft.open_reasoning(events),
                    false => self.draft.open_text(events),
                };
                self.open = extra.is_empty().then_some(Open { slot, thought });
                if let Some(place) = self.draft.extra(slot) {
                    *place = extra;
                }
                slot
            }
        };
        match thought {
            true => self.draft.reasoning(slot, &text, events),
            false => self.draft.text(slot, &text, events),
        }
    }

    fn call(&mut self, call: Call<'_>, mut extra: Map<String, Value>, events: &mut Vec<ReplyEvent>) {
        let Some(name) = call.name.filter(|name| !name.is_empty()) else {
            self.nameless = true;
            self.draft.warn("the model called a tool without a name", events);
            return;
        };
        self.open = None;
        let id = call.id.filter(|id| !id.is_empty());
        let slot = self.draft.open_call(id.as_deref().unwrap_or_default(), &name, events);
        if let Some(arguments) = call.arguments {
            // Without its spaces it is what we would write ourselves, and needs no second copy.
            self.draft.arguments(slot, &json::compact(arguments.get()), events);
        }
        let mut fields = call.rest;
        if let Some(id) = id {
            fields.insert("id".to_owned(), id.into());
        }
        if !fields.is_empty() {
            extra.insert(CALL.to_owned(), fields.into());
        }
        if let Some(place) = self.draft.extra(slot) {
            *place = extra;
        }
        // A call comes whole, so it was not cut off, whatever the answer was.
        self.draft.settle_calls(events);
    }
}

/// Why the model stopped. That it waits for results is not told: the draft knows it by the calls.
fn stop(reason: &str) -> StopReason {
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
    let words = "a frame of the answer is not what gemini sends";
    ProviderError::new(ProviderErrorKind::Unreadable, Dialect::Gemini, words).with_source(error)
}
