//! A server of an agent: one connection as a source of tools.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::config::{CollisionPolicy, ServerConfig};
use crate::duration::format_duration;
use crate::error_chain::chain;
use crate::event::Events;
use crate::mcp::{ConnectionState, Handlers, Mcp};
use crate::registry::{ContextItem, ContextSource, Registry, ServerState, ServerStatus, ToolShape, ToolSource};
use crate::secret::Redactor;
use crate::sync::lock;
use crate::tool::{Alias, BoxFuture, Tool};

/// How long a turn waits for a list that has changed; until it is there, the one before it is used.
const PATIENCE: Duration = Duration::from_secs(5);

/// The shortest time between two looks at a list that could not be had, or that the server itself calls short-lived.
const PAUSE: Duration = Duration::from_secs(30);

/// One server as an agent is given it.
///
/// An [`Mcp`] is the host's: its handlers and events stay the host's own, and as long as the host holds it, it stays open when the
/// agent goes. A [`ServerConfig`] is the agent's: it is connected at the first turn, with the agent's handlers and events, and
/// ends with the agent.
#[derive(Clone, Debug)]
pub struct AgentServer {
    reach: Reach,
    prefix: Option<String>,
    instructions: bool,
    trust_hints: bool,
    required: bool,
}

#[derive(Clone, Debug)]
enum Reach {
    Host(Mcp),
    Agent(Box<ServerConfig>),
}

impl AgentServer {
    fn new(reach: Reach) -> Self {
        Self { reach, prefix: None, instructions: false, trust_hints: false, required: false }
    }

    /// Puts `prefix_` before the names of its tools, instead of `mcp_alias_`; nothing when the prefix is empty.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &str) -> Self {
        self.prefix = Some(if prefix.is_empty() { String::new() } else { format!("{prefix}_") });
        self
    }

    /// Adds what the server says about its use to the system prompt.
    #[must_use]
    pub fn with_instructions(mut self) -> Self {
        self.instructions = true;
        self
    }

    /// Believes what the server says about the behaviour of its tools, such as `readOnlyHint`; a [`Policy`](super::Policy) goes by
    /// it then.
    #[must_use]
    pub fn with_trusted_hints(mut self) -> Self {
        self.trust_hints = true;
        self
    }

    /// Makes turns depend on the server: one that begins while the server is unavailable ends with
    /// [`AgentError::RequiredServer`](super::AgentError::RequiredServer). Each turn tries to connect again.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// Our name for the server.
    pub fn alias(&self) -> &Alias {
        match &self.reach {
            Reach::Host(mcp) => mcp.alias(),
            Reach::Agent(config) => &config.alias,
        }
    }

    /// The server as a source of tools. Nothing is started; handlers and events are for a connection that is yet to be made.
    pub fn into_source(self, handlers: Handlers, events: Events) -> ServerSource {
        let shape = ToolShape::plain(self.alias().clone()).with_trusted_hints(self.trust_hints);
        let shape = match self.prefix {
            Some(prefix) => shape.with_prefix(prefix),
            None => shape,
        };
        let mcp = match self.reach {
            Reach::Host(mcp) => mcp,
            Reach::Agent(config) => Mcp::with_host(*config, handlers, events),
        };
        let shape = shape.with_endpoint(mcp.endpoint());
        ServerSource {
            secrets: mcp.secrets(),
            mcp,
            shape,
            wants_instructions: self.instructions,
            required: self.required,
            none: Registry::default(),
            found: Mutex::default(),
        }
    }
}

impl From<Mcp> for AgentServer {
    fn from(mcp: Mcp) -> Self {
        Self::new(Reach::Host(mcp))
    }
}

impl From<ServerConfig> for AgentServer {
    fn from(config: ServerConfig) -> Self {
        Self::new(Reach::Agent(Box::new(config)))
    }
}

/// One connection as a source of tools and instructions.
///
/// [`ToolSource::ready`] waits for the first try to connect and no other: a server that is down is tried behind the scenes, and
/// found when it is back.
pub struct ServerSource {
    mcp: Mcp,
    shape: ToolShape,
    wants_instructions: bool,
    /// A turn does not run without it.
    required: bool,
    /// The secrets of its settings.
    secrets: Redactor,
    /// What is listed of a server that is not there: always the same.
    none: Registry,
    found: Mutex<Found>,
}

/// What is known of the server.
#[derive(Default)]
struct Found {
    /// The first try is over, whatever came of it.
    tried: bool,
    /// As the server has them.
    tools: Vec<Arc<dyn Tool>>,
    /// As they are handed out; `None` as long as they were never listed.
    registry: Option<Registry>,
    /// As the server said them last, if they are wanted.
    instructions: Option<String>,
    look: Look,
}

/// The last look at the tools.
#[derive(Clone, Default)]
enum Look {
    /// There was none.
    #[default]
    Never,
    /// They were listed as of this mark; after the time they should be looked at again.
    Listed(Mark, Option<Instant>),
    /// They could not be had for this reason, and are not asked for again before the time.
    Failed(String, Instant),
}

