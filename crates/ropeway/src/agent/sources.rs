//! Sources: where an agent's tools and context come from, and the offer that is made of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::offer::Offer;
use super::server::ServerSource;
use crate::checked::CheckedTool;
use crate::registry::{Collision, ContextItem, ContextSource, Registry, ServerState, ServerStatus, ToolSource};
use crate::secret::Redactor;
use crate::sync::{lock, sleep_until};
use crate::tool::{Alias, BoxFuture, Tool};

/// How often a required server that is connecting is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Where an agent's tools and context come from.
pub(super) struct Sources {
    state: Mutex<State>,
    /// Tools that come with every agent.
    ours: Vec<CheckedTool>,
    search_over: usize,
}

#[derive(Default)]
struct State {
    local: Vec<CheckedTool>,
    tools: Vec<SourceEntry>,
    contexts: Vec<ContextEntry>,
    /// Secrets of the servers and of the host.
    secrets: Redactor,
    /// The last offer, and what it was made of.
    made: Option<(Vec<Registry>, Arc<Offer>)>,
    /// Names of it that collide and that nobody was told of.
    untold: Vec<Collision>,
    /// How the servers stood when it was told last.
    told: Vec<ServerStatus>,
    /// The servers that a turn has waited for in vain.
    late: Vec<String>,
}

/// A source of tools.
#[derive(Clone)]
struct SourceEntry {
    /// The name of the server, if the source is one server of the agent.
    server: Option<Alias>,
    source: Arc<dyn ToolSource>,
}

/// A source of context.
#[derive(Clone)]
struct ContextEntry {
    server: Option<Alias>,
    source: Arc<dyn ContextSource>,
    /// The last answer, for a turn in which the source is late.
    last: Vec<ContextItem>,
}

/// How many sources did not do what they were asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Missing {
    /// Those that were not waited for.
    pub(super) late: usize,
    /// Those that panicked.
    pub(super) fallen: usize,
}

impl Sources {
    pub(super) fn new(ours: Vec<CheckedTool>, search_over: usize) -> Self {
        Self { state: Mutex::default(), ours, search_over }
    }

