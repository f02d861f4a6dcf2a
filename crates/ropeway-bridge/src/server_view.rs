//! Handles to a bridge's servers: their connections, definitions and state, for programs that serve them on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;

use super::cache;
use super::handle::Bridge;
use super::shutdown::ShutdownSignal;
use super::slot::ServerSlot;
use super::slot_task::call_error;
use super::slot_tools::ServerFeatures;
use super::tool::{report_failure, with_timeouts};
use crate::registry::{ServerState, ServerStatus, ToolShape};
use ropeway_config::{
    HttpServer, Isolation, OAuthSettings, ServerAuth, ServerConfig, ServerEntry, ServerLimits, ServerSettings,
    Transport,
};
use ropeway_core::checked::CheckedTool;
use ropeway_core::error_chain::chain;
use ropeway_core::event::{Events, Relay};
use ropeway_core::hash::Fnv;
use ropeway_core::secret::Redactor;
use ropeway_core::sync::lock;
use ropeway_core::tool::{Alias, CallContext, CallError, ToolDefinition};
use ropeway_mcp::{Handlers, Mcp};

/// One server at one moment.
#[derive(Debug)]
pub struct ServerView {
    /// Server alias.
    pub alias: Alias,
    /// Its entry in the configuration.
    pub entry: Arc<ServerEntry>,
    /// Whether it is connected, and why not.
    pub status: ServerStatus,
    /// The connection, once the bridge is started.
    pub mcp: Option<Mcp>,
    /// The tools, if they are listed.
    pub tools: Vec<CheckedTool>,
    /// Changes whenever the tools change.
    pub version: u64,
    /// Changes when the server is stopped, or restarted with other settings. Isolated connections are outdated then.
    pub slot: u64,
    /// The filter and the changes that the configuration applies to the tools.
    pub shape: ToolShape,
}

impl ServerView {
    /// Returns a number that identifies the server's alias and its command or URL, in every process.
    pub fn identity(&self) -> u64 {
        let mut hash = Fnv::default();
        hash.write(self.alias.as_str().bytes());
        hash.write(self.entry.config().map_or(0, cache::key).to_be_bytes());
        hash.finish()
    }

    /// Returns a text that identifies the server by its command or URL, whatever its alias is.
    pub fn process_identity(&self) -> Arc<str> {
        match &self.entry.settings {
            ServerSettings::Known(config)
                if matches!(
                    config.transport.original(),
                    Transport::Stdio(_) | Transport::Http(_) | Transport::Sse(_)
                ) =>
            {
                format!("{:016x}", cache::key(config)).into()
            }
            // Other servers have only their aliases.
            _ => self.alias.as_str().into(),
        }
    }

    /// Returns a tool's definition under its name without a prefix.
    pub fn definition(&self, tool: &CheckedTool) -> Option<ToolDefinition> {
        let exposed = tool.definition();
        let original = match &exposed.provenance.original {
            Some(original) => ToolDefinition::clone(original),
            None => ToolDefinition { name: exposed.own_name().to_owned(), ..exposed.clone() },
        };
        // Allowlists do not apply to generated tools.
        let (definition, _) = self.shape.allowing_all().transformed(&original)?;
        Some(ToolDefinition { provenance: exposed.provenance.clone(), ..definition })
    }
}

/// A server that users can sign in to.
#[derive(Clone, Debug)]
pub struct SignInTarget {
    /// Server URL.
    pub url: String,
    /// Its OAuth settings.
    pub settings: OAuthSettings,
}

/// Returns the settings for a server with a URL.
fn http_server(config: &ServerConfig) -> Option<&HttpServer> {
    match &config.transport {
        Transport::Http(server) | Transport::Sse(server) => Some(server),
        _ => None,
    }
}

