//! All legacy clients, and the modern clients that listen for changes.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, Weak};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::client::outbound::{Frame, FrameKind};
use crate::client::{Client, ClientId, LogLevel};
use crate::request::exchange::Exchange;
use ropeway_core::sync::lock;
use ropeway_mcp::RequestTag;
use ropeway_mcp::protocol::{Era, meta};

/// A list that can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ChangedList {
    Tools,
    Prompts,
    Resources,
}

impl ChangedList {
    /// All lists.
    pub(crate) const ALL: [Self; 3] = [Self::Tools, Self::Prompts, Self::Resources];

    /// Returns the list's name, which is also its capability's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
        }
    }

    /// Returns the notification for a legacy client.
    pub(crate) fn frame(self) -> Frame {
        Frame::new(FrameKind::Change, format!(r#"{{"jsonrpc":"2.0","method":"{}"}}"#, self.method()))
    }

    /// Returns the notification's method.
    pub(crate) fn method(self) -> String {
        format!("notifications/{}/list_changed", self.name())
    }
}

/// The changes that a modern client subscribes to (`subscriptions/listen`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ListenFilter {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) tools_list_changed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) prompts_list_changed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) resources_list_changed: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) resource_subscriptions: Vec<Arc<str>>,
}

impl ListenFilter {
    fn wants(&self, list: ChangedList) -> bool {
        match list {
            ChangedList::Tools => self.tools_list_changed,
            ChangedList::Prompts => self.prompts_list_changed,
            ChangedList::Resources => self.resources_list_changed,
        }
    }
}

/// A modern client that listens.
struct Listener {
    exchange: Weak<Exchange>,
    filter: ListenFilter,
}

/// Legacy clients' log levels, counted so that finding the most verbose one does not visit every client.
#[derive(Debug, Default)]
struct LogLevels {
    by_client: HashMap<ClientId, LogLevel>,
    counts: BTreeMap<LogLevel, usize>,
}

impl LogLevels {
    fn set(&mut self, client: ClientId, level: Option<LogLevel>) {
        let before = match level {
            Some(level) => self.by_client.insert(client, level),
            None => self.by_client.remove(&client),
        };
        if let Some(level) = level {
            *self.counts.entry(level).or_default() += 1;
        }
        if let Some(before) = before
            && let Some(count) = self.counts.get_mut(&before)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&before);
            }
        }
    }
}

fn is_present_with_roots(client: &Client) -> bool {
    client.capabilities.roots && client.is_present()
}

/// Legacy clients and modern listeners.
///
/// The gateway and its switchboard share one instance. It holds weak references only: sessions, pipes and requests own
/// the clients, add them here and remove them, and an entry that outlives its client is skipped.
///
/// No two of `legacy`, `levels` and `listeners` are held at the same time. A client's or exchange's own locks may be
/// taken under them, never the other way round. [`has_roots_of`](Self::has_roots_of) calls its closure under `legacy`,
/// so the closure must not call back into this table. No lock is held across an `.await`. `listeners` stays locked
/// while an acknowledgement is queued, so that no change precedes it; changes are sent after the lock is released.
#[derive(Default)]
pub(crate) struct Clients {
    legacy: Mutex<HashMap<ClientId, Weak<Client>>>,
    levels: Mutex<LogLevels>,
    listeners: Mutex<HashMap<RequestTag, Listener>>,
}

impl Clients {
    /// Adds a legacy client.
    pub(crate) fn add(&self, client: &Arc<Client>) {
        let mut legacy = lock(&self.legacy);
        // Disconnected clients are removed before the table grows, at an amortized constant cost.
        if legacy.len() == legacy.capacity() {
            legacy.retain(|_, client| client.strong_count() > 0);
        }
        legacy.insert(client.id, Arc::downgrade(client));
        drop(legacy);
        if let Some(level) = client.log_level() {
            lock(&self.levels).set(client.id, Some(level));
        }
    }

    /// Removes a legacy client.
    pub(crate) fn remove(&self, client: ClientId) {
        lock(&self.legacy).remove(&client);
        lock(&self.levels).set(client, None);
    }

