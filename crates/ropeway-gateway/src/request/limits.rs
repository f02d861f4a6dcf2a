//! One client's limit for calls in flight. What a principal and the gateway may hold is counted by the shares.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ropeway_core::sync::lock;

/// Counts each client's calls.
#[derive(Clone, Debug)]
pub(crate) struct Limits(Arc<Calls>);

#[derive(Debug)]
struct Calls {
    max_per_client: usize,
    /// For all clients with the same description, if they have no session.
    max_per_description: usize,
    /// Clients with calls in flight.
    running: Mutex<HashMap<CountedClient, usize>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallClient {
    /// A client with a session or a pipe, by its number.
    Known(u64),
    /// A client without a session: its connection, and its description's number, which other clients may share.
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
    /// Returns the keys that the client's calls are counted by.
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

/// The [`Limits::call`] error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many calls in flight (limit: {limit} per client); try again when one of them has ended")]
pub(crate) struct TooManyCalls {
    limit: usize,
}

impl TooManyCalls {
    /// The limit's name in the settings.
    pub(crate) const RULE: &'static str = "calls_per_client";
}

impl Limits {
    pub(crate) fn new(max_calls: usize, max_calls_per_client: usize) -> Self {
        Self(Arc::new(Calls {
            max_per_client: max_calls_per_client,
            max_per_description: (max_calls / DESCRIPTION_SHARE).max(max_calls_per_client),
            running: Mutex::default(),
        }))
    }

    /// Counts a call until the permit is dropped.
    ///
    /// # Errors
    ///
    /// Fails if the client has too many calls in flight.
    pub(crate) fn call(&self, client: CallClient) -> Result<CallPermit, TooManyCalls> {
        let mut running = lock(&self.0.running);
        for counted in client.counted() {
            let limit = self.0.limit(counted);
            if running.get(&counted).is_some_and(|count| *count >= limit) {
                return Err(TooManyCalls { limit });
            }
        }
        for counted in client.counted() {
            *running.entry(counted).or_default() += 1;
        }
        drop(running);
        Ok(CallPermit { calls: Arc::clone(&self.0), client })
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
        for counted in self.client.counted() {
            if let Some(count) = running.get_mut(&counted) {
                *count -= 1;
                if *count == 0 {
                    running.remove(&counted);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_one_client_are_limited() {
        let limits = Limits::new(3, 2);
        let call = |client| limits.call(CallClient::Known(client));
        let first = call(1).unwrap();
        let _second = call(1).unwrap();
        assert_eq!(call(1).unwrap_err(), TooManyCalls { limit: 2 });
        let _other = call(2).unwrap();
        drop(first);
        call(1).unwrap();
    }

    #[test]
    fn clients_without_a_session_are_limited_by_connection_and_description() {
        let limits = Limits::new(16, 2);
        let call = |connection, description| limits.call(CallClient::Anonymous { connection, description });
        let first = [call(1, 1), call(1, 1)];
        assert!(first.iter().all(Result::is_ok));
        assert_eq!(call(1, 2).unwrap_err(), TooManyCalls { limit: 2 }, "one connection");
        let _second = [call(2, 1), call(3, 1)].map(Result::unwrap);
        assert_eq!(call(4, 1).unwrap_err(), TooManyCalls { limit: 4 }, "one description");
        let _other = call(4, 2).unwrap();
        drop(first);
        call(1, 1).unwrap();
    }

    #[test]
    fn a_client_without_calls_takes_no_memory() {
        let limits = Limits::new(3, 2);
        drop(limits.call(CallClient::Known(1)).unwrap());
        drop(limits.call(CallClient::Anonymous { connection: 1, description: 1 }).unwrap());
        assert!(lock(&limits.0.running).is_empty());
    }
}