/// The right to send requests to a server until it is stopped.
///
/// The caller owns the lease, which does not keep the bridge alive. It has no lock and no task. It is valid until the bridge
/// stops the server: [`guard`](Self::guard) then ends a running request with [`CallError::Stopped`], and refuses later ones with
/// [`CallError::NotConnected`]. A reload that lets a new entry take over the process leaves the lease valid.
///
/// A lease forwards the connection's events to the bridge as long as it exists. Dropping it drops one handle to the connection,
/// which closes with the last one.
#[derive(Debug)]
pub struct ServerLease {
    /// The connection.
    pub mcp: Mcp,
    alias: Alias,
    shutdown: Arc<ShutdownSignal>,
    /// Idle and total timeout, if the connection's own do not apply.
    timeouts: Option<(Duration, Duration)>,
    /// Forwards the connection's events.
    _relay: Option<Arc<Relay>>,
}

impl ServerLease {
    /// Returns the server alias.
    pub fn alias(&self) -> &Alias {
        &self.alias
    }

    /// Returns the context for a request, with the server's timeouts.
    pub fn context(&self) -> CallContext {
        let cx = CallContext::default().with_stop(self.shutdown.token());
        if self.timeouts.is_some() { with_timeouts(&cx, self.timeouts) } else { cx }
    }

    /// Runs a request until it completes or the server is stopped.
    pub async fn guard<T>(&self, work: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
        match self.shutdown.guard(work).await {
            Ok(outcome) => outcome.map_err(|error| error.with_server(&self.alias)),
            Err(interrupted) => Err(interrupted.into_error(self.alias.clone())),
        }
    }
}

impl Bridge {
    /// Returns all servers, in configuration order.
    pub fn views(&self) -> Vec<ServerView> {
        let view = |slot: Arc<ServerSlot>| {
            let snapshot = slot.snapshot();
            ServerView {
                alias: slot.alias().clone(),
                entry: Arc::new(slot.entry.clone()),
                mcp: slot.mcp(),
                tools: if snapshot.tools > 0 { slot.tools() } else { Vec::new() },
                version: snapshot.version,
                slot: slot.id,
                shape: slot.shape.clone(),
                status: self.state.status(&slot, snapshot),
            }
        };
        self.state.slots().into_iter().map(view).collect()
    }

    /// Returns the bridge's event channel.
    pub fn event_channel(&self) -> Events {
        self.state.shared.events.clone()
    }

    /// Returns the secrets of all servers and the host.
    pub fn secrets(&self) -> Redactor {
        self.state.shared.secrets()
    }

