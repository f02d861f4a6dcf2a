//! The registry: tools under unique names.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::collision::Collision;
use super::naming;
use super::search::Index;
use ropeway_config::CollisionPolicy;
use ropeway_core::checked::CheckedTool;
use ropeway_core::envelope::Envelope;
use ropeway_core::lowering::{self, Lower, LoweredTools, Toolset};
use ropeway_core::message::{CallArguments, Dialect, ToolCall, ToolResult};
use ropeway_core::suggest;
use ropeway_core::tool::{Alias, CallContext, CallError, IntoArguments, IntoTool, Origin, ToolDefinition};

/// A tool collection with unique names.
///
/// Cloning is cheap. [`register`](Self::register) copies the registry if it is shared, so other clones do not change.
///
/// # Examples
///
/// ```
/// use ropeway::{LocalTool, Registry, ToolDefinition};
///
/// # async fn run() {
/// let mut registry = Registry::default();
/// registry.register(LocalTool::new(ToolDefinition::new("hello"), |_, _| async { Ok("Hello!") }));
///
/// let envelope = registry.call("hello", ()).await;
/// assert!(!envelope.meta.is_error);
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Registry(Arc<RegistryInner>);

#[derive(Clone, Default)]
struct RegistryInner {
    tools: Vec<CheckedTool>,
    by_name: HashMap<String, usize>,
    /// Hidden tools by name, each with the reason.
    hidden: HashMap<String, String>,
    /// Built by the first search.
    index: OnceLock<Arc<Index>>,
    /// Tools in each dialect's format, built on first use.
    lowered: lowering::Cache,
}

impl Registry {
    /// Combines tools from several servers, in this order.
    ///
    /// `policy` resolves collisions between servers. Tools from the same server are never dropped: if their names are equal only
    /// because invalid characters were replaced, each gets a hash.
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

    /// Adds a tool. A tool with the same name is replaced, unless both come from the same server.
    pub fn register(&mut self, tool: impl IntoTool) -> Option<Collision> {
        let inner = Arc::make_mut(&mut self.0);
        inner.index = OnceLock::new();
        inner.lowered = lowering::Cache::default();
        inner.add(CheckedTool::new(tool.into_tool()), CollisionPolicy::LastWins)
    }

    /// Returns `true` if both share one registry.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the number of tools.
    pub fn len(&self) -> usize {
        self.0.tools.len()
    }

    /// Returns `true` if the registry has no tools.
    pub fn is_empty(&self) -> bool {
        self.0.tools.is_empty()
    }

    /// Returns the definitions that models see.
    pub fn definitions(&self) -> impl Iterator<Item = &ToolDefinition> {
        self.tools().map(CheckedTool::definition)
    }

    /// Adds hidden tools, each with the reason. A call fails with [`CallError::Hidden`].
    #[must_use]
    pub fn with_hidden(mut self, hidden: impl IntoIterator<Item = (String, String)>) -> Self {
        Arc::make_mut(&mut self.0).hidden.extend(hidden);
        self
    }

    /// Returns the hidden tools, each with the reason.
    pub fn hidden(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.hidden.iter().map(|(name, reason)| (name.as_str(), reason.as_str()))
    }

    /// Returns the error for a call to a tool that is not in the registry.
    pub fn missing(&self, name: &str) -> CallError {
        match self.0.hidden.get(name) {
            Some(reason) => CallError::Hidden { tool: name.to_owned(), reason: reason.clone() },
            None => CallError::UnknownTool { tool: name.to_owned(), nearest: self.nearest(name) },
        }
    }

    /// Returns the tools.
    pub fn tools(&self) -> impl Iterator<Item = &CheckedTool> {
        self.0.tools.iter()
    }

    /// Returns the tool with this name.
    pub fn get(&self, name: &str) -> Option<&CheckedTool> {
        self.0.by_name.get(name).map(|&at| &self.0.tools[at])
    }

    /// Returns the tool that `name` refers to: the name that models use, or `SERVER.TOOL` with the server's own tool name.
    ///
    /// Aliases and tool names can contain dots. A name that refers to tools from two servers returns `None`, so that no server
    /// can hijack another one's calls.
    pub fn find(&self, name: &str) -> Option<&CheckedTool> {
        let is_meant = |tool: &&CheckedTool| match &tool.definition().origin {
            Origin::Server { server, tool } => {
                name.strip_prefix(server.as_str()).and_then(|rest| rest.strip_prefix('.')) == Some(&**tool)
            }
            Origin::Local => false,
        };
        self.get(name).or_else(|| {
            let mut meant = self.tools().filter(is_meant);
            meant.next().filter(|_| meant.next().is_none())
        })
    }

    /// Calls a tool by the name that models use, or by `SERVER.TOOL`.
    ///
    /// Always returns an envelope, even for an unknown tool.
    pub async fn call(&self, name: &str, arguments: impl IntoArguments) -> Envelope {
        self.call_with(name, arguments, &CallContext::default()).await
    }