/// Where the tool list stands: how often it has changed, and how often the server has said so.
type Mark = (u64, u64);

impl ServerSource {
    /// Our name for the server.
    pub fn alias(&self) -> &Alias {
        self.mcp.alias()
    }

    pub(super) fn secrets(&self) -> &Redactor {
        &self.secrets
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        lock(&self.found)
    }

    fn mark(&self) -> Mark {
        (*self.mcp.tools_version().borrow(), self.mcp.tools_told())
    }

    async fn look(&self) {
        // A connection that the host closed stays closed.
        let is_lost = !matches!(*self.mcp.state().borrow(), ConnectionState::Ready { .. } | ConnectionState::Closed);
        if !self.found().tried || (self.required && is_lost) {
            // That it failed is the verdict. Whoever gives up waiting here leaves the first try to the next one.
            let _ = self.mcp.connect().await;
            self.found().tried = true;
        }
        let Some(server) = self.mcp.server_info() else { return };
        if self.wants_instructions {
            self.found().instructions.clone_from(&server.instructions);
        }
        // Taken before the list, so that what changes meanwhile is seen the next time.
        let (mark, now) = (self.mark(), Instant::now());
        let is_first = match &self.found().look {
            Look::Never => true,
            Look::Listed(seen, until) if *seen == mark && until.is_none_or(|until| now < until) => return,
            Look::Failed(_, until) if now < *until => return,
            Look::Listed(..) | Look::Failed(..) => false,
        };
        // The first list belongs to the first try: the connection's own clocks are for it.
        let listed = match is_first {
            true => Ok(self.mcp.loose_tools().await),
            false => tokio::time::timeout(PATIENCE, self.mcp.loose_tools()).await,
        };
        match listed {
            Ok(Ok(tools)) => {
                let life = self.mcp.tools_life().map(|life| Instant::now() + life.max(PAUSE));
                self.take(tools, Look::Listed(mark, life));
            }
            // A connection that is lost says so itself.
            Ok(Err(_)) if !self.mcp.is_connected() => {}
            Ok(Err(error)) => self.failed(chain(&error)),
            Err(_) => self.failed(format!("its tools could not be listed within {}", format_duration(PATIENCE))),
        }
    }

    /// Takes over the tools; those that are what they were stay the same value.
    fn take(&self, tools: Vec<Arc<dyn Tool>>, look: Look) {
        let mut found = self.found();
        let is_same = found.tools.iter().map(|tool| tool.definition()).eq(tools.iter().map(|tool| tool.definition()));
        if !is_same || found.registry.is_none() {
            let group = self.shape.apply_all(tools.iter().cloned());
            // Tools of one server do not push each other out, so there is nothing to choose.
            let (registry, _) = Registry::assemble([group], CollisionPolicy::Suffix);
            found.registry = Some(registry);
            found.tools = tools;
        }
        found.look = look;
    }

    fn failed(&self, cause: String) {
        tracing::warn!(server = %self.alias(), "its tools could not be listed: {cause}");
        self.found().look = Look::Failed(cause, Instant::now() + PAUSE);
    }

    /// How the server stands, and whether its tools are listed. Those of one that may be back any moment are: a vanished server
    /// fails its call, not the list.
    fn standing(&self, found: &Found) -> (ServerState, bool) {
        match (&*self.mcp.state().borrow(), &found.registry, &found.look) {
            (ConnectionState::Ready { .. }, Some(registry), _) => (ServerState::Ready { tools: registry.len() }, true),
            (ConnectionState::Ready { .. }, None, Look::Failed(cause, _)) => {
                (ServerState::Down { cause: cause.clone() }, false)
            }
            (ConnectionState::Ready { .. } | ConnectionState::Connecting { .. }, ..) => (ServerState::Connecting, true),
            (ConnectionState::NeedsAuth { .. }, ..) => (ServerState::NeedsAuth, false),
            (ConnectionState::Down { cause, retry_at }, ..) => {
                (ServerState::Down { cause: chain(&**cause) }, retry_at.is_some())
            }
            (ConnectionState::Closed, ..) => (ServerState::NotStarted, false),
        }
    }
}

impl ToolSource for ServerSource {
    fn registry(&self) -> Registry {
        let found = self.found();
        match &found.registry {
            Some(registry) if self.standing(&found).1 => registry.clone(),
            _ => self.none.clone(),
        }
    }

    fn statuses(&self) -> Vec<ServerStatus> {
        vec![ServerStatus::new(self.alias().clone(), self.standing(&self.found()).0).with_required(self.required)]
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.look())
    }
}

impl ContextSource for ServerSource {
    fn context<'a>(&'a self) -> BoxFuture<'a, Vec<ContextItem>> {
        let found = self.found();
        let text = found.instructions.as_ref().filter(|_| self.standing(&found).1);
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
