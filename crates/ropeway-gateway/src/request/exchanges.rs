//! The table of requests in progress.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use crate::request::exchange::Exchange;
use ropeway_core::sync::lock;
use ropeway_mcp::RequestTag;

/// All requests in progress, by their keys.
///
/// Servers' messages find their request here: the switchboard looks up the callers that a message names. The gateway's
/// shared state and the switchboard own the table; its entries are weak, so it never keeps a request alive.
/// [`enter`](Self::enter) adds an entry when a request's work is created. The [`ExchangeGuard`] in that work removes
/// it, whether the work completes or is dropped, and then ends the exchange. The mutex guards single map operations and
/// is released before the exchange is ended.
#[derive(Default)]
pub(crate) struct Exchanges(Mutex<HashMap<RequestTag, Weak<Exchange>>>);

impl Exchanges {
    /// Registers an exchange until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>, exchange: &Arc<Exchange>) -> ExchangeGuard {
        lock(&self.0).insert(exchange.key, Arc::downgrade(exchange));
        ExchangeGuard { exchanges: self.clone(), exchange: exchange.clone() }
    }

    /// Finds an exchange that is in progress.
    pub(crate) fn get(&self, key: RequestTag) -> Option<Arc<Exchange>> {
        lock(&self.0).get(&key)?.upgrade()
    }

    /// Returns the number of exchanges in progress.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}

/// Removes an exchange from the table when dropped.
pub(crate) struct ExchangeGuard {
    exchanges: Arc<Exchanges>,
    exchange: Arc<Exchange>,
}

impl ExchangeGuard {
    pub(crate) fn exchange(&self) -> &Exchange {
        &self.exchange
    }
}

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        lock(&self.exchanges.0).remove(&self.exchange.key);
        self.exchange.end();
    }
}
