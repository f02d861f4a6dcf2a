//! Client subscriptions to resources, and the connections that they are placed on.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use tokio::task::JoinSet;

use crate::client::clients::listened;
use crate::client::outbound::{Frame, FrameKind};
use crate::client::shares::{Hold, Resource, ShareError, Shares};
use crate::client::{Client, ClientId};
use crate::request::exchange::Exchange;
use crate::upstream::{SubscriptionGuard, SubscriptionPlace};
use ropeway_core::sync::lock;
use ropeway_core::tool::Alias;
use ropeway_mcp::{LinkKey, RequestTag, SubscriptionHold};

/// Maximum number of subscriptions per subscriber.
pub(crate) const MAX_PER_SUBSCRIBER: usize = 1000;

/// Maximum bytes of one subscriber's URIs.
pub(crate) const MAX_SUBSCRIBER_BYTES: usize = 256 << 10;

/// Maximum URI bytes that the session journal keeps for one session, so that they fit into one line.
const MAX_NOTED_BYTES: usize = 8 << 10;

/// Bytes that a subscription takes in all tables together, without its URI.
const OVERHEAD: usize = 512;

/// Identifies a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SubscriberKey {
    /// A legacy client.
    Client(ClientId),
    /// A modern client's listening request.
    Listener(RequestTag),
}

/// Where a subscriber's notifications go.
#[derive(Clone)]
pub(crate) enum Subscriber {
    Client(Weak<Client>),
    Listener(Weak<Exchange>),
}

impl Subscriber {
    /// Returns the client, unless it has disconnected.
    fn client(&self) -> Option<Arc<Client>> {
        match self {
            Self::Client(client) => client.upgrade(),
            Self::Listener(exchange) => exchange.upgrade().map(|exchange| exchange.client.clone()),
        }
    }

    /// Sends the notification, if the client may use the server.
    fn notify(&self, uri: &str, is_permitted: impl Fn(&Client) -> bool) {
        let uri = serde_json::Value::from(uri);
        let method = "notifications/resources/updated";
        match self {
            Self::Client(client) => {
                if let Some(client) = client.upgrade().filter(|client| is_permitted(client)) {
                    let message = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"uri":{uri}}}}}"#);
                    client.outbound.send(Frame::new(FrameKind::Change, message));
                }
            }
            Self::Listener(exchange) => {
                if let Some(exchange) = exchange.upgrade().filter(|exchange| is_permitted(&exchange.client)) {
                    let message = listened(method, &format!(r#""uri":{uri}"#), &exchange.id());
                    exchange.outbound.send(Frame::new(FrameKind::Change, message));
                }
            }
        }
    }
}

/// The subscriptions to one server by clients with the same isolation key. All are placed on one connection: the one that the
/// clients' calls use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupKey {
    pub(crate) isolation_key: u64,
    pub(crate) server: Alias,
}

/// A resource that a client subscribes to.
#[derive(Clone, Debug)]
pub(crate) struct SubscribedResource {
    pub(crate) group: GroupKey,
    /// The server's URI.
    pub(crate) uri: Arc<str>,
    /// The client's URI.
    pub(crate) client_uri: Arc<str>,
}

/// A subscription limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SubscriptionLimit {
    #[error("too many subscriptions (limit: {} per client)", MAX_PER_SUBSCRIBER)]
    Count,
    #[error("too many bytes of subscriptions (limit: {} per client)", MAX_SUBSCRIBER_BYTES)]
    Bytes,
    #[error(transparent)]
    Share(#[from] ShareError),
}

/// Returns `true` if a client may use a server. Its rights can change after it has subscribed.
pub(crate) type AccessCheck = Box<dyn Fn(&Client, &Alias) -> bool + Send + Sync>;

/// All client subscriptions.
///
/// The gateway's shared state owns the table. Client requests, the background task, and the tasks in `tasks`, which restore and
/// move subscriptions, write it. Those tasks end when the gateway drains; they hold the shared state, so the table outlives them.
/// Subscribers are weak references: [`remove_ended`](Self::remove_ended) removes those whose client has disconnected or lost its
/// access.
///
/// The table's lock is never held across `.await`, and notifications are sent after it is released. The bridge's locks, and a
/// connection's for its subscription holds, come after it; `tasks` is locked on its own. Connections that lose their last
/// subscription are dropped after the lock is released, because they may close then.
#[derive(Default)]
pub(crate) struct Subscriptions {
    table: Mutex<Table>,
    /// Number of groups, so that calls take no lock while there are none.
    groups: AtomicUsize,
    access: OnceLock<AccessCheck>,
    tasks: Mutex<JoinSet<()>>,
}

