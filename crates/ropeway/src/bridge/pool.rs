//! The connections that bridges share: one command with its settings is one process, however many use it.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::config::{EraChoice, ServerConfig, StdioServer, Transport};
use crate::event::{Event, Events, Relay};
use crate::mcp::{Handlers, Mcp};
use crate::tool::Alias;

/// A connection's own events are heard by a few tasks that keep up, or look again: a long memory would be megabytes.
const REMEMBERED_EVENTS: usize = 32;

/// Every shared connection of this program. What nobody uses any more is swept out when the next one is asked for.
static SHARED: Mutex<Vec<(Key, Weak<Mcp>)>> = Mutex::new(Vec::new());

/// What two servers must have in common to be one process.
#[derive(Clone, Debug)]
struct Key {
    server: StdioServer,
    era: EraChoice,
    handlers: Handlers,
}

impl Key {
    /// Only processes are shared: a URL is one server already, and what is inside of us belongs to its owner.
    fn of(config: &ServerConfig, handlers: &Handlers) -> Option<Self> {
        match &config.transport {
            Transport::Stdio(server) => {
                Some(Self { server: server.clone(), era: config.era, handlers: handlers.clone() })
            }
            _ => None,
        }
    }

    fn fits(&self, other: &Self) -> bool {
        self.server == other.server && self.era == other.era && self.handlers.same_as(&other.handlers)
    }
}

/// One user's share in a connection. When the last one goes, the connection is closed.
#[derive(Debug)]
pub(super) struct Lease {
    mcp: Arc<Mcp>,
    alias: Alias,
    events: Events,
    /// While it lives, the events of the connection are told under our name for the server.
    _relay: Relay,
}

impl Lease {
    /// A share in the connection of these settings, which is made when there is none.
    pub(super) fn new(config: &ServerConfig, alias: &Alias, handlers: &Handlers, events: &Events) -> Self {
        let mcp = match Key::of(config, handlers) {
            Some(key) => shared(key, config),
            None => Arc::new(Mcp::with_host(config.clone(), handlers.clone(), Events::new(REMEMBERED_EVENTS))),
        };
        let relay = mcp.relay(alias.clone(), events.clone());
        Self { mcp, alias: alias.clone(), events: events.clone(), _relay: relay }
    }

    /// The connection.
    pub(super) fn mcp(&self) -> &Mcp {
        &self.mcp
    }

    /// How many share it.
    pub(super) fn users(&self) -> usize {
        Arc::strong_count(&self.mcp)
    }

    /// Gives the share back. Waits for the end of the process when this was the last one.
    pub(super) async fn release(self) {
        let last = {
            // Under the lock, so that nobody joins a connection that is being closed.
            let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
            let last = Arc::strong_count(&self.mcp) == 1;
            if last {
                shared.retain(|(_, mcp)| !std::ptr::eq(mcp.as_ptr(), Arc::as_ptr(&self.mcp)));
            }
            last
        };
        match last {
            true => self.mcp.close().await,
            // The connection stays, but not for us.
            false => self.events.tell(Event::Closed { server: self.alias.clone() }),
        }
    }
}

fn shared(key: Key, config: &ServerConfig) -> Arc<Mcp> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.retain(|(_, mcp)| mcp.strong_count() > 0);
    if let Some(mcp) = shared.iter().filter(|(other, _)| other.fits(&key)).find_map(|(_, mcp)| mcp.upgrade()) {
        return mcp;
    }
    let mcp = Arc::new(Mcp::with_host(config.clone(), key.handlers.clone(), Events::new(REMEMBERED_EVENTS)));
    shared.push((key, Arc::downgrade(&mcp)));
    mcp
}
