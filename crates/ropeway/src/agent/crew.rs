//! A crew: the model, its limits and its rules, and the loop that they go through together.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::budget::{Rest, fit};
use super::history::History;
use super::offer::Offer;
use super::policy::Desk;
use super::read_more::{READ_MORE, shorter};
use super::round::{Round, RoundEnd};
use super::sources::Sources;
use super::turn::Sink;
use super::{
    AgentError, OutputBudget, OutputBudgets, OutputStore, Step, TurnControl, TurnEnd, TurnLimit, TurnLimits,
    TurnOutcome, trace,
};
use crate::envelope::Envelope;
use crate::mcp::is_seen;
use crate::message::{AssistantMessage, Conversation, ToolCall, ToolResult};
use crate::provider::{
    ChatRequest, OutputFormat, Provider, ProviderError, ReasoningEffort, Reply, ReplyEvent, StopReason, Usage,
};
use crate::sync::sleep_until;
use crate::tool::TraceParent;

/// How often a model that wrote a call that cannot be read is asked once more.
const SECOND_CHANCES: usize = 2;

/// How a model is asked in every step of a turn.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ModelOptions {
    /// How long one answer may get.
    pub max_tokens: Option<u32>,
    /// How much is left to chance.
    pub temperature: Option<f64>,
    /// How much of the probable is considered.
    pub top_p: Option<f64>,
    /// Texts at which an answer ends.
    pub stop_sequences: Vec<String>,
    /// How hard the model thinks before it answers.
    pub effort: Option<ReasoningEffort>,
    /// The JSON that the last answer must be.
    pub output: Option<OutputFormat>,
    /// Further fields of the body, as the provider wants them; they win over ours.
    pub extra: Map<String, Value>,
}

impl ModelOptions {
    /// Bounds one answer.
    #[must_use]
    pub fn with_max_tokens(self, tokens: u32) -> Self {
        Self { max_tokens: Some(tokens), ..self }
    }

    /// Says how much is left to chance.
    #[must_use]
    pub fn with_temperature(self, temperature: f64) -> Self {
        Self { temperature: Some(temperature), ..self }
    }

    /// Says how hard to think.
    #[must_use]
    pub fn with_effort(self, effort: ReasoningEffort) -> Self {
        Self { effort: Some(effort), ..self }
    }

    /// Wants JSON of a schema for an answer.
    #[must_use]
    pub fn with_output(self, output: OutputFormat) -> Self {
        Self { output: Some(output), ..self }
    }

    /// Adds a field to the body, as the provider wants it.
    #[must_use]
    pub fn with_extra(mut self, field: impl Into<String>, value: Value) -> Self {
        self.extra.insert(field.into(), value);
        self
    }
}

/// What a loop needs besides what was said and the tools.
#[derive(Debug)]
pub(super) struct Crew {
    pub(super) provider: Provider,
    pub(super) model: String,
    pub(super) options: ModelOptions,
    pub(super) limits: TurnLimits,
    pub(super) desk: Desk,
    pub(super) budgets: OutputBudgets,
    /// Where outputs go that are too large; they are dropped when there is no such place.
    pub(super) spill: Option<OutputStore>,
}

/// Where one turn plays.
pub(super) struct Scene<'a> {
    pub(super) history: &'a History,
    pub(super) offer: &'a Offer,
    /// Where the tools come from, to see what has become of them meanwhile.
    pub(super) sources: Option<&'a Sources>,
    pub(super) sink: &'a Sink,
    pub(super) control: &'a TurnControl,
    /// When the turn's time is over.
    pub(super) deadline: Option<Instant>,
    /// Whose trace the turn belongs to.
    pub(super) traceparent: Option<TraceParent>,
}

/// Why a turn is cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Cancelled,
    Time,
}

impl Scene<'_> {
    /// Waits until the turn is cut short.
    pub(super) async fn cut(&self) -> Cut {
        tokio::select! {
            biased;
            () = self.control.cancel.cancelled() => Cut::Cancelled,
            () = sleep_until(self.deadline) => Cut::Time,
        }
    }
}

/// What a question came to.
enum Asked {
    Answered(Box<Reply>),
    Cut(Cut),
}

