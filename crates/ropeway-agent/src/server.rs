//! Agent servers: one connection as a tool source.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use ropeway_bridge::registry::{
    ContextItem, ContextSource, Registry, ServerState, ServerStatus, ToolShape, ToolSource,
};
use ropeway_config::{CollisionPolicy, HttpServer, ServerConfig, StdioServer};
use ropeway_core::checked::CheckedTool;
use ropeway_core::conversions::conversions;
use ropeway_core::duration::format_duration;
use ropeway_core::error_chain::chain;
use ropeway_core::event::Events;
use ropeway_core::secret::Redactor;
use ropeway_core::sync::lock;
use ropeway_core::tool::{Alias, BoxFuture, Tool};
use ropeway_mcp::{ConnectionState, Handlers, Mcp};

/// How long a turn waits for a changed tool list before it uses the previous one.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Minimum time between two requests for a tool list that failed or has a short time to live.
const MIN_LIST_INTERVAL: Duration = Duration::from_secs(30);

/// Maximum number of tools per server that warnings are emitted about.
const MAX_TOOL_WARNINGS: usize = 20;

/// A server for an agent.
///
/// An [`Mcp`] belongs to the host: it keeps its handlers and events, and stays open when the agent is dropped. The first turn
/// connects it if the host has not; one that the host has closed stays closed and counts as unavailable, until the host connects it
/// again. A [`ServerConfig`] belongs to the agent: it is connected at the first turn, with the agent's handlers and events, and
/// closed with the agent.
#[derive(Clone, Debug)]
pub struct AgentServer {
    connection: ServerConnection,
    prefix: Option<String>,
    instructions: bool,
    trust_hints: bool,
    required: bool,
}

#[derive(Clone, Debug)]
enum ServerConnection {
    /// Connected by the host.
    Host(Mcp),
    /// To be connected by the agent.
    Agent(Box<ServerConfig>),
}

impl AgentServer {
    fn new(connection: ServerConnection) -> Self {
        Self { connection, prefix: None, instructions: false, trust_hints: false, required: false }
    }

    /// Sets the tool name prefix to `<prefix>_` instead of `mcp_<alias>_`. An empty prefix removes it.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &str) -> Self {
        self.prefix = Some(if prefix.is_empty() { String::new() } else { format!("{prefix}_") });
        self
    }

    /// Adds the server's instructions to the system prompt.
    #[must_use]
    pub fn with_instructions(mut self) -> Self {
        self.instructions = true;
        self
    }

    /// Trusts the server's tool annotations, such as `readOnlyHint`, in a [`Policy`](super::Policy).
    #[must_use]
    pub fn with_trusted_hints(mut self) -> Self {
        self.trust_hints = true;
        self
    }

    /// Makes turns fail with [`AgentError::RequiredServer`](super::AgentError::RequiredServer) while the server is unavailable. Each
    /// turn tries to connect again, unless the host has closed the connection.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// Returns the server's alias.
    pub fn alias(&self) -> &Alias {
        match &self.connection {
            ServerConnection::Host(mcp) => mcp.alias(),
            ServerConnection::Agent(config) => &config.alias,
        }
    }

    /// Converts the server into a tool source. Does not connect yet. Handlers and events apply to a [`ServerConfig`] only.
    pub fn into_source(self, handlers: Handlers, events: Events) -> ServerSource {
        let shape = ToolShape::plain(self.alias().clone()).with_trusted_hints(self.trust_hints);
        let shape = match self.prefix {
            Some(prefix) => shape.with_prefix(prefix),
            None => shape,
        };
        let mcp = match self.connection {
            ServerConnection::Host(mcp) => mcp,
            ServerConnection::Agent(config) => Mcp::with_host(*config, handlers, events),
        };
        let shape = shape.with_endpoint(mcp.endpoint());
        ServerSource {
            secrets: mcp.secrets(),
            mcp,
            shape,
            wants_instructions: self.instructions,
            required: self.required,
            empty: Registry::default(),
            listing: Mutex::default(),
        }
    }
}

