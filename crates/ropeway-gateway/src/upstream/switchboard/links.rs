//! Connections to servers, and the clients that use them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::watch;

use super::Switchboard;
use super::roots::LinkRoots;
use crate::client::{Client, ClientId};
use crate::request::exchange::Exchange;
use crate::upstream::link_users::LinkUsers;
use ropeway_core::sync::lock;
use ropeway_core::tool::Alias;
use ropeway_mcp::protocol::Era;
use ropeway_mcp::{LinkKey, RequestTag};

/// Maximum number of URL elicitations per connection that may still be reported as complete.
const MAX_URL_ELICITATIONS: usize = 64;

/// A connection to a server.
#[derive(Default)]
pub(super) struct LinkOwner {
    /// The servers that the connection leads to: several aliases with equal settings share one.
    pub(super) servers: BTreeSet<Alias>,
    /// An isolated connection's only client.
    pub(super) client: Option<Weak<Client>>,
    /// Whether it was the shared connection to a server. A server may send messages before that is known.
    is_known: bool,
    /// Whether another connection has replaced it. It is removed once its requests have ended.
    is_replaced: bool,
    /// The server's era, once a request was sent.
    pub(super) era: Option<Era>,
    pub(super) users: LinkUsers,
    /// Notified when a request begins or ends.
    pub(super) activity: watch::Sender<()>,
    pub(super) roots: LinkRoots,
    /// Legacy clients' URL elicitations that are not reported as complete, oldest first.
    url_elicitations: VecDeque<UrlElicitation>,
}

impl LinkOwner {
    /// Notifies the tasks that wait for a request to begin or end. Usually none does.
    fn note_activity(&self) {
        if self.activity.receiver_count() > 0 {
            self.activity.send_replace(());
        }
    }
}

/// A URL elicitation that a legacy client got.
pub(super) struct UrlElicitation {
    pub(super) id: Box<str>,
    pub(super) client: Weak<Client>,
    /// The request during which the client got it.
    pub(super) exchange: Option<RequestTag>,
}

/// The shared connection to a server.
pub(crate) struct SharedLink {
    pub(crate) link: LinkKey,
    pub(crate) server: Alias,
    /// Identifies the server across gateway restarts and alias changes.
    pub(crate) identity: Arc<str>,
}

/// A connection's state when a message arrives.
pub(super) struct LinkView {
    pub(super) servers: BTreeSet<Alias>,
    /// An isolated connection's only client.
    pub(super) client: Option<Weak<Client>>,
    pub(super) era: Option<Era>,
    /// Whether a message without a request can belong to several clients.
    pub(super) is_shared: bool,
    /// Whether a log message without a request can belong to several clients.
    pub(super) is_log_shared: bool,
    /// The requests in progress whose clients have requested log messages.
    pub(super) logging: Vec<RequestTag>,
    /// The only client that has ever used the connection.
    pub(super) only_user: Option<ClientId>,
    /// The servers that requests in progress were sent to, if the connection leads to several.
    callers: Vec<(RequestTag, Alias)>,
}

/// A client's request on a connection. Dropping it ends the request.
pub(crate) struct LinkUse {
    board: Arc<Switchboard>,
    link: LinkKey,
    number: u64,
    is_answered: AtomicBool,
}

impl LinkUse {
    /// Records whether the server has answered all requests.
    pub(crate) fn set_answered(&self, is_answered: bool) {
        self.is_answered.store(is_answered, Ordering::Relaxed);
    }
}

impl Drop for LinkUse {
    fn drop(&mut self) {
        let mut links = lock(&self.board.links);
        let Some(owner) = links.get_mut(&self.link) else { return };
        owner.users.end(self.number, self.is_answered.load(Ordering::Relaxed));
        owner.note_activity();
        if owner.is_replaced && !owner.users.is_used() {
            links.remove(&self.link);
        }
    }
}

impl Switchboard {
    /// Sets the connections that clients share. Earlier ones are removed once their requests have ended.
    pub(crate) fn set_shared_links(&self, shared: &[SharedLink]) {
        *lock(&self.identities) =
            shared.iter().map(|shared| (shared.server.clone(), shared.identity.clone())).collect();
        let mut servers: HashMap<LinkKey, BTreeSet<Alias>> = HashMap::new();
        for shared in shared {
            servers.entry(shared.link).or_default().insert(shared.server.clone());
        }
        let mut links = lock(&self.links);
        links.retain(|link, owner| {
            owner.is_replaced |= owner.is_known && !servers.contains_key(link);
            !owner.is_replaced || owner.users.is_used() || servers.contains_key(link)
        });
        for (link, servers) in servers {
            let owner = links.entry(link).or_default();
            (owner.servers, owner.is_known, owner.is_replaced) = (servers, true, false);
        }
    }

    /// Records an isolated connection's only client.
    pub(crate) fn add_isolated_link(&self, link: LinkKey, server: &Alias, client: &Arc<Client>) {
        let mut links = lock(&self.links);
        let owner = links.entry(link).or_default();
        owner.servers.insert(server.clone());
        owner.client = Some(Arc::downgrade(client));
    }

    /// Removes an isolated connection.
    pub(crate) fn remove_link(&self, link: LinkKey) {
        lock(&self.links).remove(&link);
    }