impl Crew {
    /// Asks the model until it has no more calls to make, or must not make them.
    pub(super) async fn play(self: &Arc<Self>, scene: &Scene<'_>) -> Result<TurnOutcome, AgentError> {
        let span = trace::of_turn(self);
        // All calls of a turn are in one trace, also where nobody said in which.
        let own = || is_seen(&span).then(TraceParent::random);
        let traceparent = scene.traceparent.or_else(own);
        span.record("traceparent", traceparent.map(tracing::field::display));
        let scene = &Scene { traceparent, ..*scene };
        let came_to = self.go_round(scene).instrument(span.clone()).await;
        trace::turn_over(&span, &came_to);
        came_to
    }

    async fn go_round(self: &Arc<Self>, scene: &Scene<'_>) -> Result<TurnOutcome, AgentError> {
        let mut outcome = TurnOutcome {
            text: String::new(),
            end: TurnEnd::Cancelled,
            usage: Usage::default(),
            steps: 0,
            missing: Vec::new(),
        };
        let mut chances = SECOND_CHANCES;
        outcome.end = loop {
            if scene.control.cancel.is_cancelled() {
                break TurnEnd::Cancelled;
            }
            if scene.control.stop.is_cancelled() {
                break TurnEnd::Stopped;
            }
            if let Some(limit) = self.exhausted(&outcome) {
                break TurnEnd::Limit(limit);
            }
            outcome.steps += 1;
            let Reply { message, stop, usage, .. } = match self.ask(scene, &mut outcome.text).await {
                Ok(Asked::Answered(reply)) => *reply,
                Ok(Asked::Cut(cut)) => break self.end_of(cut),
                Err(error) => return Err(error.after(&outcome)),
            };
            outcome.usage += usage;
            outcome.text = message.to_text();
            let calls = scene.history.answer(message);
            scene.sink.tell(Step::Answered { stop: stop.clone(), usage });
            if calls.is_empty() {
                if stop == StopReason::Pause {
                    continue;
                }
                if stop == StopReason::MalformedToolCall && chances > 0 {
                    chances -= 1;
                    scene.sink.warn("the model wrote a call that cannot be read, and is asked once more");
                    continue;
                }
                break TurnEnd::Done(stop);
            }
            let too_often = scene.history.repeats() >= self.limits.repeats.max(1);
            let repeated = too_often.then_some(TurnLimit::Repeats(self.limits.repeats.max(1)));
            if let Some(limit) = self.exhausted(&outcome).or(repeated) {
                refuse(scene, &calls, limit);
                break TurnEnd::Limit(limit);
            }
            let end = Round::new(self, scene, &calls).run().await;
            scene.history.close();
            match end {
                RoundEnd::Done => {}
                RoundEnd::Cut(cut) => break self.end_of(cut),
                RoundEnd::Fatal { tool, error } => {
                    let error = AgentError::ToolCall { tool, usage: Usage::default(), steps: 0, source: error };
                    return Err(error.after(&outcome));
                }
            }
        };
        Ok(outcome)
    }

    /// Asks the model once.
    async fn ask(&self, scene: &Scene<'_>, text: &mut String) -> Result<Asked, AgentError> {
        let span = trace::of_question(self);
        let asked = self.hear(scene, text).instrument(span.clone()).await;
        match &asked {
            Ok(Asked::Answered(reply)) => trace::answered(&span, reply),
            Ok(Asked::Cut(_)) => {}
            Err(error) => trace::failed(&span, error),
        }
        asked
    }

    /// Asks, and tells the answer as it comes in.
    async fn hear(&self, scene: &Scene<'_>, text: &mut String) -> Result<Asked, AgentError> {
        let mut stream = {
            let sent = scene.history.sent();
            self.provider.stream(&self.request(&sent, scene.offer))
        };
        let mut said = String::new();
        let mut cut = std::pin::pin!(scene.cut());
        loop {
            let event = tokio::select! {
                biased;
                cut = &mut cut => {
                    // What somebody has read was said.
                    if !said.trim().is_empty() {
                        text.clone_from(&said);
                        scene.history.answer(AssistantMessage::text(said));
                    }
                    return Ok(Asked::Cut(cut));
                }
                event = stream.next() => event,
            };
            match event {
                Some(Ok(ReplyEvent::Text(text))) => {
                    said.push_str(&text);
                    scene.sink.tell(Step::Text { text });
                }
                Some(Ok(ReplyEvent::Reasoning(text))) => scene.sink.tell(Step::Reasoning { text }),
                Some(Ok(ReplyEvent::Warning(message))) => scene.sink.warn(message),
                Some(Ok(ReplyEvent::Finished(reply))) => return Ok(Asked::Answered(reply)),
                Some(Ok(_)) => {}
                Some(Err(source)) => return Err(self.unanswered(source)),
                // It ends with one of the two above.
                None => return Err(AgentError::Lost),
            }
        }
    }

