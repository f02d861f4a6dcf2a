//! Sources: where an agent's tools and context come from, and the offer that is made of them.

use std::sync::{Arc, Mutex};

use tokio::task::JoinSet;

use super::lock;
use super::offer::Offer;
use crate::checked::CheckedTool;
use crate::registry::{Collision, ContextItem, ContextSource, Registry, ToolSource, Verdict};
use crate::tool::Tool;

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
    tools: Vec<Arc<dyn ToolSource>>,
    contexts: Vec<Arc<dyn ContextSource>>,
    /// The last offer, and what it was made of.
    made: Option<(Vec<Registry>, Arc<Offer>)>,
    /// How the servers stood when it was told last.
    told: Vec<Verdict>,
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
        lock(&self.state).tools.push(source);
    }

    pub(super) fn add_context(&self, source: Arc<dyn ContextSource>) {
        lock(&self.state).contexts.push(source);
    }

    pub(super) fn add_bridge<B: ToolSource + ContextSource + 'static>(&self, bridge: Arc<B>) {
        self.add_source(bridge.clone());
        self.add_context(bridge);
    }

    /// Waits until all of them are as ready as they get.
    pub(super) async fn ready(&self) {
        let mut waiting = JoinSet::new();
        for source in lock(&self.state).tools.clone() {
            waiting.spawn(async move { source.ready().await });
        }
        // One that falls over is not ready.
        while waiting.join_next().await.is_some() {}
    }

    /// What they have to say before a conversation, in their order.
    pub(super) async fn context(&self) -> Vec<ContextItem> {
        let mut waiting = JoinSet::new();
        for (number, source) in lock(&self.state).contexts.iter().cloned().enumerate() {
            waiting.spawn(async move { (number, source.context().await) });
        }
        let mut items = Vec::new();
        while let Some(said) = waiting.join_next().await {
            items.extend(said);
        }
        items.sort_by_key(|(number, _)| *number);
        items.into_iter().flat_map(|(_, items)| items).collect()
    }

    pub(super) fn verdicts(&self) -> Vec<Verdict> {
        let sources = lock(&self.state).tools.clone();
        sources.iter().flat_map(|source| source.verdicts()).collect()
    }

    /// How the servers stand, if that is not known yet.
    pub(super) fn news(&self) -> Option<Vec<Verdict>> {
        let verdicts = self.verdicts();
        let mut state = lock(&self.state);
        if state.told == verdicts {
            return None;
        }
        state.told.clone_from(&verdicts);
        Some(verdicts)
    }

    /// The tools as of now. Where nothing has changed it is the same offer; names that collide are told once.
    pub(super) fn offer(&self) -> (Arc<Offer>, Vec<Collision>) {
        let sources = lock(&self.state).tools.clone();
        let registries: Vec<Registry> = sources.iter().map(|source| source.registry()).collect();
        let mut state = lock(&self.state);
        if let Some((made_of, offer)) = &state.made
            && made_of.len() == registries.len()
            && made_of.iter().zip(&registries).all(|(one, other)| one.same_as(other))
        {
            return (offer.clone(), Vec::new());
        }
        let (offer, collisions) = Offer::new(&state.local, &registries, &self.ours, self.search_over);
        let offer = Arc::new(offer);
        state.made = Some((registries, offer.clone()));
        (offer, collisions)
    }
}
