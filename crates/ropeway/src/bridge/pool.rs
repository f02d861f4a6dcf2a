//! The connections that bridges share: one command with its settings is one process, however many use it.

use std::sync::{Arc, Mutex};

use super::slot::lock;
use crate::config::{EraChoice, ServerConfig, StdioServer, Transport};
use crate::event::{Event, Events, Relay};
use crate::mcp::{Handlers, Mcp};
use crate::secret::Redactor;
use crate::tool::Alias;

/// A connection's own events are heard by a few tasks that keep up, or look again: a long memory would be megabytes.
const REMEMBERED_EVENTS: usize = 32;

/// Every shared connection of this program.
static SHARED: Mutex<Vec<Shared>> = Mutex::new(Vec::new());

struct Shared {
    key: Key,
    mcp: Arc<Mcp>,
    users: usize,
}

/// What two servers must have in common to be one process. Clocks come with each call; how much to take and how to
/// connect again is as the first of them says.
struct Key {
    server: StdioServer,
    era: EraChoice,
    mask: Redactor,
    handlers: Handlers,
}

impl Key {
    /// Only processes are shared: a URL is one server already, and what is inside of us belongs to its owner.
    fn of(config: &ServerConfig, handlers: &Handlers) -> Option<Self> {
        let Transport::Stdio(server) = &config.transport else { return None };
        let (server, mask, handlers) = (server.clone(), config.mask.clone(), handlers.clone());
        Some(Self { server, era: config.era, mask, handlers })
    }

    fn fits(&self, other: &Self) -> bool {
        let same = (&self.server, self.era, &self.mask) == (&other.server, other.era, &other.mask);
        same && self.handlers.same_as(&other.handlers)
    }
}

/// One user's share in a connection. When the last one goes, the connection is closed.
pub(super) struct Lease {
    mcp: Arc<Mcp>,
    alias: Alias,
    events: Events,
    is_returned: bool,
    /// While it lives, the events of the connection are told under our name for the server.
    relay: Arc<Relay>,
}

impl Lease {
    /// A share in the connection of these settings, which is made when there is none.
    pub(super) fn new(config: &ServerConfig, alias: &Alias, handlers: &Handlers, events: &Events) -> Self {
        let mcp = match Key::of(config, handlers) {
            Some(key) => shared(key, config),
            None => connection(config, handlers),
        };
        let relay = mcp.relay(alias.clone(), events.clone());
        Self { mcp, alias: alias.clone(), events: events.clone(), is_returned: false, relay: Arc::new(relay) }
    }

    /// The connection.
    pub(super) fn mcp(&self) -> &Mcp {
        &self.mcp
    }

    /// Returns what forwards the events of the connection. A call holds it, so that the event of a call that is ended by a stop is
    /// still forwarded.
    pub(super) fn relay(&self) -> Arc<Relay> {
        self.relay.clone()
    }

    /// How many share it.
    pub(super) fn users(&self) -> usize {
        let shared = lock(&SHARED);
        shared.iter().find(|shared| Arc::ptr_eq(&shared.mcp, &self.mcp)).map_or(1, |shared| shared.users)
    }

    /// Gives the share back. Waits for the end of the process when this was the last one.
    pub(super) async fn release(mut self) {
        match self.give_back() {
            true => self.mcp.close().await,
            // The connection stays, but not for us.
            false => self.events.emit(Event::Closed { server: self.alias.clone() }),
        }
    }

    /// Is nobody else left? Counted once, under the lock, so that nobody joins a connection that is being closed.
    fn give_back(&mut self) -> bool {
        if std::mem::replace(&mut self.is_returned, true) {
            return false;
        }
        let mut all = lock(&SHARED);
        let Some(at) = all.iter().position(|shared| Arc::ptr_eq(&shared.mcp, &self.mcp)) else { return true };
        all[at].users -= 1;
        let last = (all[at].users == 0).then(|| all.swap_remove(at));
        // What a handler holds may do anything when it goes: not under the lock.
        drop(all);
        last.is_some()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The connection itself closes when the last of its handles goes.
        self.give_back();
    }
}

fn shared(key: Key, config: &ServerConfig) -> Arc<Mcp> {
    let mut all = lock(&SHARED);
    if let Some(shared) = all.iter_mut().find(|shared| shared.key.fits(&key)) {
        shared.users += 1;
        return shared.mcp.clone();
    }
    let mcp = connection(config, &key.handlers);
    all.push(Shared { key, mcp: mcp.clone(), users: 1 });
    mcp
}

fn connection(config: &ServerConfig, handlers: &Handlers) -> Arc<Mcp> {
    Arc::new(Mcp::with_host(config.clone(), handlers.clone(), Events::new(REMEMBERED_EVENTS)))
}