    /// Returns a receiver that is notified when a server's tools or state change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.state.shared.changes()
    }

    /// Returns the connection for a request, for a call to one of the server's tools if `own_name` is given. Starts a lazy
    /// server.
    pub async fn connect_for(&self, alias: &Alias, own_name: Option<&str>) -> Result<ServerLease, CallError> {
        let mut slot = self.slot(alias)?;
        loop {
            let connect = async {
                slot.wake().await?;
                slot.mcp().ok_or_else(|| CallError::NotConnected { server: alias.clone() })
            };
            let leased = lease(&slot, own_name, connect).await;
            // The configuration may have changed in the meantime. Each round has a newer slot.
            let current =
                matches!(leased, Err(CallError::NotConnected { .. })).then(|| self.slot(alias).ok()).flatten();
            match current.filter(|current| current.id != slot.id) {
                Some(current) => slot = current,
                None => return reported(&slot, own_name, leased),
            }
        }
    }

    /// Returns a separate connection to a server, not connected yet: one client's process or session.
    ///
    /// It closes with its last handle. [`connect_isolated`](Self::connect_isolated) sends requests to it.
    pub fn isolated(&self, alias: &Alias, handlers: Handlers) -> Option<Mcp> {
        let slot = self.slot(alias).ok()?;
        let handlers = handlers.with_auth_of(&slot.shared.handlers);
        let mcp = Mcp::with_host(slot.shared.connection_config(slot.config()?), handlers, slot.events().clone());
        if let Some(info) = slot.mcp().and_then(|shared| shared.server_info()) {
            mcp.assume_era(info.era);
        }
        Some(mcp)
    }

    /// Returns an [isolated](Self::isolated) connection for a request like [`connect_for`](Self::connect_for). Connects it.
    pub async fn connect_isolated(
        &self,
        alias: &Alias,
        own_name: Option<&str>,
        mcp: &Mcp,
    ) -> Result<ServerLease, CallError> {
        let slot = self.slot(alias)?;
        let connect = async {
            if !mcp.is_connected() {
                mcp.connect().await.map_err(|error| call_error(alias, error))?;
            }
            Ok(mcp.clone())
        };
        reported(&slot, own_name, lease(&slot, own_name, connect).await)
    }

    /// Returns `true` if, according to the cache, a server listed a tool with this name when it was last connected.
    pub fn remembers_tool(&self, alias: &Alias, own_name: &str) -> bool {
        let Ok(slot) = self.slot(alias) else { return false };
        let cached = slot.config().and_then(|config| slot.load_definitions(config));
        cached.is_some_and(|cached| cached.tools.iter().any(|tool| tool.name == own_name))
    }

    /// Returns a server's limits on requests from all clients.
    pub fn request_limits(&self, alias: &Alias) -> ServerLimits {
        match self.slot(alias).map(|slot| slot.entry.clone()) {
            Ok(entry) => match &entry.settings {
                ServerSettings::Known(config) => config.limits,
                _ => ServerLimits::default(),
            },
            Err(_) => ServerLimits::default(),
        }
    }

    /// Returns whether a gateway's clients share the connection to a server.
    pub fn isolation(&self, alias: &Alias) -> Isolation {
        self.slot(alias).map(|slot| slot.entry.isolation).unwrap_or_default()
    }

    /// Returns `true` if each gateway principal has its own tokens for a server.
    pub fn has_principal_tokens(&self, alias: &Alias) -> bool {
        let Some(slot) = self.slot(alias).ok() else { return false };
        match slot.config().and_then(http_server).and_then(|server| server.auth.as_ref()) {
            Some(ServerAuth::OAuth(settings)) => settings.per_principal,
            _ => false,
        }
    }

    /// Returns `true` if only principals can list a server's tools, because the shared account has no tokens and has never
    /// listed them. Tools that it has listed stay exposed.
    pub fn needs_principal_list(&self, alias: &Alias) -> bool {
        let needs_list = |slot: Arc<ServerSlot>| {
            let snapshot = slot.snapshot();
            let is_own = snapshot.version > 0 && !slot.is_listed_by_principal.load(Ordering::Relaxed);
            snapshot.state == ServerState::NeedsAuth && !is_own
        };
        self.slot(alias).is_ok_and(needs_list) && self.has_principal_tokens(alias)
    }

    /// Returns `true` if only principals can list a server's tools, and none has done so.
    pub fn is_unlisted(&self, alias: &Alias) -> bool {
        self.needs_principal_list(alias) && self.slot(alias).is_ok_and(|slot| slot.snapshot().version == 0)
    }

    /// Lists a server's tools with an account's tokens. They stay exposed until the shared account lists its own.
    pub async fn list_with_account(&self, alias: &Alias, account: &str) -> Result<(), CallError> {
        let slot = self.slot(alias)?;
        let mcp = self.isolated(alias, Handlers::new().with_account(account));
        let mcp = mcp.ok_or_else(|| CallError::NotConnected { server: alias.clone() })?;
        mcp.connect().await.map_err(|error| call_error(alias, error))?;
        let features = ServerFeatures::request(&mcp, slot.entry.prompt_tools).await;
        mcp.close().await;
        let features = features?;
        if self.needs_principal_list(alias) {
            slot.expose_definitions(features);
        }
        Ok(())
    }

    /// Returns the URL and settings for a server that users can sign in to.
    pub fn sign_in_target(&self, alias: &Alias) -> Option<SignInTarget> {
        let slot = self.slot(alias).ok()?;
        let server = slot.config().and_then(http_server)?;
        let settings = match &server.auth {
            Some(ServerAuth::OAuth(settings)) if settings.grant.is_interactive() => (**settings).clone(),
            None if !server.has_fixed_credentials() => OAuthSettings::new(),
            _ => return None,
        };
        Some(SignInTarget { url: server.url.clone(), settings })
    }

    /// Returns the servers that need a sign-in, and for which tokens have been stored since, such as by `ropeway login`.
    pub async fn signed_in_servers(&self) -> Vec<Alias> {
        let mut servers = Vec::new();
        for slot in self.state.slots() {
            let needs_auth = matches!(slot.snapshot().state, ServerState::NeedsAuth);
            if let Some(mcp) = slot.mcp().filter(|_| needs_auth)
                && mcp.has_new_tokens().await
            {
                servers.push(slot.alias().clone());
            }
        }
        servers
    }

    /// Applies the shared account's changed tokens: the server is connected again. A lazy server stays asleep.
    pub async fn reconnect_with_tokens(&self, alias: &Alias) {
        let is_asleep = |slot: &Arc<ServerSlot>| matches!(slot.snapshot().state, ServerState::Cached { .. });
        let Some(slot) = self.slot(alias).ok().filter(|slot| !is_asleep(slot)) else { return };
        let Some(mcp) = slot.mcp() else { return };
        if !mcp.reload_tokens().await {
            // The session belongs to the previous tokens.
            mcp.close().await;
        }
        if let Err(error) = mcp.connect().await {
            tracing::debug!(server = %alias, "could not connect with other tokens: {}", chain(&error));
        }
    }

    /// Restarts a server: ends its process or session, and connects again. A lazy server that has not run yet is started.
    ///
    /// Calls in flight fail, as do calls from other entries that share the process; later ones wait. See [`Mcp::restart`].
    pub async fn restart(&self, alias: &Alias, reason: &str) -> Result<(), CallError> {
        let slot = self.slot(alias)?;
        if matches!(slot.snapshot().state, ServerState::Cached { .. }) {
            return slot.wake().await;
        }
        let mcp = slot.mcp().ok_or_else(|| CallError::NotConnected { server: alias.clone() })?;
        let mut state = mcp.state();
        state.borrow_and_update();
        if mcp.restart(reason).await {
            // Skips the state before the restart. Fails if the connection has ended.
            let _ = state.changed().await;
        }
        mcp.connect().await.map_err(|error| call_error(alias, error))
    }

    /// Returns a server's [slot](ServerView::slot) number.
    pub fn slot_id(&self, alias: &Alias) -> Option<u64> {
        self.slot(alias).ok().map(|slot| slot.id)
    }

    fn slot(&self, alias: &Alias) -> Result<Arc<ServerSlot>, CallError> {
        let servers = lock(&self.state.servers);
        let slot = servers.slots.iter().find(|slot| slot.alias() == alias);
        slot.cloned().ok_or_else(|| CallError::NotConnected { server: alias.clone() })
    }
}

