//! Call context: id, timeouts, cancellation, progress and metadata.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::time::Instant;

use super::trace::TraceParent;

/// A call's id, unique within a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub String);

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A call's progress, in the server's units
/// (<https://modelcontextprotocol.io/specification/2025-06-18/basic/utilities/progress>).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Units done so far.
    pub progress: f64,
    /// Total number of units, if known.
    pub total: Option<f64>,
    /// What the current step does.
    pub message: Option<String>,
}

/// A token that cancels calls. Clones share one state.
///
/// Any clone may cancel, and any number may wait. A token is either live or cancelled, and never becomes live again. The
/// state is a `watch` channel whose sender is shared, so a waiter that subscribes after the cancellation sees it at once.
/// The channel's internal lock is held only to read or set the flag, never across `.await`. Dropping a clone, even the last
/// one, cancels nothing.
#[derive(Clone, Debug)]
pub struct CancelToken(Arc<watch::Sender<bool>>);

impl Default for CancelToken {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl CancelToken {
    /// Creates a token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels all calls that use this token.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }

    /// Returns `true` if the token is cancelled.
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the token is cancelled.
    pub async fn cancelled(&self) {
        // The sender lives in `self`, so the channel cannot close.
        let _ = self.0.subscribe().wait_for(|is_cancelled| *is_cancelled).await;
    }
}

type ProgressSink = Arc<dyn Fn(Progress) + Send + Sync>;

/// Call options: id, timeouts, cancellation, progress callback and metadata.
///
/// Cloning is cheap.
#[derive(Clone)]
pub struct CallContext(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    /// Generated on first use, if the caller did not set one.
    id: OnceLock<CallId>,
    /// Whether the id belongs to one call: set by the caller, or generated for a call.
    is_per_call: bool,
    /// Whether a call has taken the generated id. Shared by clones.
    is_id_taken: Arc<AtomicBool>,
    /// Cancelled when the bridge closes the server's connection.
    stop: Option<CancelToken>,
    idle: Option<Duration>,
    deadline: Option<Instant>,
    total: Option<Duration>,
    cancel: Option<CancelToken>,
    progress: Option<ProgressSink>,
    meta: Map<String, Value>,
    trace: Option<TraceParent>,
    unchanged: bool,
    /// Whether no caller waits for the request.
    background: bool,
}

impl Default for CallContext {
    fn default() -> Self {
        Self::with_id(OnceLock::new(), false)
    }
}

impl CallContext {
    /// Creates a context with the given id, which is shared by all calls that use the context.
    ///
    /// With a [default](Self::default) context, each call has its own id.
    pub fn new(id: impl Into<String>) -> Self {
        Self::with_id(CallId(id.into()).into(), true)
    }

    fn with_id(id: OnceLock<CallId>, is_per_call: bool) -> Self {
        Self(Arc::new(Inner {
            id,
            is_per_call,
            is_id_taken: Arc::default(),
            stop: None,
            idle: None,
            deadline: None,
            total: None,
            cancel: None,
            progress: None,
            meta: Map::new(),
            trace: None,
            unchanged: false,
            background: false,
        }))
    }

    /// Sets a total timeout, starting now. It takes precedence over the server's settings.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        // A timeout beyond `Instant`'s range has no effect.
        self.inner().deadline = Instant::now().checked_add(timeout);
        self
    }