    /// Records that a client sends a request to a server on a connection, until the guard is dropped.
    pub(crate) fn use_link(
        &self,
        link: LinkKey,
        server: &Alias,
        era: Option<Era>,
        exchange: &Exchange,
    ) -> Option<LinkUse> {
        let board = self.own.upgrade()?;
        let mut links = lock(&self.links);
        // Either the connection was just replaced, or the background task has not noticed it yet.
        let owner = links.entry(link).or_insert_with(|| LinkOwner { is_replaced: true, ..LinkOwner::default() });
        owner.servers.insert(server.clone());
        owner.era = era.or(owner.era);
        let number = owner.users.begin(exchange, server);
        owner.note_activity();
        Some(LinkUse { board, link, number, is_answered: AtomicBool::new(true) })
    }

    /// Resets what depends on the process or session at the other end of a connection.
    pub(super) fn reset_link(&self, link: LinkKey) {
        let mut links = lock(&self.links);
        let Some(owner) = links.get_mut(&link) else { return };
        owner.users.forget_ended();
        owner.url_elicitations.clear();
        owner.roots.reset();
        if !owner.is_known && owner.client.is_none() && !owner.users.is_used() {
            links.remove(&link);
        }
    }

    pub(super) fn link(&self, link: LinkKey) -> Option<LinkView> {
        let links = lock(&self.links);
        let LinkOwner { servers, client, era, users, .. } = links.get(&link)?;
        Some(LinkView {
            servers: servers.clone(),
            client: client.clone(),
            era: *era,
            is_shared: users.is_shared(),
            is_log_shared: users.is_log_shared(),
            logging: users.logging(),
            only_user: users.only(),
            callers: if servers.len() > 1 { users.servers() } else { Vec::new() },
        })
    }

    /// Records a legacy client's URL elicitation, so that its completion finds the client.
    pub(super) fn add_url_elicitation(&self, link: LinkKey, elicitation: UrlElicitation) {
        let mut links = lock(&self.links);
        let Some(owner) = links.get_mut(&link) else { return };
        if owner.url_elicitations.len() >= MAX_URL_ELICITATIONS {
            owner.url_elicitations.pop_front();
        }
        owner.url_elicitations.push_back(elicitation);
    }

    /// Removes a URL elicitation, because it is complete.
    pub(super) fn take_url_elicitation(&self, link: LinkKey, id: &str) -> Option<UrlElicitation> {
        let mut links = lock(&self.links);
        let elicitations = &mut links.get_mut(&link)?.url_elicitations;
        let at = elicitations.iter().position(|elicitation| *elicitation.id == *id)?;
        elicitations.remove(at)
    }
}

impl LinkView {
    /// Returns the server that a request in progress was sent to, or else the first one.
    pub(super) fn server_of(&self, exchange: Option<RequestTag>) -> Option<&Alias> {
        let caller = self.callers.iter().find(|(key, _)| Some(*key) == exchange).map(|(_, server)| server);
        caller.or_else(|| self.servers.first())
    }

    /// Returns the servers' names for log messages.
    pub(super) fn names(&self) -> String {
        self.servers.iter().map(Alias::to_string).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::client::{ClientDescription, Principal};
    use crate::request::exchange::AttachedRequest;
    use crate::upstream::asking_servers::AskingServers;

    fn shared(link: u64, server: &str) -> SharedLink {
        SharedLink { link: LinkKey(link), server: server.into(), identity: server.into() }
    }

    #[test]
    fn replaced_connections_are_removed_once_their_requests_have_ended() {
        let board = Switchboard::new(Arc::default(), Arc::default(), &Arc::default(), AskingServers::default(), false);
        let description =
            ClientDescription { version: "2025-11-25".into(), capabilities: "{}".into(), info: "{}".into() };
        let client = Arc::new(Client::new(Era::Legacy, description, Principal::from(""), "default".into(), None));
        let id = RawValue::from_string("1".to_owned()).expect("an id");
        let exchange =
            Exchange::new(client.clone(), AttachedRequest { id, token: None, log_level: None, running: None });
        let links = || {
            let mut links: Vec<u64> = lock(&board.links).keys().map(|link| link.0).collect();
            links.sort_unstable();
            links
        };
        board.set_shared_links(&[shared(1, "a"), shared(2, "b")]);
        let in_use = board.use_link(LinkKey(1), &"a".into(), None, &exchange);
        for number in 3..100 {
            board.set_shared_links(&[shared(number, "a"), shared(2, "b")]);
            assert_eq!(links(), [1, 2, number]);
        }
        drop(in_use);
        assert_eq!(links(), [2, 99]);
        // A request that was about to use the previous connection.
        drop(board.use_link(LinkKey(1), &"a".into(), None, &exchange));
        assert_eq!(links(), [2, 99]);
        board.add_isolated_link(LinkKey(100), &"a".into(), &client);
        board.set_shared_links(&[shared(2, "b")]);
        assert_eq!(links(), [2, 100], "isolated connections have their own life");
    }

    #[test]
    fn aliases_with_equal_settings_share_a_connection() {
        let board = Switchboard::new(Arc::default(), Arc::default(), &Arc::default(), AskingServers::default(), false);
        board.set_shared_links(&[shared(1, "a"), shared(1, "b")]);
        assert_eq!(board.link(LinkKey(1)).expect("a connection").names(), "a, b");
        board.set_asking(LinkKey(1), "asked");
        assert!(board.is_asking(&"a".into()) && board.is_asking(&"b".into()));
    }
}
