//! Client roots: which client's roots a server gets, and when it is notified to request them again.
//!
//! Servers request roots when they are connected, and keep them. On a connection that clients share, they get the roots from the
//! only client that has roots; on an isolated connection, from its client.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::watch;

use super::Switchboard;
use super::links::LinkOwner;
use crate::client::Client;
use crate::request::exchange::Exchange;
use ropeway_core::sync::lock;
use ropeway_core::tool::Alias;
use ropeway_mcp::protocol::{Era, RpcError};
use ropeway_mcp::{AnswerSink, LinkKey, ServerRequest};

/// How long a call waits for the roots request if its server requests roots.
const MAX_REQUEST_DELAY: Duration = Duration::from_secs(1);

/// How long the first call on a connection waits for the roots request if its server may not request roots at all.
const MAX_FIRST_DELAY: Duration = Duration::from_millis(100);

/// How long a call waits until the server has the roots that it requested.
const MAX_ANSWER_DELAY: Duration = Duration::from_secs(5);

/// Time in which a server applies the roots that it got.
const APPLY_DELAY: Duration = Duration::from_millis(50);

/// A connection's roots.
#[derive(Default)]
pub(super) struct LinkRoots {
    /// Whether the server has requested roots outside a request's own stream.
    has_asked: bool,
    /// The client whose roots a shared connection's server has.
    owner: Option<Weak<Client>>,
    phase: watch::Sender<RootsPhase>,
    /// Number of processes or sessions that have ended.
    epoch: u64,
}

/// The progress of a roots request since the server was connected, or since its roots have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RootsPhase {
    /// The server may request roots.
    #[default]
    New,
    /// The server was notified that the roots have changed.
    Changed,
    /// The server's request is on its way to a client.
    Routing,
    /// The server has requested roots.
    Requested,
    /// The server has the roots.
    Answered,
    /// The server has not requested roots in time.
    Quiet,
}

impl LinkRoots {
    /// Forgets the requests from a process or session that has ended.
    pub(super) fn reset(&mut self) {
        self.epoch += 1;
        self.phase.send_replace(RootsPhase::New);
    }

    fn owner(&self) -> Option<Arc<Client>> {
        self.owner.as_ref().and_then(Weak::upgrade).filter(|client| !client.outbound.is_closed())
    }
}

/// Whether a client can use the shared connection to a server that requests roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RootsClaim {
    /// The server has not requested roots, or has the client's.
    Shared,
    /// The server is about to get the client's roots: it has to be notified that they have changed.
    Claimed,
    /// The server may have another client's roots.
    Refused,
}

/// Notes that a roots request is answered.
struct RootsSink {
    board: Weak<Switchboard>,
    link: LinkKey,
    epoch: u64,
    answer: Arc<dyn AnswerSink>,
}

impl AnswerSink for RootsSink {
    fn send(&self, outcome: Result<&RawValue, RpcError>) {
        self.answer.send(outcome);
        let Some(board) = self.board.upgrade() else { return };
        let links = lock(&board.links);
        let roots = links.get(&self.link).map(|owner| &owner.roots).filter(|roots| roots.epoch == self.epoch);
        if let Some(roots) = roots {
            roots.phase.send_replace(RootsPhase::Answered);
        }
    }

    fn is_awaited(&self) -> bool {
        self.answer.is_awaited()
    }
}

impl Switchboard {
    /// Sets which roots servers may get over the connections that clients share.
    pub(crate) fn set_roots_access(&self, access: impl Fn(&Client, &Alias) -> bool + Send + Sync + 'static) {
        // Set once, when the gateway is built.
        let _ = self.roots_access.set(Box::new(access));
    }

    /// Decides whether a client can use the shared connection to a server that requests roots. The only client with roots can.
    pub(crate) fn claim_roots(&self, link: LinkKey, client: &Arc<Client>) -> RootsClaim {
        let servers = {
            let links = lock(&self.links);
            let Some(owner) = links.get(&link).filter(|owner| owner.roots.has_asked) else { return RootsClaim::Shared };
            if let Some(holder) = owner.roots.owner() {
                let is_own = holder.isolation_key == client.isolation_key;
                return if is_own { RootsClaim::Shared } else { RootsClaim::Refused };
            }
            if owner.users.is_used_by_others(client.user_key) || is_isolated(&links, client, &owner.servers) {
                return RootsClaim::Refused;
            }
            owner.servers.clone()
        };
        let is_allowed = |of: &Client| servers.iter().any(|server| self.allows_roots(of, server));
        let is_other = |other: &Client| other.isolation_key != client.isolation_key && is_allowed(other);
        if !is_allowed(client) || self.clients.has_roots_of(is_other) {
            return RootsClaim::Refused;
        }
        let mut links = lock(&self.links);
        let Some(owner) = links.get_mut(&link) else { return RootsClaim::Refused };
        owner.roots.owner = Some(Arc::downgrade(client));
        owner.roots.phase.send_replace(RootsPhase::Changed);
        RootsClaim::Claimed
    }