    /// Sets a legacy client's minimum log level.
    pub(crate) fn set_log_level(&self, client: &Client, level: LogLevel) {
        client.set_log_level(level);
        let mut levels = lock(&self.levels);
        levels.set(client.id, Some(level));
        // The client may have been removed in the meantime.
        if client.outbound.is_closed() {
            levels.set(client.id, None);
        }
    }

    /// Returns the most verbose log level that a legacy client has requested.
    pub(crate) fn log_level(&self) -> Option<LogLevel> {
        lock(&self.levels).counts.keys().next().copied()
    }

    /// Returns all legacy clients.
    pub(crate) fn legacy(&self) -> Vec<Arc<Client>> {
        lock(&self.legacy).values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the connected legacy clients that have roots.
    pub(crate) fn present_with_roots(&self) -> Vec<Arc<Client>> {
        lock(&self.legacy).values().filter_map(Weak::upgrade).filter(|client| is_present_with_roots(client)).collect()
    }

    /// Returns `true` if a connected legacy client with roots matches. Ends at the first one: there may be thousands.
    pub(crate) fn has_roots_of(&self, matches: impl Fn(&Client) -> bool) -> bool {
        let legacy = lock(&self.legacy);
        legacy.values().filter_map(Weak::upgrade).any(|client| is_present_with_roots(&client) && matches(&client))
    }

    /// Returns all clients that can be notified: legacy ones, and those that listen.
    pub(crate) fn connected(&self) -> Vec<Arc<Client>> {
        let mut clients = self.legacy();
        let listeners = lock(&self.listeners);
        clients.extend(listeners.values().filter_map(|it| it.exchange.upgrade()).map(|it| it.client.clone()));
        clients
    }

    /// Finds a legacy client.
    pub(crate) fn get(&self, client: ClientId) -> Option<Arc<Client>> {
        lock(&self.legacy).get(&client)?.upgrade()
    }

    /// Adds a listener, and sends its acknowledgement before any change.
    pub(crate) fn add_listener(&self, exchange: &Arc<Exchange>, filter: ListenFilter, acknowledgement: Frame) {
        let listener = Listener { exchange: Arc::downgrade(exchange), filter };
        let mut listeners = lock(&self.listeners);
        exchange.outbound.send(acknowledgement);
        listeners.insert(exchange.key, listener);
    }

    /// Removes a listener.
    pub(crate) fn remove_listener(&self, key: RequestTag) {
        lock(&self.listeners).remove(&key);
    }

    /// Returns the number of listeners.
    pub(crate) fn listeners(&self) -> usize {
        lock(&self.listeners).len()
    }

    /// Notifies the clients whose profile `concerns` accepts that a list has changed.
    pub(crate) fn notify_changed(&self, list: ChangedList, concerns: impl Fn(&str) -> bool) {
        let frame = list.frame();
        for client in self.legacy().into_iter().filter(|client| concerns(&client.profile)) {
            client.outbound.send(frame.clone());
        }
        self.notify_listeners(list, |client| concerns(&client.profile));
    }

    /// Notifies an isolated connection's client that one of its server's lists has changed there.
    pub(crate) fn notify_isolated(&self, list: ChangedList, owner: &Client) {
        if owner.era == Era::Legacy {
            owner.outbound.send(list.frame());
        }
        let is_own =
            |client: &Client| client.isolation_key == owner.isolation_key && client.principal == owner.principal;
        self.notify_listeners(list, is_own);
    }

    fn notify_listeners(&self, list: ChangedList, concerns: impl Fn(&Client) -> bool) {
        let method = list.method();
        let listeners: Vec<Arc<Exchange>> = {
            let listeners = lock(&self.listeners);
            let wanted = listeners.values().filter(|listener| listener.filter.wants(list));
            wanted.filter_map(|listener| listener.exchange.upgrade()).collect()
        };
        for exchange in listeners.into_iter().filter(|exchange| concerns(&exchange.client)) {
            exchange.outbound.send(Frame::new(FrameKind::Change, listened(&method, "", &exchange.id())));
        }
    }
}

/// Formats a notification for a listener. `params` holds JSON object members without the braces.
pub(crate) fn listened(method: &str, params: &str, id: &RawValue) -> String {
    let comma = if params.is_empty() { "" } else { "," };
    format!(
        r#"{{"jsonrpc":"2.0","method":"{method}","params":{{{params}{comma}"_meta":{{"{}":{}}}}}}}"#,
        meta::SUBSCRIPTION_ID,
        id.get()
    )
}

/// Maximum count and total bytes for cached modern client descriptions.
const MAX_DESCRIPTIONS: Amount = Amount { count: 1024, bytes: 8 << 20 };

/// One principal's maximum share in [`MAX_DESCRIPTIONS`].
const MAX_OWN_DESCRIPTIONS: Amount = Amount { count: 512, bytes: 2 << 20 };

/// A description count, and the total size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    count: usize,
    bytes: usize,
}

