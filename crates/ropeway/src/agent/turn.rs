//! A turn: the handle of one message to an agent and of everything that it leads to.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use serde::ser::{Serialize, SerializeMap, Serializer};
use tokio::sync::oneshot;

use super::steps::{self, StepReceiver, StepSender, WeakStepSender};
use super::{Step, TurnLimit};
use crate::provider::{ProviderError, StopReason, Usage};
use crate::registry::ServerStatus;
use crate::tool::{Alias, BoxError, CancelToken, ToolCallError};

/// What a turn came to.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct TurnOutcome {
    /// What the model said last.
    pub text: String,
    /// Why the turn is over.
    pub end: TurnEnd,
    /// What all answers have cost together.
    pub usage: Usage,
    /// How often the model was asked.
    pub steps: usize,
    /// The servers that were unavailable when the turn began, each with the reason. The model was not offered tools of a server
    /// that never connected. A missing server that is marked `required` is an [`AgentError::RequiredServer`] instead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<ServerStatus>,
}

/// Why a turn is over. As JSON, `{"reason": "done", "stop": "end_turn"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TurnEnd {
    /// The model has no more calls to make.
    Done(StopReason),
    /// A limit was reached.
    Limit(TurnLimit),
    /// The host wanted no further step.
    Stopped,
    /// The host wanted it to end at once.
    Cancelled,
}

impl Serialize for TurnEnd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let reason = match self {
            Self::Done(_) => "done",
            Self::Limit(_) => "limit",
            Self::Stopped => "stopped",
            Self::Cancelled => "cancelled",
        };
        map.serialize_entry("reason", reason)?;
        match self {
            Self::Done(stop) => map.serialize_entry("stop", stop)?,
            Self::Limit(limit) => {
                let (name, most) = limit.parts();
                map.serialize_entry("limit", name)?;
                map.serialize_entry("most", &most)?;
            }
            Self::Stopped | Self::Cancelled => {}
        }
        map.end()
    }
}

/// Why a turn has no outcome. A failed tool call is never a reason, unless the host itself calls its error
/// [fatal](ToolCallError::fatal).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The model gave no answer. What was said and done before is in the history.
    #[error("model `{model}` gave no answer")]
    Provider {
        /// The model that was asked.
        model: String,
        /// What the answers before it have cost.
        usage: Usage,
        /// How often the model was asked.
        steps: usize,
        /// What is known of it.
        #[source]
        source: ProviderError,
    },
    /// A server that is marked `required` is unavailable. The model was not asked; the message is in the history, so that
    /// [`Agent::resume`](super::Agent::resume) tries again.
    #[error("required server `{server}` is unavailable")]
    RequiredServer {
        /// The server.
        server: Alias,
        /// Why it is unavailable.
        #[source]
        source: BoxError,
    },
    /// A tool of the host or an `on_tool_call` callback returned a fatal error. The results of all calls are in the history.
    #[error("tool `{tool}` ended the turn")]
    ToolCall {
        /// The tool that was called.
        tool: String,
        /// What the answers have cost.
        usage: Usage,
        /// How often the model was asked.
        steps: usize,
        /// The fatal error.
        #[source]
        source: ToolCallError,
    },
    /// There is nothing that the model could answer: nobody said anything, or the model itself spoke last.
    #[error("there is nothing to answer")]
    NothingToAnswer,
    /// A pattern of a budget is not one.
    #[error("`{pattern}` is not a glob: {problem}")]
    Glob {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The turn has no end: the runtime that it ran on is gone, or code of the host has panicked in it, such as a tracer.
    #[error("the turn was lost")]
    Lost,
}

impl AgentError {
    /// The same, with what had been spent by then.
    pub(super) fn after(self, outcome: &TurnOutcome) -> Self {
        match self {
            Self::Provider { model, source, .. } => {
                Self::Provider { model, usage: outcome.usage, steps: outcome.steps, source }
            }
            Self::ToolCall { tool, source, .. } => {
                Self::ToolCall { tool, usage: outcome.usage, steps: outcome.steps, source }
            }
            other => other,
        }
    }
}

/// Ends a turn from anywhere. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct TurnControl {
    pub(super) cancel: CancelToken,
    pub(super) stop: CancelToken,
    over: Arc<AtomicBool>,
}

