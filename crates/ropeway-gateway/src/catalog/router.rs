//! A profile's routes: the tools that its clients see, and where their calls go.

mod restricted;
mod shape;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use serde::Serialize;
use serde_json::{Value, json};

use self::shape::{profile_shape, shaped};
use crate::catalog::entry_rules::check_entry;
use crate::catalog::list_kind::ListKind;
use crate::catalog::names;
use crate::catalog::names::NameTable;
use crate::catalog::profile::{Profile, Profiles, Selector};
use crate::catalog::uris;
use crate::client::principal::ToolAccess;
use ropeway_bridge::registry::search_tools::{CALL_TOOL, CallTool, FIND_TOOLS, FindTools};
use ropeway_bridge::registry::{Registry, ServerState, ServerStatus};
use ropeway_bridge::{Bridge, ServerView};
use ropeway_config::{CollisionPolicy, GatewaySettings, ServerEntry};
use ropeway_core::checked::CheckedTool;
use ropeway_core::suggest;
use ropeway_core::tool::{
    Alias, ArgumentMapping, Arguments, BoxFuture, CallContext, CallError, Digest, Tool, ToolDefinition, ToolOutput,
};
use ropeway_mcp::protocol::{Era, HeaderParams, wire_definition_text};

/// The schema annotation for arguments that are mirrored in headers.
const HEADER_ANNOTATION: &str = "x-mcp-header";

/// Maximum left-out entries per server that a list describes.
const MAX_REASONS: usize = 5;

/// All profiles' routers.
#[derive(Default)]
pub(crate) struct RouterSet {
    profiles: Profiles,
    routers: HashMap<Arc<str>, Arc<Router>>,
}

/// Returns a number that no other router has.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl RouterSet {
    /// Builds the routers for all profiles. Routers in `before` whose servers have not changed are shared.
    pub(crate) fn build(settings: &GatewaySettings, views: &[ServerView], before: Option<&Self>) -> Self {
        let enabled = views.iter().filter(|view| view.entry.enabled);
        let aliases: Vec<Alias> = enabled.map(|view| view.alias.clone()).collect();
        let profiles = Profiles::new(settings, &aliases);
        let router = |name: &Arc<str>| {
            let profile = profiles.get(name)?;
            let known =
                before.and_then(|before| before.routers.get(name)).filter(|known| known.is_same(profile, views));
            Some((name.clone(), known.cloned().unwrap_or_else(|| Arc::new(Router::build(profile, views)))))
        };
        let routers = profiles.names().filter_map(router).collect();
        Self { profiles, routers }
    }

    /// Returns the profile that a path selects, by name.
    pub(crate) fn select(&self, selector: &Selector) -> Option<Arc<str>> {
        self.profiles.get(selector.name()).map(|profile| profile.name.clone())
    }

    /// Returns `true` if a server was connected when the routers were built.
    pub(crate) fn is_connected(&self, alias: &Alias) -> bool {
        let mut servers = self.routers.values().flat_map(|router| &router.routed);
        servers.any(|server| server.alias == *alias && server.is_connected())
    }

    /// Returns all profiles' routers, in no particular order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Router>> {
        self.routers.values()
    }

    /// Returns a profile's router.
    pub(crate) fn get(&self, profile: &str) -> Option<Arc<Router>> {
        self.routers.get(profile).cloned()
    }
}

/// A list entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The name, URI or URI template that identifies the entry for clients.
    pub(crate) name: Box<str>,
    pub(crate) json: Arc<str>,
    /// The entry for legacy clients, if it differs.
    pub(crate) legacy: Option<Arc<str>>,
}

impl Entry {
    /// Creates a tool's entry. Fails with the reason if clients cannot accept it.
    fn of_tool(definition: &ToolDefinition) -> Result<Self, String> {
        let text = wire_definition_text(definition);
        let modern = check_entry(ListKind::Tools, &text, Era::Modern)?;
        let legacy = check_entry(ListKind::Tools, &text, Era::Legacy)?;
        let legacy = (legacy != modern).then(|| legacy.into());
        Ok(Self { name: definition.name.as_str().into(), json: modern.into(), legacy })
    }

    /// Returns the JSON for clients in an era.
    pub(crate) fn json_for(&self, era: Era) -> &str {
        self.legacy.as_deref().filter(|_| era == Era::Legacy).unwrap_or(&self.json)
    }
}

/// A tool that is not listed, because clients would refuse the whole list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LeftOutTool {
    server: Alias,
    own_name: Box<str>,
    reason: String,
}

/// A server whose entries are missing in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct MissingServer {
    pub(crate) alias: Alias,
    pub(crate) state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

/// A server that may have a tool or prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PossibleOwner<'a> {
    pub(crate) server: &'a Alias,
    /// Whether no other server in the profile can have the name.
    pub(crate) is_certain: bool,
}

