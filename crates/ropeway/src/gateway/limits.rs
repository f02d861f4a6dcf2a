//! Limits that protect the process: connections, and calls in flight.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::sync::lock;

/// Counts calls and connections.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    calls: Arc<Calls>,
    connections: Arc<Semaphore>,
    open: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Calls {
    max: usize,
    max_per_client: usize,
    /// For all clients with the same description, if they have no session.
    max_per_description: usize,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    total: usize,
    /// Clients with calls in flight.
    by_client: HashMap<CountedClient, usize>,
}

/// The client of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallClient {
    /// A client with a session or a pipe, by its number.
    Known(u64),
    /// A client without a session: its connection, and the number of its description, which other clients may share.
    Anonymous { connection: u64, description: u64 },
}

/// The key that calls in flight are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum CountedClient {
    Known(u64),
    Connection(u64),
    Description(u64),
}

impl CallClient {
    /// Returns the keys that a call of the client is counted by.
    fn counted(self) -> impl Iterator<Item = CountedClient> {
        let (first, second) = match self {
            Self::Known(client) => (CountedClient::Known(client), None),
            Self::Anonymous { connection, description } => {
                (CountedClient::Connection(connection), Some(CountedClient::Description(description)))
            }
        };
        std::iter::once(first).chain(second)
    }
}

/// Clients without a session that have the same description share one in this many of all calls.
const DESCRIPTION_SHARE: usize = 4;

/// The error of [`Limits::call`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LimitError {
    /// One client has too many calls in flight.
    #[error("too many calls in flight (limit: {limit} per client); try again when one of them has ended")]
    Client {
        /// The limit.
        limit: usize,
    },
    /// All clients together have too many calls in flight.
    #[error("the gateway is busy (limit: {limit} calls in flight); try again later")]
    Gateway {
        /// The limit.
        limit: usize,
    },
}

impl LimitError {
    /// Returns the name of the limit in the settings.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Client { .. } => "calls_per_client",
            Self::Gateway { .. } => "calls",
        }
    }

    /// Returns the HTTP status of the error.
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::Client { .. } => 429,
            Self::Gateway { .. } => 503,
        }
    }
}

impl Limits {
    pub(crate) fn new(max_connections: usize, max_calls: usize, max_calls_per_client: usize) -> Self {
        let max_connections = max_connections.min(Semaphore::MAX_PERMITS);
        let calls = Calls {
            max: max_calls,
            max_per_client: max_calls_per_client,
            max_per_description: (max_calls / DESCRIPTION_SHARE).max(max_calls_per_client),
            running: Mutex::default(),
        };
        Self { calls: Arc::new(calls), connections: Arc::new(Semaphore::new(max_connections)), open: Arc::default() }
    }

    /// Counts a call until the permit is dropped.
    ///
    /// # Errors
    ///
    /// Fails if the client or the gateway has too many calls in flight.
    pub(crate) fn call(&self, client: CallClient) -> Result<CallPermit, LimitError> {
        let mut running = lock(&self.calls.running);
        if running.total >= self.calls.max {
            return Err(LimitError::Gateway { limit: self.calls.max });
        }
        for counted in client.counted() {
            let limit = self.calls.limit(counted);
            if running.by_client.get(&counted).is_some_and(|count| *count >= limit) {
                return Err(LimitError::Client { limit });
            }
        }
        for counted in client.counted() {
            *running.by_client.entry(counted).or_default() += 1;
        }
        running.total += 1;
        drop(running);
        Ok(CallPermit { calls: Arc::clone(&self.calls), client })
    }

    /// Returns the number of calls in flight.
    pub(crate) fn calls(&self) -> usize {
        lock(&self.calls.running).total
    }

    /// Waits until a connection may be accepted.
    pub(crate) async fn connection(&self) -> ConnectionSlot {
        let permit = Arc::clone(&self.connections).acquire_owned().await.ok();
        ConnectionSlot { permit, open: Arc::clone(&self.open) }
    }

    /// Returns the number of open connections.
    pub(crate) fn connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

impl Calls {
    fn limit(&self, counted: CountedClient) -> usize {
        match counted {
            CountedClient::Known(_) | CountedClient::Connection(_) => self.max_per_client,
            CountedClient::Description(_) => self.max_per_description,
        }
    }
}

/// A call in flight.
#[derive(Debug)]
pub(crate) struct CallPermit {
    calls: Arc<Calls>,
    client: CallClient,
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let mut running = lock(&self.calls.running);
        running.total -= 1;
        for counted in self.client.counted() {
            if let Some(count) = running.by_client.get_mut(&counted) {
                *count -= 1;
                if *count == 0 {
                    running.by_client.remove(&counted);
                }
            }
        }
    }
}

/// Room for a connection that is not accepted yet.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    permit: Option<OwnedSemaphorePermit>,
    open: Arc<AtomicUsize>,
}

impl ConnectionSlot {
    /// Counts the connection until the permit is dropped.
    pub(crate) fn open(self) -> ConnectionPermit {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        self.open.fetch_add(1, Ordering::Relaxed);
        ConnectionPermit { number: NEXT.fetch_add(1, Ordering::Relaxed), _permit: self.permit, open: self.open }
    }
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    /// Identifies the connection within this process.
    pub(crate) number: u64,
    _permit: Option<OwnedSemaphorePermit>,
    open: Arc<AtomicUsize>,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_one_client_and_of_all_are_limited() {
        let limits = Limits::new(1, 3, 2);
        let call = |client| limits.call(CallClient::Known(client));
        let first = call(1).unwrap();
        let _second = call(1).unwrap();
        assert_eq!(call(1).unwrap_err(), LimitError::Client { limit: 2 });
        let _other = limits.call(CallClient::Anonymous { connection: 1, description: 1 }).unwrap();
        assert_eq!(call(2).unwrap_err(), LimitError::Gateway { limit: 3 });
        drop(first);
        let again = call(1).unwrap();
        assert_eq!(limits.calls(), 3);
        drop(again);
        assert_eq!(limits.calls(), 2);
    }

    #[test]
    fn clients_without_a_session_are_limited_by_connection_and_description() {
        let limits = Limits::new(1, 16, 2);
        let call = |connection, description| limits.call(CallClient::Anonymous { connection, description });
        let first = [call(1, 1), call(1, 1)];
        assert!(first.iter().all(Result::is_ok));
        assert_eq!(call(1, 2).unwrap_err(), LimitError::Client { limit: 2 }, "one connection");
        let _second = [call(2, 1), call(3, 1)].map(Result::unwrap);
        assert_eq!(call(4, 1).unwrap_err(), LimitError::Client { limit: 4 }, "one description");
        let _other = call(4, 2).unwrap();
        drop(first);
        call(1, 1).unwrap();
    }

    #[test]
    fn a_client_without_calls_takes_no_memory() {
        let limits = Limits::new(1, 3, 2);
        drop(limits.call(CallClient::Known(1)).unwrap());
        drop(limits.call(CallClient::Anonymous { connection: 1, description: 1 }).unwrap());
        assert!(lock(&limits.calls.running).by_client.is_empty());
    }

    #[tokio::test]
    async fn a_connection_over_the_limit_waits() {
        let limits = Limits::new(1, 1, 1);
        let slot = limits.connection().await;
        assert_eq!(limits.connections(), 0, "nothing is accepted yet");
        let first = slot.open();
        assert_eq!(limits.connections(), 1);
        let waiting = tokio::spawn({
            let limits = limits.clone();
            async move { limits.connection().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        drop(waiting.await.unwrap());
        assert_eq!(limits.connections(), 0);
    }
}
