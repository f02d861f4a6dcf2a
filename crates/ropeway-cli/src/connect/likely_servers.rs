//! The servers that may have a tool, by the definitions that are remembered of them.

use ropeway::bridge::{default_memory, remembered_tools};
use ropeway::config::ServerEntry;
use ropeway::tool::{Alias, ToolDefinition};

use crate::arguments::names::ToolNames;
use crate::connect::servers::Servers;

/// The servers that may have a tool.
pub(crate) struct LikelyServers {
    pub(crate) servers: Servers,
    /// One of them had the tool the last time.
    pub(crate) is_known: bool,
}

impl LikelyServers {
    /// Leaves out the servers whose remembered tools do not have the name. Returns `None` if none or all would be left.
    pub(crate) fn new(servers: &Servers, name: &str) -> Option<Self> {
        let folder = default_memory().filter(|_| servers.config.servers.len() > 1)?;
        let names = ToolNames::new(&servers.config);
        let mut likely = servers.clone();
        let mut is_known = false;
        likely.config.servers.retain(|entry| {
            let Some(tools) = remembered_tools(&folder, entry) else { return true };
            let has_tool = tools.iter().any(|tool| names.is_called(tool, name));
            is_known |= has_tool;
            has_tool
        });
        let left = likely.config.servers.iter().filter(|entry| entry.enabled).count();
        let is_less = likely.config.servers.len() < servers.config.servers.len();
        (left > 0 && is_less).then_some(Self { servers: likely, is_known })
    }
}

/// The tools that the servers of a command had the last time, by the index of the server.
pub(crate) struct RememberedTools(Vec<(Alias, Option<Vec<ToolDefinition>>)>);

impl RememberedTools {
    pub(crate) fn new(servers: &Servers) -> Self {
        let folder = default_memory();
        let tools = |entry: &ServerEntry| remembered_tools(folder.as_deref()?, entry).filter(|tools| !tools.is_empty());
        Self(servers.config.servers.iter().map(|entry| (entry.alias.clone(), tools(entry))).collect())
    }

    pub(crate) fn get(&self, server: usize) -> Option<&[ToolDefinition]> {
        self.0.get(server)?.1.as_deref()
    }

    /// Returns whether a server had a tool of this name the last time, if that is known.
    pub(crate) fn has(&self, server: &Alias, name: &str, names: &ToolNames) -> Option<bool> {
        let (_, tools) = self.0.iter().find(|(alias, _)| alias == server)?;
        Some(tools.as_ref()?.iter().any(|tool| names.is_called(tool, name)))
    }
}
