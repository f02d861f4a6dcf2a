//! Connections that the bridges of a process share: entries with the same command and settings use one process.

use std::sync::{Arc, Mutex};

use ropeway_config::{EraChoice, ServerConfig, StdioServer, Transport};
use ropeway_core::event::{Event, Events, Relay};
use ropeway_core::secret::Redactor;
use ropeway_core::sync::lock;
use ropeway_core::tool::Alias;
use ropeway_mcp::{Handlers, Mcp};

/// Capacity of a connection's event channel. Its few listeners keep up, and a large channel would take megabytes.
const EVENT_CAPACITY: usize = 32;

/// All shared connections of this process.
static POOL: Mutex<Vec<PoolEntry>> = Mutex::new(Vec::new());

struct PoolEntry {
    key: PoolKey,
    mcp: Arc<Mcp>,
    users: usize,
}

/// Settings that must be equal for two entries to share a process. Timeouts are set per call; limits and retries are those of the
/// first entry.
struct PoolKey {
    server: StdioServer,
    era: EraChoice,
    redactor: Redactor,
    handlers: Handlers,
}

impl PoolKey {
    /// Returns `None` for transports other than stdio, whose connections are not shared.
    fn of(config: &ServerConfig, handlers: &Handlers) -> Option<Self> {
        let Transport::Stdio(server) = &config.transport else { return None };
        let (server, redactor, handlers) = (server.clone(), config.redactor.clone(), handlers.clone());
        Some(Self { server, era: config.era, redactor, handlers })
    }

    fn matches(&self, other: &Self) -> bool {
        let same = (&self.server, self.era, &self.redactor) == (&other.server, other.era, &other.redactor);
        same && self.handlers.ptr_eq(&other.handlers)
    }
}

/// A counted reference to a connection, which is closed with the last one.
pub(super) struct SharedConnection {
    mcp: Arc<Mcp>,
    alias: Alias,
    events: Events,
    is_released: bool,
    /// Forwards the events of the connection under the alias of this entry.
    relay: Arc<Relay>,
}

impl SharedConnection {
    /// Returns a reference to the connection with these settings, which is created if necessary.
    pub(super) fn new(config: &ServerConfig, alias: &Alias, handlers: &Handlers, events: &Events) -> Self {
        let mcp = match PoolKey::of(config, handlers) {
            Some(key) => acquire(key, config),
            None => new_connection(config, handlers),
        };
        let relay = mcp.relay(alias.clone(), events.clone());
        Self { mcp, alias: alias.clone(), events: events.clone(), is_released: false, relay: Arc::new(relay) }
    }

    pub(super) fn mcp(&self) -> &Mcp {
        &self.mcp
    }

    /// Returns the relay of the connection's events. A call holds it, so its last event is forwarded even if a stop ends the call.
    pub(super) fn relay(&self) -> Arc<Relay> {
        self.relay.clone()
    }

    /// Returns the number of references to the connection.
    pub(super) fn users(&self) -> usize {
        let pool = lock(&POOL);
        pool.iter().find(|entry| Arc::ptr_eq(&entry.mcp, &self.mcp)).map_or(1, |entry| entry.users)
    }

    /// Releases the reference. The last one closes the connection, and waits for the process to end.
    pub(super) async fn release(mut self) {
        if self.remove_user() {
            self.mcp.close().await;
        } else {
            self.events.emit(Event::Closed { server: self.alias.clone() });
        }
    }

    /// Returns `true` for the last user. Checked under the lock, so no entry can join a connection that is being closed.
    fn remove_user(&mut self) -> bool {
        if std::mem::replace(&mut self.is_released, true) {
            return false;
        }
        let mut pool = lock(&POOL);
        let Some(at) = pool.iter().position(|entry| Arc::ptr_eq(&entry.mcp, &self.mcp)) else { return true };
        pool[at].users -= 1;
        let last = (pool[at].users == 0).then(|| pool.swap_remove(at));
        // Handlers run foreign code when they are dropped: not under the lock.
        drop(pool);
        last.is_some()
    }
}

impl Drop for SharedConnection {
    fn drop(&mut self) {
        // The connection closes with the last `Mcp`.
        self.remove_user();
    }
}

fn acquire(key: PoolKey, config: &ServerConfig) -> Arc<Mcp> {
    let mut pool = lock(&POOL);
    if let Some(entry) = pool.iter_mut().find(|entry| entry.key.matches(&key)) {
        entry.users += 1;
        return entry.mcp.clone();
    }
    let mcp = new_connection(config, &key.handlers);
    pool.push(PoolEntry { key, mcp: mcp.clone(), users: 1 });
    mcp
}

fn new_connection(config: &ServerConfig, handlers: &Handlers) -> Arc<Mcp> {
    Arc::new(Mcp::with_host(config.clone(), handlers.clone(), Events::new(EVENT_CAPACITY)))
}
