//! Server processes that entries share if their command and settings are equal.

use std::fmt;
use std::sync::{Arc, Mutex};

use ropeway_config::{EraChoice, ServerConfig, StdioServer, Transport};
use ropeway_core::event::{Event, Events, Relay};
use ropeway_core::secret::Redactor;
use ropeway_core::sync::lock;
use ropeway_core::tool::Alias;
use ropeway_mcp::{Handlers, Mcp};

/// Event channel capacity per connection. Its few listeners keep up, and a large channel would take megabytes.
const EVENT_CAPACITY: usize = 32;

/// Stdio server processes, one for all entries whose command and settings are equal.
///
/// Each [`Bridge`](crate::Bridge) has its own pool, unless [`BridgeBuilder::process_pool`](crate::BridgeBuilder::process_pool) gives
/// the same one to several bridges. Cloning a pool is cheap, and all clones are the same pool. The pool does not keep a process alive:
/// the last entry that stops using a process closes its connection. One lock guards the list of processes; it is held while a
/// connection is created or released, and never across an `.await`.
///
/// # Examples
///
/// ```
/// use ropeway::Bridge;
/// use ropeway::bridge::ProcessPool;
/// use ropeway::config::Config;
///
/// let pool = ProcessPool::default();
/// let first = Bridge::builder(Config::default()).process_pool(&pool).build()?;
/// let second = Bridge::builder(Config::default()).process_pool(&pool).build()?;
/// # Ok::<(), ropeway::bridge::BridgeError>(())
/// ```
#[derive(Clone, Default)]
pub struct ProcessPool {
    entries: Arc<Mutex<Vec<PoolEntry>>>,
}

impl fmt::Debug for ProcessPool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ProcessPool").field("processes", &lock(&self.entries).len()).finish()
    }
}

struct PoolEntry {
    key: PoolKey,
    mcp: Arc<Mcp>,
    users: usize,
}

/// Settings that must be equal for two entries to share a process. Timeouts are set per call; limits and retries come from the
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
    pool: ProcessPool,
    mcp: Arc<Mcp>,
    alias: Alias,
    events: Events,
    is_released: bool,
    /// Forwards the connection's events under this entry's alias.
    relay: Arc<Relay>,
}

impl SharedConnection {
    /// Returns a reference to the connection with these settings, which is created if necessary.
    pub(super) fn new(
        pool: &ProcessPool,
        config: &ServerConfig,
        alias: &Alias,
        handlers: &Handlers,
        events: &Events,
    ) -> Self {
        let mcp = match PoolKey::of(config, handlers) {
            Some(key) => pool.acquire(key, config),
            None => new_connection(config, handlers),
        };
        let relay = mcp.relay(alias.clone(), events.clone());
        let (pool, alias, events) = (pool.clone(), alias.clone(), events.clone());
        Self { pool, mcp, alias, events, is_released: false, relay: Arc::new(relay) }
    }

    pub(super) fn mcp(&self) -> &Mcp {
        &self.mcp
    }

    /// Returns the relay for the connection's events. A call holds it, so its last event is forwarded even if a stop ends the
    /// call.
    pub(super) fn relay(&self) -> Arc<Relay> {
        self.relay.clone()
    }

    /// Returns how many references to the connection exist.
    pub(super) fn users(&self) -> usize {
        let entries = lock(&self.pool.entries);
        entries.iter().find(|entry| Arc::ptr_eq(&entry.mcp, &self.mcp)).map_or(1, |entry| entry.users)
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
        let mut entries = lock(&self.pool.entries);
        let Some(at) = entries.iter().position(|entry| Arc::ptr_eq(&entry.mcp, &self.mcp)) else { return true };
        entries[at].users -= 1;
        let last = (entries[at].users == 0).then(|| entries.swap_remove(at));
        // Handlers run foreign code when they are dropped: not under the lock.
        drop(entries);
        last.is_some()
    }
}

impl Drop for SharedConnection {
    fn drop(&mut self) {
        // The connection closes with the last `Mcp`.
        self.remove_user();
    }
}

impl ProcessPool {
    /// Returns the connection with these settings, which is created if necessary, and counts one more user.
    fn acquire(&self, key: PoolKey, config: &ServerConfig) -> Arc<Mcp> {
        let mut entries = lock(&self.entries);
        if let Some(entry) = entries.iter_mut().find(|entry| entry.key.matches(&key)) {
            entry.users += 1;
            return entry.mcp.clone();
        }
        let mcp = new_connection(config, &key.handlers);
        entries.push(PoolEntry { key, mcp: mcp.clone(), users: 1 });
        mcp
    }
}

fn new_connection(config: &ServerConfig, handlers: &Handlers) -> Arc<Mcp> {
    Arc::new(Mcp::with_host(config.clone(), handlers.clone(), Events::new(EVENT_CAPACITY)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn entries_of_one_pool_share_a_process_until_the_last_leaves() {
        let config = ServerConfig::new("a", StdioServer::new("a-program", [""; 0]));
        let (handlers, events) = (Handlers::new(), Events::default());
        let join = |pool: &ProcessPool| SharedConnection::new(pool, &config, &"a".into(), &handlers, &events);
        let (pool, other) = (ProcessPool::default(), ProcessPool::default());
        let (first, second, foreign) = (join(&pool), join(&pool.clone()), join(&other));
        assert!(Arc::ptr_eq(&first.mcp, &second.mcp) && !Arc::ptr_eq(&first.mcp, &foreign.mcp));
        assert_eq!([&first, &second, &foreign].map(SharedConnection::users), [2, 2, 1]);
        assert_eq!(format!("{pool:?}"), "ProcessPool { processes: 1 }");
        drop(first);
        assert_eq!(second.users(), 1);
        second.release().await;
        assert!(lock(&pool.entries).is_empty());
        assert_eq!(foreign.users(), 1, "the other pool is unchanged");
    }
}
