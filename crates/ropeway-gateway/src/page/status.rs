//! The state of the gateway and its servers, for the web page.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::logins::{LoginRecord, Logins};
use crate::catalog::profile::DEFAULT_PROFILE;
use crate::catalog::router::Router;
use crate::client::principal::Principal;
use crate::shared::{GatewayShared, GatewayStatus, permitted};
use ropeway_bridge::registry::{ServerState, ServerStatus};
use ropeway_bridge::{BridgeHealth, ServerHealth};
use ropeway_core::tool::Alias;
use ropeway_mcp::Era;

/// Maximum number of lines from a server's standard error.
const MAX_LINES: usize = 20;

/// Maximum characters per line, and per error.
const MAX_TEXT: usize = 1000;

/// A failure's cause for principals that are not operators.
const WITHHELD: &str = "operators of the gateway see the cause";

/// The `/api/status` response.
#[derive(Serialize)]
pub(crate) struct PageStatus {
    name: String,
    version: &'static str,
    /// `starting`, `ready` or `draining`.
    state: &'static str,
    /// Whether the principal is an operator. Others get neither counts nor server errors and output, which other clients' calls
    /// may have caused.
    operator: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    counts: Option<GatewayStatus>,
    servers: Vec<ServerRecord>,
    profiles: Vec<ProfileRecord>,
}

#[derive(Serialize)]
struct ServerRecord {
    #[serde(flatten)]
    status: ServerStatus,
    /// The state as a sentence.
    message: String,
    transport: Option<&'static str>,
    name: Option<String>,
    version: Option<String>,
    era: Option<Era>,
    protocol_version: Option<String>,
    latency_ms: Option<f64>,
    last_error: Option<String>,
    last_error_ago_ms: Option<f64>,
    stderr: Vec<String>,
    /// The sign-in, if users can sign in to the server.
    login: Option<LoginRecord>,
}

#[derive(Serialize)]
struct ProfileRecord {
    name: Arc<str>,
    /// `default`, `profile` or `server`.
    kind: &'static str,
    servers: Vec<Alias>,
    tools: usize,
    search: bool,
}

/// Describes the gateway.
///
/// A principal sees the profiles that it may select, and in them the servers that it may use. An operator sees all servers.
pub(crate) async fn status(shared: &GatewayShared, principal: &Principal) -> PageStatus {
    let health = shared.health.get(&shared.bridge).await;
    let settings = shared.settings();
    let is_operator = principal.is_operator();
    let profiles = profiles(shared, principal);
    let mut servers = servers(shared, health.as_deref());
    if !is_operator {
        servers.retain(|server| profiles.iter().any(|profile| profile.servers.contains(&server.status.server)));
        let tools = usable_tools(shared, principal);
        let count = |server: &Alias| tools.get(server).map_or(0, HashSet::len);
        servers = servers.into_iter().map(|server| server.without_details(count)).collect();
    }
    let logins = Logins::read(shared).await;
    for server in &mut servers {
        server.login = logins.of(shared, principal, &server.status);
    }
    PageStatus {
        name: settings.name.clone(),
        version: env!("CARGO_PKG_VERSION"),
        state: state(shared),
        operator: is_operator,
        counts: is_operator.then(|| shared.status()),
        servers,
        profiles,
    }
}

/// Returns each server's tools that a principal may use, by the server's own names.
fn usable_tools(shared: &GatewayShared, principal: &Principal) -> HashMap<Alias, HashSet<Box<str>>> {
    let mut tools: HashMap<Alias, HashSet<Box<str>>> = HashMap::new();
    for router in shared.routers().all().filter(|router| principal.allows_profile(&router.profile.name)) {
        for (server, name) in permitted(router.clone(), principal).own_tool_names() {
            tools.entry(server.clone()).or_default().insert(name.into());
        }
    }
    tools
}

fn state(shared: &GatewayShared) -> &'static str {
    if shared.draining.is_cancelled() {
        "draining"
    } else if shared.started.is_cancelled() {
        "ready"
    } else {
        "starting"
    }
}

