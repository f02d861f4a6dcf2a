//! Running a turn: model requests and tool calls, until the model makes no more calls or a limit is reached.

use std::sync::Arc;

use tracing::Instrument as _;

use super::agent_loop::AgentLoop;
use super::exposed_tools::ExposedTools;
use super::limits::{TurnLimit, TurnLimits};
use super::model_options::ModelOptions;
use super::round::{Round, RoundEnd};
use super::step::Step;
use super::trace;
use super::turn::{AgentError, TurnEnd, TurnOutcome};
use super::turn_context::{Interruption, TurnContext};
use ropeway_core::message::{AssistantMessage, Conversation, ToolCall, ToolResult};
use ropeway_core::tool::TraceParent;
use ropeway_mcp::is_recorded;
use ropeway_providers::{ChatRequest, ProviderError, Reply, ReplyEvent, StopReason, Usage};

/// Maximum number of retries per turn after a reply with a malformed tool call.
const MAX_MALFORMED_RETRIES: usize = 2;

/// How a model request ended.
enum ReplyOutcome {
    Complete(Box<Reply>),
    Interrupted(Interruption),
}

impl AgentLoop {
    /// Runs a turn within its own span.
    pub(super) async fn run_turn(self: &Arc<Self>, turn: &TurnContext<'_>) -> Result<TurnOutcome, AgentError> {
        let span = trace::turn_span(self);
        // Without a host trace, all calls in a turn still share one trace.
        let own = || is_recorded(&span).then(TraceParent::random);
        let traceparent = turn.traceparent.or_else(own);
        span.record("traceparent", traceparent.map(tracing::field::display));
        let turn = &TurnContext { traceparent, ..*turn };
        let outcome = self.run_steps(turn).instrument(span.clone()).await;
        trace::record_outcome(&span, &outcome);
        outcome
    }

    async fn run_steps(self: &Arc<Self>, turn: &TurnContext<'_>) -> Result<TurnOutcome, AgentError> {
        let mut outcome = TurnOutcome::empty(TurnEnd::Cancelled);
        let mut retries = MAX_MALFORMED_RETRIES;
        outcome.end = loop {
            if turn.control.cancel.is_cancelled() {
                break TurnEnd::Cancelled;
            }
            if turn.control.stop.is_cancelled() {
                break TurnEnd::Stopped;
            }
            if let Some(limit) = self.exceeded_limit(&outcome) {
                break TurnEnd::Limit(limit);
            }
            outcome.steps += 1;
            let Reply { message, stop, usage, .. } = match self.request_reply(turn, &mut outcome.text).await {
                Ok(ReplyOutcome::Complete(reply)) => *reply,
                Ok(ReplyOutcome::Interrupted(why)) => break self.turn_end(why),
                Err(error) => return Err(error.after(&outcome)),
            };
            outcome.usage += usage;
            outcome.text = message.to_text();
            let calls = turn.history.push_reply(message);
            turn.sink.send(Step::Answered { stop: stop.clone(), usage });
            if calls.is_empty() {
                if stop == StopReason::Pause {
                    continue;
                }
                if stop == StopReason::MalformedToolCall && retries > 0 {
                    retries -= 1;
                    turn.sink.warn("the model sent a malformed tool call; asking again");
                    continue;
                }
                break TurnEnd::Done(stop);
            }
            let max_repeats = self.limits.repeats.max(1);
            let repeated = (turn.history.repeats() >= max_repeats).then_some(TurnLimit::Repeats(max_repeats));
            if let Some(limit) = self.exceeded_limit(&outcome).or(repeated) {
                skip_calls(turn, &calls, limit);
                break TurnEnd::Limit(limit);
            }
            let end = Round::new(self, turn, &calls).run().await;
            turn.history.close_calls();
            match end {
                RoundEnd::Done => {}
                RoundEnd::Interrupted(why) => break self.turn_end(why),
                RoundEnd::Fatal { tool, error } => {
                    let error = AgentError::ToolCall { tool, usage: Usage::default(), steps: 0, source: error };
                    return Err(error.after(&outcome));
                }
            }
        };
        Ok(outcome)
    }

