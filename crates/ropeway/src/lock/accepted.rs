//! Accepted tool definitions.

use std::collections::{BTreeMap, HashSet};

use super::difference::{Difference, DifferenceKind};
use crate::tool::{Alias, Digest, Origin, ToolDefinition, differences};

/// Accepted tool definitions, by server and by the server's own name for the tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lock {
    pub(super) servers: BTreeMap<Alias, BTreeMap<String, LockedTool>>,
}

/// An accepted tool.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LockedTool {
    /// Digest of the definition ([`Digest::of_source`]).
    pub digest: Digest,
    /// Digest of a definition that the user always allows ([`Digest::of_approved`]).
    pub always: Option<Digest>,
    /// The definition, unless it is too large to be stored.
    pub definition: Option<ToolDefinition>,
}

impl Lock {
    /// Creates an empty lock.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the aliases of all servers.
    pub fn servers(&self) -> impl Iterator<Item = &Alias> {
        self.servers.keys()
    }

    /// Returns the tools of a server, by the server's own names.
    // Hidden from the docs: digests of definitions, for the binary.
    #[doc(hidden)]
    pub fn tools(&self, server: &Alias) -> impl Iterator<Item = (&str, &LockedTool)> {
        self.servers.get(server).into_iter().flatten().map(|(name, tool)| (name.as_str(), tool))
    }

    /// Returns a tool by the server's own name.
    // Hidden from the docs: digests of definitions, for the binary.
    #[doc(hidden)]
    pub fn get(&self, server: &Alias, tool: &str) -> Option<&LockedTool> {
        self.servers.get(server)?.get(tool)
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

    /// Compares all tools of a server with the lock. Removed tools come last.
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

    /// Replaces the accepted tools of a server. Unchanged tools that were always allowed stay so.
    pub fn accept<'a>(&mut self, server: &Alias, tools: impl IntoIterator<Item = &'a ToolDefinition>) {
        let before = self.servers.remove(server).unwrap_or_default();
        let tools = tools.into_iter().map(|definition| {
            let mut locked = LockedTool::new(definition);
            let known = before.get(definition.own_name()).filter(|known| known.digest == locked.digest);
            locked.always = known.and_then(|known| known.always);
            (definition.own_name().to_owned(), locked)
        });
        self.servers.insert(server.clone(), tools.collect());
    }

    /// Accepts a tool, and allows it always.
    pub fn allow(&mut self, definition: &ToolDefinition) {
        if let Origin::Server { server, tool } = &definition.origin {
            let mut locked = LockedTool::new(definition);
            locked.always = Some(Digest::of_approved(definition));
            self.servers.entry(server.clone()).or_default().insert(tool.to_string(), locked);
        }
    }

    /// Removes a server.
    pub fn remove(&mut self, server: &Alias) {
        self.servers.remove(server);
    }

    /// Removes all permanent approvals, for a lock file that comes from another machine.
    pub fn clear_approvals(&mut self) {
        self.servers.values_mut().flat_map(BTreeMap::values_mut).for_each(|tool| tool.always = None);
    }

    /// Returns `true` if the lock contains permanent approvals.
    pub fn has_approvals(&self) -> bool {
        self.servers.values().flat_map(BTreeMap::values).any(|tool| tool.always.is_some())
    }
}
