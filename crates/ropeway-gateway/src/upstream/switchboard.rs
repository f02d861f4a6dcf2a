//! Routes server requests and notifications to the clients that they belong to.

mod links;
mod notifications;
mod requests;
mod roots;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::client::Client;
use crate::client::clients::{ChangedList, Clients};
use crate::client::seal::KeyRing;
use crate::request::exchanges::Exchanges;
use crate::request::task_ids::with_sealed_task;
use crate::upstream::asking_servers::AskingServers;
use crate::upstream::subscriptions::Subscriptions;
use ropeway_core::sync::lock;
use ropeway_core::tool::Alias;
use ropeway_mcp::protocol::Era;
use ropeway_mcp::{Callers, LinkKey, MessageHandler, ServerRequest};

use links::LinkOwner;
pub(crate) use links::{LinkUse, SharedLink};
use requests::OpenRequests;
pub(crate) use requests::{WITHDRAWN, answer_in_place};
pub(crate) use roots::RootsClaim;

/// Returns `true` if a client's roots may be given to a server over the connection that clients share.
type RootsAccess = Box<dyn Fn(&Client, &Alias) -> bool + Send + Sync>;

/// Connects servers with clients for everything but responses.
///
/// The gateway's shared state, its upstreams and all isolated connections share it. Connections write through its
/// [`MessageHandler`], calls through [`use_link`](Self::use_link) and [`settle_roots`](Self::settle_roots), and reloads through
/// [`set_shared_links`](Self::set_shared_links). Tasks only have the weak reference in `own`. Dropping the switchboard aborts the
/// tasks that watch open requests. A task that asks a legacy client is detached: it ends when the client answers or disconnects,
/// when the request is withdrawn, when the call that caused it ends, or when the gateway stops.
///
/// No lock is held across `.await`, and its own locks are never held together. A client's queue, or an exchange's attached
/// request, may be locked while `links` is, never the reverse. `open` stays locked while a task that asks a client is spawned, so
/// that the task cannot remove its entry before it is inserted.
pub(crate) struct Switchboard {
    own: Weak<Self>,
    /// Identifies the gateway, so that it does not connect to itself.
    own_id: String,
    clients: Arc<Clients>,
    exchanges: Arc<Exchanges>,
    /// Weak, because subscriptions hold connections, and connections hold the switchboard.
    subscriptions: Weak<Subscriptions>,
    links: Mutex<HashMap<LinkKey, LinkOwner>>,
    /// The servers' identities, by their aliases.
    identities: Mutex<HashMap<Alias, Arc<str>>>,
    /// Server requests without an answer.
    open: Mutex<OpenRequests>,
    /// Servers whose requests could belong to several clients, or delayed other clients' calls.
    asking: AskingServers,
    /// All clients are this program's commands, which answer elicitation.
    is_for_commands: bool,
    roots_access: OnceLock<RootsAccess>,
    changed: Mutex<HashSet<(Alias, ChangedList)>>,
    changed_notify: Notify,
    /// Seals the task ids that messages name.
    keys: OnceLock<Arc<KeyRing>>,
}