/// Describes the servers: their current states, and the latest measurement's results.
fn servers(shared: &GatewayShared, health: Option<&BridgeHealth>) -> Vec<ServerRecord> {
    let measured = |alias: &Alias| health?.servers.iter().find(|server| server.server == *alias);
    let routers = shared.routers();
    let record = |mut status: ServerStatus| {
        let left_out = || routers.get(status.server.as_str())?.left_out_tools(&status.server);
        status.note = status.note.take().or_else(left_out);
        ServerRecord::new(measured(&status.server), status)
    };
    shared.bridge.statuses().into_iter().map(record).collect()
}

impl ServerRecord {
    fn new(measured: Option<&ServerHealth>, status: ServerStatus) -> Self {
        let milliseconds = |time: Duration| time.as_micros() as f64 / 1000.0;
        let is_running = !status.is_missing();
        let running = measured.filter(|_| is_running);
        let stderr = measured.map(|server| &server.stderr[server.stderr.len().saturating_sub(MAX_LINES)..]);
        Self {
            message: shorten(&status.state.to_string()),
            transport: measured.and_then(|server| server.transport),
            name: measured.and_then(|server| server.name.as_deref()).map(shorten),
            version: measured.and_then(|server| server.version.as_deref()).map(shorten),
            era: running.and_then(|server| server.era),
            protocol_version: running.and_then(|server| server.protocol_version.clone()),
            latency_ms: running.and_then(|server| server.latency).map(milliseconds),
            last_error: measured.and_then(|server| server.last_error.as_deref()).map(shorten),
            last_error_ago_ms: measured.and_then(|server| server.last_error_ago).map(milliseconds),
            stderr: stderr.unwrap_or_default().iter().map(|line| shorten(line)).collect(),
            login: None,
            status,
        }
    }
}

impl ServerRecord {
    /// Returns the record for a principal that is not an operator: with the tools that it may use, and without errors, which may
    /// quote other clients' calls.
    fn without_details(self, tools: impl Fn(&Alias) -> usize) -> Self {
        let tools = tools(&self.status.server);
        let state = match self.status.state {
            ServerState::Ready { .. } | ServerState::FilteredToZero { .. } | ServerState::Hidden { .. } => {
                ServerState::Ready { tools }
            }
            ServerState::Cached { .. } => ServerState::Cached { tools },
            ServerState::Down { .. } | ServerState::Skipped { .. } | ServerState::Invalid { .. } => {
                ServerState::Down { cause: WITHHELD.to_owned() }
            }
            state => state,
        };
        let message = state.to_string();
        let status = ServerStatus { state, note: None, ..self.status };
        Self { status, message, last_error: None, last_error_ago_ms: None, stderr: Vec::new(), ..self }
    }
}

/// Describes the profiles that a principal may select: the one at `/mcp`, the configured ones, and the servers' own.
fn profiles(shared: &GatewayShared, principal: &Principal) -> Vec<ProfileRecord> {
    let settings = shared.settings();
    let servers = shared.bridge.servers();
    let configured = |name: &str| settings.profiles.iter().position(|profile| profile.name == name);
    let rank = |router: &Router| {
        let name = &*router.profile.name;
        let server = servers.iter().position(|server| server.as_str() == name);
        match (name == DEFAULT_PROFILE, configured(name), server) {
            (true, ..) => (0, 0),
            (_, Some(at), _) => (1, at),
            (_, None, at) => (2, at.unwrap_or(usize::MAX)),
        }
    };
    let mut routers: Vec<_> = shared.routers().all().cloned().collect();
    routers.retain(|router| principal.allows_profile(&router.profile.name));
    routers.sort_by_key(|router| rank(router));
    let routers: Vec<_> = routers.into_iter().map(|router| permitted(router, principal)).collect();
    // A server's profile has its name.
    let is_visible = |router: &Arc<Router>| rank(router).0 < 2 || !router.servers().is_empty();
    let record = |router: &Arc<Router>| ProfileRecord {
        name: router.profile.name.clone(),
        kind: ["default", "profile", "server"][rank(router).0],
        servers: router.servers(),
        tools: router.tool_entries().len(),
        search: router.is_search(),
    };
    routers.iter().filter(|router| is_visible(router)).map(record).collect()
}

fn shorten(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}
