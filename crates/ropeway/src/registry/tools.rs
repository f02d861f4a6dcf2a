//! The registry: tools under unique names.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::collision::{Collision, CollisionOutcome};
use super::naming;
use super::search::{Index, SearchHit};
use crate::checked::CheckedTool;
use crate::config::CollisionPolicy;
use crate::envelope::Envelope;
use crate::lowering::{self, Lower, LoweredTools};
use crate::message::{CallArguments, Dialect, ToolCall, ToolResult};
use crate::tool::{Alias, Arguments, CallContext, CallError, Origin, Tool, ToolDefinition};

/// The tools of many servers and of the host, under names that are all different.
///
/// Cheap to clone, and a value: whoever holds one is not disturbed by changes, which make another one.
#[derive(Clone, Default)]
pub struct Registry(Arc<RegistryInner>);

#[derive(Clone, Default)]
struct RegistryInner {
    tools: Vec<CheckedTool>,
    by_name: HashMap<String, usize>,
    /// Tools that are there and hidden, each with the reason.
    hidden: HashMap<String, String>,
    /// Made when it is first asked for.
    index: OnceLock<Arc<Index>>,
    /// The tools as dialects take them, made when one first asks.
    lowered: lowering::Cache,
}

impl Registry {
    /// Puts the tools of several servers together, each a group of its own, in this order.
    ///
    /// The policy is for tools of different servers. Those of one server are all kept: names that became the same only
    /// by being made legal get a hash each.
    pub fn assemble(
        groups: impl IntoIterator<Item = Vec<CheckedTool>>,
        policy: CollisionPolicy,
    ) -> (Self, Vec<Collision>) {
        let mut inner = RegistryInner::default();
        let mut collisions = Vec::new();
        for mut group in groups {
            disambiguate(&mut group);
            collisions.extend(group.into_iter().filter_map(|tool| inner.add(tool, policy)));
        }
        (Self(Arc::new(inner)), collisions)
    }

    /// Adds a tool, in the place of the one that has its name, if there is one. Two tools of one server are both kept.
    pub fn register(&mut self, tool: Arc<dyn Tool>) -> Option<Collision> {
        let inner = Arc::make_mut(&mut self.0);
        inner.index = OnceLock::new();
        inner.lowered = lowering::Cache::default();
        inner.add(CheckedTool::new(tool), CollisionPolicy::LastWins)
    }

    /// Is it the same value, not only one with equal tools?
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// How many tools there are.
    pub fn len(&self) -> usize {
        self.0.tools.len()
    }

    /// Is there no tool?
    pub fn is_empty(&self) -> bool {
        self.0.tools.is_empty()
    }

    /// What a model is told of the tools.
    pub fn definitions(&self) -> impl Iterator<Item = &ToolDefinition> {
        self.tools().map(CheckedTool::definition)
    }

    /// Returns the registry with tools that exist and are hidden, by the names that models would call them by, each with the
    /// reason. A call of one fails with [`CallError::Hidden`].
    #[must_use]
    pub fn with_hidden(mut self, hidden: impl IntoIterator<Item = (String, String)>) -> Self {
        Arc::make_mut(&mut self.0).hidden.extend(hidden);
        self
    }

    /// Returns the tools that exist and are hidden, each with the reason.
    pub fn hidden(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.hidden.iter().map(|(name, reason)| (name.as_str(), reason.as_str()))
    }

    /// Returns why there is no tool of this name.
    pub(crate) fn missing(&self, name: &str) -> CallError {
        match self.0.hidden.get(name) {
            Some(reason) => CallError::Hidden { tool: name.to_owned(), reason: reason.clone() },
            None => CallError::UnknownTool { tool: name.to_owned(), nearest: self.nearest(name) },
        }
    }

    /// The tools, ready to be called.
    pub fn tools(&self) -> impl Iterator<Item = &CheckedTool> {
        self.0.tools.iter()
    }

    /// The tool of a name.
    pub fn get(&self, name: &str) -> Option<&CheckedTool> {
        self.0.by_name.get(name).map(|&at| &self.0.tools[at])
    }

    /// Makes one call, which ends in exactly one envelope, also when there is no such tool.
    pub async fn call(&self, name: &str, arguments: Arguments, cx: &CallContext) -> Envelope {
        match self.get(name) {
            Some(tool) => tool.call(arguments, cx).await,
            None => Envelope::from_error(
                cx.for_call().id().clone(),
                name,
                Origin::Local,
                Duration::ZERO,
                self.missing(name),
            ),
        }
    }

    /// Makes a call that a model wants made, and gives what it is told of it. Arguments that are no object are told, not sent.
    pub async fn answer(&self, call: &ToolCall, cx: &CallContext) -> ToolResult {
        match &call.arguments {
            CallArguments::Object(arguments) => self.call(&call.name, arguments.clone(), cx).await.to_result(call),
            CallArguments::Broken(broken) => ToolResult::error(call, broken.problem.as_str()),
        }
    }

