//! Connections to servers: shared by all clients, or one for each client.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::client::Client;
use super::exchange::Exchange;
use super::principal::Principal;
use super::sign_in::AccountKey;
use super::subscriptions::{GroupKey, Subscriptions};
use super::switchboard::{IsolatedTap, LinkUse, Switchboard};
use crate::bridge::{Bridge, ServerLease};
use crate::config::{GatewayLimits, Isolation};
use crate::mcp::{Handlers, Mcp, RawReply, RawRequest, ServerInfo, too_many_elicitations};
use crate::protocol::Era;
use crate::sync::lock;
use crate::tool::{Alias, CallError};

/// Maximum time that a call waits for subscriptions of its client that move to its connection.
const MAX_MOVE_WAIT: Duration = Duration::from_secs(5);

/// The connections of a gateway to its servers.
pub(crate) struct Upstreams {
    bridge: Bridge,
    switchboard: Arc<Switchboard>,
    limit: usize,
    max_idle: Duration,
    isolated: Mutex<HashMap<(u64, Alias), Arc<IsolatedConnection>>>,
    subscriptions: Arc<Subscriptions>,
}

/// A connection to a server that belongs to one client.
struct IsolatedConnection {
    mcp: Mcp,
    switchboard: Arc<Switchboard>,
    /// The account whose tokens it uses, if principals have their own tokens.
    account: Option<Arc<str>>,
    /// The slot of the server when the connection was made.
    slot: u64,
    /// Number of requests in progress.
    requests: AtomicUsize,
    used_at: Mutex<Instant>,
}

/// The right to send requests to a server, on a shared or an isolated connection.
pub(crate) struct UpstreamLease {
    lease: ServerLease,
    link_use: Option<LinkUse>,
    _request: Option<RequestGuard>,
}

impl Deref for UpstreamLease {
    type Target = ServerLease;

    fn deref(&self) -> &ServerLease {
        &self.lease
    }
}

impl UpstreamLease {
    /// Sends a request of a client. Fails if the server asks the user too often.
    pub(crate) async fn send(&self, request: RawRequest, exchange: &Arc<Exchange>) -> Result<RawReply, CallError> {
        let set_answered = |is_answered| self.link_use.iter().for_each(|link_use| link_use.set_answered(is_answered));
        set_answered(false);
        let mut cx = self.lease.context();
        if request.method == "tasks/result" {
            // The response comes when the task ends, which the total timeout limits.
            cx = cx.with_idle_timeout(Duration::MAX);
        }
        let work = self.lease.mcp.forward(request, exchange.clone(), cx);
        let outcome = tokio::select! {
            biased;
            limit = exchange.exceeded() => return Err(too_many_elicitations(self.lease.alias(), limit)),
            outcome = self.lease.guard(work) => outcome,
        };
        set_answered(matches!(outcome, Ok(_) | Err(CallError::Refused { .. })));
        outcome
    }
}

/// Counts a request on an isolated connection until it is dropped.
pub(crate) struct RequestGuard(Arc<IsolatedConnection>);