/// Connects and creates a lease, which does not hold the slot. Fails if the tool is hidden, or has changed under a strict lock.
async fn lease(
    slot: &ServerSlot,
    own_name: Option<&str>,
    connect: impl Future<Output = Result<Mcp, CallError>>,
) -> Result<ServerLease, CallError> {
    let work = async {
        let mcp = connect.await?;
        if let Some(error) = own_name.and_then(|own_name| slot.refusal(own_name)) {
            return Err(error);
        }
        let locked = own_name.filter(|_| slot.shared.is_strict());
        if let Some(source) = locked.and_then(|own_name| slot.source(own_name)) {
            mcp.check_unchanged(source.definition(), &CallContext::default()).await?;
        }
        let (alias, shutdown) = (slot.alias().clone(), slot.shutdown.clone());
        Ok(ServerLease { mcp, alias, shutdown, timeouts: slot.timeouts(), _relay: slot.relay() })
    };
    match slot.shutdown.guard(work).await {
        Ok(leased) => leased,
        Err(interrupted) => Err(interrupted.into_error(slot.alias().clone())),
    }
}

/// Reports a failed call.
fn reported(
    slot: &ServerSlot,
    own_name: Option<&str>,
    leased: Result<ServerLease, CallError>,
) -> Result<ServerLease, CallError> {
    leased.inspect_err(|error| {
        if let Some(own_name) = own_name {
            report_failure(slot, own_name, &CallContext::default(), error);
        }
    })
}

#[cfg(test)]
mod tests;
