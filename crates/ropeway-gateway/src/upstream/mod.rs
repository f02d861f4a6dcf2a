//! Connections to servers: shared by all clients, or one for each client.

pub(crate) mod asking_servers;
pub(crate) mod health_cache;
pub(crate) mod link_users;
pub(crate) mod restart_limit;
pub(crate) mod server_limits;
pub(crate) mod sign_in;
pub(crate) mod sign_in_rights;
pub(crate) mod subscriptions;
pub(crate) mod switchboard;

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::client::principal::Principal;
use crate::client::shares::{Hold, Resource, ShareError, Shares};
use crate::client::{COMMANDS, Client};
use crate::request::exchange::Exchange;
use crate::request::parked::ParkedCalls;
use crate::upstream::sign_in::AccountKey;
use crate::upstream::subscriptions::{GroupKey, Subscriptions};
use crate::upstream::switchboard::{IsolatedHandler, LinkUse, RootsClaim, Switchboard};
use ropeway_bridge::{Bridge, ServerLease};
use ropeway_config::Isolation;
use ropeway_core::sync::lock;
use ropeway_core::tool::{Alias, CallError};
use ropeway_mcp::protocol::Era;
use ropeway_mcp::{Handlers, Mcp, RawReply, RawRequest, RequestTag, ServerInfo, too_many_elicitations};

/// Notifies a server that its client's roots have changed.
const ROOTS_CHANGED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;

/// The code for an error that requires URL elicitations
/// (<https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation#url-elicitation-required-error>).
const URL_ELICITATION_REQUIRED: i64 = -32042;

/// Maximum time that a call waits for its client's subscriptions to move to its connection.
const MAX_MOVE_WAIT: Duration = Duration::from_secs(5);

/// A gateway's connections to its servers.
///
/// The gateway's shared state owns it. Shared connections belong to the bridge. An isolated one belongs to `isolated`, and to the
/// guards that its requests and subscriptions hold: once it leaves the map, it closes when the last guard is dropped. Calls and
/// subscriptions insert connections. Eviction, [`forget`](Self::forget), [`apply_tokens`](Self::apply_tokens),
/// [`close_isolated`](Self::close_isolated) and [`close_idle`](Self::close_idle) remove them.
///
/// The `isolated` lock is taken first. Under it come a connection's own locks, and the parked calls' lock under `requests`. None
/// is held across `.await`: adding a connection does not connect it. Removed connections are dropped after the lock is released,
/// because the last handle ends a process or session. Only if a replacement cannot be added are they dropped under it.
pub(crate) struct Upstreams {
    bridge: Bridge,
    switchboard: Arc<Switchboard>,
    parked: Arc<ParkedCalls>,
    shares: Shares,
    max_idle: Duration,
    isolated: Mutex<HashMap<IsolationKey, Arc<IsolatedConnection>>>,
    subscriptions: Arc<Subscriptions>,
}

/// Identifies an isolated connection. Principals never share one, whatever their clients' keys are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct IsolationKey {
    principal: Arc<str>,
    /// The client's isolation key.
    client: u64,
    server: Alias,
}

impl IsolationKey {
    fn is_of(&self, client: &Client) -> bool {
        self.client == client.isolation_key && *self.principal == *client.principal.id()
    }
}

/// A connection to a server that belongs to one client.
struct IsolatedConnection {
    mcp: Mcp,
    switchboard: Arc<Switchboard>,
    /// The account whose tokens it uses, if principals have their own tokens.
    account: Option<Arc<str>>,
    /// The server's slot when the connection was made.
    slot: u64,
    /// The requests in progress.
    requests: Mutex<Vec<RequestTag>>,
    /// Number of subscription groups, which keep the connection open.
    subscriptions: AtomicUsize,
    used_at: Mutex<Instant>,
    /// Counts the connection until it is closed or evicted.
    hold: Mutex<Option<Hold>>,
}

/// The right to send requests to a server, on a shared or an isolated connection.
pub(crate) struct UpstreamLease {
    lease: ServerLease,
    switchboard: Arc<Switchboard>,
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
    /// Sends a client's request. Fails if the server asks the user too often.
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
        if let Err(CallError::Refused { code: URL_ELICITATION_REQUIRED, data: Some(data), .. }) = &outcome {
            self.switchboard.note_required_elicitations(self.lease.mcp.link(), data, exchange);
        }
        outcome
    }
}

/// Counts a request on an isolated connection until it is dropped.
struct RequestGuard {
    connection: Arc<IsolatedConnection>,
    exchange: RequestTag,
}