impl RequestGuard {
    fn new(connection: &Arc<IsolatedConnection>) -> Self {
        connection.requests.fetch_add(1, Ordering::Relaxed);
        Self(connection.clone())
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        *lock(&self.0.used_at) = Instant::now();
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl IsolatedConnection {
    fn is_busy(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }
}

impl Drop for IsolatedConnection {
    fn drop(&mut self) {
        // The process or session ends with the last handle of the connection.
        self.switchboard.remove_link(self.mcp.link());
    }
}

/// The connection that subscriptions of a client to a server are placed on.
pub(crate) struct SubscriptionPlace {
    pub(crate) mcp: Mcp,
    /// The slot of the server.
    pub(crate) slot: Option<u64>,
    /// Keeps an isolated connection open. `None` for a shared one.
    pub(crate) connection: Option<RequestGuard>,
    /// Whether the server could be connected. Otherwise the subscriptions begin once it is.
    pub(crate) started: Result<(), CallError>,
}

/// The limit of isolated connections is reached.
#[derive(Debug, thiserror::Error)]
#[error("too many isolated connections are in use (limit: {0})")]
struct TooManyIsolated(usize);

impl Upstreams {
    pub(crate) fn new(
        bridge: Bridge,
        switchboard: Arc<Switchboard>,
        subscriptions: Arc<Subscriptions>,
        limits: &GatewayLimits,
    ) -> Self {
        let (limit, max_idle) = (limits.isolated, limits.isolated_idle);
        Self { bridge, switchboard, limit, max_idle, isolated: Mutex::default(), subscriptions }
    }

    /// Returns the connection for a request of a client, for a call of one of the server's tools if `own_name` is given.
    pub(crate) async fn connect(
        &self,
        server: &Alias,
        own_name: Option<&str>,
        client: &Arc<Client>,
    ) -> Result<UpstreamLease, CallError> {
        if !self.is_isolated(server, client) {
            let lease = self.bridge.connect_for(server, own_name).await?;
            self.follow_call(server, client, &lease.mcp).await;
            let link_use = self.switchboard.use_link(lease.mcp.link(), client);
            return Ok(UpstreamLease { lease, link_use, _request: None });
        }
        let connection = self.isolated_connection(server, client)?;
        self.switchboard.add_link(connection.mcp.link(), server, Some(client));
        let link_use = self.switchboard.use_link(connection.mcp.link(), client);
        let request = RequestGuard::new(&connection);
        let lease = self.bridge.connect_isolated(server, own_name, &connection.mcp).await?;
        self.follow_call(server, client, &connection.mcp).await;
        Ok(UpstreamLease { lease, link_use, _request: Some(request) })
    }

    /// Returns the account of a principal that has its own tokens for a server. `None` is the shared account, which all other
    /// servers and unnamed principals use.
    pub(crate) fn account(&self, server: &Alias, principal: &Principal) -> Option<Arc<str>> {
        let has_name = !principal.id().is_empty();
        (has_name && self.bridge.has_principal_tokens(server)).then(|| principal.shared_id())
    }

    /// Returns `true` if a client needs its own connection to a server.
    fn is_isolated(&self, server: &Alias, client: &Client) -> bool {
        // Its tokens must not serve the requests of another principal.
        if self.account(server, &client.principal).is_some() {
            return true;
        }
        match self.bridge.isolation(server) {
            Isolation::Shared => false,
            Isolation::Client => true,
            Isolation::Auto => {
                let can = client.capabilities;
                (can.form || can.url || can.sampling || can.roots) && self.switchboard.is_ambiguous(server)
            }
        }
    }

    /// Returns the connection of a client, which is created if necessary.
    fn isolated_connection(&self, server: &Alias, client: &Arc<Client>) -> Result<Arc<IsolatedConnection>, CallError> {
        let key = (client.isolation_key, server.clone());
        let slot = self.bridge.slot_id(server);
        let mut isolated = lock(&self.isolated);
        let account = self.account(server, &client.principal);
        if let Some(known) = isolated.get(&key).filter(|known| Some(known.slot) == slot && known.account == account) {
            return Ok(known.clone());
        }
        // The settings of the server have changed.
        let outdated = isolated.remove(&key);
        let evicted = if isolated.len() >= self.limit { Some(self.evict(&mut isolated, server)?) } else { None };
        let tap = IsolatedTap { board: self.switchboard.clone(), client: Arc::downgrade(client) };
        let mut handlers = Handlers::new().with_tap(Arc::new(tap));
        if let Some(account) = &account {
            handlers = handlers.with_account(&**account);
        }
        let mcp = self.bridge.isolated(server, handlers);
        let (Some(mcp), Some(slot)) = (mcp, slot) else {
            return Err(CallError::NotConnected { server: server.clone() });
        };
        if let Some(level) = client.log_level() {
            mcp.set_log_level(level.name());
        }
        let connection = Arc::new(IsolatedConnection {
            mcp,
            switchboard: self.switchboard.clone(),
            account,
            slot,
            requests: AtomicUsize::new(0),
            used_at: Mutex::new(Instant::now()),
        });
        isolated.insert(key, connection.clone());
        drop(isolated);
        // Connections end when they are dropped: not under the lock.
        drop((outdated, evicted));
        Ok(connection)
    }

    /// Removes the least recently used idle connection.
    fn evict(
        &self,
        isolated: &mut HashMap<(u64, Alias), Arc<IsolatedConnection>>,
        server: &Alias,
    ) -> Result<Arc<IsolatedConnection>, CallError> {
        let idle = isolated.iter().filter(|(_, connection)| !connection.is_busy());
        let oldest = idle.min_by_key(|(_, connection)| *lock(&connection.used_at)).map(|(key, _)| key.clone());
        let oldest = oldest.and_then(|key| isolated.remove(&key));
        oldest.ok_or_else(|| CallError::Unavailable {
            server: server.clone(),
            source: Box::new(TooManyIsolated(self.limit)),
        })
    }

    /// Closes the isolated connections of a disconnected client.
    pub(crate) fn close_of(&self, client: &Client) {
        self.close_where(|(key, _), _| *key == client.isolation_key);
    }

    /// Applies changed tokens of an account: connections with its previous tokens end.
    pub(crate) async fn apply_tokens(&self, (server, account): &AccountKey) {
        self.close_where(|(_, alias), connection| alias == server && connection.account == *account);
        if account.is_none() {
            self.bridge.reconnect_with_tokens(server).await;
        }
    }

    /// Closes idle isolated connections.
    pub(crate) fn close_idle(&self) {
        self.close_where(|_, connection| !connection.is_busy() && lock(&connection.used_at).elapsed() >= self.max_idle);
    }

    fn close_where(&self, is_closed: impl Fn(&(u64, Alias), &IsolatedConnection) -> bool) {
        let mut closed = Vec::new();
        lock(&self.isolated).retain(|key, connection| {
            let is_closed = is_closed(key, connection);
            if is_closed {
                closed.push(connection.clone());
            }
            !is_closed
        });
        drop(closed);
    }

    /// Returns the number of isolated connections.
    pub(crate) fn isolated(&self) -> usize {
        lock(&self.isolated).len()
    }

    /// Returns the description of a server, if it is connected.
    pub(crate) fn info(&self, server: &Alias) -> Option<Arc<ServerInfo>> {
        self.bridge.server(server)?.server_info()
    }

    /// Returns the protocol era of a server, if it is connected.
    pub(crate) fn era(&self, server: &Alias) -> Option<Era> {
        self.info(server).map(|info| info.era)
    }

    /// Returns the connection for the subscriptions of a client to a server: that of its calls. Starts a lazy server.
    ///
    /// # Errors
    ///
    /// Fails if there is no connection, not even one that is established later.
    pub(crate) async fn subscription_place(
        &self,
        server: &Alias,
        client: &Arc<Client>,
    ) -> Result<SubscriptionPlace, CallError> {
        let slot = self.bridge.slot_id(server);
        if self.is_isolated(server, client) {
            let connection = self.isolated_connection(server, client)?;
            self.switchboard.add_link(connection.mcp.link(), server, Some(client));
            let guard = RequestGuard::new(&connection);
            let mcp = connection.mcp.clone();
            let started = self.bridge.connect_isolated(server, None, &mcp).await.map(drop);
            return Ok(SubscriptionPlace { mcp, slot, connection: Some(guard), started });
        }
        let (mcp, started) = match self.bridge.connect_for(server, None).await {
            Ok(lease) => (lease.mcp.clone(), Ok(())),
            Err(error) => match self.bridge.server(server) {
                Some(mcp) => (mcp, Err(error)),
                None => return Err(error),
            },
        };
        Ok(SubscriptionPlace { mcp, slot, connection: None, started })
    }

    /// Moves the subscriptions of a client to the connection of its call, before the call is sent. The call may cause changes that
    /// the client expects to be notified of.
    async fn follow_call(&self, server: &Alias, client: &Arc<Client>, mcp: &Mcp) {
        if !self.subscriptions.is_elsewhere(client, server, mcp.link()) {
            return;
        }
        let follow = async {
            let place = self.subscription_place(server, client).await?;
            let group = GroupKey { isolation_key: client.isolation_key, server: server.clone() };
            for hold in self.subscriptions.place(&group, place, &[]) {
                hold.confirmed().await?;
            }
            Ok::<(), CallError>(())
        };
        match tokio::time::timeout(MAX_MOVE_WAIT, follow).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(%server, "could not move all subscriptions: {}", crate::error_chain::chain(&error));
            }
            Err(_) => tracing::debug!(%server, "subscriptions move slowly; they are retried in the background"),
        }
    }

    /// Notifies the servers of a client's isolated connections that its roots have changed.
    pub(crate) fn roots_changed(&self, client: &Client) {
        const MESSAGE: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;
        let is_own = |(key, _): &(&(u64, Alias), &Arc<IsolatedConnection>)| key.0 == client.isolation_key;
        let own: Vec<Mcp> = lock(&self.isolated).iter().filter(is_own).map(|(_, own)| own.mcp.clone()).collect();
        own.iter().for_each(|mcp| mcp.notify(MESSAGE.to_vec()));
    }

    /// Sets the minimum level of log messages of all servers.
    pub(crate) fn set_log_level(&self, level: &'static str) {
        let shared = self.bridge.servers().into_iter().filter_map(|alias| self.bridge.server(alias));
        let isolated: Vec<Mcp> = lock(&self.isolated).values().map(|connection| connection.mcp.clone()).collect();
        shared.chain(isolated).for_each(|mcp| mcp.set_log_level(level));
    }
}
