//! All legacy clients, and the requests of modern clients to be notified of changes.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, Weak};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::client::{Client, ClientId};
use super::exchange::Exchange;
use super::outbound::{Frame, FrameKind};
use crate::mcp::ExchangeKey;
use crate::protocol::meta;
use crate::sync::lock;

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

    /// Returns the name of the list, which is also the name of its capability.
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

    /// Returns the method of the notification.
    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources => "notifications/resources/list_changed",
        }
    }
}

/// The changes that a modern client wants to hear of
/// (`subscriptions/listen`).
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
    pub(crate) resource_subscriptions: Vec<String>,
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

/// Legacy clients and modern listeners.
#[derive(Default)]
pub(crate) struct Clients {
    legacy: Mutex<HashMap<ClientId, Weak<Client>>>,
    listeners: Mutex<HashMap<ExchangeKey, Listener>>,
}

impl Clients {
    /// Adds a legacy client.
    pub(crate) fn add(&self, client: &Arc<Client>) {
        let mut legacy = lock(&self.legacy);
        // Clients that are gone are removed now and then, at a cost that the growth pays for.
        if legacy.len() == legacy.capacity() {
            legacy.retain(|_, client| client.strong_count() > 0);
        }
        legacy.insert(client.id, Arc::downgrade(client));
    }

    /// Returns all legacy clients.
    pub(crate) fn legacy(&self) -> Vec<Arc<Client>> {
        lock(&self.legacy).values().filter_map(Weak::upgrade).collect()
    }

    /// Finds a legacy client.
    pub(crate) fn get(&self, client: ClientId) -> Option<Arc<Client>> {
        lock(&self.legacy).get(&client)?.upgrade()
    }

    /// Adds a listener until the guard is dropped.
    pub(crate) fn listen(self: &Arc<Self>, exchange: &Arc<Exchange>, filter: ListenFilter) -> ListenGuard {
        let listener = Listener { exchange: Arc::downgrade(exchange), filter };
        lock(&self.listeners).insert(exchange.key, listener);
        ListenGuard { clients: self.clone(), key: exchange.key }
    }

    /// Returns the number of listeners.
    pub(crate) fn listeners(&self) -> usize {
        lock(&self.listeners).len()
    }

    /// Tells the clients of a profile that a list has changed.
    pub(crate) fn notify_changed(&self, list: ChangedList, concerns: impl Fn(&str) -> bool) {
        let method = list.method();
        let frame = list.frame();
        for client in self.legacy().into_iter().filter(|client| concerns(&client.profile)) {
            client.outbound.send(frame.clone());
        }
        let listeners: Vec<Arc<Exchange>> = {
            let listeners = lock(&self.listeners);
            let wanted = listeners.values().filter(|listener| listener.filter.wants(list));
            wanted.filter_map(|listener| listener.exchange.upgrade()).collect()
        };
        for exchange in listeners.into_iter().filter(|exchange| concerns(&exchange.client.profile)) {
            exchange.outbound.send(Frame::new(FrameKind::Change, listened(method, "", &exchange.id())));
        }
    }
}

/// Writes a notification for a listener: `params` is the text of a JSON object without its braces.
pub(crate) fn listened(method: &str, params: &str, id: &RawValue) -> String {
    let comma = if params.is_empty() { "" } else { "," };
    format!(
        r#"{{"jsonrpc":"2.0","method":"{method}","params":{{{params}{comma}"_meta":{{"{}":{}}}}}}}"#,
        meta::SUBSCRIPTION_ID,
        id.get()
    )
}

/// Removes a listener when dropped.
pub(crate) struct ListenGuard {
    clients: Arc<Clients>,
    key: ExchangeKey,
}

impl Drop for ListenGuard {
    fn drop(&mut self) {
        lock(&self.clients.listeners).remove(&self.key);
    }
}

/// Maximum number of remembered descriptions of modern clients.
const MAX_DESCRIPTIONS: usize = 1024;

/// Modern clients by their descriptions, so that requests of the same client do not parse its description again.
#[derive(Default)]
pub(crate) struct ModernClients(Mutex<HashMap<u64, Vec<Arc<Client>>>>);

impl ModernClients {
    /// Returns the client that `is_same` accepts, or creates it. Clients with the same principal and `clientInfo` get the same
    /// isolation key.
    pub(crate) fn find_or_insert(
        &self,
        identity: (&str, &str),
        is_same: impl Fn(&Client) -> bool,
        create: impl FnOnce(u64) -> Arc<Client>,
    ) -> Arc<Client> {
        let mut hasher = DefaultHasher::new();
        identity.hash(&mut hasher);
        let key = hasher.finish();
        let mut clients = lock(&self.0);
        if let Some(client) = clients.get(&key).and_then(|clients| clients.iter().find(|client| is_same(client))) {
            return client.clone();
        }
        if clients.values().map(Vec::len).sum::<usize>() >= MAX_DESCRIPTIONS {
            clients.clear();
        }
        let client = create(key);
        clients.entry(key).or_default().push(client.clone());
        client
    }
}