impl RequestGuard {
    fn new(connection: &Arc<IsolatedConnection>, exchange: RequestTag) -> Self {
        lock(&connection.requests).push(exchange);
        Self { connection: connection.clone(), exchange }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        *lock(&self.connection.used_at) = Instant::now();
        let mut requests = lock(&self.connection.requests);
        if let Some(at) = requests.iter().position(|exchange| *exchange == self.exchange) {
            requests.swap_remove(at);
        }
    }
}

/// Keeps an isolated connection open for subscriptions until it is dropped.
pub(crate) struct SubscriptionGuard(Arc<IsolatedConnection>);

impl SubscriptionGuard {
    fn new(connection: &Arc<IsolatedConnection>) -> Self {
        connection.subscriptions.fetch_add(1, Ordering::Relaxed);
        Self(connection.clone())
    }
}

impl Drop for SubscriptionGuard {
    fn drop(&mut self) {
        *lock(&self.0.used_at) = Instant::now();
        self.0.subscriptions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl IsolatedConnection {
    fn is_busy(&self) -> bool {
        self.has_subscriptions() || !lock(&self.requests).is_empty()
    }

    fn has_subscriptions(&self) -> bool {
        self.subscriptions.load(Ordering::Relaxed) > 0
    }
}

impl Drop for IsolatedConnection {
    fn drop(&mut self) {
        // The process or session ends with the connection's last handle.
        self.switchboard.remove_link(self.mcp.link());
    }
}

/// The connection that a client's subscriptions to a server are placed on.
pub(crate) struct SubscriptionPlace {
    pub(crate) mcp: Mcp,
    /// The server's slot.
    pub(crate) slot: Option<u64>,
    /// Keeps an isolated connection open. `None` for a shared one.
    pub(crate) connection: Option<SubscriptionGuard>,
    /// Whether the server could be connected. Otherwise the subscriptions begin once it is.
    pub(crate) started: Result<(), CallError>,
}

impl Upstreams {
    pub(crate) fn new(
        bridge: Bridge,
        switchboard: Arc<Switchboard>,
        parked: Arc<ParkedCalls>,
        subscriptions: Arc<Subscriptions>,
        shares: Shares,
        max_idle: Duration,
    ) -> Self {
        Self { bridge, switchboard, parked, shares, max_idle, isolated: Mutex::default(), subscriptions }
    }

    /// Returns the connection for a client's request, or for a call to one of the server's tools if `own_name` is given.
    pub(crate) async fn connect(
        &self,
        server: &Alias,
        own_name: Option<&str>,
        exchange: &Arc<Exchange>,
    ) -> Result<UpstreamLease, CallError> {
        let client = &exchange.client;
        let (lease, request) = if self.is_isolated(server, client) {
            let connection = self.isolated_connection(server, client)?;
            self.switchboard.add_isolated_link(connection.mcp.link(), server, client);
            let request = RequestGuard::new(&connection, exchange.key);
            (self.bridge.connect_isolated(server, own_name, &connection.mcp).await?, Some(request))
        } else {
            (self.bridge.connect_for(server, own_name).await?, None)
        };
        self.follow_call(server, client, &lease.mcp).await;
        let (link, era) = (lease.mcp.link(), lease.mcp.server_info().map(|info| info.era));
        if era != Some(Era::Modern) {
            self.switchboard.settle_roots(link, exchange).await;
        }
        let link_use = self.switchboard.use_link(link, server, era, exchange);
        Ok(UpstreamLease { lease, switchboard: self.switchboard.clone(), link_use, _request: request })
    }

    /// Returns the account for a principal that has its own tokens for a server. `None` is the shared account, which all other
    /// servers and unnamed principals use.
    pub(crate) fn account(&self, server: &Alias, principal: &Principal) -> Option<Arc<str>> {
        let has_name = !principal.id().is_empty();
        (has_name && self.bridge.has_principal_tokens(server)).then(|| principal.shared_id())
    }

    /// Returns `true` if a client needs its own connection to a server.
    fn is_isolated(&self, server: &Alias, client: &Arc<Client>) -> bool {
        // Its tokens must not serve another principal's requests.
        if self.account(server, &client.principal).is_some() {
            return true;
        }
        match self.bridge.isolation(server) {
            Isolation::Shared => {
                self.claim_roots(server, client);
                false
            }
            Isolation::Client => true,
            Isolation::Auto => {
                let can = client.capabilities;
                let can_answer = can.form || can.url || can.sampling || can.roots;
                (can_answer && self.switchboard.is_asking(server))
                    || self.switchboard.exceeds_shared(client)
                    || self.claim_roots(server, client) == RootsClaim::Refused
            }
        }
    }

    /// Decides whether a client can use the shared connection to a server that requests roots, and notifies the server if it gets
    /// other roots.
    fn claim_roots(&self, server: &Alias, client: &Arc<Client>) -> RootsClaim {
        let Some(mcp) = self.bridge.server(server).filter(|_| client.capabilities.roots) else {
            return RootsClaim::Shared;
        };
        let claim = self.switchboard.claim_roots(mcp.link(), client);
        if claim == RootsClaim::Claimed {
            mcp.notify(ROOTS_CHANGED.to_vec());
        }
        claim
    }

    /// Gives a new client's roots to the servers that have requested roots, if no other client has roots.
    pub(crate) fn offer_roots(&self, client: &Arc<Client>) {
        if client.capabilities.roots {
            for server in &self.bridge.servers() {
                if self.bridge.isolation(server) != Isolation::Client && !self.switchboard.is_asking(server) {
                    self.claim_roots(server, client);
                }
            }
        }
    }

    /// Returns a client's connection, which is created if necessary.
    fn isolated_connection(&self, server: &Alias, client: &Arc<Client>) -> Result<Arc<IsolatedConnection>, CallError> {
        let (principal, server_name) = (client.principal.shared_id(), server.clone());
        let key = IsolationKey { principal, client: client.isolation_key, server: server_name };
        let slot = self.bridge.slot_id(server);
        let mut isolated = lock(&self.isolated);
        let account = self.account(server, &client.principal);
        if let Some(known) = isolated.get(&key).filter(|known| Some(known.slot) == slot && known.account == account) {
            return Ok(known.clone());
        }
        // The server's settings have changed.
        let outdated = isolated.remove(&key);
        if let Some(outdated) = &outdated {
            drop(lock(&outdated.hold).take());
        }
        let (hold, evicted) = self.hold(&mut isolated, server, client)?;
        let handler = IsolatedHandler { board: self.switchboard.clone(), client: Arc::downgrade(client) };
        let mut handlers = Handlers::new().with_message_handler(Arc::new(handler));
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
            requests: Mutex::default(),
            subscriptions: AtomicUsize::new(0),
            used_at: Mutex::new(Instant::now()),
            hold: Mutex::new(Some(hold)),
        });
        isolated.insert(key, connection.clone());
        drop(isolated);
        // Connections end when they are dropped: not under the lock.
        drop(outdated);
        if let Some(evicted) = evicted {
            // They would keep the connection open.
            let parked = lock(&evicted.requests).clone();
            self.parked.end(&parked);
        }
        Ok(connection)
    }

