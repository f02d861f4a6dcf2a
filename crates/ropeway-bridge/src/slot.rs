//! One server in a bridge: its entry, its connection and its tools.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::context_cache::ContextCache;
use super::pool::SharedConnection;
use super::shared::BridgeShared;
use super::shutdown::ShutdownSignal;
use crate::registry::{ServerState, ToolShape};
use ropeway_config::lock::Difference;
use ropeway_config::{ServerConfig, ServerEntry, ServerSettings};
use ropeway_core::checked::CheckedTool;
use ropeway_core::error_chain::chain;
use ropeway_core::event::{Events, Relay};
use ropeway_core::secret::Redactor;
use ropeway_core::sync::lock;
use ropeway_core::tool::{Alias, CallError, Tool};
use ropeway_mcp::{ConnectError, ConnectErrorKind, ConnectionState, Mcp};

/// Wraps a connection's tool for use outside the bridge.
pub(super) type WrapTool = fn(Arc<dyn Tool>, &Arc<ServerSlot>) -> Arc<dyn Tool>;

/// One server in a bridge.
///
/// The bridge's `ServerSet` owns the slot; a stop or a changed entry replaces it with a new one. The `follow` task and the
/// exposed tools refer to it weakly, and a call holds it only until the server is connected. Its states are those of [`Phase`].
///
/// `start`, `wake`, `queue` and `take_connection` write `phase`. The task writes `listing` and `tools`, a cached start and a
/// principal's list also write `tools`, and a stop ends a pending `listing`. `start` exposes cached tools while it holds `phase`,
/// so `phase` is locked before `tools` and before the pool's lock. `last_error` is locked alone. No lock is held across an
/// `.await`: `follow` requests a list first, and then locks.
///
/// Dropping the slot aborts the task and releases the connection, which closes with its last user. It does not interrupt calls:
/// `stop` and `abort` trigger `shutdown` for that.
pub(super) struct ServerSlot {
    /// Unique within the process.
    pub(super) id: u64,
    pub(super) entry: ServerEntry,
    pub(super) shape: ToolShape,
    pub(super) wrap_tool: WrapTool,
    pub(super) redactor: Redactor,
    pub(super) shared: Arc<BridgeShared>,
    pub(super) shutdown: Arc<ShutdownSignal>,
    pub(super) phase: Mutex<Phase>,
    pub(super) listing: watch::Sender<ListingState>,
    pub(super) tools: Mutex<SlotTools>,
    pub(super) context_cache: ContextCache,
    last_error: Mutex<Option<LastError>>,
    /// Whether the exposed tools were listed with one user's tokens, not by this connection.
    pub(super) is_listed_by_principal: AtomicBool,
}

/// A slot's lifecycle.
pub(super) enum Phase {
    /// Not started.
    Idle,
    /// Will be started, once the server that it replaces has stopped. Calls wait for it.
    Queued,
    /// Serves tools from the cache. The first call starts the server.
    Asleep(SharedConnection),
    /// A task connects, lists the tools and follows the connection.
    Running { connection: SharedConnection, task: AbortHandle },
    /// Stopped. A restart creates a new slot.
    Stopped,
}

impl Phase {
    fn connection(&self) -> Option<&SharedConnection> {
        match self {
            Self::Asleep(connection) | Self::Running { connection, .. } => Some(connection),
            Self::Idle | Self::Queued | Self::Stopped => None,
        }
    }
}

/// Result of the first connection attempt and the last `tools/list` request.
#[derive(Clone, Debug)]
pub(super) enum ListingState {
    /// The first attempt is in progress.
    Pending,
    /// The first attempt failed; the connection is retried.
    ConnectFailed(ConnectError),
    /// The server has listed its tools.
    Listed,
    /// The server is connected, but listing its tools failed. The request is retried.
    ListFailed(String),
    /// The slot was stopped before the first attempt ended.
    Stopped,
}

/// A server's tools as the bridge exposes them.
#[derive(Default)]
pub(super) struct SlotTools {
    /// The connection's tools, before filters and transformers.
    pub(super) sources: Vec<Arc<dyn Tool>>,
    pub(super) exposed: Vec<CheckedTool>,
    /// How the tools differ from the lock.
    pub(super) differences: Vec<Difference>,
    pub(super) hidden: Vec<HiddenTool>,
    /// Incremented with every change; zero before the first listing.
    pub(super) version: u64,
}

/// A tool that is hidden until the user accepts it.
#[derive(Clone)]
pub(super) struct HiddenTool {
    pub(super) name: String,
    pub(super) own_name: String,
    pub(super) reason: String,
}

/// A server's latest failure.
#[derive(Clone, Debug)]
pub(super) struct LastError {
    pub(super) at: SystemTime,
    pub(super) message: String,
}