impl Amount {
    /// Adds up clients' descriptions.
    fn of<'a>(clients: impl Iterator<Item = &'a Arc<Client>>) -> Self {
        clients.fold(Self::default(), |sum, client| Self {
            count: sum.count + 1,
            bytes: sum.bytes + client.description_bytes(),
        })
    }

    fn exceeds(self, limit: Self) -> bool {
        self.count > limit.count || self.bytes > limit.bytes
    }
}

/// The modern HTTP request fields that tell clients apart.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct ModernIdentity<'a> {
    pub(crate) principal: &'a str,
    pub(crate) profile: &'a str,
    pub(crate) info: &'a str,
    pub(crate) capabilities: &'a str,
}

/// A modern client's keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModernKeys {
    /// Depends on the whole identity.
    pub(crate) isolation: u64,
    /// Does not depend on the capabilities.
    pub(crate) user: u64,
}

/// Modern clients by description, so that later requests do not parse the same description again.
#[derive(Default)]
pub(crate) struct ModernClients {
    /// The hash's secret keys. A principal that knew them could compute another principal's isolation key.
    hashing: RandomState,
    table: Mutex<HashMap<u64, Vec<Arc<Client>>>>,
}

impl ModernClients {
    /// Returns the client that `is_same` accepts, or creates it. Clients with the same identity get the same isolation key.
    pub(crate) fn find_or_insert(
        &self,
        identity: ModernIdentity<'_>,
        is_same: impl Fn(&Client) -> bool,
        create: impl FnOnce(ModernKeys) -> Arc<Client>,
    ) -> Arc<Client> {
        let key = self.hashing.hash_one(identity);
        let mut clients = lock(&self.table);
        if let Some(client) = clients.get(&key).and_then(|clients| clients.iter().find(|client| is_same(client))) {
            return client.clone();
        }
        let ModernIdentity { principal, profile, info, .. } = identity;
        let client = create(ModernKeys { isolation: key, user: self.hashing.hash_one((principal, profile, info)) });
        clients.entry(key).or_default().push(client.clone());
        make_room(&mut clients, &client);
        client
    }
}

/// Restores the limits after an insertion. A principal above its share loses all its descriptions except the new one;
/// above the total limit, only the new one stays.
fn make_room(clients: &mut HashMap<u64, Vec<Arc<Client>>>, new: &Arc<Client>) {
    let is_own = |client: &Arc<Client>| client.principal == new.principal;
    if Amount::of(clients.values().flatten().filter(|client| is_own(client))).exceeds(MAX_OWN_DESCRIPTIONS) {
        retain(clients, |client| !is_own(client) || Arc::ptr_eq(client, new));
    }
    if Amount::of(clients.values().flatten()).exceeds(MAX_DESCRIPTIONS) {
        retain(clients, |client| Arc::ptr_eq(client, new));
    }
}