/// Groups by their connection, and by a subscription's URI.
type PlacedGroups = HashMap<LinkKey, HashMap<Arc<str>, HashSet<GroupKey>>>;

#[derive(Default)]
struct Table {
    groups: HashMap<GroupKey, Group>,
    /// The groups with a subscription on a connection, by its URI.
    links: PlacedGroups,
    subscribers: HashMap<SubscriberKey, SubscriberState>,
}

#[derive(Default)]
struct Group {
    place: Option<GroupPlace>,
    /// The server's slot when the group was last placed.
    slot: Option<u64>,
    /// Whether its server was removed or replaced since the group was placed, so that changes may have gone unnoticed.
    has_gap: bool,
    resources: HashMap<Arc<str>, GroupResource>,
}

/// A group's connection.
struct GroupPlace {
    link: LinkKey,
    /// Keeps an isolated connection open.
    connection: Option<SubscriptionGuard>,
}

/// A group's subscriptions on its connection.
///
/// If the group has moved, its former connection stays subscribed until this is dropped: the group's other clients may cause
/// changes before the server has confirmed the new subscriptions. Wait for them before you drop it.
#[derive(Default)]
pub(crate) struct Placed<'a> {
    pub(crate) holds: Vec<SubscriptionHold>,
    /// Whether changes may have gone unnoticed, which is reported to the subscribers.
    pub(crate) has_gap: bool,
    _before: Option<Replaced<'a>>,
}

/// A group's former place. Dropping it ends the subscriptions there.
struct Replaced<'a> {
    subscriptions: &'a Subscriptions,
    key: GroupKey,
    link: LinkKey,
    held: Vec<(Arc<str>, Option<SubscriptionHold>)>,
    _place: GroupPlace,
}

impl Drop for Replaced<'_> {
    fn drop(&mut self) {
        let mut table = lock(&self.subscriptions.table);
        let Table { groups, links, .. } = &mut *table;
        // The group may have returned.
        let place = groups.get(&self.key).and_then(|group| group.place.as_ref());
        if place.is_none_or(|place| place.link != self.link) {
            for (uri, _) in &self.held {
                remove_link(links, self.link, uri, &self.key);
            }
        }
    }
}

#[derive(Default)]
struct GroupResource {
    /// The subscription on the group's connection.
    hold: Option<SubscriptionHold>,
    /// The subscribers, each with the URI that it uses.
    subscribers: HashSet<(SubscriberKey, Arc<str>)>,
}

struct SubscriberState {
    subscriber: Subscriber,
    hold: Hold,
    /// Bytes of all URIs.
    bytes: usize,
    /// The bytes that the session journal keeps.
    noted: usize,
    /// The resources by the client's URIs.
    resources: HashMap<Arc<str>, SubscriberResource>,
    /// Changed URIs that wait for the acknowledgement, which is the first message to a listener.
    early: Option<HashSet<Arc<str>>>,
}

struct SubscriberResource {
    group: GroupKey,
    uri: Arc<str>,
    is_noted: bool,
}

/// Returns the bytes that a subscription is counted with.
fn cost(client_uri: &str) -> usize {
    client_uri.len() + OVERHEAD
}

impl Subscriptions {
    /// Sets the check for each notification. Without it, all are delivered.
    pub(crate) fn set_access(&self, access: AccessCheck) {
        // It is set once, when the gateway is built.
        let _ = self.access.set(access);
    }

    /// Runs a task that ends with the gateway.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Fails if a subscriber has no room for another subscription.
    pub(crate) fn check_room(&self, key: SubscriberKey, client_uri: &str) -> Result<(), SubscriptionLimit> {
        check_room(lock(&self.table).subscribers.get(&key), client_uri)
    }