/// Where a tool's calls go.
pub(crate) struct CallRoute {
    pub(crate) server: Alias,
    /// The server's own tool name.
    pub(crate) own_name: Box<str>,
    /// The tool as clients see it. Maps clients' arguments to the server's arguments.
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) mapping: ArgumentMapping,
    /// Whether the server runs the tool only as a task.
    pub(crate) needs_task: bool,
    /// The arguments that modern clients mirror in headers.
    pub(crate) headers: HeaderParams,
    /// Whether the server's own schema has such arguments.
    pub(crate) has_header_params: bool,
    digest: OnceLock<Digest>,
}

/// A server in a router, as it was when the router was built.
#[derive(Clone)]
pub(crate) struct RoutedServer {
    pub(crate) alias: Alias,
    pub(crate) entry: Arc<ServerEntry>,
    status: ServerStatus,
    slot: u64,
    version: u64,
    tools: usize,
}

/// A profile's routes.
pub(crate) struct Router {
    pub(crate) profile: Arc<Profile>,
    /// Unique within the process.
    pub(crate) id: u64,
    pub(crate) routed: Vec<RoutedServer>,
    tools: HashMap<Box<str>, Arc<CallRoute>>,
    tool_entries: Vec<Entry>,
    left_out: Vec<LeftOutTool>,
    find_tools: Option<FindTools>,
    /// The user interface URIs that tools refer to.
    pub(crate) ui_uris: Vec<(Box<str>, Alias)>,
    /// The tools that this router's clients may use. `None` for all.
    access: Option<Arc<ToolAccess>>,
    /// The routers for principals that may only use some tools, by [`ToolAccess::id()`].
    restricted: Mutex<HashMap<u64, Arc<Router>>>,
}

impl Router {
    /// Builds a profile's routes from its servers, in configuration order.
    pub(crate) fn build(profile: &Arc<Profile>, views: &[ServerView]) -> Self {
        let mut router = Self {
            profile: profile.clone(),
            id: next_id(),
            routed: Vec::new(),
            tools: HashMap::new(),
            tool_entries: Vec::new(),
            left_out: Vec::new(),
            find_tools: None,
            ui_uris: Vec::new(),
            access: None,
            restricted: Mutex::default(),
        };
        let mut names = NameTable::new(profile.is_prefixed());
        let mut found = Vec::new();
        for view in views.iter().filter(|view| profile.servers.contains(&view.alias)) {
            router.routed.push(RoutedServer::new(view));
            router.add_tools(view, &mut names, &mut found);
        }
        if profile.search {
            router.replace_by_search(found);
        }
        router
    }

    fn add_tools(&mut self, view: &ServerView, names: &mut NameTable, found: &mut Vec<CheckedTool>) {
        let shape = profile_shape(&self.profile.tools, &view.entry);
        for tool in &view.tools {
            let Some((mut definition, shaped)) = shaped(view, tool, shape.as_ref()) else { continue };
            definition.name = names.assign(&view.entry, &definition.name);
            self.qualify_ui(&mut definition, &view.alias);
            let route = Arc::new(CallRoute::new(&view.alias, &definition, shaped));
            match Entry::of_tool(&definition) {
                Ok(entry) => self.tool_entries.push(entry),
                Err(reason) => {
                    let own_name = definition.own_name().into();
                    self.left_out.push(LeftOutTool { server: view.alias.clone(), own_name, reason });
                }
            }
            let name: Box<str> = definition.name.as_str().into();
            if self.profile.search {
                found.push(CheckedTool::new(Arc::new(FoundTool { definition, tool: route.tool.clone() })));
            }
            self.tools.insert(name, route);
        }
    }

    /// Names the server in a tool's user interface URI, if an earlier server's tool has the same URI.
    fn qualify_ui(&mut self, definition: &mut ToolDefinition, alias: &Alias) {
        let meta = definition.meta.as_mut();
        let Some(Value::String(uri)) = meta.and_then(|meta| meta.get_mut("ui")?.get_mut("resourceUri")) else { return };
        match self.ui_uris.iter().find(|(known, _)| **known == **uri) {
            Some((_, owner)) if owner != alias => *uri = uris::qualify(alias, uri),
            Some(_) => {}
            None => self.ui_uris.push((uri.as_str().into(), alias.clone())),
        }
    }

    /// Lists two tools that find and call the others.
    fn replace_by_search(&mut self, found: Vec<CheckedTool>) {
        let count = found.len();
        let (registry, _) = Registry::assemble([found], CollisionPolicy::LastWins);
        self.list_search(FindTools::new(FIND_TOOLS, CALL_TOOL, registry, count));
    }