    /// Returns `true` if a server has to be notified that a client's roots on this connection have changed.
    pub(crate) fn change_roots(&self, link: LinkKey, client: &Arc<Client>) -> bool {
        let is_isolated = {
            let links = lock(&self.links);
            let Some(owner) = links.get(&link) else { return false };
            owner.client.is_some()
        };
        match self.claim_roots(link, client) {
            RootsClaim::Claimed => true,
            RootsClaim::Refused if !is_isolated => false,
            RootsClaim::Shared | RootsClaim::Refused => {
                let is_holder = is_isolated || self.roots_owner(link).is_some_and(|owner| owner.id == client.id);
                if is_holder {
                    self.set_roots_phase(link, RootsPhase::Changed);
                }
                is_holder
            }
        }
    }

    /// Releases a disconnected client. Returns the shared connections whose servers have its roots.
    pub(crate) fn forget_client(&self, client: &Client) -> Vec<LinkKey> {
        let mut links = lock(&self.links);
        let mut with_roots = Vec::new();
        for (link, owner) in links.iter_mut() {
            owner.users.forget(client.user_key);
            let holder = owner.roots.owner.as_ref().and_then(Weak::upgrade);
            if holder.is_some_and(|holder| holder.id == client.id) {
                owner.roots.owner = None;
                owner.roots.phase.send_replace(RootsPhase::Changed);
                with_roots.push(*link);
            }
        }
        with_roots
    }

    /// Waits until a server that requests this client's roots has them, so that the call does not overtake them.
    pub(crate) async fn settle_roots(&self, link: LinkKey, exchange: &Arc<Exchange>) {
        let Some(mut phase) = self.roots_phase_for(link, exchange) else { return };
        let before = *phase.borrow_and_update();
        let delay = match before {
            RootsPhase::Answered | RootsPhase::Quiet => return,
            RootsPhase::New if !self.requests_roots(link) => MAX_FIRST_DELAY,
            RootsPhase::New | RootsPhase::Changed | RootsPhase::Routing | RootsPhase::Requested => MAX_REQUEST_DELAY,
        };
        let is_requested = |phase: &RootsPhase| matches!(phase, RootsPhase::Requested | RootsPhase::Answered);
        let is_in_time = matches!(tokio::time::timeout(delay, phase.wait_for(is_requested)).await, Ok(Ok(_)));
        if !is_in_time {
            // Later calls do not wait again.
            return self.replace_phase(link, &[RootsPhase::New, RootsPhase::Changed], RootsPhase::Quiet);
        }
        self.release_held(link, exchange);
        let is_answered = |phase: &RootsPhase| *phase == RootsPhase::Answered;
        if matches!(tokio::time::timeout(MAX_ANSWER_DELAY, phase.wait_for(is_answered)).await, Ok(Ok(_))) {
            tokio::time::sleep(APPLY_DELAY).await;
        } else {
            self.replace_phase(link, &[RootsPhase::Requested], RootsPhase::Quiet);
        }
    }

    /// Records that a server has requested roots. Returns the client for whose roots the server was notified, if it has not
    /// requested them since.
    pub(super) fn on_roots_request(&self, server_request: &mut ServerRequest) -> Option<Arc<Client>> {
        // A call's stream carries it, so that it does not concern other calls.
        if server_request.callers.is_certain && !server_request.callers.keys.is_empty() {
            return None;
        }
        let (board, link) = (self.own.clone(), server_request.link);
        let mut links = lock(&self.links);
        // A server may ask before its connection is known.
        let roots = &mut links.entry(link).or_default().roots;
        roots.has_asked = true;
        let epoch = roots.epoch;
        server_request.wrap_sink(|answer| Arc::new(RootsSink { board, link, epoch, answer }));
        let before = roots.phase.send_replace(RootsPhase::Routing);
        roots.owner().filter(|_| before == RootsPhase::Changed)
    }

