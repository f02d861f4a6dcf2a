//! Servers that may have a tool, according to cached definitions.

use ropeway_bridge::{cached_tools, default_cache_dir};
use ropeway_config::ServerEntry;
use ropeway_core::tool::{Alias, ToolDefinition};

use crate::arguments::names::ToolNames;
use crate::connect::failure_memory::FailureMemory;
use crate::connect::servers::Servers;

/// The servers that may have a tool.
pub(crate) struct LikelyServers {
    pub(crate) servers: Servers,
    /// A cached definition has the tool.
    pub(crate) is_known: bool,
}

impl LikelyServers {
    /// Keeps the servers whose cached tools include the name. If none does, keeps those without cached tools that did not fail
    /// the last time. Returns `None` if none or all would remain.
    pub(crate) fn new(servers: &Servers, name: &str) -> Option<Self> {
        let folder = default_cache_dir().filter(|_| servers.config.servers.len() > 1)?;
        let names = ToolNames::new(&servers.config);
        let memory = FailureMemory::load(servers);
        let mut known = Vec::new();
        let mut unlisted = Vec::new();
        for entry in servers.config.servers.iter().filter(|entry| entry.enabled) {
            match cached_tools(&folder, entry) {
                Some(tools) if tools.iter().any(|tool| names.is_called(tool, name)) => known.push(entry.clone()),
                Some(_) => {}
                None if memory.as_ref().is_some_and(|memory| memory.is_hopeless(entry, servers.waiting)) => {}
                None => unlisted.push(entry.clone()),
            }
        }
        let is_known = !known.is_empty();
        let likely = if is_known { known } else { unlisted };
        let is_less = !likely.is_empty() && likely.len() < servers.config.servers.len();
        let mut servers = servers.clone();
        servers.config.servers = likely;
        is_less.then_some(Self { servers, is_known })
    }
}

/// Returns the servers with a cached tool that has this name, if any.
pub(crate) fn servers_with_cached_tool(servers: &Servers, name: &str) -> Option<Servers> {
    let (names, remembered) = (ToolNames::new(&servers.config), RememberedTools::new(servers));
    let mut known = servers.clone();
    known.config.servers.retain(|entry| remembered.has(&entry.alias, name, &names) == Some(true));
    (!known.config.servers.is_empty()).then_some(known)
}

/// Each server's cached tools, by index.
pub(crate) struct RememberedTools(Vec<(Alias, Option<Vec<ToolDefinition>>)>);

impl RememberedTools {
    pub(crate) fn new(servers: &Servers) -> Self {
        let folder = default_cache_dir();
        let tools = |entry: &ServerEntry| cached_tools(folder.as_deref()?, entry).filter(|tools| !tools.is_empty());
        Self(servers.config.servers.iter().map(|entry| (entry.alias.clone(), tools(entry))).collect())
    }

    pub(crate) fn get(&self, server: usize) -> Option<&[ToolDefinition]> {
        self.0.get(server)?.1.as_deref()
    }

    /// Returns whether a server's cached tools include this name, if they are known.
    pub(crate) fn has(&self, server: &Alias, name: &str, names: &ToolNames) -> Option<bool> {
        let (_, tools) = self.0.iter().find(|(alias, _)| alias == server)?;
        Some(tools.as_ref()?.iter().any(|tool| names.is_called(tool, name)))
    }
}