    /// Adds a subscription, which is not placed yet. Returns `false` if it exists.
    pub(crate) fn add(
        &self,
        shares: &Shares,
        key: SubscriberKey,
        subscriber: &Subscriber,
        client: &Client,
        resource: &SubscribedResource,
    ) -> Result<bool, SubscriptionLimit> {
        let mut table = lock(&self.table);
        let Table { groups, subscribers, .. } = &mut *table;
        let bytes = resource.client_uri.len();
        check_room(subscribers.get(&key), &resource.client_uri)?;
        match subscribers.get_mut(&key) {
            Some(state) if state.resources.contains_key(&resource.client_uri) => return Ok(false),
            Some(state) => state.hold.grow(cost(&resource.client_uri))?,
            None => {
                let holdings = client.principal.holdings();
                let hold = shares.take(Resource::SubscriptionBytes, holdings, cost(&resource.client_uri))?;
                let subscriber = subscriber.clone();
                let early = matches!(key, SubscriberKey::Listener(_)).then(HashSet::new);
                let state = SubscriberState { subscriber, hold, bytes: 0, noted: 0, resources: HashMap::new(), early };
                subscribers.insert(key, state);
            }
        }
        let Some(state) = subscribers.get_mut(&key) else { return Ok(false) };
        let is_noted = matches!(key, SubscriberKey::Client(_)) && state.noted + bytes <= MAX_NOTED_BYTES;
        state.bytes += bytes;
        state.noted += if is_noted { bytes } else { 0 };
        let SubscribedResource { group, uri, client_uri } = resource.clone();
        let own = SubscriberResource { group: group.clone(), uri: uri.clone(), is_noted };
        state.resources.insert(client_uri.clone(), own);
        let placed = groups.entry(group).or_default().resources.entry(uri).or_default();
        placed.subscribers.insert((key, client_uri));
        self.groups.store(groups.len(), Ordering::Relaxed);
        Ok(true)
    }

    /// Returns `true` if a subscription exists and the session journal keeps it.
    pub(crate) fn is_noted(&self, key: SubscriberKey, client_uri: &str) -> bool {
        let table = lock(&self.table);
        let resource = table.subscribers.get(&key).and_then(|state| state.resources.get(client_uri));
        resource.is_some_and(|resource| resource.is_noted)
    }

    /// Removes a subscription. Returns `true` if the session journal keeps it.
    pub(crate) fn remove(&self, key: SubscriberKey, client_uri: &str) -> bool {
        let mut table = lock(&self.table);
        let Some(state) = table.subscribers.get_mut(&key) else { return false };
        let Some((client_uri, resource)) = state.resources.remove_entry(client_uri) else { return false };
        state.hold.shrink(cost(&client_uri));
        state.bytes -= client_uri.len();
        state.noted -= if resource.is_noted { client_uri.len() } else { 0 };
        if state.resources.is_empty() {
            table.subscribers.remove(&key);
        }
        let unused = table.release(&resource, &(key, client_uri));
        self.groups.store(table.groups.len(), Ordering::Relaxed);
        drop(table);
        drop(unused);
        resource.is_noted
    }

    /// Removes all subscriptions that a subscriber has.
    pub(crate) fn remove_all(&self, key: SubscriberKey) {
        let mut table = lock(&self.table);
        let Some(state) = table.subscribers.remove(&key) else { return };
        let release = |(client_uri, resource)| table.release(&resource, &(key, client_uri));
        let unused: Vec<_> = state.resources.into_iter().filter_map(release).collect();
        self.groups.store(table.groups.len(), Ordering::Relaxed);
        drop(table);
        drop(unused);
    }

    /// Removes the subscriptions of clients that have disconnected, or whose key or token is revoked.
    pub(crate) fn remove_ended(&self) {
        let ended: Vec<SubscriberKey> = {
            let table = lock(&self.table);
            let has_ended = |state: &SubscriberState| {
                state.subscriber.client().is_none_or(|client| client.principal.revoked().is_cancelled())
            };
            table.subscribers.iter().filter(|(_, state)| has_ended(state)).map(|(key, _)| *key).collect()
        };
        ended.into_iter().for_each(|key| self.remove_all(key));
    }

    /// Returns `true` if a client has subscriptions to a server that are placed on another connection.
    pub(crate) fn is_elsewhere(&self, client: &Client, server: &Alias, link: LinkKey) -> bool {
        if self.groups.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let key = GroupKey { isolation_key: client.isolation_key, server: server.clone() };
        let table = lock(&self.table);
        table.groups.get(&key).is_some_and(|group| group.place.as_ref().is_none_or(|place| place.link != link))
    }

