//! A turn: the handle for one message to an agent, with its steps and its outcome.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use serde::ser::{Serialize, SerializeMap, Serializer};
use tokio::sync::oneshot;

use super::limits::TurnLimit;
use super::step::Step;
use super::step_queue::{self, StepReceiver, StepSender, WeakStepSender};
use ropeway_bridge::registry::ServerStatus;
use ropeway_core::tool::{Alias, BoxError, CancelToken, ToolCallError};
use ropeway_providers::{ProviderError, StopReason, Usage};

/// A turn's outcome.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct TurnOutcome {
    /// The text of the model's last reply.
    pub text: String,
    /// Why the turn ended.
    pub end: TurnEnd,
    /// Token usage in all replies.
    pub usage: Usage,
    /// Number of model requests.
    pub steps: usize,
    /// The servers that were unavailable when the turn began, each with the reason. The model does not see tools from a server
    /// that never connected. A missing server that is marked `required` is an [`AgentError::RequiredServer`] instead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<ServerStatus>,
}

impl TurnOutcome {
    /// Creates the outcome for a turn without model requests.
    pub(super) fn empty(end: TurnEnd) -> Self {
        Self { text: String::new(), end, usage: Usage::default(), steps: 0, missing: Vec::new() }
    }
}

/// Why a turn ended. As JSON, `{"reason": "done", "stop": "end_turn"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TurnEnd {
    /// The model replied without tool calls.
    Done(StopReason),
    /// A limit was reached.
    Limit(TurnLimit),
    /// The host stopped the turn after a step.
    Stopped,
    /// The host cancelled the turn.
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

/// Why an agent could not be built, or why a turn failed. A failed tool call is reported to the model and does not fail the turn,
/// unless the host marks its error [fatal](ToolCallError::fatal).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// A model request failed. Everything before it is in the history.
    #[error("request to model `{model}` failed")]
    Provider {
        /// The model name.
        model: String,
        /// Token usage in the replies before it.
        usage: Usage,
        /// Number of model requests.
        steps: usize,
        /// Why the request failed.
        #[source]
        source: ProviderError,
    },
    /// A server that is marked `required` is unavailable. No model request was made. The message is in the history, and
    /// [`Agent::resume`](super::Agent::resume) tries again.
    #[error("required server `{server}` is unavailable")]
    RequiredServer {
        /// The server's alias.
        server: Alias,
        /// Why it is unavailable.
        #[source]
        source: BoxError,
    },
    /// A host tool or an `on_tool_call` callback returned a fatal error. The history contains the results of all calls.
    #[error("tool `{tool}` returned a fatal error")]
    ToolCall {
        /// The tool that was called.
        tool: String,
        /// Token usage in all replies.
        usage: Usage,
        /// Number of model requests.
        steps: usize,
        /// The fatal error.
        #[source]
        source: ToolCallError,
    },
    /// The agent was built without a provider.
    #[error("missing provider")]
    NoProvider,
    /// The agent was built without a model.
    #[error("missing model")]
    NoModel,
    /// The history is empty or ends with a model reply.
    #[error("nothing to answer")]
    NothingToAnswer,
    /// An output budget's tool pattern is invalid.
    #[error("invalid pattern `{pattern}`: {problem}")]
    Glob {
        /// The pattern.
        pattern: String,
        /// Why it is invalid.
        problem: String,
    },
    /// The turn's task has ended without an outcome: its runtime was shut down, or host code, such as a tracer, panicked in it.
    #[error("the turn ended unexpectedly")]
    Lost,
}

impl AgentError {
    /// Sets usage and steps to the turn's values so far.
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

/// Cancels or stops a turn from anywhere. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct TurnControl {
    pub(super) cancel: CancelToken,
    pub(super) stop: CancelToken,
    over: Arc<AtomicBool>,
}