    /// Names that may have been meant: those of similar letters, else those of the same words.
    pub(crate) fn nearest(&self, name: &str) -> Vec<String> {
        let near = naming::nearest(name, self.definitions().map(|definition| definition.name.as_str()));
        if !near.is_empty() {
            return near;
        }
        self.search(name, 3).into_iter().map(|hit| hit.tool.definition().name.clone()).collect()
    }

    /// The servers that tools come from, in the order of their first tools.
    pub fn servers(&self) -> Vec<&Alias> {
        let mut seen = HashSet::new();
        self.tools().filter_map(server_of).filter(|server| seen.insert(*server)).collect()
    }

    /// The tools of a server.
    pub fn of_server(&self, server: &Alias) -> impl Iterator<Item = &CheckedTool> {
        self.tools().filter(move |tool| server_of(tool) == Some(server))
    }

    /// A registry without the tools of a server, which is else the same.
    #[must_use]
    pub fn without_server(&self, server: &Alias) -> Self {
        self.filtered(|tool| server_of(tool) != Some(server))
    }

    /// A registry with only those tools that are wanted; the same one when that is all of them.
    #[must_use]
    pub fn filter(&self, wants: impl Fn(&ToolDefinition) -> bool) -> Self {
        self.filtered(|tool| wants(tool.definition()))
    }

    fn filtered(&self, wants: impl Fn(&CheckedTool) -> bool) -> Self {
        let mut inner = RegistryInner::default();
        self.tools().filter(|tool| wants(tool)).for_each(|tool| inner.push(tool.clone()));
        inner.hidden.clone_from(&self.0.hidden);
        if inner.tools.len() == self.len() { self.clone() } else { Self(Arc::new(inner)) }
    }

    /// The tools that these words may mean, the best first.
    pub fn search(&self, words: &str, limit: usize) -> Vec<SearchHit<'_>> {
        let index = self.0.index.get_or_init(|| Arc::new(Index::new(self.definitions())));
        let ranked = index.search(words, limit).into_iter();
        ranked.map(|(at, score)| SearchHit { tool: &self.0.tools[at], score }).collect()
    }
}

impl RegistryInner {
    fn push(&mut self, tool: CheckedTool) {
        self.by_name.insert(tool.definition().name.clone(), self.tools.len());
        self.tools.push(tool);
    }

    fn add(&mut self, tool: CheckedTool, policy: CollisionPolicy) -> Option<Collision> {
        let name = &tool.definition().name;
        let Some(&at) = self.by_name.get(name) else {
            self.push(tool);
            return None;
        };
        let name = name.clone();
        let [old, new] = [&self.tools[at], &tool].map(|tool| tool.definition().origin.clone());
        let policy = if are_siblings(&old, &new) { CollisionPolicy::Suffix } else { policy };
        let (kept, other, outcome) = match policy {
            CollisionPolicy::LastWins => {
                self.tools[at] = tool;
                (new, old, CollisionOutcome::Dropped)
            }
            CollisionPolicy::Error => (old, new, CollisionOutcome::Dropped),
            CollisionPolicy::Suffix => {
                let mut names = (2..).map(|number| naming::numbered(&name, number));
                // There are more numbers than tools.
                let free = names.find(|name| !self.by_name.contains_key(name))?;
                self.push(tool.renamed(&free));
                (old, new, CollisionOutcome::Renamed(free))
            }
        };
        Some(Collision { name, kept, other, outcome })
    }
}

/// Gives a hash to names that several tools of a server have because their own names could not be kept.
fn disambiguate(group: &mut [CheckedTool]) {
    let mut seen = HashSet::with_capacity(group.len());
    let duplicates: HashSet<String> =
        group.iter().map(|tool| &tool.definition().name).filter(|name| !seen.insert(*name)).cloned().collect();
    for tool in group.iter_mut().filter(|tool| duplicates.contains(&tool.definition().name)) {
        let definition = tool.definition();
        let own = definition.own_name();
        // One that has its own name keeps it: the others gave theirs up.
        if !definition.name.ends_with(own) {
            *tool = tool.renamed(naming::hashed(&definition.name, own));
        }
    }
}

/// Two tools of one server, which must not push each other out.
fn are_siblings(one: &Origin, other: &Origin) -> bool {
    match (one, other) {
        (Origin::Server { server, tool }, Origin::Server { server: same, tool: another }) => {
            server == same && tool != another
        }
        _ => false,
    }
}

fn server_of(tool: &CheckedTool) -> Option<&Alias> {
    match &tool.definition().origin {
        Origin::Server { server, .. } => Some(server),
        Origin::Local => None,
    }
}

impl Lower for Registry {
    fn lowered(&self, dialect: Dialect) -> Arc<LoweredTools> {
        self.0.lowered.get(dialect, || lowering::lower(self.definitions(), dialect))
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.definitions().map(|definition| &definition.name)).finish()
    }
}