impl Switchboard {
    pub(crate) fn new(
        clients: Arc<Clients>,
        exchanges: Arc<Exchanges>,
        subscriptions: &Arc<Subscriptions>,
        asking: AskingServers,
        is_for_commands: bool,
    ) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            own: own.clone(),
            own_id: format!("{:032x}", fastrand::u128(..)),
            clients,
            exchanges,
            subscriptions: Arc::downgrade(subscriptions),
            links: Mutex::default(),
            identities: Mutex::default(),
            open: Mutex::default(),
            asking,
            is_for_commands,
            roots_access: OnceLock::new(),
            changed: Mutex::default(),
            changed_notify: Notify::new(),
            keys: OnceLock::new(),
        })
    }

    /// Sets the keys that seal task ids.
    pub(crate) fn set_keys(&self, keys: Arc<KeyRing>) {
        // A gateway sets them once.
        let _ = self.keys.set(keys);
    }

    /// Returns a message's params with the task id that its recipient knows.
    fn with_sealed_task(&self, client: &Client, server: Option<&Alias>, params: &RawValue) -> Option<Box<RawValue>> {
        with_sealed_task(self.keys.get()?, &client.principal, server?, params)
    }

    /// Returns the servers that are known to ask their clients.
    pub(crate) fn asking(&self) -> &AskingServers {
        &self.asking
    }

    /// Returns `true` if a server's requests could belong to several clients, so that each client that can answer them needs its
    /// own connection.
    pub(crate) fn is_asking(&self, server: &Alias) -> bool {
        let identity = lock(&self.identities).get(server).cloned();
        identity.is_some_and(|identity| self.asking.contains(&identity))
    }

    /// Records that requests from the server at the other end of a connection need a separate connection for each client.
    fn set_asking(&self, link: LinkKey, reason: &str) {
        let shared = lock(&self.links).get(&link).filter(|owner| owner.client.is_none()).map(|it| it.servers.clone());
        for server in shared.into_iter().flatten() {
            let identity = lock(&self.identities).get(&server).cloned();
            if identity.is_some_and(|identity| self.asking.insert(&identity)) {
                tracing::warn!(%server, "{reason}; clients that can answer its requests get their own connections from now on");
            }
        }
    }

    /// Returns `true` if a client can answer requests that servers on shared connections never send.
    pub(crate) fn exceeds_shared(&self, client: &Client) -> bool {
        self.is_for_commands && (client.capabilities.sampling || client.capabilities.roots)
    }

    /// Waits for changed server lists.
    pub(crate) async fn changes(&self) -> HashSet<(Alias, ChangedList)> {
        loop {
            let changed = std::mem::take(&mut *lock(&self.changed));
            if !changed.is_empty() {
                return changed;
            }
            self.changed_notify.notified().await;
        }
    }
}

impl MessageHandler for Switchboard {
    fn own_id(&self) -> &str {
        &self.own_id
    }

    fn capabilities(&self, era: Era) -> Value {
        match era {
            Era::Legacy if self.is_for_commands => json!({"elicitation": {"form": {}, "url": {}}}),
            era => all_capabilities(era),
        }
    }

    fn on_request(&self, server_request: ServerRequest) {
        self.route_request(server_request);
    }

    fn on_withdrawn(&self, link: LinkKey, id: &RawValue) {
        self.end_withdrawn(link, id);
    }

    fn on_closed(&self, link: LinkKey) {
        self.reset_link(link);
    }

    fn on_notification(&self, link: LinkKey, method: &str, params: Option<&RawValue>, callers: Callers) {
        self.route_notification(link, method, params, &callers);
    }
}

/// The message handler for one client's connection: it declares the client's capabilities.
pub(crate) struct IsolatedHandler {
    pub(crate) board: Arc<Switchboard>,
    pub(crate) client: Weak<Client>,
}

impl MessageHandler for IsolatedHandler {
    fn own_id(&self) -> &str {
        self.board.own_id()
    }

    fn capabilities(&self, _: Era) -> Value {
        let client = self.client.upgrade();
        client
            .and_then(|client| serde_json::from_str(&client.description.capabilities).ok())
            .unwrap_or_else(|| json!({}))
    }

    fn on_request(&self, server_request: ServerRequest) {
        self.board.on_request(server_request);
    }

    fn on_withdrawn(&self, link: LinkKey, id: &RawValue) {
        self.board.on_withdrawn(link, id);
    }

    fn on_closed(&self, link: LinkKey) {
        self.board.on_closed(link);
    }

    fn on_notification(&self, link: LinkKey, method: &str, params: Option<&RawValue>, callers: Callers) {
        self.board.on_notification(link, method, params, callers);
    }
}

/// Returns the capabilities for a connection that clients share: everything that a client may have.
fn all_capabilities(era: Era) -> Value {
    match era {
        Era::Legacy => {
            json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {"listChanged": true}})
        }
        // A modern client's request carries its own capabilities.
        Era::Modern => json!({}),
    }
}