    /// Calls a tool like [`call`](Self::call), with a deadline, cancellation or progress from `cx`.
    pub async fn call_with(&self, name: &str, arguments: impl IntoArguments, cx: &CallContext) -> Envelope {
        match (self.find(name), arguments.into_arguments()) {
            (Some(tool), Ok(arguments)) => tool.call(arguments, cx).await,
            (Some(tool), Err(problem)) => {
                let (id, origin) = (cx.for_call().id().clone(), tool.definition().origin.clone());
                Envelope::from_error(id, name, origin, Duration::ZERO, CallError::invalid_arguments(name, problem))
            }
            (None, _) => self.unknown(name, cx),
        }
    }

    fn unknown(&self, name: &str, cx: &CallContext) -> Envelope {
        Envelope::from_error(cx.for_call().id().clone(), name, Origin::Local, Duration::ZERO, self.missing(name))
    }

    /// Executes a model's tool call and returns the call result. Arguments that are not a JSON object are reported to the model
    /// without calling the tool.
    pub async fn answer(&self, call: &ToolCall, cx: &CallContext) -> ToolResult {
        match &call.arguments {
            // Models use exposed names only.
            CallArguments::Object(arguments) => match self.get(&call.name) {
                Some(tool) => tool.call(arguments.clone(), cx).await.to_result(call),
                None => self.unknown(&call.name, cx).to_result(call),
            },
            CallArguments::Broken { problem, .. } => ToolResult::error(call, problem.as_str()),
        }
    }

    /// Returns names that are spelled like `name`, or else names with the same words.
    pub(crate) fn nearest(&self, name: &str) -> Vec<String> {
        let near = suggest::closest(name, self.definitions().map(|definition| definition.name.as_str()));
        if !near.is_empty() {
            return near.into_iter().map(str::to_owned).collect();
        }
        self.search(name, 3).into_iter().map(|(tool, _)| tool.definition().name.clone()).collect()
    }

    /// Returns all server aliases, in the order in which their first tools appear.
    pub fn servers(&self) -> Vec<&Alias> {
        let mut seen = HashSet::new();
        self.tools().filter_map(server_of).filter(|server| seen.insert(*server)).collect()
    }

    /// Returns a server's tools.
    pub fn of_server(&self, server: &Alias) -> impl Iterator<Item = &CheckedTool> {
        self.tools().filter(move |tool| server_of(tool) == Some(server))
    }

    /// Returns a registry without a server's tools.
    #[must_use]
    pub fn without_server(&self, server: &Alias) -> Self {
        self.filtered(|tool| server_of(tool) != Some(server))
    }

    /// Returns a registry with the tools for which `predicate` returns `true`. Returns a clone of `self` if that is true for all
    /// tools.
    #[must_use]
    pub fn filter(&self, predicate: impl Fn(&ToolDefinition) -> bool) -> Self {
        self.filtered(|tool| predicate(tool.definition()))
    }

    fn filtered(&self, predicate: impl Fn(&CheckedTool) -> bool) -> Self {
        let mut inner = RegistryInner::default();
        self.tools().filter(|tool| predicate(tool)).for_each(|tool| inner.push(tool.clone()));
        inner.hidden.clone_from(&self.0.hidden);
        if inner.tools.len() == self.len() { self.clone() } else { Self(Arc::new(inner)) }
    }

    /// Returns the tools that match a query best, best first, each with its relevance. Relevances are comparable within one search
    /// only.
    pub fn search(&self, words: &str, limit: usize) -> Vec<(&CheckedTool, f64)> {
        let index = self.0.index.get_or_init(|| Arc::new(Index::new(self.definitions())));
        let ranked = index.search(words, limit).into_iter();
        ranked.map(|(at, score)| (&self.0.tools[at], score)).collect()
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
        let (kept, other, renamed_to) = match policy {
            CollisionPolicy::LastWins => {
                self.tools[at] = tool;
                (new, old, None)
            }
            CollisionPolicy::Error => (old, new, None),
            CollisionPolicy::Suffix => {
                let mut names = (2..).map(|number| naming::numbered(&name, number));
                // Always finds a name: only finitely many are taken.
                let free = names.find(|name| !self.by_name.contains_key(name))?;
                self.push(tool.renamed(&free));
                (old, new, Some(free))
            }
        };
        Some(Collision { name, kept, other, renamed_to })
    }
}

/// Adds a hash to equal names from one server whose invalid characters were replaced.
fn disambiguate(group: &mut [CheckedTool]) {
    let mut seen = HashSet::with_capacity(group.len());
    let duplicates: HashSet<String> =
        group.iter().map(|tool| &tool.definition().name).filter(|name| !seen.insert(*name)).cloned().collect();
    for tool in group.iter_mut().filter(|tool| duplicates.contains(&tool.definition().name)) {
        let definition = tool.definition();
        let own = definition.own_name();
        // A tool with an unchanged name keeps it.
        if !definition.name.ends_with(own) {
            *tool = tool.renamed(naming::hashed(&definition.name, own));
        }
    }
}

/// Returns `true` for two tools from one server.
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

impl From<&Registry> for Toolset {
    fn from(registry: &Registry) -> Self {
        Self::of(registry.clone())
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.definitions().map(|definition| &definition.name)).finish()
    }
}