    /// Returns a client's isolated connection to a server, once it is connected.
    pub(crate) fn isolated_of(&self, server: &Alias, client: &Client) -> Option<Mcp> {
        let (principal, slot) = (client.principal.shared_id(), self.bridge.slot_id(server));
        let key = IsolationKey { principal, client: client.isolation_key, server: server.clone() };
        let own = lock(&self.isolated).get(&key).cloned()?;
        (Some(own.slot) == slot && own.mcp.is_connected()).then(|| own.mcp.clone())
    }

    /// Counts a principal's connection. At the limit, its least recently used connection is removed and returned.
    fn hold(
        &self,
        isolated: &mut HashMap<IsolationKey, Arc<IsolatedConnection>>,
        server: &Alias,
        client: &Client,
    ) -> Result<(Hold, Option<Arc<IsolatedConnection>>), CallError> {
        let take = || self.shares.take(Resource::Isolated, client.principal.holdings(), 1);
        let unavailable =
            |error: ShareError| CallError::Unavailable { server: server.clone(), source: Box::new(error) };
        let error = match take() {
            Ok(hold) => return Ok((hold, None)),
            Err(error) => error,
        };
        let evicted = self.evict(isolated, &client.principal).ok_or_else(|| unavailable(error))?;
        drop(lock(&evicted.hold).take());
        Ok((take().map_err(unavailable)?, Some(evicted)))
    }

    /// Removes a principal's least recently used connection that is idle, or else whose calls all wait for input.
    fn evict(
        &self,
        isolated: &mut HashMap<IsolationKey, Arc<IsolatedConnection>>,
        principal: &Principal,
    ) -> Option<Arc<IsolatedConnection>> {
        let is_own = |key: &IsolationKey| *key.principal == *principal.id();
        let oldest = |is_evictable: &dyn Fn(&IsolatedConnection) -> bool| {
            let own = isolated.iter().filter(|(key, connection)| is_own(key) && is_evictable(connection));
            own.min_by_key(|(_, connection)| *lock(&connection.used_at)).map(|(key, _)| key.clone())
        };
        let is_parked = |connection: &IsolatedConnection| {
            !connection.has_subscriptions() && self.parked.are_parked(&lock(&connection.requests))
        };
        let key = oldest(&|connection| !connection.is_busy()).or_else(|| oldest(&is_parked))?;
        isolated.remove(&key)
    }