    fn unanswered(&self, source: ProviderError) -> AgentError {
        AgentError::Provider { model: self.model.clone(), usage: Usage::default(), steps: 0, source }
    }

    fn request<'a>(&'a self, sent: &'a Conversation, offer: &'a Offer) -> ChatRequest<'a> {
        let ModelOptions { max_tokens, temperature, top_p, stop_sequences, effort, output, extra } = &self.options;
        let mut request = ChatRequest::new(&self.model, sent);
        request.max_tokens = *max_tokens;
        request.temperature = *temperature;
        request.top_p = *top_p;
        request.stop_sequences.clone_from(stop_sequences);
        request.effort = *effort;
        request.output.clone_from(output);
        request.extra.clone_from(extra);
        match offer.shown.is_empty() {
            true => request,
            false => request.with_tools(&offer.shown),
        }
    }

    /// What a model is told of a finished call, and what has become of the rest where there is one. It is kept where the model
    /// can read on in it.
    pub(super) async fn result(
        &self,
        call: &ToolCall,
        envelope: &Envelope,
        reads_on: bool,
    ) -> (ToolResult, Option<Rest>) {
        let parts = envelope.parts();
        let budget = self.budgets.of(&envelope.tool);
        let (content, rest) = match &self.spill {
            Some(spill) if reads_on => spill.fit_and_keep(&parts, budget).await,
            _ => (fit(&parts, budget, &Rest::Dropped), None),
        };
        (ToolResult { is_error: envelope.meta.is_error, ..ToolResult::new(call, content.into_owned()) }, rest)
    }

    /// What it is told in less room.
    pub(super) async fn shorter_result(
        &self,
        call: &ToolCall,
        envelope: &Envelope,
        room: OutputBudget,
        rest: Option<&Rest>,
        reads_on: bool,
    ) -> ToolResult {
        let parts = envelope.parts();
        let page = (reads_on && envelope.tool == READ_MORE).then(|| shorter(&parts, room.text_bytes)).flatten();
        let content = match (page, &self.spill) {
            (Some(page), _) => Cow::Owned(page),
            (None, Some(spill)) if reads_on => {
                spill.fit_again(&parts, (self.budgets.of(&envelope.tool), room), rest).await
            }
            (None, _) => fit(&parts, room, &Rest::Dropped),
        };
        ToolResult { is_error: envelope.meta.is_error, ..ToolResult::new(call, content.into_owned()) }
    }

    /// The limit that leaves no room for another question.
    fn exhausted(&self, outcome: &TurnOutcome) -> Option<TurnLimit> {
        let TurnLimits { steps, tokens, .. } = self.limits;
        let spent = outcome.usage.input.saturating_add(outcome.usage.output);
        match tokens {
            Some(tokens) if spent > tokens => Some(TurnLimit::Tokens(tokens)),
            _ => (outcome.steps >= steps).then_some(TurnLimit::Steps(steps)),
        }
    }

    pub(super) fn end_of(&self, cut: Cut) -> TurnEnd {
        match cut {
            Cut::Cancelled => TurnEnd::Cancelled,
            Cut::Time => TurnEnd::Limit(TurnLimit::Time(self.limits.time.unwrap_or_default())),
        }
    }
}

/// Makes none of the calls: nobody would be told what became of them.
fn refuse(scene: &Scene<'_>, calls: &[ToolCall], limit: TurnLimit) {
    for (at, call) in calls.iter().enumerate() {
        scene.history.settle(at, ToolResult::error(call, format!("the call was not made: {limit}")));
    }
    scene.history.close();
}
