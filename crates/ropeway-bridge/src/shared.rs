//! State that all servers in a bridge share.

use std::collections::HashMap;
use std::sync::Mutex;

use tokio::sync::watch;

use super::cache::DefinitionCache;
use super::pool::ProcessPool;
use ropeway_config::lock::Lock;
use ropeway_config::{LockPolicy, SandboxLauncher, ServerConfig, ServerEntry};
use ropeway_core::event::{Event, EventStream, Events};
use ropeway_core::secret::Redactor;
use ropeway_core::sync::lock;
use ropeway_core::tool::Alias;
use ropeway_mcp::Handlers;

/// State that a bridge and its slots share.
///
/// The bridge and each slot own it, so it outlives the bridge while a call still holds its slot. Building and reloading a bridge
/// write `secrets` and `notices`; starting and stopping it set only whether the notices were emitted. Every change to a server
/// counts up `changes`.
///
/// The two locks are never taken together, and no method is async. `notices` stays locked while its events are emitted and while
/// a listener subscribes, so that a new listener neither misses a warning nor receives it twice. Dropping the state ends the
/// receivers of `changes`; it closes no connection, since the slots own those.
#[derive(Debug)]
pub(super) struct BridgeShared {
    pub(super) handlers: Handlers,
    pub(super) events: Events,
    pub(super) cache: Option<DefinitionCache>,
    /// The accepted tools, and the policy for tools that differ from them.
    pub(super) lock: Option<(Lock, LockPolicy)>,
    /// Counts changes to any server's tools or state.
    changes: watch::Sender<u64>,
    notices: Mutex<Notices>,
    /// The host's secrets, which are kept out of the cache like server secrets.
    host_secrets: Redactor,
    /// All secrets that the cache must not contain.
    secrets: Mutex<Redactor>,
    pub(super) pool: ProcessPool,
    /// Starts servers with a sandbox.
    launcher: Option<SandboxLauncher>,
}

/// Configuration warnings.
#[derive(Debug, Default)]
struct Notices {
    events: Vec<Event>,
    /// Whether the warnings were emitted since the last start.
    emitted: bool,
}

impl BridgeShared {
    pub(super) fn new(
        handlers: Handlers,
        events: Events,
        cache: Option<DefinitionCache>,
        lock: Option<(Lock, LockPolicy)>,
        host_secrets: Redactor,
    ) -> Self {
        let lock = lock.filter(|(_, policy)| *policy != LockPolicy::Off);
        let (changes, notices, secrets) = (watch::Sender::new(0), Mutex::default(), Mutex::default());
        let (pool, launcher) = (ProcessPool::default(), None);
        Self { handlers, events, cache, lock, changes, notices, host_secrets, secrets, pool, launcher }
    }

    pub(super) fn with_pool(self, pool: ProcessPool) -> Self {
        Self { pool, ..self }
    }

    pub(super) fn with_launcher(self, launcher: Option<SandboxLauncher>) -> Self {
        Self { launcher, ..self }
    }

    /// Returns the connection settings, with this bridge's launcher.
    pub(super) fn connection_config(&self, config: &ServerConfig) -> ServerConfig {
        match &self.launcher {
            Some(launcher) => config.clone().with_sandbox_launcher(launcher.program()),
            None => config.clone(),
        }
    }

    /// Sets all server secrets. A server may repeat another one's secret, so each cache entry is redacted with all of them.
    pub(super) fn set_secrets<'a>(&self, secrets: impl Iterator<Item = &'a Redactor>) {
        *lock(&self.secrets) = secrets.fold(self.host_secrets.clone(), |all, secrets| all.with(secrets));
    }

    pub(super) fn secrets(&self) -> Redactor {
        lock(&self.secrets).clone()
    }

    /// Returns how a server's sandbox exceeds the accepted one, if it does.
    pub(super) fn widened_sandbox(&self, entry: &ServerEntry) -> Option<String> {
        let (lock, _) = self.lock.as_ref()?;
        lock.widened_sandbox(entry)
    }

    /// Returns why a strict lock prevents a server from starting.
    pub(super) fn start_refusal(&self, entry: &ServerEntry) -> Option<String> {
        let (lock, _) = self.lock.as_ref().filter(|_| self.is_strict())?;
        lock.start_refusal(entry)
    }

    /// Returns `true` if tools that differ from the lock are hidden.
    pub(super) fn is_strict(&self) -> bool {
        matches!(self.lock, Some((_, LockPolicy::Strict)))
    }

    /// Wakes everything that waits for a change.
    pub(super) fn notify_changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Replaces the configuration warnings. `skipped` are servers that are not started, each with its warning. The
    /// warnings are emitted by the next start, or now if the bridge is started.
    pub(super) fn set_notices(&self, warnings: Vec<String>, skipped: Vec<(Alias, String)>) {
        let mut servers: HashMap<&str, &Alias> =
            skipped.iter().map(|(server, message)| (message.as_str(), server)).collect();
        let warning = |message: String| Event::Warning { server: servers.remove(message.as_str()).cloned(), message };
        let mut events: Vec<Event> = warnings.into_iter().map(warning).collect();
        // A configuration that was built in code does not list these warnings.
        let unlisted = skipped.iter().filter(|(_, message)| servers.contains_key(message.as_str()));
        events.extend(
            unlisted.map(|(server, message)| Event::Warning { server: Some(server.clone()), message: message.clone() }),
        );
        let mut notices = lock(&self.notices);
        notices.events = events;
        if notices.emitted {
            self.emit(&notices.events);
        }
    }

    /// Emits the configuration warnings, once per start.
    pub(super) fn emit_notices(&self) {
        let mut notices = lock(&self.notices);
        if !std::mem::replace(&mut notices.emitted, true) {
            self.emit(&notices.events);
        }
    }

    /// Makes the next start emit the configuration warnings again.
    pub(super) fn reset_notices(&self) {
        lock(&self.notices).emitted = false;
    }

    fn emit(&self, events: &[Event]) {
        for event in events {
            if let Event::Warning { server, message } = event {
                self.warn(server.as_ref(), message.clone());
            }
        }
    }

    /// Returns an event stream. After a start, it begins with the warnings that the start emitted.
    pub(super) fn listen(&self) -> EventStream {
        let notices = lock(&self.notices);
        let earlier = if notices.emitted { notices.events.clone() } else { Vec::new() };
        self.events.subscribe_after(earlier)
    }

    /// Emits a warning, and logs it.
    pub(super) fn warn(&self, server: Option<&Alias>, message: String) {
        tracing::warn!(server = server.map(Alias::as_str), "{message}");
        self.events.emit(Event::Warning { server: server.cloned(), message });
    }
}
