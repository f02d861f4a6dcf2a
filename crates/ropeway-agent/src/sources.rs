//! An agent's tool and context sources, and the tools that a turn exposes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::exposed_tools::ExposedTools;
use super::server::ServerSource;
use ropeway_bridge::registry::{
    Collision, ContextItem, ContextSource, Registry, ServerState, ServerStatus, ToolSource,
};
use ropeway_core::checked::CheckedTool;
use ropeway_core::secret::Redactor;
use ropeway_core::sync::{lock, sleep_until};
use ropeway_core::tool::{Alias, BoxFuture, Tool};

/// Interval at which a connecting required server's status is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// An agent's tool and context sources.
pub(super) struct Sources {
    state: Mutex<State>,
    builtin: Vec<CheckedTool>,
    search_over: usize,
}

#[derive(Default)]
struct State {
    local: Vec<CheckedTool>,
    tools: Vec<SourceEntry>,
    contexts: Vec<ContextEntry>,
    /// Server and host secrets, to redact summaries.
    secrets: Redactor,
    /// The last turn's exposed tools, and the registries that they were made from.
    exposed: Option<(Vec<Registry>, Arc<ExposedTools>)>,
    /// Name collisions that were not reported yet.
    collisions: Vec<Collision>,
    /// The server statuses that were reported last.
    reported: Vec<ServerStatus>,
    /// The servers that the last turn gave up on.
    late: Vec<String>,
}

/// A tool source.
#[derive(Clone)]
struct SourceEntry {
    /// The alias, if the source is one of the agent's servers.
    server: Option<Alias>,
    source: Arc<dyn ToolSource>,
}

/// A context source.
#[derive(Clone)]
struct ContextEntry {
    server: Option<Alias>,
    source: Arc<dyn ContextSource>,
    /// The last answer, for a turn in which the source is late.
    last: Vec<ContextItem>,
}

/// Number of failed sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceFailures {
    /// Not ready in time.
    pub(super) late: usize,
    pub(super) panicked: usize,
}

impl Sources {
    pub(super) fn new(builtin: Vec<CheckedTool>, search_over: usize) -> Self {
        Self { state: Mutex::default(), builtin, search_over }
    }

    pub(super) fn add_tools(&self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) {
        let mut state = lock(&self.state);
        state.local.extend(tools.into_iter().map(CheckedTool::new));
        state.exposed = None;
    }

    pub(super) fn add_source(&self, source: Arc<dyn ToolSource>) {
        lock(&self.state).tools.push(SourceEntry { server: None, source });
    }

    pub(super) fn add_context(&self, source: Arc<dyn ContextSource>) {
        lock(&self.state).contexts.push(ContextEntry { server: None, source, last: Vec::new() });
    }