impl TurnControl {
    /// Ends the turn at once: calls in flight are cancelled, and an answer that is coming in is not waited for.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Ends the turn after the step that is going on: its calls are made to their end, and the model is not asked again.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Is there a turn that could be ended?
    pub(super) fn is_live(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    /// The turn is over.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// A turn that is going on. Dropping it cancels it.
#[must_use = "dropping a turn cancels it; `detach` lets it go on"]
pub struct Turn {
    steps: StepReceiver,
    outcome: oneshot::Receiver<Result<TurnOutcome, AgentError>>,
    control: TurnControl,
    /// Cancels when the handle is gone.
    guard: Guard,
}

struct Guard(Option<TurnControl>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(control) = self.0.take() {
            control.cancel();
        }
    }
}

/// Where a turn tells its steps.
#[derive(Clone)]
pub(super) struct Sink {
    steps: StepSender,
    tracer: Option<Tracer>,
}

/// The same for whoever may live longer than the turn: a call that was given up must not keep its end open.
#[derive(Clone)]
pub(super) struct WeakSink {
    steps: WeakStepSender,
    tracer: Option<Tracer>,
}

pub(super) type Tracer = Arc<dyn Fn(&Step) + Send + Sync>;

impl Sink {
    pub(super) fn tell(&self, step: Step) {
        if let Some(tracer) = &self.tracer {
            tracer(&step);
        }
        self.steps.send(step);
    }

    pub(super) fn downgrade(&self) -> WeakSink {
        WeakSink { steps: self.steps.downgrade(), tracer: self.tracer.clone() }
    }

    pub(super) fn warn(&self, message: impl Into<String>) {
        self.tell(Step::Warning { message: message.into() });
    }
}

impl WeakSink {
    /// Tells a step, if the turn is not over.
    pub(super) fn tell(&self, step: Step) {
        if let Some(steps) = self.steps.upgrade() {
            Sink { steps, tracer: self.tracer.clone() }.tell(step);
        }
    }
}

/// The other end of a turn's handle.
pub(super) struct Task {
    pub(super) sink: Sink,
    pub(super) control: TurnControl,
    pub(super) outcome: oneshot::Sender<Result<TurnOutcome, AgentError>>,
}

impl Turn {
    pub(super) fn new(tracer: Option<Tracer>) -> (Self, Task) {
        let (steps, receiver) = steps::channel();
        let (outcome, awaited) = oneshot::channel();
        let control = TurnControl::default();
        let guard = Guard(Some(control.clone()));
        let task = Task { sink: Sink { steps, tracer }, control: control.clone(), outcome };
        (Self { steps: receiver, outcome: awaited, control, guard }, task)
    }

    /// The next step; `None` after the last one.
    ///
    /// The turn never waits for its reader. Steps that nobody has taken yet are merged where nothing is lost by it: of the
    /// progress of one call only the newest waits, and adjacent pieces of text are joined.
    pub async fn next(&mut self) -> Option<Step> {
        std::future::poll_fn(|cx| self.steps.poll_recv(cx)).await
    }

    /// Waits for the end of the turn; steps that were not read are passed over.
    pub async fn finish(mut self) -> Result<TurnOutcome, AgentError> {
        // They are not kept until somebody drops them.
        while self.next().await.is_some() {}
        let outcome = (&mut self.outcome).await;
        self.guard.0 = None;
        outcome.unwrap_or(Err(AgentError::Lost))
    }

    /// Ends the turn at once.
    pub fn cancel(&self) {
        self.control.cancel();
    }

    /// Ends the turn after the step that is going on.
    pub fn stop(&self) {
        self.control.stop();
    }

    /// A handle that can only end the turn, to be kept elsewhere.
    pub fn control(&self) -> TurnControl {
        self.control.clone()
    }

    /// Lets the turn go on without anybody who waits for it.
    pub fn detach(mut self) {
        self.guard.0 = None;
    }
}

impl Stream for Turn {
    type Item = Step;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Step>> {
        self.steps.poll_recv(cx)
    }
}

impl IntoFuture for Turn {
    type Output = Result<TurnOutcome, AgentError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.finish())
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}
