//! Subscriptions to resources: one upstream subscription serves all clients.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, Weak};

use super::client::{Client, ClientId};
use super::clients::listened;
use super::exchange::Exchange;
use super::outbound::{Frame, FrameKind};
use crate::mcp::ExchangeKey;
use crate::sync::lock;
use crate::tool::Alias;

/// Maximum number of subscriptions of one client.
const MAX_PER_CLIENT: usize = 1000;

/// Identifies a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SubscriberKey {
    /// A legacy client.
    Client(ClientId),
    /// A listening request of a modern client.
    Listener(ExchangeKey),
}

/// The destination of the notifications of a subscriber.
#[derive(Clone)]
pub(crate) enum Subscriber {
    Client(Weak<Client>),
    Listener(Weak<Exchange>),
}

impl Subscriber {
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

/// A resource of a server, by the server's own URI.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SubscribedResource {
    pub(crate) server: Alias,
    pub(crate) uri: String,
}

/// The client has too many subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManySubscriptions;

/// Returns `true` if a client may use a server. Its rights can change after it has subscribed.
pub(crate) type AccessCheck = Box<dyn Fn(&Client, &Alias) -> bool + Send + Sync>;

/// All subscriptions of clients.
#[derive(Default)]
pub(crate) struct Subscriptions {
    table: Mutex<Table>,
    access: OnceLock<AccessCheck>,
}

#[derive(Default)]
struct Table {
    /// The subscribers of a resource, each with the URI that it uses.
    resources: HashMap<SubscribedResource, HashMap<SubscriberKey, (Subscriber, String)>>,
    counts: HashMap<SubscriberKey, usize>,
}

impl Subscriptions {
    /// Sets the check of each notification. Without it, all of them are delivered.
    pub(crate) fn set_access(&self, access: AccessCheck) {
        // It is set once, when the gateway is built.
        let _ = self.access.set(access);
    }

    /// Adds a subscription. Returns `true` if it is the first one to the resource, which has to be subscribed upstream.
    pub(crate) fn add(
        &self,
        resource: SubscribedResource,
        key: SubscriberKey,
        subscriber: Subscriber,
        client_uri: &str,
    ) -> Result<bool, TooManySubscriptions> {
        let mut table = lock(&self.table);
        let Table { resources, counts } = &mut *table;
        let count = counts.entry(key).or_default();
        if *count >= MAX_PER_CLIENT {
            return Err(TooManySubscriptions);
        }
        let subscribers = resources.entry(resource).or_default();
        let is_first = subscribers.is_empty();
        if subscribers.insert(key, (subscriber, client_uri.to_owned())).is_none() {
            *count += 1;
        }
        Ok(is_first)
    }

    /// Removes a subscription. Returns `true` if it was the last one to the resource.
    pub(crate) fn remove(&self, resource: &SubscribedResource, key: SubscriberKey) -> bool {
        let mut table = lock(&self.table);
        let Some(subscribers) = table.resources.get_mut(resource) else { return false };
        if subscribers.remove(&key).is_none() {
            return false;
        }
        let is_last = subscribers.is_empty();
        if is_last {
            table.resources.remove(resource);
        }
        table.release(key);
        is_last
    }

    /// Removes all subscriptions of a subscriber. Returns the resources without a subscriber.
    pub(crate) fn remove_all(&self, key: SubscriberKey) -> Vec<SubscribedResource> {
        let mut table = lock(&self.table);
        if table.counts.remove(&key).is_none() {
            return Vec::new();
        }
        let mut unused = Vec::new();
        table.resources.retain(|resource, subscribers| {
            if subscribers.remove(&key).is_some() && subscribers.is_empty() {
                unused.push(resource.clone());
            }
            !subscribers.is_empty()
        });
        unused
    }

    /// Notifies all subscribers that may use the server of a changed resource.
    pub(crate) fn notify(&self, server: &Alias, uri: &str) {
        let resource = SubscribedResource { server: server.clone(), uri: uri.to_owned() };
        let subscribers: Vec<(Subscriber, String)> = {
            let table = lock(&self.table);
            table.resources.get(&resource).map(|all| all.values().cloned().collect()).unwrap_or_default()
        };
        let is_permitted = |client: &Client| self.access.get().is_none_or(|access| access(client, server));
        for (subscriber, client_uri) in subscribers {
            subscriber.notify(&client_uri, is_permitted);
        }
    }

    /// Returns the number of subscribed resources.
    pub(crate) fn len(&self) -> usize {
        lock(&self.table).resources.len()
    }
}

impl Table {
    fn release(&mut self, key: SubscriberKey) {
        if let Some(count) = self.counts.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(uri: &str) -> SubscribedResource {
        SubscribedResource { server: "s".into(), uri: uri.to_owned() }
    }

    #[test]
    fn only_the_first_and_the_last_subscription_concern_the_server() {
        let subscriptions = Subscriptions::default();
        let (one, two) = (SubscriberKey::Client(ClientId::next()), SubscriberKey::Client(ClientId::next()));
        let add = |key, uri: &str| subscriptions.add(resource(uri), key, Subscriber::Client(Weak::new()), uri);
        assert_eq!(add(one, "a:"), Ok(true));
        assert_eq!(add(one, "a:"), Ok(false));
        assert_eq!(add(two, "a:"), Ok(false));
        assert_eq!(add(two, "b:"), Ok(true));
        assert!(!subscriptions.remove(&resource("a:"), one));
        assert!(!subscriptions.remove(&resource("a:"), one), "it is not subscribed");
        let mut unused: Vec<String> = subscriptions.remove_all(two).into_iter().map(|resource| resource.uri).collect();
        unused.sort();
        assert_eq!(unused, ["a:", "b:"]);
        assert_eq!(subscriptions.len(), 0);
        assert!(lock(&subscriptions.table).counts.is_empty());
    }

    #[test]
    fn subscriptions_of_one_client_are_bounded() {
        let subscriptions = Subscriptions::default();
        let key = SubscriberKey::Client(ClientId::next());
        let add = |number: usize| {
            subscriptions.add(resource(&format!("a:{number}")), key, Subscriber::Client(Weak::new()), "")
        };
        assert!((0..MAX_PER_CLIENT).all(|number| add(number).is_ok()));
        assert_eq!(add(MAX_PER_CLIENT), Err(TooManySubscriptions));
        assert_eq!(subscriptions.len(), MAX_PER_CLIENT);
    }
}