conversions!(AgentServer {
    mcp: Mcp => Self::new(ServerConnection::Host(mcp));
    config: ServerConfig => Self::new(ServerConnection::Agent(Box::new(config)));
    server: StdioServer => ServerConfig::from(server).into();
    server: HttpServer => ServerConfig::from(server).into();
});

/// One connection as a source for tools and instructions.
///
/// [`ToolSource::ready`] only waits for the first attempt to connect. Later attempts happen in the background, and a recovered
/// server is used again.
pub struct ServerSource {
    mcp: Mcp,
    shape: ToolShape,
    wants_instructions: bool,
    required: bool,
    secrets: Redactor,
    /// An unavailable server's tools: always the same value.
    empty: Registry,
    listing: Mutex<Listing>,
}

/// The server's last known tools and instructions.
#[derive(Default)]
struct Listing {
    /// Whether the first attempt to connect has ended.
    was_tried: bool,
    /// The tools under the server's names.
    tools: Vec<Arc<dyn Tool>>,
    /// The tools under the agent's names; `None` before the first list.
    registry: Option<Registry>,
    instructions: Option<String>,
    state: ListState,
}

/// The last tool list request's result.
#[derive(Clone, Default)]
enum ListState {
    #[default]
    Never,
    /// The list has this version, and expires at the time.
    Listed(ListVersion, Option<Instant>),
    /// The request failed for this reason, and is not repeated before the time.
    Failed(String, Instant),
}

/// A tool list's version: how often it changed, and how many change notifications arrived.
type ListVersion = (u64, u64);

impl ServerSource {
    /// Returns the server's alias.
    pub fn alias(&self) -> &Alias {
        self.mcp.alias()
    }

    pub(super) fn secrets(&self) -> &Redactor {
        &self.secrets
    }

