//! Routes for principals that may use some tools only.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use super::{CallRoute, Router, next_id};
use crate::client::principal::ToolAccess;
use ropeway_bridge::ServerView;
use ropeway_bridge::registry::search_tools::{CALL_TOOL, FIND_TOOLS};
use ropeway_core::sync::lock;
use ropeway_core::tool::Alias;

/// Maximum number of different rights that routes are kept for.
const MAX_RESTRICTED: usize = 1024;

impl Router {
    /// Returns the routes for a principal that may use some tools only.
    ///
    /// Its servers are those that have such a tool, or that the rights name. Other servers' prompts and resources are hidden.
    pub(crate) fn restricted(&self, access: &Arc<ToolAccess>) -> Arc<Self> {
        if let Some(known) = lock(&self.restricted).get(&access.id()) {
            return known.clone();
        }
        let router = Arc::new(self.restrict(access));
        let mut restricted = lock(&self.restricted);
        if restricted.len() >= MAX_RESTRICTED {
            restricted.clear();
        }
        restricted.insert(access.id(), router.clone());
        router
    }

    fn restrict(&self, access: &Arc<ToolAccess>) -> Self {
        let is_allowed = |route: &CallRoute| access.allows(&route.server, &route.own_name);
        let allowed = self.tools.iter().filter(|(_, route)| is_allowed(route));
        let tools: HashMap<_, _> = allowed.map(|(name, route)| (name.clone(), route.clone())).collect();
        let has_tool: HashSet<&Alias> = tools.values().map(|route| &route.server).collect();
        let is_used = |alias: &Alias| has_tool.contains(alias) || access.names_server(alias);
        let mut router = Self {
            profile: self.profile.clone(),
            id: next_id(),
            routed: self.routed.iter().filter(|server| is_used(&server.alias)).cloned().collect(),
            tool_entries: self.tool_entries.iter().filter(|entry| tools.contains_key(&entry.name)).cloned().collect(),
            left_out: self
                .left_out
                .iter()
                .filter(|tool| access.allows(&tool.server, &tool.own_name))
                .cloned()
                .collect(),
            find_tools: None,
            ui_uris: self.ui_uris.iter().filter(|(_, alias)| is_used(alias)).cloned().collect(),
            access: Some(access.clone()),
            restricted: Mutex::default(),
            tools: HashMap::new(),
        };
        if let Some(find) = &self.find_tools {
            router.list_search(find.restricted(FIND_TOOLS, CALL_TOOL, |name| tools.contains_key(name)));
        }
        router.tools = tools;
        router
    }

    /// Returns routes with the same profile and rights, for the current servers.
    pub(crate) fn rebuilt(&self, views: &[ServerView]) -> Self {
        let router = Self::build(&self.profile, views);
        match &self.access {
            Some(access) => router.restrict(access),
            None => router,
        }
    }

    /// Returns the tools that clients can call: their servers, and the servers' own tool names.
    pub(crate) fn own_tool_names(&self) -> impl Iterator<Item = (&Alias, &str)> {
        self.tools.values().map(|route| (&route.server, &*route.own_name))
    }

    /// Returns the profile's server, if it has only one, exposes it under its own names, and clients may use it.
    pub(crate) fn transparent(&self) -> Option<&Alias> {
        self.profile.transparent().filter(|only| self.has_server(only))
    }

    /// Returns `true` if the server is part of these routes, with or without tools.
    pub(super) fn is_routed(&self, alias: &Alias) -> bool {
        self.access.is_none() || self.has_server(alias)
    }
}