impl TurnControl {
    /// Ends the turn immediately: cancels running calls and the current model request.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Ends the turn after the current step: its calls run to completion, and no further model request is made.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Returns `true` until the turn ends.
    pub(super) fn is_live(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    /// Marks the turn as ended.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// A running turn. Dropping it cancels the turn.
///
/// `.await` returns the [`TurnOutcome`]; as a stream, a turn yields [`Step`]s.
///
/// A spawned task runs the turn and owns the sending halves; this handle owns the receiving ones, for steps and for the
/// outcome. The task never waits for the handle. An agent's turn waits for the turns before it, then runs, then has ended; a
/// cancelled or stopped one that still waits ends at once, without a model request. The step queue's mutex is the handle's
/// only lock, and is not held across `.await`. Dropping the handle, or the future of [`finish`](Self::finish), discards
/// unread steps and requests cancellation: the task aborts its calls, records their results in the history and ends on its
/// own. [`detach`](Self::detach) discards the steps and lets the task continue.
///
/// # Examples
///
/// ```no_run
/// use ropeway::prelude::*;
///
/// # async fn run(agent: Agent) -> Result<(), ropeway::Error> {
/// let mut turn = agent.send("What time is it in Tokyo?");
/// while let Some(step) = turn.next().await {
///     match step {
///         Step::Text { text } => print!("{text}"),
///         Step::CallStarted { tool, arguments, .. } => println!("-> {tool} {arguments}"),
///         _ => {}
///     }
/// }
/// println!("{} steps", turn.finish().await?.steps);
/// # Ok(()) }
/// ```
#[must_use = "dropping a turn cancels it; `detach` lets it run"]
pub struct Turn {
    steps: StepReceiver,
    outcome: oneshot::Receiver<Result<TurnOutcome, AgentError>>,
    control: TurnControl,
    guard: CancelOnDrop,
}

struct CancelOnDrop(Option<TurnControl>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(control) = self.0.take() {
            control.cancel();
        }
    }
}

/// Reports a turn's steps to its reader and to the tracer.
#[derive(Clone)]
pub(super) struct StepSink {
    steps: StepSender,
    tracer: Option<Tracer>,
}

/// A [`StepSink`] that does not keep the turn open, for calls that may outlive it.
#[derive(Clone)]
pub(super) struct WeakStepSink {
    steps: WeakStepSender,
    tracer: Option<Tracer>,
}

pub(super) type Tracer = Arc<dyn Fn(&Step) + Send + Sync>;

impl StepSink {
    pub(super) fn send(&self, step: Step) {
        if let Some(tracer) = &self.tracer {
            tracer(&step);
        }
        self.steps.send(step);
    }

    pub(super) fn downgrade(&self) -> WeakStepSink {
        WeakStepSink { steps: self.steps.downgrade(), tracer: self.tracer.clone() }
    }

    pub(super) fn warn(&self, message: impl Into<String>) {
        self.send(Step::Warning { message: message.into() });
    }
}

impl WeakStepSink {
    /// Reports a step, unless the turn has ended.
    pub(super) fn send(&self, step: Step) {
        if let Some(steps) = self.steps.upgrade() {
            StepSink { steps, tracer: self.tracer.clone() }.send(step);
        }
    }
}

/// The task's half of a [`Turn`].
pub(super) struct TurnTask {
    pub(super) sink: StepSink,
    pub(super) control: TurnControl,
    pub(super) outcome: oneshot::Sender<Result<TurnOutcome, AgentError>>,
}

impl Turn {
    pub(super) fn new(tracer: Option<Tracer>) -> (Self, TurnTask) {
        let (steps, receiver) = step_queue::channel();
        let (outcome, awaited) = oneshot::channel();
        let control = TurnControl::default();
        let guard = CancelOnDrop(Some(control.clone()));
        let task = TurnTask { sink: StepSink { steps, tracer }, control: control.clone(), outcome };
        (Self { steps: receiver, outcome: awaited, control, guard }, task)
    }

    /// Returns the next step, or `None` after the last one.
    ///
    /// The turn never waits for its reader. Unread steps are merged without losing information: only a call's newest progress is
    /// kept, and adjacent pieces of text are joined.
    pub async fn next(&mut self) -> Option<Step> {
        std::future::poll_fn(|cx| self.steps.poll_recv(cx)).await
    }

    /// Waits until the turn ends and discards unread steps.
    ///
    /// # Errors
    /// Fails if a model request fails, a required server is unavailable or a tool returns a fatal error; see [`AgentError`].
    #[doc(alias = "final")]
    pub async fn finish(mut self) -> Result<TurnOutcome, AgentError> {
        // Discard steps as they arrive, so that they do not pile up.
        while self.next().await.is_some() {}
        let outcome = (&mut self.outcome).await;
        self.guard.0 = None;
        outcome.unwrap_or(Err(AgentError::Lost))
    }

    /// Ends the turn immediately; see [`TurnControl::cancel`].
    pub fn cancel(&self) {
        self.control.cancel();
    }

    /// Ends the turn after the current step; see [`TurnControl::stop`].
    pub fn stop(&self) {
        self.control.stop();
    }

    /// Returns a handle that cancels or stops the turn.
    pub fn control(&self) -> TurnControl {
        self.control.clone()
    }

    /// Lets the turn run to its end in the background.
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
