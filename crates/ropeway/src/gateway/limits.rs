//! Limits that protect the process: connections, and calls in flight.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    total: usize,
    /// Clients with calls in flight.
    by_client: HashMap<u64, usize>,
}

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
        let calls = Calls { max: max_calls, max_per_client: max_calls_per_client, running: Mutex::default() };
        Self { calls: Arc::new(calls), connections: Arc::new(Semaphore::new(max_connections)), open: Arc::default() }
    }

    /// Counts a call until the permit is dropped. `client` is the number of a legacy session or a pipe; clients without a
    /// connection of their own only count for the gateway.
    ///
    /// # Errors
    ///
    /// Fails if the client or the gateway has too many calls in flight.
    pub(crate) fn call(&self, client: Option<u64>) -> Result<CallPermit, LimitError> {
        let mut running = lock(&self.calls.running);
        if running.total >= self.calls.max {
            return Err(LimitError::Gateway { limit: self.calls.max });
        }
        if let Some(client) = client {
            let count = running.by_client.entry(client).or_default();
            if *count >= self.calls.max_per_client {
                return Err(LimitError::Client { limit: self.calls.max_per_client });
            }
            *count += 1;
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

/// A call in flight.
#[derive(Debug)]
pub(crate) struct CallPermit {
    calls: Arc<Calls>,
    client: Option<u64>,
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let mut running = lock(&self.calls.running);
        running.total -= 1;
        let Some(client) = self.client else { return };
        if let Some(count) = running.by_client.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                running.by_client.remove(&client);
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
        self.open.fetch_add(1, Ordering::Relaxed);
        ConnectionPermit { _permit: self.permit, open: self.open }
    }
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
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
        let first = limits.call(Some(1)).unwrap();
        let _second = limits.call(Some(1)).unwrap();
        assert_eq!(limits.call(Some(1)).unwrap_err(), LimitError::Client { limit: 2 });
        let _other = limits.call(None).unwrap();
        assert_eq!(limits.call(Some(2)).unwrap_err(), LimitError::Gateway { limit: 3 });
        drop(first);
        let again = limits.call(Some(1)).unwrap();
        assert_eq!(limits.calls(), 3);
        drop(again);
        assert_eq!(limits.calls(), 2);
    }

    #[test]
    fn a_client_without_calls_takes_no_memory() {
        let limits = Limits::new(1, 3, 2);
        drop(limits.call(Some(1)).unwrap());
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
