//! The clients that use a connection, and those whose requests a server may still send messages about.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::client::ClientId;
use crate::request::exchange::Exchange;
use ropeway_core::tool::Alias;
use ropeway_mcp::RequestTag;

/// How long messages about a request may follow its response.
const LINGERING: Duration = Duration::from_secs(5);

/// How long a server may continue a request without a response, because it was cancelled or timed out.
const LINGERING_UNANSWERED: Duration = Duration::from_secs(600);

/// Maximum number of clients without requests that a connection keeps apart.
const MAX_RECENT: usize = 16;

/// A connection's clients. Clients with equal user keys count as one.
#[derive(Default)]
pub(crate) struct LinkUsers {
    /// Requests in progress, by their numbers.
    active: HashMap<u64, ActiveRequest>,
    next_number: u64,
    /// Clients whose requests have ended.
    recent: RecentClients,
    /// Clients whose requests have ended and had requested log messages.
    recent_logging: RecentClients,
    ever: EverUsed,
    /// Number of elicitations without a request since the last request.
    unprompted: usize,
}

/// A request in progress on a connection.
pub(crate) struct ActiveRequest {
    /// Its client's user key.
    pub(crate) client: u64,
    pub(crate) exchange: RequestTag,
    /// The server that it was sent to.
    server: Alias,
    began: Instant,
    /// Whether the client has requested log messages.
    pub(crate) wants_logs: bool,
}

/// The clients that have ever sent requests on a connection.
#[derive(Clone, Copy, Default)]
enum EverUsed {
    #[default]
    None,
    One(ClientId),
    Several,
}

impl LinkUsers {
    /// Records that a request begins, and returns its number.
    pub(crate) fn begin(&mut self, exchange: &Exchange, server: &Alias) -> u64 {
        let client = &exchange.client;
        self.next_number += 1;
        let request = ActiveRequest {
            client: client.user_key,
            exchange: exchange.key,
            server: server.clone(),
            began: Instant::now(),
            wants_logs: exchange.requested_log_level().is_some(),
        };
        self.active.insert(self.next_number, request);
        self.unprompted = 0;
        self.ever = match self.ever {
            EverUsed::None if !client.is_anonymous => EverUsed::One(client.id),
            EverUsed::One(only) if only == client.id => EverUsed::One(only),
            _ => EverUsed::Several,
        };
        self.next_number
    }

    /// Records that a request has ended.
    pub(crate) fn end(&mut self, number: u64, is_answered: bool) {
        let Some(request) = self.active.remove(&number) else { return };
        self.recent.add(request.client, is_answered);
        if request.wants_logs {
            self.recent_logging.add(request.client, is_answered);
        }
    }

    /// Releases a disconnected client. Messages about its answered requests are no longer expected; those about requests without
    /// a response may still follow.
    pub(crate) fn forget(&mut self, client: u64) {
        self.recent.forget(client);
        self.recent_logging.forget(client);
    }

    /// Releases all ended requests, because the server that may send messages about them has ended.
    pub(crate) fn forget_ended(&mut self) {
        self.recent = RecentClients::default();
        self.recent_logging = RecentClients::default();
    }

    /// Returns `true` if requests are in progress.
    pub(crate) fn is_used(&self) -> bool {
        !self.active.is_empty()
    }

    /// Returns `true` if a message without a request can belong to several clients: they have requests in progress, or had until
    /// recently.
    pub(crate) fn is_shared(&self) -> bool {
        let active = self.active.values().map(|request| request.client);
        has_several(active.chain(self.recent.clients())) || self.recent.is_overflowing()
    }

    /// Returns `true` if a log message without a request can belong to several clients that have requested them.
    pub(crate) fn is_log_shared(&self) -> bool {
        let active = self.active.values().filter(|request| request.wants_logs).map(|request| request.client);
        has_several(active.chain(self.recent_logging.clients())) || self.recent_logging.is_overflowing()
    }

    /// Returns `true` if a message without a request can belong to a client other than this one.
    pub(crate) fn is_used_by_others(&self, client: u64) -> bool {
        let active = self.active.values().map(|request| request.client);
        active.chain(self.recent.clients()).any(|other| other != client) || self.recent.is_overflowing()
    }

    /// Returns the exchanges in progress whose clients have requested log messages.
    pub(crate) fn logging(&self) -> Vec<RequestTag> {
        self.active.values().filter(|request| request.wants_logs).map(|request| request.exchange).collect()
    }

    /// Returns the servers that the requests in progress were sent to.
    pub(crate) fn servers(&self) -> Vec<(RequestTag, Alias)> {
        self.active.values().map(|request| (request.exchange, request.server.clone())).collect()
    }

    /// Returns when the first request in progress began for which `is_delayed` returns `true`.
    pub(crate) fn waiting_since(&self, is_delayed: impl Fn(&ActiveRequest) -> bool) -> Option<Instant> {
        self.active.values().filter(|request| is_delayed(request)).map(|request| request.began).min()
    }

    /// Returns the only client that has ever used the connection, unless other clients may be indistinguishable from it.
    pub(crate) fn only(&self) -> Option<ClientId> {
        match self.ever {
            EverUsed::One(client) => Some(client),
            EverUsed::None | EverUsed::Several => None,
        }
    }

    /// Counts an elicitation without a request. Returns `false` above the limit.
    pub(crate) fn take_unprompted(&mut self, limit: usize) -> bool {
        let is_allowed = self.unprompted < limit;
        self.unprompted += usize::from(is_allowed);
        is_allowed
    }
}

fn has_several(mut clients: impl Iterator<Item = u64>) -> bool {
    let first = clients.next();
    clients.any(|client| Some(client) != first)
}

