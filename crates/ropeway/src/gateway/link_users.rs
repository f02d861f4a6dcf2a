//! The clients that use a connection, and those whose requests a server may still send messages about.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::client::{Client, ClientId};

/// How long messages about a request may follow its response.
const LINGERING: Duration = Duration::from_secs(60);

/// How long a server may continue a request without a response, because it was cancelled or timed out.
const LINGERING_UNANSWERED: Duration = Duration::from_secs(600);

/// The clients of a connection. Clients with equal isolation keys count as one.
#[derive(Default)]
pub(crate) struct LinkUsers {
    /// Number of requests in progress by isolation key.
    active: HashMap<u64, usize>,
    /// The two clients whose messages are expected for the longest time. At least one of them differs from any given client.
    recent: Vec<(u64, Instant)>,
    ever: EverUsed,
    /// Number of elicitations without a request since the last request.
    unprompted: usize,
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
    /// Records that a client begins a request.
    pub(crate) fn begin(&mut self, client: &Client) {
        *self.active.entry(client.isolation_key).or_default() += 1;
        self.unprompted = 0;
        self.ever = match self.ever {
            EverUsed::None if !client.is_anonymous => EverUsed::One(client.id),
            EverUsed::One(only) if only == client.id => EverUsed::One(only),
            _ => EverUsed::Several,
        };
    }

    /// Records that a request has ended.
    pub(crate) fn end(&mut self, key: u64, is_answered: bool) {
        if let Some(count) = self.active.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.active.remove(&key);
            }
        }
        let mut until = Instant::now() + if is_answered { LINGERING } else { LINGERING_UNANSWERED };
        if let Some(at) = self.recent.iter().position(|(other, _)| *other == key) {
            until = until.max(self.recent.swap_remove(at).1);
        }
        self.recent.push((key, until));
        if self.recent.len() > 2 {
            self.recent.sort_by_key(|(_, until)| std::cmp::Reverse(*until));
            self.recent.truncate(2);
        }
    }

    /// Returns `true` if a message without a request can belong to several clients: they have requests in progress, or had until
    /// recently.
    pub(crate) fn is_shared(&self) -> bool {
        let now = Instant::now();
        let recent = self.recent.iter().filter(|(_, until)| *until > now).map(|(key, _)| key);
        let mut keys = self.active.keys().chain(recent);
        let first = keys.next();
        keys.any(|key| Some(key) != first)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::client::{ClientDescription, Principal};
    use crate::protocol::Era;

    fn client(key: u64) -> Client {
        let description =
            ClientDescription { version: "2025-11-25".into(), capabilities: "{}".into(), info: "{}".into() };
        Client::new(Era::Legacy, description, Principal::from(""), "default".into(), Some(key))
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_shared_while_messages_about_ended_requests_may_follow() {
        for (is_answered, lingering) in [(true, LINGERING), (false, LINGERING_UNANSWERED)] {
            let mut users = LinkUsers::default();
            let (one, other) = (client(1), client(2));
            users.begin(&one);
            tokio::time::advance(2 * LINGERING_UNANSWERED).await;
            assert!(!users.is_shared());
            users.end(1, is_answered);
            users.begin(&other);
            assert!(users.is_shared());
            tokio::time::advance(lingering).await;
            assert!(!users.is_shared(), "{lingering:?} after the end");
            users.end(2, true);
            users.begin(&other);
            assert!(!users.is_shared(), "the same client");
            assert_eq!(users.only(), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_unanswered_request_is_remembered_although_many_others_follow() {
        let mut users = LinkUsers::default();
        users.begin(&client(1));
        users.end(1, false);
        for key in 2..50 {
            users.begin(&client(key));
            users.end(key, true);
        }
        tokio::time::advance(LINGERING).await;
        users.begin(&client(50));
        assert!(users.is_shared());
        assert!(users.recent.len() <= 2);
    }
}