    fn listing(&self) -> MutexGuard<'_, Listing> {
        lock(&self.listing)
    }

    fn version(&self) -> ListVersion {
        (*self.mcp.tools_version().borrow(), self.mcp.tools_notified())
    }

    /// Connects if necessary, and lists the tools if they may have changed.
    async fn refresh(&self) {
        // A connection that the host closed stays closed.
        let is_closed = self.mcp.was_opened() && matches!(*self.mcp.state().borrow(), ConnectionState::Closed);
        let is_wanted = !self.listing().was_tried || (self.required && !self.mcp.is_connected());
        if is_wanted && !is_closed {
            // A failure shows in the status. If this future is dropped here, the next one makes the first attempt.
            let _ = self.mcp.connect().await;
            self.listing().was_tried = true;
        }
        let Some(server) = self.mcp.server_info() else { return };
        if self.wants_instructions {
            self.listing().instructions.clone_from(&server.instructions);
        }
        // Read before the request, so that the next refresh sees changes made during it.
        let (version, now) = (self.version(), Instant::now());
        let is_first = match &self.listing().state {
            ListState::Never => true,
            ListState::Listed(seen, until) if *seen == version && until.is_none_or(|until| now < until) => return,
            ListState::Failed(_, until) if now < *until => return,
            ListState::Listed(..) | ListState::Failed(..) => false,
        };
        // The first list is part of connecting, so the connection's timeouts apply.
        let listed = if is_first {
            Ok(self.mcp.detached_tools().await)
        } else {
            tokio::time::timeout(LIST_TIMEOUT, self.mcp.detached_tools()).await
        };
        match listed {
            Ok(Ok(tools)) => {
                let expiry = self.mcp.tools_ttl().map(|life| Instant::now() + life.max(MIN_LIST_INTERVAL));
                self.set_tools(tools, ListState::Listed(version, expiry));
            }
            // The connection status says why.
            Ok(Err(_)) if !self.mcp.is_connected() => {}
            Ok(Err(error)) => self.failed(chain(&error)),
            Err(_) => self.failed(format!("listing tools timed out after {}", format_duration(LIST_TIMEOUT))),
        }
    }

    /// Stores the tools. If their definitions are unchanged, the registry stays the same value.
    fn set_tools(&self, tools: Vec<Arc<dyn Tool>>, state: ListState) {
        let mut listing = self.listing();
        let is_same = listing.tools.iter().map(|tool| tool.definition()).eq(tools.iter().map(|tool| tool.definition()));
        if !is_same || listing.registry.is_none() {
            let group = self.shape.apply_all(tools.iter().cloned());
            // One server's names do not collide, so the policy does not matter.
            let (registry, _) = Registry::assemble([group], CollisionPolicy::Suffix);
            self.check_schemas(&registry);
            listing.registry = Some(registry);
            listing.tools = tools;
        }
        listing.state = state;
    }

    /// Warns about tools whose input schemas cannot be compiled, which is slow, and therefore done in the background. Such a
    /// tool's arguments are not validated.
    fn check_schemas(&self, tools: &Registry) {
        let (tools, warn) = (tools.clone(), self.mcp.warner());
        tokio::task::spawn_blocking(move || {
            let warnings = tools.tools().filter_map(CheckedTool::schema_warning);
            warnings.take(MAX_TOOL_WARNINGS).for_each(|warning| warn(&warning));
        });
    }

    fn failed(&self, cause: String) {
        tracing::warn!(server = %self.alias(), "could not list tools: {cause}");
        self.listing().state = ListState::Failed(cause, Instant::now() + MIN_LIST_INTERVAL);
    }

    /// Returns the server's state, and whether its tools are exposed. A server that reconnects or needs a sign-in keeps its tools
    /// exposed: their calls fail until it recovers.
    fn state(&self, listing: &Listing) -> (ServerState, bool) {
        match (&*self.mcp.state().borrow(), &listing.registry, &listing.state) {
            (ConnectionState::Ready { .. }, Some(registry), _) => (ServerState::Ready { tools: registry.len() }, true),
            (ConnectionState::Ready { .. }, None, ListState::Failed(cause, _)) => {
                (ServerState::Down { cause: cause.clone() }, false)
            }
            (ConnectionState::Ready { .. } | ConnectionState::Connecting { .. }, ..) => (ServerState::Connecting, true),
            (ConnectionState::NeedsAuth { .. }, ..) => (ServerState::NeedsAuth, true),
            (ConnectionState::Down { cause, retry_at }, ..) => {
                (ServerState::Down { cause: chain(&**cause) }, retry_at.is_some())
            }
            (ConnectionState::Closed, ..) if self.mcp.was_opened() => {
                (ServerState::Down { cause: "the connection is closed".to_owned() }, false)
            }
            (ConnectionState::Closed, ..) => (ServerState::NotStarted, false),
        }
    }
}

impl ToolSource for ServerSource {
    fn registry(&self) -> Registry {
        let listing = self.listing();
        match &listing.registry {
            Some(registry) if self.state(&listing).1 => registry.clone(),
            _ => self.empty.clone(),
        }
    }

    fn statuses(&self) -> Vec<ServerStatus> {
        vec![ServerStatus::new(self.alias().clone(), self.state(&self.listing()).0).with_required(self.required)]
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.refresh())
    }
}

impl ContextSource for ServerSource {
    fn context<'a>(&'a self) -> BoxFuture<'a, Vec<ContextItem>> {
        let listing = self.listing();
        let text = listing.instructions.as_ref().filter(|_| self.state(&listing).1);
        let items: Vec<_> =
            text.map(|text| ContextItem::instructions(self.alias().clone(), text)).into_iter().collect();
        Box::pin(std::future::ready(items))
    }
}

impl fmt::Debug for ServerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSource").field("mcp", &self.mcp).field("shape", &self.shape).finish_non_exhaustive()
    }
}