/// A slot's state at one moment.
#[derive(Debug)]
pub(super) struct SlotSnapshot {
    pub(super) state: ServerState,
    /// Listed tool count.
    pub(super) tools: usize,
    /// [`SlotTools::version`] at that moment.
    pub(super) version: u64,
    /// Note about the tools, such as a limit that was reached.
    pub(super) note: Option<String>,
}

impl ServerSlot {
    pub(super) fn new(entry: ServerEntry, shape: ToolShape, wrap_tool: WrapTool, shared: Arc<BridgeShared>) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let redactor = entry.config().map(ServerConfig::secrets).unwrap_or_default();
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            entry,
            shape,
            wrap_tool,
            redactor,
            shared,
            shutdown: Arc::new(ShutdownSignal::new()),
            phase: Mutex::new(Phase::Idle),
            listing: watch::Sender::new(ListingState::Pending),
            tools: Mutex::default(),
            context_cache: ContextCache::default(),
            last_error: Mutex::default(),
            is_listed_by_principal: AtomicBool::new(false),
        }
    }

    /// Returns a slot for the same entry that is not started.
    pub(super) fn renewed(&self) -> Self {
        Self::new(self.entry.clone(), self.shape.clone(), self.wrap_tool, self.shared.clone())
    }

    pub(super) fn alias(&self) -> &Alias {
        &self.entry.alias
    }

    pub(super) fn events(&self) -> &Events {
        &self.shared.events
    }

    /// Returns the missing secrets' names.
    pub(super) fn missing_secrets(&self) -> Option<Vec<String>> {
        match &self.entry.settings {
            ServerSettings::Missing { secrets } => Some(secrets.clone()),
            _ => None,
        }
    }

    /// Returns why the entry cannot be used.
    pub(super) fn invalid_reason(&self) -> Option<&str> {
        match &self.entry.settings {
            ServerSettings::Invalid { reason } => Some(reason),
            _ => None,
        }
    }

    /// Returns the settings if the server can be started.
    pub(super) fn config(&self) -> Option<&ServerConfig> {
        self.entry.config().filter(|_| self.entry.enabled)
    }

    /// Returns a call's idle and total timeout, if a shared connection has others.
    pub(super) fn timeouts(&self) -> Option<(Duration, Duration)> {
        let own = self.config()?.timeouts.bounded();
        let shared = lock(&self.phase).connection()?.mcp().timeouts();
        ((own.idle, own.total) != (shared.idle, shared.total)).then_some((own.idle, own.total))
    }

    /// Returns the connection, once the bridge is started.
    pub(super) fn mcp(&self) -> Option<Mcp> {
        lock(&self.phase).connection().map(|connection| connection.mcp().clone())
    }

    /// Returns the connection's event relay, once the bridge is started.
    pub(super) fn relay(&self) -> Option<Arc<Relay>> {
        lock(&self.phase).connection().map(SharedConnection::relay)
    }

    /// Returns how many entries share the connection.
    pub(super) fn users(&self) -> usize {
        lock(&self.phase).connection().map_or(0, SharedConnection::users)
    }

    /// Returns the slot's or its connection's latest failure.
    pub(super) fn last_error(&self) -> Option<LastError> {
        let own = lock(&self.last_error).clone();
        let lost = self.mcp().and_then(|mcp| mcp.last_failure());
        let lost = lost.map(|(at, cause)| LastError { at, message: chain(&*cause) });
        own.into_iter().chain(lost).max_by_key(|error| error.at)
    }

    pub(super) fn set_last_error(&self, message: String) -> LastError {
        let error = LastError { at: SystemTime::now(), message };
        *lock(&self.last_error) = Some(error.clone());
        error
    }

    /// Emits a warning about the server, redacted.
    pub(super) fn warn(&self, message: &str) {
        self.shared.warn(Some(self.alias()), self.redactor.redact(message).into_owned());
    }

    pub(super) fn tools(&self) -> Vec<CheckedTool> {
        lock(&self.tools).exposed.clone()
    }

    pub(super) fn differences(&self) -> Vec<Difference> {
        lock(&self.tools).differences.clone()
    }

    pub(super) fn hidden_tools(&self) -> Vec<HiddenTool> {
        lock(&self.tools).hidden.clone()
    }

    /// Returns a connection's tool by its name on the server.
    pub(super) fn source(&self, own_name: &str) -> Option<Arc<dyn Tool>> {
        lock(&self.tools).sources.iter().find(|tool| tool.definition().own_name() == own_name).cloned()
    }

    /// Returns the error for a call to a hidden tool, which may have been exposed before it changed.
    pub(super) fn refusal(&self, own_name: &str) -> Option<CallError> {
        let tools = lock(&self.tools);
        let hidden = tools.hidden.iter().find(|hidden| hidden.own_name == own_name)?;
        Some(CallError::Hidden { tool: hidden.name.clone(), reason: hidden.reason.clone() })
    }

    pub(super) fn snapshot(&self) -> SlotSnapshot {
        let (tools, of, hidden, version) = {
            let tools = lock(&self.tools);
            (tools.exposed.len(), tools.sources.len(), tools.hidden.len(), tools.version)
        };
        let (state, are_listed) = match self.state(tools, of) {
            (ServerState::FilteredToZero { .. }, are_listed) if hidden > 0 => {
                (ServerState::Hidden { of: hidden }, are_listed)
            }
            state => state,
        };
        let note = self.mcp().and_then(|mcp| mcp.tools_truncation()).filter(|_| are_listed);
        SlotSnapshot { state, tools: if are_listed { tools } else { 0 }, version, note }
    }

    /// Returns the server's state, given that `tools` tools out of `of` are exposed, and whether they are listed.
    ///
    /// While a server reconnects, its tools stay listed: calls wait or fail, and the list does not change. The same
    /// applies to a server that needs a sign-in or another token, which calls request or wait for.
    fn state(&self, tools: usize, of: usize) -> (ServerState, bool) {
        if !self.entry.enabled {
            return (ServerState::Disabled, false);
        }
        if let Some(secrets) = self.missing_secrets() {
            return (ServerState::Skipped { secrets }, false);
        }
        if let Some(reason) = self.invalid_reason() {
            return (ServerState::Invalid { reason: reason.to_owned() }, false);
        }
        if let ServerSettings::Down { cause } = &self.entry.settings {
            return (ServerState::Down { cause: cause.clone() }, false);
        }
        let is_filtered = tools == 0 && of > 0;
        let mcp = match &*lock(&self.phase) {
            Phase::Idle | Phase::Stopped => return (ServerState::NotStarted, false),
            Phase::Queued => return (ServerState::Connecting, true),
            Phase::Asleep(_) if is_filtered => return (ServerState::FilteredToZero { of }, false),
            Phase::Asleep(_) => return (ServerState::Cached { tools }, true),
            Phase::Running { connection, .. } => connection.mcp().clone(),
        };
        match (&*mcp.state().borrow(), &*self.listing.borrow()) {
            (ConnectionState::Ready { .. }, ListingState::ListFailed(cause)) if of == 0 => {
                (ServerState::Down { cause: cause.clone() }, false)
            }
            (ConnectionState::Ready { .. }, ListingState::Listed | ListingState::ListFailed(_)) if is_filtered => {
                (ServerState::FilteredToZero { of }, false)
            }
            (ConnectionState::Ready { .. }, ListingState::Listed | ListingState::ListFailed(_)) => {
                (ServerState::Ready { tools }, true)
            }
            (ConnectionState::Ready { .. } | ConnectionState::Connecting { .. }, _) => (ServerState::Connecting, true),
            (ConnectionState::NeedsAuth { .. }, _) => (ServerState::NeedsAuth, true),
            (ConnectionState::Down { cause, retry_at }, _) => {
                let is_retried = retry_at.is_some() || matches!(**cause, ConnectErrorKind::Auth(_));
                (ServerState::Down { cause: chain(&**cause) }, is_retried)
            }
            // The connection's task has not run yet.
            (ConnectionState::Closed, ListingState::Pending) => (ServerState::Connecting, true),
            (ConnectionState::Closed, _) => (ServerState::NotStarted, false),
        }
    }

    /// Interrupts the calls and releases the connection.
    pub(super) async fn stop(&self) {
        self.shutdown.trigger();
        self.retire().await;
    }

    /// Releases the connection. Calls in flight continue if another slot shares it.
    pub(super) async fn retire(&self) {
        if let Some(connection) = self.take_connection() {
            connection.release().await;
        }
        self.shared.notify_changed();
    }

    /// Interrupts the calls and the task without waiting for the connection to close.
    pub(super) fn abort(&self) {
        self.shutdown.trigger();
        drop(self.take_connection());
    }

    /// Makes calls wait until this slot starts.
    pub(super) fn queue(&self) {
        if self.config().is_some() {
            *lock(&self.phase) = Phase::Queued;
        }
    }

    fn take_connection(&self) -> Option<SharedConnection> {
        let phase = std::mem::replace(&mut *lock(&self.phase), Phase::Stopped);
        // Calls that wait for the first attempt continue with the slot that replaces this one.
        self.listing.send_if_modified(|listing| {
            let is_pending = matches!(listing, ListingState::Pending);
            if is_pending {
                *listing = ListingState::Stopped;
            }
            is_pending
        });
        match phase {
            Phase::Running { connection, task } => {
                task.abort();
                Some(connection)
            }
            Phase::Asleep(connection) => Some(connection),
            Phase::Idle | Phase::Queued | Phase::Stopped => None,
        }
    }
}

impl Drop for ServerSlot {
    fn drop(&mut self) {
        drop(self.take_connection());
    }
}