    /// Places a group's subscriptions on a connection. Returns those that `uris` names, or all if they have moved.
    pub(crate) fn place(&self, key: &GroupKey, to: SubscriptionPlace, uris: &[Arc<str>]) -> Placed<'_> {
        let mut table = lock(&self.table);
        let Table { groups, links, .. } = &mut *table;
        let Some(group) = groups.get_mut(key) else { return Placed::default() };
        let link = to.mcp.link();
        let has_moved = group.place.as_ref().is_none_or(|place| place.link != link);
        let before = if has_moved { group.place.take() } else { None };
        let before = before.map(|place| {
            let held = group.resources.iter_mut().map(|(uri, resource)| (uri.clone(), resource.hold.take()));
            Replaced { subscriptions: self, key: key.clone(), link: place.link, held: held.collect(), _place: place }
        });
        let has_gap = std::mem::take(&mut group.has_gap) || (before.is_some() && group.slot != to.slot);
        group.slot = to.slot;
        let all: Vec<Arc<str>> = if has_moved { group.resources.keys().cloned().collect() } else { Vec::new() };
        let named: &[Arc<str>] = if has_moved { &all } else { uris };
        let mut holds = Vec::new();
        for uri in named {
            let Some(resource) = group.resources.get_mut(uri) else { continue };
            links.entry(link).or_default().entry(uri.clone()).or_default().insert(key.clone());
            // A hold requests a failed subscription again.
            let hold = to.mcp.hold_subscription(uri);
            resource.hold.get_or_insert_with(|| hold.clone());
            holds.push(hold);
        }
        let replaced = group.place.replace(GroupPlace { link, connection: to.connection });
        drop(table);
        drop(replaced);
        if has_gap {
            self.report_gap(key, &holds);
        }
        Placed { holds, has_gap, _before: before }
    }

    /// Notifies a group's subscribers that resources may have changed, once their subscriptions are confirmed.
    pub(crate) fn report_gap(&self, key: &GroupKey, holds: &[SubscriptionHold]) {
        for hold in holds.iter().filter(|hold| hold.note_gap()) {
            // The others on the connection have missed nothing.
            let notified = lock(&self.table).subscribers_in(key, hold.uri());
            notified.iter().for_each(|(server, subscriber, client_uri)| self.send(server, subscriber, client_uri));
        }
    }

    /// Takes the groups whose server was restarted with other settings, or whose shared connection was replaced, each with one
    /// client. `slot` and `link` return a server's current slot and shared connection.
    pub(crate) fn take_outdated(
        &self,
        slot: impl Fn(&Alias) -> Option<u64>,
        link: impl Fn(&Alias) -> Option<LinkKey>,
    ) -> Vec<(GroupKey, Arc<Client>)> {
        if self.groups.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut current: HashMap<Alias, (Option<u64>, Option<LinkKey>)> = HashMap::new();
        let mut unused = Vec::new();
        let mut outdated = Vec::new();
        let mut table = lock(&self.table);
        let Table { groups, links, subscribers } = &mut *table;
        for (key, group) in groups {
            let entry = current.entry(key.server.clone());
            let (slot, shared) = *entry.or_insert_with(|| (slot(&key.server), link(&key.server)));
            let is_replaced = |place: &GroupPlace| place.connection.is_none() && Some(place.link) != shared;
            if group.slot == slot && !group.place.as_ref().is_some_and(is_replaced) {
                continue;
            }
            group.slot = slot;
            group.has_gap |= group.place.is_some();
            if slot.is_none() {
                unused.extend(take_place(group, links, key));
                continue;
            }
            let keys = group.resources.values().flat_map(|resource| &resource.subscribers);
            let client = keys.filter_map(|(key, _)| subscribers.get(key)?.subscriber.client()).next();
            outdated.extend(client.map(|client| (key.clone(), client)));
        }
        drop(table);
        drop(unused);
        outdated
    }

    /// Notifies a changed resource's subscribers, if they may use its server.
    pub(crate) fn notify(&self, link: LinkKey, uri: &str) {
        let notified = lock(&self.table).subscribers_of(link, uri);
        notified.iter().for_each(|(server, subscriber, client_uri)| self.send(server, subscriber, client_uri));
    }

    fn send(&self, server: &Alias, subscriber: &Subscriber, client_uri: &str) {
        let is_permitted = |client: &Client| self.access.get().is_none_or(|access| access(client, server));
        subscriber.notify(client_uri, is_permitted);
    }

    /// Notifies a listener, which has got its acknowledgement, about the changes so far.
    pub(crate) fn begin_notifying(&self, key: SubscriberKey) {
        let mut table = lock(&self.table);
        let Some(state) = table.subscribers.get_mut(&key) else { return };
        let subscriber = state.subscriber.clone();
        let mut early = Vec::new();
        for uri in state.early.take().into_iter().flatten() {
            early.extend(state.resources.get(&uri).map(|resource| (resource.group.server.clone(), uri)));
        }
        drop(table);
        early.iter().for_each(|(server, uri)| self.send(server, &subscriber, uri));
    }

    /// Returns the number of subscribed resources, over all connections.
    pub(crate) fn len(&self) -> usize {
        lock(&self.table).links.values().map(HashMap::len).sum()
    }
}