    fn list_search(&mut self, find: FindTools) {
        let call = CallTool::new(CALL_TOOL, FIND_TOOLS);
        let entry = |definition: &ToolDefinition| Entry {
            name: definition.name.as_str().into(),
            json: wire_definition_text(definition).into(),
            legacy: None,
        };
        self.tool_entries = vec![entry(find.definition()), entry(call.definition())];
        // A search finds all tools.
        self.left_out.clear();
        self.find_tools = Some(find);
    }

    /// Returns the profile's servers, in configuration order.
    pub(crate) fn servers(&self) -> Vec<Alias> {
        self.routed.iter().map(|server| server.alias.clone()).collect()
    }

    /// Returns `true` if the profile has a server.
    pub(crate) fn has_server(&self, alias: &Alias) -> bool {
        self.routed.iter().any(|server| server.alias == *alias)
    }

    /// Returns `true` if the tools are found by search.
    pub(crate) fn is_search(&self) -> bool {
        self.profile.search
    }

    /// Returns the tool that finds tools, if the tools are found by search.
    pub(crate) fn find_tools(&self) -> Option<&FindTools> {
        self.find_tools.as_ref()
    }

    /// Returns a tool's route.
    pub(crate) fn tool(&self, name: &str) -> Option<&Arc<CallRoute>> {
        self.tools.get(name)
    }

    /// Returns the tool names that are similar to an unknown name, most similar first.
    pub(crate) fn nearest_tools(&self, name: &str) -> Vec<&str> {
        let mut names: Vec<&str> = self.tools.keys().map(|name| &**name).collect();
        names.sort_unstable();
        suggest::closest(name, names)
    }

    /// Returns the tools that clients see.
    pub(crate) fn tool_entries(&self) -> &[Entry] {
        &self.tool_entries
    }

    /// Returns `true` if clients see the same tools as with another router.
    pub(crate) fn has_same_tools(&self, other: &Self) -> bool {
        self.id == other.id || self.tool_entries == other.tool_entries
    }

    /// Returns the servers whose tools are missing, all or some.
    pub(crate) fn missing_tools(&self) -> Vec<MissingServer> {
        let missing = self.routed.iter().filter(|server| server.tools == 0);
        let missing = missing.filter_map(|server| missing_server(&server.status));
        let partial = self.routed.iter().filter_map(|server| {
            let reason = Some(self.left_out_tools(&server.alias)?);
            Some(MissingServer { alias: server.alias.clone(), state: "ready", reason })
        });
        missing.chain(partial).collect()
    }

    /// Describes a server's tools that are not listed, because clients would refuse the whole list.
    pub(crate) fn left_out_tools(&self, server: &Alias) -> Option<String> {
        let own = self.left_out.iter().filter(|tool| tool.server == *server);
        let reasons: Vec<String> = own.map(|tool| format!("`{}` {}", tool.own_name, tool.reason)).collect();
        describe_left_out("tool", &reasons)
    }

    /// Returns the servers without tools that are connecting, or are about to.
    pub(crate) fn starting(&self, bridge: &Bridge, has_started: bool) -> Vec<Alias> {
        let is_connecting = |state: &ServerState| match state {
            ServerState::Connecting => true,
            ServerState::NotStarted => !has_started,
            _ => false,
        };
        let has_no_tools = |alias: &Alias| self.routed.iter().any(|server| server.alias == *alias && server.tools == 0);
        let statuses = bridge.statuses().into_iter();
        let starting = statuses.filter(|status| is_connecting(&status.state) && has_no_tools(&status.server));
        starting.map(|status| status.server).collect()
    }

    /// Returns `true` if a server has connected, or has tools from the cache.
    pub(crate) fn has_connected(&self, bridge: &Bridge) -> bool {
        let is_there = |state: &ServerState| {
            use ServerState::{Cached, FilteredToZero, Hidden, Ready};
            matches!(state, Ready { .. } | Cached { .. } | FilteredToZero { .. } | Hidden { .. })
        };
        self.routed.iter().any(|server| server.tools > 0)
            || bridge.statuses().iter().any(|status| self.has_server(&status.server) && is_there(&status.state))
    }