fn retain(clients: &mut HashMap<u64, Vec<Arc<Client>>>, is_kept: impl Fn(&Arc<Client>) -> bool) {
    clients.retain(|_, clients| {
        clients.retain(|client| is_kept(client));
        !clients.is_empty()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{ClientDescription, Principal};
    use ropeway_mcp::protocol::MODERN;

    #[test]
    fn the_most_verbose_log_level_follows_the_clients() {
        let clients = Clients::default();
        let [debug, info, error] = ["debug", "info", "error"].map(|name| LogLevel::parse(name).expect("a level"));
        let client = || {
            let description = ClientDescription { version: "".into(), capabilities: "{}".into(), info: "{}".into() };
            Arc::new(Client::new(Era::Legacy, description, Principal::from(""), "default".into(), None))
        };
        let (one, two, three) = (client(), client(), client());
        three.set_log_level(error);
        [&one, &two, &three].iter().for_each(|client| clients.add(client));
        assert_eq!(clients.log_level(), Some(error), "a revived client has its level already");
        clients.set_log_level(&one, debug);
        clients.set_log_level(&two, info);
        assert_eq!(clients.log_level(), Some(debug));
        clients.set_log_level(&one, error);
        assert_eq!(clients.log_level(), Some(info));
        clients.remove(two.id);
        assert_eq!(clients.log_level(), Some(error));
        one.close();
        clients.set_log_level(&one, debug);
        [&one, &three].iter().for_each(|client| clients.remove(client.id));
        assert_eq!(clients.log_level(), None);
        assert!(clients.legacy().is_empty() && lock(&clients.levels).by_client.is_empty());
    }

    /// Finds a principal's client with this `clientInfo`, or adds it.
    fn enter(clients: &ModernClients, principal: &Principal, info: &str) -> Arc<Client> {
        let is_same = |client: &Client| *client.description.info == *info && client.principal.is_clone(principal);
        let identity = ModernIdentity { principal: principal.id(), profile: "default", info, capabilities: "{}" };
        clients.find_or_insert(identity, is_same, |keys| {
            let description =
                ClientDescription { version: MODERN.into(), capabilities: "{}".into(), info: info.into() };
            Arc::new(Client::new(Era::Modern, description, principal.clone(), "default".into(), Some(keys.isolation)))
        })
    }

    fn amount(clients: &ModernClients) -> Amount {
        Amount::of(lock(&clients.table).values().flatten())
    }

    #[test]
    fn isolation_keys_depend_on_every_part_of_an_identity_and_on_the_process() {
        let whole = ModernIdentity { principal: "a", profile: "p", info: "{}", capabilities: "{}" };
        let others = [
            ModernIdentity { principal: "b", ..whole },
            ModernIdentity { profile: "q", ..whole },
            ModernIdentity { info: r#"{"name":"c"}"#, ..whole },
            ModernIdentity { capabilities: r#"{"roots":{}}"#, ..whole },
        ];
        let (first, second) = (ModernClients::default(), ModernClients::default());
        let key = first.hashing.hash_one(whole);
        assert!(others.iter().all(|other| first.hashing.hash_one(other) != key));
        assert_ne!(second.hashing.hash_one(whole), key, "the keys of the hash are random");
    }

    #[test]
    fn one_principal_cannot_fill_the_table_of_descriptions() {
        let clients = ModernClients::default();
        let (alice, bob) = (Principal::from("key:a"), Principal::from("key:b"));
        let kept = enter(&clients, &bob, r#"{"name":"b"}"#);
        for number in 0..2000 {
            enter(&clients, &alice, &format!(r#"{{"name":"{number}{}"}}"#, "x".repeat(10_000)));
            assert!(!amount(&clients).exceeds(MAX_OWN_DESCRIPTIONS), "{:?}", amount(&clients));
        }
        for number in 0..2000 {
            enter(&clients, &alice, &format!(r#"{{"name":"{number}"}}"#));
        }
        assert!(Arc::ptr_eq(&kept, &enter(&clients, &bob, r#"{"name":"b"}"#)), "others keep theirs");
    }

    #[test]
    fn the_descriptions_of_all_principals_are_bounded() {
        let clients = ModernClients::default();
        for number in 0..3000 {
            let principal = Principal::from(&*format!("key:{number}"));
            let first = enter(&clients, &principal, &format!(r#"{{"name":"{}"}}"#, "x".repeat(8_000)));
            assert!(Arc::ptr_eq(&first, &enter(&clients, &principal, &first.description.info)));
            assert!(!amount(&clients).exceeds(MAX_DESCRIPTIONS), "{:?}", amount(&clients));
        }
    }
}