impl Table {
    /// Removes a resource's subscriber. Returns the group's place if that was its last subscription.
    fn release(&mut self, resource: &SubscriberResource, by: &(SubscriberKey, Arc<str>)) -> Option<GroupPlace> {
        let group = self.groups.get_mut(&resource.group)?;
        let placed = group.resources.get_mut(&resource.uri)?;
        placed.subscribers.remove(by);
        if !placed.subscribers.is_empty() {
            return None;
        }
        group.resources.remove(&resource.uri);
        if let Some(place) = &group.place {
            remove_link(&mut self.links, place.link, &resource.uri, &resource.group);
        }
        let is_unused = group.resources.is_empty();
        let unused = if is_unused { self.groups.remove(&resource.group) } else { None };
        unused.and_then(|group| group.place)
    }

    /// Returns a group's subscribers to notify about a change. Listeners without an acknowledgement are notified after it.
    fn subscribers_in(&mut self, key: &GroupKey, uri: &str) -> Vec<(Alias, Subscriber, Arc<str>)> {
        let resource = self.groups.get(key).and_then(|group| group.resources.get(uri));
        let mut found = Vec::new();
        for (subscriber, client_uri) in resource.into_iter().flat_map(|resource| &resource.subscribers) {
            let Some(state) = self.subscribers.get_mut(subscriber) else { continue };
            match &mut state.early {
                Some(early) => drop(early.insert(client_uri.clone())),
                None => found.push((key.server.clone(), state.subscriber.clone(), client_uri.clone())),
            }
        }
        found
    }

    /// Returns the subscribers on a connection to notify about a change.
    fn subscribers_of(&mut self, link: LinkKey, uri: &str) -> Vec<(Alias, Subscriber, Arc<str>)> {
        let groups = self.links.get(&link).and_then(|uris| uris.get(uri));
        let groups: Vec<GroupKey> = groups.into_iter().flatten().cloned().collect();
        groups.iter().flat_map(|key| self.subscribers_in(key, uri)).collect()
    }
}

/// Fails if a subscriber has no room for another subscription.
fn check_room(state: Option<&SubscriberState>, client_uri: &str) -> Result<(), SubscriptionLimit> {
    match state {
        Some(state) if state.resources.contains_key(client_uri) => Ok(()),
        Some(state) if state.resources.len() >= MAX_PER_SUBSCRIBER => Err(SubscriptionLimit::Count),
        state if state.map_or(0, |state| state.bytes) + client_uri.len() > MAX_SUBSCRIBER_BYTES => {
            Err(SubscriptionLimit::Bytes)
        }
        _ => Ok(()),
    }
}

/// Removes all subscriptions in a group from its connection.
fn take_place(group: &mut Group, links: &mut PlacedGroups, key: &GroupKey) -> Option<GroupPlace> {
    let place = group.place.take()?;
    for (uri, resource) in &mut group.resources {
        remove_link(links, place.link, uri, key);
        resource.hold = None;
    }
    Some(place)
}