    /// Sends one model request within its own span.
    async fn request_reply(&self, turn: &TurnContext<'_>, text: &mut String) -> Result<ReplyOutcome, AgentError> {
        let span = trace::request_span(self);
        let outcome = self.stream_reply(turn, text).instrument(span.clone()).await;
        match &outcome {
            Ok(ReplyOutcome::Complete(reply)) => trace::record_reply(&span, reply),
            Ok(ReplyOutcome::Interrupted(_)) => {}
            Err(error) => trace::record_error(&span, error),
        }
        outcome
    }

    /// Sends a model request and forwards the reply as steps while it arrives. Text that arrived before an interruption is kept
    /// in `text` and in the history.
    async fn stream_reply(&self, turn: &TurnContext<'_>, text: &mut String) -> Result<ReplyOutcome, AgentError> {
        let mut stream = {
            let conversation = turn.history.conversation();
            self.provider.stream(&self.request(&conversation, turn.tools))
        };
        let mut received = String::new();
        let mut interrupted = std::pin::pin!(turn.interrupted());
        loop {
            let event = tokio::select! {
                biased;
                why = &mut interrupted => {
                    if !received.trim().is_empty() {
                        text.clone_from(&received);
                        turn.history.push_reply(AssistantMessage::text(received));
                    }
                    return Ok(ReplyOutcome::Interrupted(why));
                }
                event = stream.next() => event,
            };
            match event {
                Some(Ok(ReplyEvent::Text(text))) => {
                    received.push_str(&text);
                    turn.sink.send(Step::Text { text });
                }
                Some(Ok(ReplyEvent::Reasoning(text))) => turn.sink.send(Step::Reasoning { text }),
                Some(Ok(ReplyEvent::Warning(message))) => turn.sink.warn(message),
                Some(Ok(ReplyEvent::Finished(reply))) => return Ok(ReplyOutcome::Complete(reply)),
                Some(Ok(_)) => {}
                Some(Err(source)) => return Err(self.provider_error(source)),
                // Unreachable: the stream ends with `Finished` or an error.
                None => return Err(AgentError::Lost),
            }
        }
    }

    fn provider_error(&self, source: ProviderError) -> AgentError {
        AgentError::Provider { model: self.model.clone(), usage: Usage::default(), steps: 0, source }
    }

    fn request<'a>(&'a self, conversation: &'a Conversation, tools: &'a ExposedTools) -> ChatRequest<'a> {
        let ModelOptions { max_tokens, temperature, top_p, stop_sequences, effort, output, extra } = &self.options;
        let mut request = ChatRequest::new(&self.model, conversation);
        request.max_tokens = *max_tokens;
        request.temperature = *temperature;
        request.top_p = *top_p;
        request.stop_sequences.clone_from(stop_sequences);
        request.effort = *effort;
        request.output.clone_from(output);
        request.extra.clone_from(extra);
        if tools.listed.is_empty() { request } else { request.with_tools(&tools.listed) }
    }

    /// Returns the limit that forbids another model request.
    fn exceeded_limit(&self, outcome: &TurnOutcome) -> Option<TurnLimit> {
        let TurnLimits { steps, tokens, .. } = self.limits;
        let spent = outcome.usage.input.saturating_add(outcome.usage.output);
        match tokens {
            Some(tokens) if spent > tokens => Some(TurnLimit::Tokens(tokens)),
            _ => (outcome.steps >= steps).then_some(TurnLimit::Steps(steps)),
        }
    }

    pub(super) fn turn_end(&self, why: Interruption) -> TurnEnd {
        match why {
            Interruption::Cancelled => TurnEnd::Cancelled,
            Interruption::TimedOut => TurnEnd::Limit(TurnLimit::Time(self.limits.time.unwrap_or_default())),
        }
    }
}

/// Makes no calls, because the model would not receive their results.
fn skip_calls(turn: &TurnContext<'_>, calls: &[ToolCall], limit: TurnLimit) {
    for (index, call) in calls.iter().enumerate() {
        turn.history.set_result(index, ToolResult::error(call, format!("call not made: {limit}")));
    }
    turn.history.close_calls();
}