    /// Sets the call's deadline.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        self.inner().deadline = Some(deadline);
        self
    }

    /// Sets the idle timeout, which restarts with every progress notification.
    #[must_use]
    pub fn with_idle_timeout(mut self, idle: Duration) -> Self {
        self.inner().idle = Some(idle);
        self
    }

    /// Overrides the connection's total timeout.
    #[must_use]
    pub fn with_total(mut self, total: Duration) -> Self {
        self.inner().total = Some(total);
        self
    }

    /// Sets a token that cancels the call.
    #[must_use]
    pub fn with_cancel(mut self, cancel: CancelToken) -> Self {
        self.inner().cancel = Some(cancel);
        self
    }

    /// Sets a callback for progress notifications, which are delivered in order. It runs on the task that reads messages and must
    /// not block.
    #[must_use]
    pub fn with_progress(mut self, sink: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.inner().progress = Some(Arc::new(sink));
        self
    }

    /// Makes the call part of a trace. The server receives a child span as `traceparent`; a `tracestate` can be set with
    /// [`with_meta`](Self::with_meta).
    #[must_use]
    pub fn with_traceparent(mut self, parent: TraceParent) -> Self {
        self.inner().trace = Some(parent);
        self
    }

    /// Fails the call with [`CallError::Changed`](super::CallError::Changed) if the server has changed the tool since
    /// [`Tool::definition`](super::Tool::definition) was read, for example because the user approved that definition.
    #[must_use]
    pub fn require_unchanged(mut self) -> Self {
        self.inner().unchanged = true;
        self
    }

    /// Returns `true` if the call [requires an unchanged tool](Self::require_unchanged).
    pub fn requires_unchanged(&self) -> bool {
        self.0.unchanged
    }

    /// Adds an entry to the request's `_meta`, such as `tracestate`.
    #[must_use]
    pub fn with_meta(mut self, key: impl Into<String>, value: Value) -> Self {
        self.inner().meta.insert(key.into(), value);
        self
    }

    /// Marks a request that no caller waits for. It never prompts the user to sign in.
    #[must_use]
    pub fn in_background(mut self) -> Self {
        self.inner().background = true;
        self
    }

    /// Returns `true` if no caller waits for the request.
    pub fn is_background(&self) -> bool {
        self.0.background
    }

    fn inner(&mut self) -> &mut Inner {
        Arc::make_mut(&mut self.0)
    }

    /// Returns one call's context. Calls that share a context get different ids, unless the caller has set one.
    ///
    /// Called when every call starts. The first call has the id that [`id`](Self::id) returns.
    pub fn for_call(&self) -> Self {
        let mut own = self.clone();
        if !self.0.is_per_call {
            let is_first = !self.0.is_id_taken.swap(true, Ordering::Relaxed);
            let id = if is_first { self.id().clone().into() } else { OnceLock::new() };
            let inner = own.inner();
            inner.id = id;
            inner.is_per_call = true;
        }
        own
    }

    /// Sets a token that distinguishes a stopped server from a cancelled call when the call's future is dropped.
    pub fn with_stop(mut self, stop: CancelToken) -> Self {
        self.inner().stop = Some(stop);
        self
    }

    /// Returns `true` if this program has closed the connection.
    pub fn is_stopped(&self) -> bool {
        self.0.stop.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    /// Returns the call's id. If the caller did not set one, it is generated; calls that share the context have different ids,
    /// and this is the first one's.
    pub fn id(&self) -> &CallId {
        self.0.id.get_or_init(generate_id)
    }

    /// Returns the deadline, if one is set.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.deadline
    }

    /// Returns the total timeout, if one is set.
    pub fn total(&self) -> Option<Duration> {
        self.0.total
    }

    /// Returns the idle timeout, if one is set.
    pub fn idle_timeout(&self) -> Option<Duration> {
        self.0.idle
    }

    /// Returns the cancellation token, if one is set.
    pub fn cancel(&self) -> Option<&CancelToken> {
        self.0.cancel.as_ref()
    }

    /// Returns the parent span, if one is set.
    pub fn traceparent(&self) -> Option<TraceParent> {
        self.0.trace
    }

    /// Returns the entries for the request's `_meta`.
    pub fn meta(&self) -> &Map<String, Value> {
        &self.0.meta
    }

    /// Passes progress to the callback, if one is set.
    pub fn report(&self, progress: Progress) {
        if let Some(sink) = &self.0.progress {
            sink(progress);
        }
    }

    /// Waits until the call is cancelled; forever without a token.
    pub async fn cancelled(&self) {
        match &self.0.cancel {
            Some(cancel) => cancel.cancelled().await,
            None => std::future::pending().await,
        }
    }
}

fn generate_id() -> CallId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    CallId(format!("call-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

impl fmt::Debug for CallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext").field("id", self.id()).field("deadline", &self.0.deadline).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_share_a_context_have_different_ids() {
        let shared = CallContext::default();
        let calls = [shared.for_call(), shared.for_call(), shared.clone().with_meta("a", Value::Null).for_call()];
        assert_eq!(calls[0].id(), shared.id(), "the first call has the id of the context");
        assert!(calls[1].id() != calls[0].id() && calls[2].id() != calls[1].id() && calls[2].id() != calls[0].id());
        assert_eq!(calls[1].for_call().id(), calls[1].id(), "a call within a call keeps the id");
    }

    #[test]
    fn an_id_from_the_caller_is_kept() {
        let given = CallContext::new("7");
        assert_eq!([given.for_call().id().0.as_str(), given.for_call().id().0.as_str()], ["7", "7"]);
    }
}
