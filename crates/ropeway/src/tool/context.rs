//! A context: what a call carries with it besides its arguments.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::time::Instant;

use super::trace::TraceParent;

/// The name of one call, unique within a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub String);

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How far a call has come, in the server's own measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Progress {
    /// How much is done.
    pub progress: f64,
    /// Of how much, when known.
    pub total: Option<f64>,
    /// What is being done.
    pub message: Option<String>,
}

/// A switch that ends the calls that watch it.
#[derive(Clone, Debug)]
pub struct CancelToken(Arc<watch::Sender<bool>>);

impl Default for CancelToken {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl CancelToken {
    /// A switch that nobody has pressed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends all calls that watch this switch.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }

    /// Has it been pressed?
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is pressed.
    pub async fn cancelled(&self) {
        // The sender lives in `self`, so the wait can only end by the press.
        let _ = self.0.subscribe().wait_for(|pressed| *pressed).await;
    }
}

type ProgressSink = Arc<dyn Fn(Progress) + Send + Sync>;

/// What a call carries with it: its id, its clocks, its cancel switch, and who hears of progress.
///
/// Cheap to clone.
#[derive(Clone)]
pub struct CallContext(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    /// Generated when it is first needed, if the caller gave none.
    id: OnceLock<CallId>,
    /// The id belongs to one call: the caller gave it, or the context is that of a call.
    is_of_call: bool,
    /// A call has taken the generated id. Clones share it.
    is_taken: Arc<AtomicBool>,
    /// Ends with the server's connection, where a bridge makes the call.
    #[cfg_attr(not(feature = "mcp"), expect(dead_code, reason = "it is for connections"))]
    stop: Option<CancelToken>,
    idle: Option<Duration>,
    deadline: Option<Instant>,
    #[cfg_attr(not(feature = "mcp"), expect(dead_code, reason = "it is for connections"))]
    total: Option<Duration>,
    cancel: Option<CancelToken>,
    progress: Option<ProgressSink>,
    meta: Map<String, Value>,
    trace: Option<TraceParent>,
    unchanged: bool,
}

impl Default for CallContext {
    fn default() -> Self {
        Self::with_id(OnceLock::new(), false)
    }
}

impl CallContext {
    /// A context for one call with the given id. Every call made with it has this id.
    ///
    /// A [default](Self::default) context can be used for any number of calls: each has an id of its own.
    pub fn new(id: impl Into<String>) -> Self {
        Self::with_id(CallId(id.into()).into(), true)
    }

    fn with_id(id: OnceLock<CallId>, is_of_call: bool) -> Self {
        Self(Arc::new(Inner {
            id,
            is_of_call,
            is_taken: Arc::default(),
            stop: None,
            idle: None,
            deadline: None,
            total: None,
            cancel: None,
            progress: None,
            meta: Map::new(),
            trace: None,
            unchanged: false,
        }))
    }

    /// The call must be over after this time, whatever the server's settings say.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        // A timeout past the end of time is no timeout.
        self.inner().deadline = Instant::now().checked_add(timeout);
        self
    }

    /// The call must be over by then.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        self.inner().deadline = Some(deadline);
        self
    }

    /// How long nothing may be heard of the call; progress starts this clock anew.
    #[must_use]
    pub fn with_idle_timeout(mut self, idle: Duration) -> Self {
        self.inner().idle = Some(idle);
        self
    }

    /// How long the call may take, in the place of what the connection says.
    #[cfg(feature = "bridge")]
    #[must_use]
    pub(crate) fn with_total(mut self, total: Duration) -> Self {
        self.inner().total = Some(total);
        self
    }

    /// Watches a cancel switch.
    #[must_use]
    pub fn with_cancel(mut self, cancel: CancelToken) -> Self {
        self.inner().cancel = Some(cancel);
        self
    }

    /// Hears of progress, in order. Called where messages are read: it must not block.
    #[must_use]
    pub fn with_progress(mut self, sink: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.inner().progress = Some(Arc::new(sink));
        self
    }

    /// Makes the call a part of a trace: the server is told of a span in it. See [`CallContext::with_meta`] for a
    /// `tracestate`.
    #[must_use]
    pub fn with_traceparent(mut self, parent: TraceParent) -> Self {
        self.inner().trace = Some(parent);
        self
    }

    /// Makes the call only if the server still defines the tool as [`Tool::definition`](super::Tool::definition) says: a person may
    /// have approved that definition and no other. Otherwise the call fails with
    /// [`CallError::Changed`](super::CallError::Changed).
    #[must_use]
    pub fn require_unchanged(mut self) -> Self {
        self.inner().unchanged = true;
        self
    }

    /// Returns whether the call is made [only if the tool is unchanged](Self::require_unchanged).
    pub fn requires_unchanged(&self) -> bool {
        self.0.unchanged
    }

    /// Adds an entry to the request's `_meta`, such as `tracestate`.
    #[must_use]
    pub fn with_meta(mut self, key: impl Into<String>, value: Value) -> Self {
        self.inner().meta.insert(key.into(), value);
        self
    }

    fn inner(&mut self) -> &mut Inner {
        Arc::make_mut(&mut self.0)
    }

    /// Returns the context of one call: several calls that share this context get different ids, unless the caller gave one.
    ///
    /// Everything that makes or records a call begins with this. The first call has the id that [`id`](Self::id) returns.
    pub(crate) fn for_call(&self) -> Self {
        let mut own = self.clone();
        if !self.0.is_of_call {
            let is_first = !self.0.is_taken.swap(true, Ordering::Relaxed);
            let id = if is_first { self.id().clone().into() } else { OnceLock::new() };
            let inner = own.inner();
            inner.id = id;
            inner.is_of_call = true;
        }
        own
    }

    /// Watches a switch that says why the call ends, if the call's future is dropped.
    #[cfg(feature = "bridge")]
    pub(crate) fn with_stop(mut self, stop: CancelToken) -> Self {
        self.inner().stop = Some(stop);
        self
    }

    /// Returns whether the connection was closed by this program.
    #[cfg(feature = "mcp")]
    pub(crate) fn is_stopped(&self) -> bool {
        self.0.stop.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    /// Returns the id of the call. Without one from the caller, it is generated; if several calls share the context, it is the id of
    /// the first.
    pub fn id(&self) -> &CallId {
        self.0.id.get_or_init(generate_id)
    }

    /// When the call must be over, if that was said.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.deadline
    }

    /// How long the call may take, if that was said.
    #[cfg(feature = "mcp")]
    pub(crate) fn total(&self) -> Option<Duration> {
        self.0.total
    }

    /// How long nothing may be heard of the call, if that was said.
    pub fn idle_timeout(&self) -> Option<Duration> {
        self.0.idle
    }

    /// The cancel switch, if there is one.
    pub fn cancel(&self) -> Option<&CancelToken> {
        self.0.cancel.as_ref()
    }

    /// Whose trace the call belongs to, if that was said.
    pub fn traceparent(&self) -> Option<TraceParent> {
        self.0.trace
    }

    /// What goes into the request's `_meta`.
    pub fn meta(&self) -> &Map<String, Value> {
        &self.0.meta
    }

    /// Tells whoever listens how far the call has come.
    pub fn report(&self, progress: Progress) {
        if let Some(sink) = &self.0.progress {
            sink(progress);
        }
    }

    /// Waits until the caller gives up; for ever when there is no switch.
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
