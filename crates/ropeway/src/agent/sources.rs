//! Sources: where an agent's tools and context come from, and the offer that is made of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::lock;
use super::offer::Offer;
use super::round::sleep_until;
use crate::checked::CheckedTool;
use crate::registry::{Collision, ContextItem, ContextSource, Outcome, Registry, ToolSource, Verdict};
use crate::tool::{BoxFuture, Tool};

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
    /// Each with what it said last.
    contexts: Vec<(Arc<dyn ContextSource>, Vec<ContextItem>)>,
    /// The last offer, and what it was made of.
    made: Option<(Vec<Registry>, Arc<Offer>)>,
    /// Names of it that collide and that nobody was told of.
    untold: Vec<Collision>,
    /// How the servers stood when it was told last.
    told: Vec<Verdict>,
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
        lock(&self.state).tools.push(source);
    }

    pub(super) fn add_context(&self, source: Arc<dyn ContextSource>) {
        lock(&self.state).contexts.push((source, Vec::new()));
    }

    pub(super) fn add_bridge<B: ToolSource + ContextSource + 'static>(&self, bridge: Arc<B>) {
        self.add_source(bridge.clone());
        self.add_context(bridge);
    }

    /// Waits until all of them are as ready as they get, or the time is over.
    pub(super) async fn ready(&self, until: Option<Instant>) -> Missing {
        let sources = lock(&self.state).tools.clone();
        let getting_ready = sources
            .into_iter()
            .map(|source| -> BoxFuture<'static, ()> { Box::pin(async move { source.ready().await }) });
        ask(getting_ready, until).await.1
    }

    /// What they have to say before a conversation, in their order. Of one that has not said it by then, or that panics, it is
    /// what it said last.
    pub(super) async fn context(&self, until: Option<Instant>) -> (Vec<ContextItem>, Missing) {
        let sources: Vec<_> = lock(&self.state).contexts.iter().map(|(source, _)| source.clone()).collect();
        let asked = sources.len();
        let saying = sources
            .into_iter()
            .map(|source| -> BoxFuture<'static, Vec<ContextItem>> { Box::pin(async move { source.context().await }) });
        let (said, missing) = ask(saying, until).await;
        let mut state = lock(&self.state);
        for ((_, last), said) in state.contexts.iter_mut().zip(said) {
            if let Some(said) = said {
                *last = said;
            }
        }
        // Those that were added meanwhile are asked the next time.
        (state.contexts[..asked].iter().flat_map(|(_, last)| last.clone()).collect(), missing)
    }

    /// The servers that may yet become ready.
    pub(super) fn waiting(&self) -> Vec<String> {
        let waiting = |verdict: &Verdict| matches!(verdict.outcome, Outcome::Connecting | Outcome::NotStarted);
        self.verdicts().iter().filter(|it| waiting(it)).map(|it| format!("`{}`", it.server)).collect()
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

    /// The tools as of now. Where nothing has changed it is the same offer.
    pub(super) fn offer(&self) -> Arc<Offer> {
        let sources = lock(&self.state).tools.clone();
        let registries: Vec<Registry> = sources.iter().map(|source| source.registry()).collect();
        let mut state = lock(&self.state);
        if let Some((made_of, offer)) = &state.made
            && made_of.len() == registries.len()
            && made_of.iter().zip(&registries).all(|(one, other)| one.same_as(other))
        {
            return offer.clone();
        }
        let (offer, collisions) = Offer::new(&state.local, &registries, &self.ours, self.search_over);
        let offer = Arc::new(offer);
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