/// Clients whose requests have ended, as long as messages about them may follow.
#[derive(Default)]
struct RecentClients {
    entries: Vec<RecentClient>,
    /// Until when messages may follow about requests from clients beyond [`MAX_RECENT`].
    overflow: Option<Instant>,
}

struct RecentClient {
    client: u64,
    /// Until when messages about answered requests may follow.
    answered: Option<Instant>,
    /// Until when messages about requests without a response may follow.
    unanswered: Option<Instant>,
}

impl RecentClient {
    fn until(&self) -> Option<Instant> {
        self.answered.max(self.unanswered)
    }
}

impl RecentClients {
    fn add(&mut self, client: u64, is_answered: bool) {
        let now = Instant::now();
        self.entries.retain(|entry| entry.until() > Some(now));
        let known = self.entries.iter().position(|entry| entry.client == client);
        let at = known.unwrap_or_else(|| {
            self.entries.push(RecentClient { client, answered: None, unanswered: None });
            self.entries.len() - 1
        });
        if is_answered {
            self.entries[at].answered = Some(now + LINGERING);
        } else {
            self.entries[at].unanswered = Some(now + LINGERING_UNANSWERED);
        }
        if self.entries.len() > MAX_RECENT {
            self.entries.sort_by_key(|entry| std::cmp::Reverse(entry.until()));
            self.overflow = self.overflow.max(self.entries.pop().and_then(|entry| entry.until()));
        }
    }

    fn forget(&mut self, client: u64) {
        for entry in self.entries.iter_mut().filter(|entry| entry.client == client) {
            entry.answered = None;
        }
        self.entries.retain(|entry| entry.until().is_some());
    }

    fn clients(&self) -> impl Iterator<Item = u64> + '_ {
        let now = Instant::now();
        self.entries.iter().filter(move |entry| entry.until() > Some(now)).map(|entry| entry.client)
    }

    fn is_overflowing(&self) -> bool {
        self.overflow > Some(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::value::RawValue;

    use super::*;
    use crate::client::{Client, ClientDescription, LogLevel, Principal};
    use crate::request::exchange::AttachedRequest;
    use ropeway_mcp::protocol::Era;

    fn exchange(key: u64) -> Arc<Exchange> {
        let description =
            ClientDescription { version: "2025-11-25".into(), capabilities: "{}".into(), info: "{}".into() };
        let client = Client::new(Era::Legacy, description, Principal::from(""), "default".into(), Some(key));
        let id = RawValue::from_string("1".to_owned()).expect("an id");
        Exchange::new(Arc::new(client), AttachedRequest { id, token: None, log_level: None, running: None })
    }

    fn begin(users: &mut LinkUsers, exchange: &Exchange) -> u64 {
        users.begin(exchange, &"s".into())
    }

    /// Begins and ends a client's request.
    fn request(users: &mut LinkUsers, key: u64, is_answered: bool) {
        let number = begin(users, &exchange(key));
        users.end(number, is_answered);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_shared_while_messages_about_ended_requests_may_follow() {
        for (is_answered, lingering) in [(true, LINGERING), (false, LINGERING_UNANSWERED)] {
            let mut users = LinkUsers::default();
            let first = begin(&mut users, &exchange(1));
            tokio::time::advance(2 * LINGERING_UNANSWERED).await;
            assert!(!users.is_shared());
            users.end(first, is_answered);
            let second = begin(&mut users, &exchange(2));
            assert!(users.is_shared() && users.is_used_by_others(2));
            tokio::time::advance(lingering).await;
            assert!(!users.is_shared(), "{lingering:?} after the end");
            users.end(second, true);
            begin(&mut users, &exchange(2));
            assert!(!users.is_shared(), "the same client");
            assert_eq!(users.only(), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_unanswered_request_is_remembered_although_many_others_follow() {
        let mut users = LinkUsers::default();
        request(&mut users, 1, false);
        for key in 2..50 {
            request(&mut users, key, true);
        }
        tokio::time::advance(LINGERING).await;
        begin(&mut users, &exchange(50));
        assert!(users.is_shared());
        assert!(users.recent.entries.len() <= MAX_RECENT);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_do_not_fit_are_remembered_together() {
        let mut users = LinkUsers::default();
        for key in 0..=MAX_RECENT as u64 {
            request(&mut users, key, true);
        }
        for key in 0..=MAX_RECENT as u64 {
            users.forget(key);
        }
        begin(&mut users, &exchange(99));
        assert!(users.is_shared());
        tokio::time::advance(LINGERING).await;
        assert!(!users.is_shared());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_gone_counts_only_for_its_unanswered_requests() {
        let mut users = LinkUsers::default();
        request(&mut users, 1, true);
        begin(&mut users, &exchange(2));
        assert!(users.is_shared());
        users.forget(1);
        assert!(!users.is_shared());
        request(&mut users, 1, false);
        users.forget(1);
        assert!(users.is_shared());
        users.forget_ended();
        assert!(!users.is_shared(), "the server process has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn log_messages_concern_only_clients_that_requested_them() {
        let mut users = LinkUsers::default();
        request(&mut users, 1, true);
        let logging = exchange(2);
        logging.client.set_log_level(LogLevel::MAX);
        begin(&mut users, &logging);
        assert!(users.is_shared() && !users.is_log_shared());
        assert_eq!(users.logging(), [logging.key]);
        let other = exchange(3);
        other.client.set_log_level(LogLevel::MAX);
        let other = begin(&mut users, &other);
        assert!(users.is_log_shared());
        users.end(other, true);
        assert!(users.is_log_shared(), "a message may be late");
        tokio::time::advance(LINGERING).await;
        assert!(!users.is_log_shared());
    }
}