    /// Returns which of these servers, whose tools are not known yet, may have a tool or prompt with this name.
    pub(crate) fn owners<'a>(&'a self, name: &str, servers: &[Alias]) -> Vec<PossibleOwner<'a>> {
        let is_prefixed = self.profile.is_prefixed();
        let owner = |server: &'a RoutedServer| match names::has_prefix(&server.entry, is_prefixed, name) {
            Some(true) => Some(PossibleOwner { server: &server.alias, is_certain: true }),
            Some(false) => None,
            None => Some(PossibleOwner { server: &server.alias, is_certain: self.profile.servers.len() == 1 }),
        };
        self.routed.iter().filter(|server| servers.contains(&server.alias)).filter_map(owner).collect()
    }

    /// Returns `true` if a server's tools have changed since the router was built.
    pub(crate) fn is_outdated(&self, views: &[ServerView]) -> bool {
        let is_used = |view: &&ServerView| self.profile.servers.contains(&view.alias) && self.is_routed(&view.alias);
        let mut current = views.iter().filter(is_used);
        !self.routed.iter().all(|server| current.next().is_some_and(|view| server.has_same_tools(view)))
    }

    /// Returns `true` if a router for this profile and these servers would be the same.
    fn is_same(&self, profile: &Arc<Profile>, views: &[ServerView]) -> bool {
        let mut current = views.iter().filter(|view| profile.servers.contains(&view.alias));
        self.profile == *profile
            && self.routed.iter().all(|server| current.next().is_some_and(|view| server.is_same(view)))
            && current.next().is_none()
    }
}

impl RoutedServer {
    fn new(view: &ServerView) -> Self {
        Self {
            alias: view.alias.clone(),
            entry: view.entry.clone(),
            status: view.status.clone(),
            slot: view.slot,
            version: view.version,
            tools: view.tools.len(),
        }
    }

    fn has_same_tools(&self, view: &ServerView) -> bool {
        (&self.alias, self.slot, self.version, self.tools) == (&view.alias, view.slot, view.version, view.tools.len())
    }

    fn is_same(&self, view: &ServerView) -> bool {
        self.has_same_tools(view) && self.status == view.status && *self.entry == *view.entry
    }

    fn is_connected(&self) -> bool {
        matches!(
            self.status.state,
            ServerState::Ready { .. } | ServerState::FilteredToZero { .. } | ServerState::Hidden { .. }
        )
    }

    /// Returns `true` if the server's tools were known when the router was built.
    pub(crate) fn has_tools(&self) -> bool {
        self.tools > 0
    }

    /// Returns the server's status when the router was built.
    pub(crate) fn status(&self) -> &ServerStatus {
        &self.status
    }
}

impl CallRoute {
    fn new(server: &Alias, definition: &ToolDefinition, tool: Arc<dyn Tool>) -> Self {
        let original = definition.original();
        // Only few schemas have such arguments, and parsing takes time.
        let has_annotation = |definition: &ToolDefinition| definition.input_schema.text().contains(HEADER_ANNOTATION);
        let read =
            |definition: &ToolDefinition| HeaderParams::read(&definition.input_schema.read()).unwrap_or_default();
        Self {
            server: server.clone(),
            own_name: definition.own_name().into(),
            mapping: tool.argument_mapping(),
            needs_task: original.extra.get("execution").and_then(|execution| execution.get("taskSupport"))
                == Some(&json!("required")),
            headers: if has_annotation(definition) { read(definition) } else { HeaderParams::default() },
            has_header_params: has_annotation(original),
            digest: OnceLock::new(),
            tool,
        }
    }

    /// Returns the server definition's digest, as in `ropeway.lock`.
    pub(crate) fn digest(&self) -> Digest {
        *self.digest.get_or_init(|| Digest::of_source(self.tool.definition()))
    }
}

/// Describes why a server's entries are missing; `None` if nothing is missing.
pub(crate) fn missing_server(status: &ServerStatus) -> Option<MissingServer> {
    let (state, reason) = match &status.state {
        ServerState::NotStarted => ("not_started", None),
        ServerState::Connecting => ("connecting", None),
        ServerState::NeedsAuth => ("needs_auth", None),
        ServerState::Down { cause } => ("down", Some(cause.clone())),
        ServerState::Skipped { secrets } => ("skipped", Some(format!("secrets are not set: {}", secrets.join(", ")))),
        ServerState::Invalid { reason } => ("invalid", Some(reason.clone())),
        ServerState::Hidden { of } => ("hidden", Some(format!("`ropeway lock` has not accepted its tools ({of})"))),
        _ => return None,
    };
    Some(MissingServer { alias: status.server.clone(), state, reason })
}

/// Describes left-out entries, as a [`MissingServer`]'s reason.
pub(crate) fn describe_left_out(noun: &str, reasons: &[String]) -> Option<String> {
    let shown = reasons.get(..MAX_REASONS.min(reasons.len()))?.join(", ");
    match reasons.len() {
        0 => None,
        count if count > MAX_REASONS => Some(format!("{count} entries are left out: {noun} {shown}, …")),
        _ => Some(format!("left out: {noun} {shown}")),
    }
}

/// A tool under the name and definition that clients see, for search.
struct FoundTool {
    definition: ToolDefinition,
    tool: Arc<dyn Tool>,
}

impl Tool for FoundTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: Arguments, cx: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        self.tool.call(arguments, cx)
    }
}

#[cfg(test)]
mod tests;