fn remove_link(links: &mut PlacedGroups, link: LinkKey, uri: &str, group: &GroupKey) {
    let Some(uris) = links.get_mut(&link) else { return };
    if let Some(groups) = uris.get_mut(uri) {
        groups.remove(group);
        if groups.is_empty() {
            uris.remove(uri);
        }
    }
    if uris.is_empty() {
        links.remove(&link);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{ClientDescription, Principal};
    use ropeway_config::{GatewayLimits, ServerConfig, StdioServer};
    use ropeway_mcp::Mcp;
    use ropeway_mcp::protocol::Era;

    fn client(isolation_key: u64) -> Arc<Client> {
        let description =
            ClientDescription { version: "2025-11-25".into(), capabilities: "{}".into(), info: "{}".into() };
        let principal = Principal::from("key:a");
        Arc::new(Client::new(Era::Legacy, description, principal, "default".into(), Some(isolation_key)))
    }

    /// A client and a gateway's shares.
    struct Subscribing {
        subscriptions: Subscriptions,
        shares: Shares,
    }

    impl Subscribing {
        fn new() -> Self {
            Self { subscriptions: Subscriptions::default(), shares: Shares::new(&GatewayLimits::default()) }
        }

        fn add(&self, client: &Arc<Client>, uri: &str) -> Result<bool, SubscriptionLimit> {
            let subscriber = Subscriber::Client(Arc::downgrade(client));
            let key = SubscriberKey::Client(client.id);
            self.subscriptions.add(&self.shares, key, &subscriber, client, &resource(client, uri))
        }

        fn remove(&self, client: &Arc<Client>, uri: &str) -> bool {
            self.subscriptions.remove(SubscriberKey::Client(client.id), uri)
        }

        fn place(&self, client: &Arc<Client>, mcp: &Mcp, uri: &str) -> usize {
            let to = SubscriptionPlace { mcp: mcp.clone(), slot: Some(1), connection: None, started: Ok(()) };
            self.move_to(client, to, uri).holds.len()
        }

        fn move_to(&self, client: &Arc<Client>, to: SubscriptionPlace, uri: &str) -> Placed<'_> {
            self.subscriptions.place(&resource(client, uri).group, to, &[uri.into()])
        }
    }

    fn resource(client: &Client, uri: &str) -> SubscribedResource {
        let group = GroupKey { isolation_key: client.isolation_key, server: "s".into() };
        SubscribedResource { group, uri: uri.into(), client_uri: uri.into() }
    }

    fn connection() -> Mcp {
        Mcp::new(ServerConfig::new("s", StdioServer::command("true")))
    }

    #[test]
    fn subscriptions_of_one_client_are_bounded() {
        let own = Subscribing::new();
        let client = client(1);
        assert!((0..MAX_PER_SUBSCRIBER).all(|number| own.add(&client, &format!("a:{number}")) == Ok(true)));
        assert_eq!(own.add(&client, "a:0"), Ok(false), "it exists");
        assert_eq!(own.add(&client, "b:"), Err(SubscriptionLimit::Count));
        own.subscriptions.remove_all(SubscriberKey::Client(client.id));
        let long = "x".repeat(100 << 10);
        assert_eq!(own.add(&client, &format!("a:{long}")), Ok(true));
        assert_eq!(own.add(&client, &format!("b:{long}")), Ok(true));
        assert_eq!(own.add(&client, &format!("c:{long}")), Err(SubscriptionLimit::Bytes));
        assert!(own.shares.held(Resource::SubscriptionBytes) > 200 << 10);
        assert!(!own.remove(&client, &format!("a:{long}")), "the journal does not keep it");
        assert!(!own.remove(&client, &format!("b:{long}")));
        assert_eq!(own.shares.held(Resource::SubscriptionBytes), 0);
        assert!(lock(&own.subscriptions.table).subscribers.is_empty());
    }

    #[test]
    fn subscriptions_of_one_principal_are_bounded() {
        let own = Subscribing::new();
        let one = client(1);
        let share = own.shares.share(Resource::SubscriptionBytes, one.principal.holdings());
        let long = "x".repeat(200 << 10);
        let mut clients = Vec::new();
        let refused = loop {
            let mut next = client(1);
            Arc::get_mut(&mut next).expect("one owner").principal = one.principal.clone();
            match own.add(&next, &long) {
                Ok(_) => clients.push(next),
                Err(limit) => break limit,
            }
            assert!(clients.len() < 1000, "no limit");
        };
        assert!(matches!(refused, SubscriptionLimit::Share(error) if error.status() == 429), "{refused}");
        assert!(one.principal.holdings().held(Resource::SubscriptionBytes) <= share);
        assert_eq!(own.add(&client(2), &long), Ok(true), "another principal");
    }

    #[test]
    fn the_journal_keeps_what_fits_into_a_line() {
        let own = Subscribing::new();
        let client = client(1);
        let uri = |number: usize| format!("{number}:{}", "x".repeat(1000));
        for number in 0..20 {
            assert_eq!(own.add(&client, &uri(number)), Ok(true));
        }
        let key = SubscriberKey::Client(client.id);
        let noted = (0..20).filter(|number| own.subscriptions.is_noted(key, &uri(*number))).count();
        assert_eq!(noted, MAX_NOTED_BYTES / 1010);
        assert!(own.remove(&client, &uri(0)) && !own.remove(&client, &uri(0)));
        own.add(&client, "short:").expect("room");
        assert!(own.subscriptions.is_noted(key, "short:"));
    }

    #[test]
    fn two_clients_on_one_resource_leave_one_after_the_other() {
        let own = Subscribing::new();
        let (one, two, shared) = (client(1), client(2), connection());
        for client in [&one, &two] {
            assert_eq!(own.add(client, "a:"), Ok(true));
            assert_eq!(own.place(client, &shared, "a:"), 1);
        }
        let notified = || lock(&own.subscriptions.table).subscribers_of(shared.link(), "a:").len();
        assert_eq!((notified(), own.subscriptions.len()), (2, 1));
        own.remove(&one, "a:");
        assert_eq!((notified(), own.subscriptions.len()), (1, 1));
        own.remove(&two, "a:");
        assert_eq!((notified(), own.subscriptions.len()), (0, 0));
        assert!(lock(&own.subscriptions.table).groups.is_empty());
    }

    #[test]
    fn a_moved_group_keeps_its_former_connection_until_the_new_one_has_confirmed() {
        let own = Subscribing::new();
        let (one, shared, isolated) = (client(1), connection(), connection());
        let place =
            |mcp: &Mcp| SubscriptionPlace { mcp: mcp.clone(), slot: Some(1), connection: None, started: Ok(()) };
        let at = |mcp: &Mcp| lock(&own.subscriptions.table).subscribers_of(mcp.link(), "a:").len();
        own.add(&one, "a:").expect("room");
        own.place(&one, &shared, "a:");
        let moved = own.move_to(&one, place(&isolated), "a:");
        assert_eq!((at(&shared), at(&isolated)), (1, 1));
        drop(moved);
        assert_eq!((at(&shared), at(&isolated)), (0, 1));
        // One that returns meanwhile keeps its place.
        let moved = own.move_to(&one, place(&shared), "a:");
        drop(own.move_to(&one, place(&isolated), "a:"));
        drop(moved);
        assert_eq!((at(&shared), at(&isolated)), (0, 1));
        own.remove(&one, "a:");
        assert_eq!((at(&shared), at(&isolated), own.subscriptions.len()), (0, 0, 0));
    }

    #[test]
    fn a_group_moves_to_another_connection_with_all_its_resources() {
        let own = Subscribing::new();
        let (one, other) = (client(1), client(2));
        let (shared, isolated) = (connection(), connection());
        for client in [&one, &other] {
            for uri in ["a:", "b:"] {
                own.add(client, uri).expect("room");
                own.place(client, &shared, uri);
            }
        }
        assert!(own.subscriptions.is_elsewhere(&one, &"s".into(), isolated.link()));
        assert_eq!(own.place(&one, &isolated, "a:"), 2);
        assert!(!own.subscriptions.is_elsewhere(&one, &"s".into(), isolated.link()));
        let at = |mcp: &Mcp| lock(&own.subscriptions.table).subscribers_of(mcp.link(), "b:").len();
        assert_eq!((at(&shared), at(&isolated)), (1, 1));
        let outdated = own.subscriptions.take_outdated(|_| Some(1), |_| Some(shared.link()));
        assert_eq!(outdated.len(), 1, "the place of `one` counts as shared and was replaced");
        let outdated = own.subscriptions.take_outdated(|_| Some(2), |_| Some(shared.link()));
        assert_eq!(outdated.len(), 2, "the server was restarted");
        assert!(own.subscriptions.take_outdated(|_| None, |_| None).is_empty());
        assert_eq!((at(&shared), at(&isolated)), (0, 0), "the server was removed");
    }
}