    /// Releases a disconnected client: closes its isolated connections, and withdraws its roots from shared ones.
    pub(crate) fn forget(&self, client: &Client) {
        if client.isolation_key != COMMANDS {
            self.close_where(|key, _| key.is_of(client));
        }
        let links = self.switchboard.forget_client(client);
        if links.is_empty() {
            return;
        }
        let shared = self.bridge.servers().into_iter().filter_map(|server| self.bridge.server(server));
        // Several aliases may share a connection.
        let mut notified = HashSet::new();
        for mcp in shared.filter(|mcp| links.contains(&mcp.link()) && notified.insert(mcp.link())) {
            mcp.notify(ROOTS_CHANGED.to_vec());
        }
    }

    /// Applies an account's changed tokens: connections with its previous tokens end.
    pub(crate) async fn apply_tokens(&self, (server, account): &AccountKey) {
        self.close_where(|key, connection| key.server == *server && connection.account == *account);
        if account.is_none() {
            self.bridge.reconnect_with_tokens(server).await;
        }
    }

    /// Closes the isolated connections to a server, and to all aliases that share its process.
    pub(crate) fn close_isolated(&self, server: &Alias) {
        let link = self.bridge.server(server).map(|mcp| mcp.link());
        let mut sharing: HashSet<Alias> = self.bridge.servers().into_iter().collect();
        sharing.retain(|alias| link.is_some() && self.bridge.server(alias).map(|mcp| mcp.link()) == link);
        self.close_where(|key, _| key.server == *server || sharing.contains(&key.server));
    }

    /// Restarts a server, on all its connections.
    pub(crate) async fn restart(&self, server: &Alias, reason: &str) -> Result<(), CallError> {
        self.close_isolated(server);
        self.bridge.restart(server, reason).await
    }

    /// Closes idle isolated connections.
    pub(crate) fn close_idle(&self) {
        self.close_where(|_, connection| !connection.is_busy() && lock(&connection.used_at).elapsed() >= self.max_idle);
    }

    fn close_where(&self, is_closed: impl Fn(&IsolationKey, &IsolatedConnection) -> bool) {
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

    /// Returns a server's description, if it is connected.
    pub(crate) fn info(&self, server: &Alias) -> Option<Arc<ServerInfo>> {
        self.bridge.server(server)?.server_info()
    }

    /// Returns a server's protocol era, if it is connected.
    pub(crate) fn era(&self, server: &Alias) -> Option<Era> {
        self.info(server).map(|info| info.era)
    }

    /// Returns the connection for a client's subscriptions to a server: the one that its calls use. Starts a lazy server.
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
            self.switchboard.add_isolated_link(connection.mcp.link(), server, client);
            let guard = SubscriptionGuard::new(&connection);
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

    /// Moves a client's subscriptions to its call's connection, before the call is sent. The call may cause changes that the
    /// client expects notifications for.
    async fn follow_call(&self, server: &Alias, client: &Arc<Client>, mcp: &Mcp) {
        if !self.subscriptions.is_elsewhere(client, server, mcp.link()) {
            return;
        }
        let follow = async {
            let place = self.subscription_place(server, client).await?;
            let group = GroupKey { isolation_key: client.isolation_key, server: server.clone() };
            let placed = self.subscriptions.place(&group, place, &[]);
            for hold in &placed.holds {
                hold.confirmed().await?;
            }
            Ok::<(), CallError>(())
        };
        match tokio::time::timeout(MAX_MOVE_WAIT, follow).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(%server, "could not move all subscriptions: {}", ropeway_core::error_chain::chain(&error));
            }
            Err(_) => tracing::debug!(%server, "subscriptions move slowly; they are retried in the background"),
        }
    }

    /// Notifies the servers that have a client's roots, or are about to get them, that its roots have changed.
    pub(crate) fn roots_changed(&self, client: &Arc<Client>) {
        let own = |(key, connection): (&IsolationKey, &Arc<IsolatedConnection>)| {
            key.is_of(client).then(|| connection.mcp.clone())
        };
        let isolated: Vec<Mcp> = lock(&self.isolated).iter().filter_map(own).collect();
        let shared = self.bridge.servers().into_iter().filter_map(|server| self.bridge.server(server));
        let mut notified = HashSet::new();
        for mcp in isolated.into_iter().chain(shared).filter(|mcp| notified.insert(mcp.link())) {
            if self.switchboard.change_roots(mcp.link(), client) {
                mcp.notify(ROOTS_CHANGED.to_vec());
            }
        }
    }

    /// Sets the minimum log level on all servers.
    pub(crate) fn set_log_level(&self, level: &'static str) {
        let shared = self.bridge.servers().into_iter().filter_map(|alias| self.bridge.server(alias));
        let isolated: Vec<Mcp> = lock(&self.isolated).values().map(|connection| connection.mcp.clone()).collect();
        shared.chain(isolated).for_each(|mcp| mcp.set_log_level(level));
    }
}