    /// Records that a roots request waits for its client, unless it is already answered. Until then, a call must not look for it.
    pub(super) fn on_roots_routed(&self, link: LinkKey) {
        self.replace_phase(link, &[RootsPhase::Routing], RootsPhase::Requested);
    }

    /// Returns the client whose roots a server gets on a shared connection: the one whose roots it has, or the only one with roots.
    pub(super) fn shared_roots_client(&self, link: LinkKey) -> Option<Arc<Client>> {
        if let Some(owner) = self.roots_owner(link) {
            return Some(owner);
        }
        let servers = lock(&self.links).get(&link).filter(|owner| owner.client.is_none())?.servers.clone();
        let mut clients: Vec<Arc<Client>> = Vec::new();
        for server in &servers {
            for client in self.clients_with_roots(server) {
                if clients.iter().all(|known| known.isolation_key != client.isolation_key) {
                    clients.push(client);
                }
            }
        }
        let [client]: [Arc<Client>; 1] = clients.try_into().ok()?;
        if is_isolated(&lock(&self.links), &client, &servers) {
            return None;
        }
        self.own_roots(link, &client);
        Some(client)
    }

    /// Records that a shared connection's server gets a client's roots, unless it has another client's.
    pub(super) fn own_roots(&self, link: LinkKey, client: &Arc<Client>) {
        let servers = lock(&self.links).get(&link).filter(|owner| owner.client.is_none()).map(|it| it.servers.clone());
        if !servers.is_some_and(|servers| servers.iter().any(|server| self.allows_roots(client, server))) {
            return;
        }
        if let Some(owner) = lock(&self.links).get_mut(&link)
            && owner.roots.owner().is_none()
        {
            owner.roots.owner = Some(Arc::downgrade(client));
        }
    }

    fn roots_owner(&self, link: LinkKey) -> Option<Arc<Client>> {
        lock(&self.links).get(&link)?.roots.owner()
    }

    fn allows_roots(&self, client: &Client, server: &Alias) -> bool {
        self.roots_access.get().is_some_and(|access| access(client, server))
    }

    /// Returns the connected clients with roots that a server may get over a shared connection.
    fn clients_with_roots(&self, server: &Alias) -> Vec<Arc<Client>> {
        let mut clients = self.clients.present_with_roots();
        clients.retain(|client| self.allows_roots(client, server));
        clients
    }

    /// Returns the roots phase that a call depends on: its client's.
    fn roots_phase_for(&self, link: LinkKey, exchange: &Exchange) -> Option<watch::Receiver<RootsPhase>> {
        let client = &exchange.client;
        // A request without a place for server requests cannot carry one from a modern server.
        let is_askable = client.era == Era::Legacy || exchange.request.get().is_some();
        let links = lock(&self.links);
        let owner = links.get(&link).filter(|_| client.capabilities.roots && is_askable)?;
        let is_legacy_server = owner.era != Some(Era::Modern);
        let is_own = owner.client.is_some()
            || owner.roots.owner().is_some_and(|holder| holder.isolation_key == client.isolation_key);
        (is_own && is_legacy_server).then(|| owner.roots.phase.subscribe())
    }

    /// Returns `true` if the server at the other end has requested roots, on this connection or another one.
    fn requests_roots(&self, link: LinkKey) -> bool {
        let links = lock(&self.links);
        let Some(own) = links.get(&link) else { return false };
        links.values().any(|owner| owner.roots.has_asked && !owner.servers.is_disjoint(&own.servers))
    }

    /// Changes the phase, if it is still one of these.
    fn replace_phase(&self, link: LinkKey, before: &[RootsPhase], after: RootsPhase) {
        if let Some(owner) = lock(&self.links).get(&link) {
            owner.roots.phase.send_if_modified(|phase| {
                let is_replaced = before.contains(phase);
                if is_replaced {
                    *phase = after;
                }
                is_replaced
            });
        }
    }

    fn set_roots_phase(&self, link: LinkKey, phase: RootsPhase) {
        if let Some(owner) = lock(&self.links).get(&link) {
            owner.roots.phase.send_replace(phase);
        }
    }
}

/// Returns `true` if a client has its own connection to one of these servers. It keeps that one, with its server's state.
fn is_isolated(links: &HashMap<LinkKey, LinkOwner>, client: &Client, servers: &BTreeSet<Alias>) -> bool {
    links.values().any(|owner| {
        let own = owner.client.as_ref().and_then(Weak::upgrade);
        own.is_some_and(|own| own.isolation_key == client.isolation_key) && !owner.servers.is_disjoint(servers)
    })
}