    pub(super) fn add_tools(&self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) {
        let mut state = lock(&self.state);
        state.local.extend(tools.into_iter().map(CheckedTool::new));
        state.made = None;
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

    /// Adds one server, which [`remove_server`](Self::remove_server) can remove by its name.
    pub(super) fn add_server(&self, server: Arc<ServerSource>) {
        let alias = Some(server.alias().clone());
        let mut state = lock(&self.state);
        state.secrets = state.secrets.with(server.secrets());
        state.tools.push(SourceEntry { server: alias.clone(), source: server.clone() });
        state.contexts.push(ContextEntry { server: alias, source: server, last: Vec::new() });
    }

    /// Removes the servers of this name; false if there is none.
    ///
    /// A turn under way keeps its offer, and the offer keeps the server: connections of the agent close when that turn is over.
    pub(super) fn remove_server(&self, alias: &str) -> bool {
        let is_meant = |server: &Option<Alias>| server.as_ref().is_some_and(|server| server.as_str() == alias);
        let removed = {
            let mut state = lock(&self.state);
            let tools: Vec<SourceEntry> = state.tools.extract_if(.., |entry| is_meant(&entry.server)).collect();
            let contexts: Vec<ContextEntry> = state.contexts.extract_if(.., |entry| is_meant(&entry.server)).collect();
            let made = if tools.is_empty() { None } else { state.made.take() };
            (tools, contexts, made)
        };
        // Connections close when this is dropped, which must not happen under the lock.
        !removed.0.is_empty()
    }

    /// Removes the tools of the host with this name; false if there is none.
    pub(super) fn remove_tool(&self, name: &str) -> bool {
        let removed = {
            let mut state = lock(&self.state);
            let tools: Vec<CheckedTool> = state.local.extract_if(.., |tool| tool.definition().name == name).collect();
            let made = if tools.is_empty() { None } else { state.made.take() };
            (tools, made)
        };
        !removed.0.is_empty()
    }

    /// Adds secrets that are not shown in summaries.
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

    /// Waits until all of them are as ready as they get, or the time is over.
    pub(super) async fn ready(&self, until: Option<Instant>) -> Missing {
        let getting_ready = self
            .sources()
            .into_iter()
            .map(|source| -> BoxFuture<'static, ()> { Box::pin(async move { source.ready().await }) });
        ask(getting_ready, until).await.1
    }

    /// Waits for required servers that are still connecting, as long as there is time.
    pub(super) async fn required(&self, until: Option<Instant>) {
        let is_on_its_way = |verdict: &ServerStatus| verdict.required && verdict.outcome == ServerState::Connecting;
        while self.statuses().iter().any(is_on_its_way) && until.is_none_or(|until| Instant::now() < until) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Returns the context of all sources, in their order. For a source that is late or panics, it is the context of the turn
    /// before.
    pub(super) async fn context(&self, until: Option<Instant>) -> (Vec<ContextItem>, Missing) {
        let asked = lock(&self.state).contexts.clone();
        let sources: Vec<_> = asked.iter().map(|entry| entry.source.clone()).collect();
        let saying = sources
            .into_iter()
            .map(|source| -> BoxFuture<'static, Vec<ContextItem>> { Box::pin(async move { source.context().await }) });
        let (said, missing) = ask(saying, until).await;
        let mut items = Vec::new();
        let mut state = lock(&self.state);
        for (mut entry, said) in asked.into_iter().zip(said) {
            // Sources may have been added and removed meanwhile.
            let current = state.contexts.iter_mut().find(|current| Arc::ptr_eq(&current.source, &entry.source));
            if let Some(said) = said {
                if let Some(current) = current {
                    current.last.clone_from(&said);
                }
                entry.last = said;
            }
            items.extend(entry.last);
        }
        (items, missing)
    }

    /// Returns true if an earlier turn has waited in vain for all of these servers.
    pub(super) fn gave_up_on(&self, servers: &[String]) -> bool {
        let state = lock(&self.state);
        !state.late.is_empty() && servers.iter().all(|server| state.late.contains(server))
    }

    /// Remembers the servers that a turn has waited for in vain.
    pub(super) fn give_up_on(&self, servers: Vec<String>) {
        lock(&self.state).late = servers;
    }

    /// The servers that may yet become ready.
    pub(super) fn waiting(&self) -> Vec<String> {
        let waiting =
            |verdict: &ServerStatus| matches!(verdict.outcome, ServerState::Connecting | ServerState::NotStarted);
        self.statuses().iter().filter(|it| waiting(it)).map(|it| format!("`{}`", it.server)).collect()
    }

    pub(super) fn statuses(&self) -> Vec<ServerStatus> {
        self.sources().iter().flat_map(|source| source.statuses()).collect()
    }

    /// How the servers stand, if that is not known yet.
    pub(super) fn news(&self) -> Option<Vec<ServerStatus>> {
        let verdicts = self.statuses();
        let mut state = lock(&self.state);
        if state.told == verdicts {
            return None;
        }
        state.told.clone_from(&verdicts);
        Some(verdicts)
    }

    /// The tools as of now. Where nothing has changed it is the same offer.
    pub(super) fn offer(&self) -> Arc<Offer> {
        let sources = self.sources();
        let registries: Vec<Registry> = sources.iter().map(|source| source.registry()).collect();
        let mut state = lock(&self.state);
        if let Some((made_of, offer)) = &state.made
            && made_of.len() == registries.len()
            && made_of.iter().zip(&registries).all(|(one, other)| one.ptr_eq(other))
        {
            return offer.clone();
        }
        let (offer, collisions) = Offer::new(&state.local, &registries, &self.ours, self.search_over);
        let offer = Arc::new(offer.keeping(sources));
        state.made = Some((registries, offer.clone()));
        state.untold = collisions;
        offer
    }

    /// The names of the last offer that collide, once.
    pub(super) fn untold(&self) -> Vec<Collision> {
        std::mem::take(&mut lock(&self.state).untold)
    }
}

/// Asks everybody at once, each in a task of its own, and waits no longer than this: the answers in their order.
async fn ask<T: Send + 'static>(
    questions: impl Iterator<Item = BoxFuture<'static, T>>,
    until: Option<Instant>,
) -> (Vec<Option<T>>, Missing) {
    let (mut asked, mut places, mut answers) = (JoinSet::new(), HashMap::new(), Vec::new());
    for question in questions {
        places.insert(asked.spawn(question).id(), answers.len());
        answers.push(None);
    }
    let mut missing = Missing::default();
    let mut time_is_over = std::pin::pin!(sleep_until(until));
    loop {
        let answer = tokio::select! {
            biased;
            answer = asked.join_next_with_id() => answer,
            () = &mut time_is_over => {
                // Also one that holds its thread is not waited for.
                missing.late = asked.len();
                break;
            }
        };
        match answer {
            Some(Ok((id, answer))) => answers[places[&id]] = Some(answer),
            Some(Err(_)) => missing.fallen += 1,
            None => break,
        }
    }
    (answers, missing)
}
