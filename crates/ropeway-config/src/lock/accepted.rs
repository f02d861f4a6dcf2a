//! Accepted tool definitions and sandboxes.

use std::collections::{BTreeMap, HashSet};

use super::difference::{Difference, DifferenceKind, SandboxDifference};
use crate::{Sandbox, SandboxSummary, ServerEntry, sandbox_changes};
use ropeway_core::tool::{Alias, Digest, Origin, ToolDefinition, differences};

/// Accepted tool definitions, by server and by the server's own name for the tool, and the servers' accepted sandboxes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lock {
    pub(super) servers: BTreeMap<Alias, LockedServer>,
}

/// A server's accepted tools, by the server's own names, and its accepted sandbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LockedServer {
    pub(super) tools: BTreeMap<String, LockedTool>,
    pub(super) sandbox: Option<SandboxSummary>,
}

/// An accepted tool.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LockedTool {
    /// Definition digest ([`Digest::of_source`]).
    pub digest: Digest,
    /// Digest for the definition that the user always allows ([`Digest::of_approved`]).
    pub always: Option<Digest>,
    /// The definition, unless it is too large to be stored.
    pub definition: Option<ToolDefinition>,
}

impl Lock {
    /// Creates an empty lock.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns all server aliases.
    pub fn servers(&self) -> impl Iterator<Item = &Alias> {
        self.servers.keys()
    }

    /// Returns `true` if a server was accepted, with or without tools.
    pub fn contains(&self, server: &Alias) -> bool {
        self.servers.contains_key(server)
    }

    /// Returns why the strict policy prevents a server from starting: its command was never accepted under this alias, or its
    /// sandbox exceeds the accepted one.
    pub fn start_refusal(&self, entry: &ServerEntry) -> Option<String> {
        if entry.stdio().is_some() && !self.contains(&entry.alias) {
            let help = "run `ropeway lock` to accept it, and restart a running gateway";
            return Some(format!("it is not in `ropeway.lock`; {help}"));
        }
        self.widened_sandbox(entry)
    }

    /// Returns how a server's sandbox exceeds the accepted one, if it does.
    pub fn widened_sandbox(&self, entry: &ServerEntry) -> Option<String> {
        entry.config()?;
        let difference = self.compare_sandbox(&entry.alias, entry.sandbox())?;
        difference.widens().then(|| difference.reason())
    }

    /// Returns a server's tools, by the server's own names.
    pub fn tools(&self, server: &Alias) -> impl Iterator<Item = (&str, &LockedTool)> {
        let tools = self.servers.get(server).into_iter().flat_map(|server| &server.tools);
        tools.map(|(name, tool)| (name.as_str(), tool))
    }

    /// Returns a tool by the server's own name.
    pub fn get(&self, server: &Alias, tool: &str) -> Option<&LockedTool> {
        self.servers.get(server)?.tools.get(tool)
    }

    /// Compares a tool with the lock. Returns `None` if it is equal to the accepted one, or local.
    pub fn check(&self, definition: &ToolDefinition) -> Option<Difference> {
        let definition = definition.original();
        let Origin::Server { server, tool } = &definition.origin else { return None };
        let kind = match self.get(server, tool) {
            None => DifferenceKind::New,
            Some(locked) if locked.digest == Digest::of_source(definition) => return None,
            Some(locked) => {
                let mut changes =
                    locked.definition.as_ref().map(|was| differences(was, definition)).unwrap_or_default();
                if changes.is_empty() {
                    changes.push("definition changed".to_owned());
                }
                DifferenceKind::Changed(changes)
            }
        };
        Some(Difference { server: server.clone(), tool: tool.to_string(), kind })
    }

    /// Compares all of a server's tools with the lock. Removed tools come last.
    pub fn compare<'a>(&self, server: &Alias, tools: impl IntoIterator<Item = &'a ToolDefinition>) -> Vec<Difference> {
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        for definition in tools {
            seen.insert(definition.own_name());
            found.extend(self.check(definition));
        }
        found.sort_by(|one, other| one.tool.cmp(&other.tool));
        let gone = self.tools(server).filter(|(name, _)| !seen.contains(name));
        found.extend(gone.map(|(name, _)| Difference {
            server: server.clone(),
            tool: name.to_owned(),
            kind: DifferenceKind::Gone,
        }));
        found
    }

    /// Replaces a server's accepted tools. Unchanged tools that were always allowed stay so.
    pub fn accept<'a>(&mut self, server: &Alias, tools: impl IntoIterator<Item = &'a ToolDefinition>) {
        let locked_server = self.servers.entry(server.clone()).or_default();
        let before = std::mem::take(&mut locked_server.tools);
        let tools = tools.into_iter().map(|definition| {
            let mut locked = LockedTool::new(definition);
            let known = before.get(definition.own_name()).filter(|known| known.digest == locked.digest);
            locked.always = known.and_then(|known| known.always);
            (definition.own_name().to_owned(), locked)
        });
        locked_server.tools = tools.collect();
    }

    /// Compares a server's sandbox with the accepted one; `None` stands for no sandbox. Returns `None` if they are equal.
    pub fn compare_sandbox(&self, server: &Alias, sandbox: Option<&Sandbox>) -> Option<SandboxDifference> {
        let before = self.servers.get(server).and_then(|server| server.sandbox.as_ref());
        let now = sandbox.map(SandboxSummary::from);
        let changes = sandbox_changes(before, now.as_ref());
        (!changes.is_empty()).then(|| SandboxDifference { server: server.clone(), changes })
    }

    /// Replaces a server's accepted sandbox.
    pub fn accept_sandbox(&mut self, server: &Alias, sandbox: Option<&Sandbox>) {
        self.servers.entry(server.clone()).or_default().sandbox = sandbox.map(SandboxSummary::from);
    }

    /// Accepts a tool, and always allows its calls.
    pub fn allow(&mut self, definition: &ToolDefinition) {
        if let Origin::Server { server, tool } = &definition.origin {
            let mut locked = LockedTool::new(definition);
            locked.always = Some(Digest::of_approved(definition));
            self.servers.entry(server.clone()).or_default().tools.insert(tool.to_string(), locked);
        }
    }

    /// Removes a server.
    pub fn remove(&mut self, server: &Alias) {
        self.servers.remove(server);
    }

    /// Removes all permanent approvals, for a lock file that comes from another machine.
    pub fn clear_approvals(&mut self) {
        let tools = self.servers.values_mut().flat_map(|server| server.tools.values_mut());
        tools.for_each(|tool| tool.always = None);
    }

    /// Returns `true` if the lock contains permanent approvals.
    pub fn has_approvals(&self) -> bool {
        self.servers.values().flat_map(|server| server.tools.values()).any(|tool| tool.always.is_some())
    }
}