    pub(super) fn add_bridge<B: ToolSource + ContextSource + 'static>(&self, bridge: Arc<B>) {
        self.add_source(bridge.clone());
        self.add_context(bridge);
    }

    /// Adds a server, which [`remove_server`](Self::remove_server) removes by its alias.
    pub(super) fn add_server(&self, server: Arc<ServerSource>) {
        let alias = Some(server.alias().clone());
        let mut state = lock(&self.state);
        state.secrets = state.secrets.with(server.secrets());
        state.tools.push(SourceEntry { server: alias.clone(), source: server.clone() });
        state.contexts.push(ContextEntry { server: alias, source: server, last: Vec::new() });
    }

    /// Removes the servers with this alias. Returns `false` if none has it.
    ///
    /// A running turn keeps its tools, and the tools keep the server: connections that the agent made close when that turn
    /// ends.
    pub(super) fn remove_server(&self, alias: &str) -> bool {
        let has_alias = |server: &Option<Alias>| server.as_ref().is_some_and(|server| server.as_str() == alias);
        let removed = {
            let mut state = lock(&self.state);
            let tools: Vec<SourceEntry> = state.tools.extract_if(.., |entry| has_alias(&entry.server)).collect();
            let contexts: Vec<ContextEntry> = state.contexts.extract_if(.., |entry| has_alias(&entry.server)).collect();
            let exposed = if tools.is_empty() { None } else { state.exposed.take() };
            (tools, contexts, exposed)
        };
        // Dropping this closes connections, which must not happen under the lock.
        !removed.0.is_empty()
    }

    /// Removes the host's tools with this name. Returns `false` if none has it.
    pub(super) fn remove_tool(&self, name: &str) -> bool {
        let removed = {
            let mut state = lock(&self.state);
            let tools: Vec<CheckedTool> = state.local.extract_if(.., |tool| tool.definition().name == name).collect();
            let exposed = if tools.is_empty() { None } else { state.exposed.take() };
            (tools, exposed)
        };
        !removed.0.is_empty()
    }

    /// Adds secrets to redact in summaries.
    pub(super) fn add_secrets(&self, secrets: &Redactor) {
        let mut state = lock(&self.state);
        state.secrets = state.secrets.with(secrets);
    }

    pub(super) fn secrets(&self) -> Redactor {
        lock(&self.state).secrets.clone()
    }

    fn sources(&self) -> Vec<Arc<dyn ToolSource>> {
        lock(&self.state).tools.iter().map(|entry| entry.source.clone()).collect()
    }

    /// Waits until all sources are ready, or the deadline passes.
    pub(super) async fn ready(&self, until: Option<Instant>) -> SourceFailures {
        let ready = self
            .sources()
            .into_iter()
            .map(|source| -> BoxFuture<'static, ()> { Box::pin(async move { source.ready().await }) });
        join_until(ready, until).await.1
    }

    /// Waits for required servers that are still connecting, until the deadline.
    pub(super) async fn required(&self, until: Option<Instant>) {
        let is_connecting = |server: &ServerStatus| server.required && server.state == ServerState::Connecting;
        while self.statuses().iter().any(is_connecting) && until.is_none_or(|until| Instant::now() < until) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the context from all sources, in order. A source that is late or panics keeps its context from the previous
    /// turn.
    pub(super) async fn context(&self, until: Option<Instant>) -> (Vec<ContextItem>, SourceFailures) {
        let entries = lock(&self.state).contexts.clone();
        let sources: Vec<_> = entries.iter().map(|entry| entry.source.clone()).collect();
        let contexts = sources
            .into_iter()
            .map(|source| -> BoxFuture<'static, Vec<ContextItem>> { Box::pin(async move { source.context().await }) });
        let (answers, failures) = join_until(contexts, until).await;
        let mut items = Vec::new();
        let mut state = lock(&self.state);
        for (mut entry, answer) in entries.into_iter().zip(answers) {
            // Sources may have been added or removed since.
            let current = state.contexts.iter_mut().find(|current| Arc::ptr_eq(&current.source, &entry.source));
            if let Some(answer) = answer {
                if let Some(current) = current {
                    current.last.clone_from(&answer);
                }
                entry.last = answer;
            }
            items.extend(entry.last);
        }
        (items, failures)
    }

    /// Returns `true` if the last turn gave up on all these servers.
    pub(super) fn gave_up_on(&self, servers: &[String]) -> bool {
        let state = lock(&self.state);
        !state.late.is_empty() && servers.iter().all(|server| state.late.contains(server))
    }

    /// Remembers the servers that a turn gave up on.
    pub(super) fn give_up_on(&self, servers: Vec<String>) {
        lock(&self.state).late = servers;
    }

    /// Returns the servers that may still become ready.
    pub(super) fn waiting(&self) -> Vec<String> {
        let waiting = |server: &ServerStatus| matches!(server.state, ServerState::Connecting | ServerState::NotStarted);
        let servers = self.statuses();
        servers.iter().filter(|server| waiting(server)).map(|server| format!("`{}`", server.server)).collect()
    }

    pub(super) fn statuses(&self) -> Vec<ServerStatus> {
        self.sources().iter().flat_map(|source| source.statuses()).collect()
    }

    /// Returns the status of all servers if it changed since the last call.
    pub(super) fn changed_status(&self) -> Option<Vec<ServerStatus>> {
        let statuses = self.statuses();
        let mut state = lock(&self.state);
        if state.reported == statuses {
            return None;
        }
        state.reported.clone_from(&statuses);
        Some(statuses)
    }

    /// Returns the current tools; the same value as before if nothing changed.
    pub(super) fn exposed_tools(&self) -> Arc<ExposedTools> {
        let sources = self.sources();
        let registries: Vec<Registry> = sources.iter().map(|source| source.registry()).collect();
        let mut state = lock(&self.state);
        if let Some((before, exposed)) = &state.exposed
            && before.len() == registries.len()
            && before.iter().zip(&registries).all(|(one, other)| one.ptr_eq(other))
        {
            return exposed.clone();
        }
        let (exposed, collisions) = ExposedTools::new(&state.local, &registries, &self.builtin, self.search_over);
        let exposed = Arc::new(exposed.with_sources(sources));
        state.exposed = Some((registries, exposed.clone()));
        state.collisions = collisions;
        exposed
    }

    /// Returns name collisions that were not returned before.
    pub(super) fn take_collisions(&self) -> Vec<Collision> {
        std::mem::take(&mut lock(&self.state).collisions)
    }
}

/// Runs futures concurrently, each in its own task, until the deadline. Returns their values in order; `None` for those that
/// are late or panicked.
async fn join_until<T: Send + 'static>(
    futures: impl Iterator<Item = BoxFuture<'static, T>>,
    until: Option<Instant>,
) -> (Vec<Option<T>>, SourceFailures) {
    let (mut tasks, mut positions, mut values) = (JoinSet::new(), HashMap::new(), Vec::new());
    for future in futures {
        positions.insert(tasks.spawn(future).id(), values.len());
        values.push(None);
    }
    let mut failures = SourceFailures::default();
    let mut timeout = std::pin::pin!(sleep_until(until));
    loop {
        let joined = tokio::select! {
            biased;
            joined = tasks.join_next_with_id() => joined,
            () = &mut timeout => {
                // Tasks make this work even for a future that blocks its thread.
                failures.late = tasks.len();
                break;
            }
        };
        match joined {
            Some(Ok((id, value))) => values[positions[&id]] = Some(value),
            Some(Err(_)) => failures.panicked += 1,
            None => break,
        }
    }
    (values, failures)
}
