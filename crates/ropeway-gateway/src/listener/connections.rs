//! Open client connections: their number is bounded, and idle ones make room for new ones.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use crate::client::shares::{Hold, Holdings, Resource, ShareError, Shares};
use ropeway_core::sync::lock;
use ropeway_core::tool::CancelToken;

/// Connections beyond the limit, for probes and for clients that learn at once that the gateway is full.
const RESERVE: usize = 64;

/// Time without a request after which an authenticated client's connection may be closed to make room.
const MIN_IDLE: Duration = Duration::from_secs(1);

/// Number of connections that one search selects to be closed when room is needed.
const VICTIMS: usize = 16;

/// The open connections on all listeners. Cloning is cheap.
///
/// A connection counts from its acceptance until its [`ConnectionPermit`] is dropped. If all slots are taken, an idle connection
/// is closed in favour of the new one. If all are busy, the new one is *reserved*: it may only probe the gateway, until its
/// client authenticates and a slot has become free.
///
/// The listeners share one table through clones. Only [`open`](Self::open), [`admit`](Self::admit) and a dropped permit change
/// it. The `slots` mutex is taken before a connection's `hold` mutex, never after it. Both are held for a few lines and never
/// across `.await`. What each request changes is atomic in [`OpenConnection`]. An evicted connection leaves the table and gives
/// back its hold at once, although its task still runs: the listener waits for [`evicted`](OpenConnection::evicted) and closes
/// it.
#[derive(Clone, Debug)]
pub(crate) struct Connections(Arc<Table>);

#[derive(Debug)]
struct Table {
    max: usize,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    open: HashMap<u64, Arc<OpenConnection>>,
    /// Number of open connections that are reserved.
    reserved: usize,
    /// Connections that the last search has selected, longest idle first. They may have become busy since.
    victims: VecDeque<Arc<OpenConnection>>,
}

/// One open connection.
#[derive(Debug, Default)]
pub(crate) struct OpenConnection {
    /// Identifies the connection within this process.
    pub(crate) number: u64,
    /// Responses that are not sent yet.
    in_flight: AtomicUsize,
    /// When the last response was sent, in milliseconds since the first connection.
    idle_since: AtomicU64,
    /// The address of its principal's holdings; zero until its client is authenticated.
    holder: AtomicUsize,
    hold: Mutex<Option<Hold>>,
    is_reserved: AtomicBool,
    /// Whether the client has a session that ends with the connection, so that it is never idle.
    is_pinned: AtomicBool,
    /// Cancelled when the connection has to make room.
    evicted: CancelToken,
}

impl Connections {
    pub(crate) fn new(max: usize) -> Self {
        Self(Arc::new(Table { max: max.max(1), slots: Mutex::default() }))
    }

    /// Counts a connection that was accepted. Returns `None` if there is no room, not even in the reserve.
    pub(crate) fn open(&self) -> Option<ConnectionPermit> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut slots = lock(&self.0.slots);
        let is_reserved = !slots.has_room(self.0.max);
        if is_reserved && slots.reserved >= RESERVE {
            slots.evict_reserved()?;
        }
        let connection = Arc::new(OpenConnection {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            idle_since: AtomicU64::new(now()),
            is_reserved: AtomicBool::new(is_reserved),
            ..OpenConnection::default()
        });
        slots.reserved += usize::from(is_reserved);
        slots.open.insert(connection.number, Arc::clone(&connection));
        Some(ConnectionPermit { connections: self.clone(), connection })
    }

    /// Gives a slot to a reserved connection, whose client is authenticated. Returns `false` if all slots are in use.
    pub(crate) fn admit(&self, connection: &OpenConnection) -> bool {
        if !connection.is_reserved() {
            return true;
        }
        let mut slots = lock(&self.0.slots);
        let is_admitted = slots.has_room(self.0.max);
        // The connection may have been evicted meanwhile.
        if is_admitted && slots.open.contains_key(&connection.number) {
            connection.is_reserved.store(false, Ordering::Relaxed);
            slots.reserved -= 1;
        }
        is_admitted
    }

    /// Returns the number of open connections.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0.slots).open.len()
    }

    /// Returns the connection limit, which does not include reserved connections.
    pub(crate) fn max(&self) -> usize {
        self.0.max
    }
}

impl Slots {
    /// Returns `true` if a slot is free, after an idle connection was closed if necessary.
    fn has_room(&mut self, max: usize) -> bool {
        self.open.len() - self.reserved < max || self.evict_idle()
    }

    /// Closes the connection that is idle longest.
    fn evict_idle(&mut self) -> bool {
        for is_fresh in [false, true] {
            if is_fresh {
                self.victims = self.select();
            }
            while let Some(victim) = self.victims.pop_front() {
                if self.open.contains_key(&victim.number) && victim.is_evictable() {
                    self.evict(&victim);
                    return true;
                }
            }
        }
        false
    }

    /// Selects idle connections: those without an authenticated client first, then those whose principal has the most.
    fn select(&self) -> VecDeque<Arc<OpenConnection>> {
        let is_regular = |connection: &&Arc<OpenConnection>| !connection.is_reserved() && connection.is_evictable();
        let idle: Vec<&Arc<OpenConnection>> = self.open.values().filter(is_regular).collect();
        let mut victims: Vec<_> = idle.iter().filter(|connection| connection.holder() == 0).copied().collect();
        if victims.is_empty() {
            let mut held: HashMap<usize, usize> = HashMap::new();
            for connection in self.open.values() {
                *held.entry(connection.holder()).or_default() += 1;
            }
            let count = |connection: &Arc<OpenConnection>| held.get(&connection.holder()).copied().unwrap_or(0);
            let most = idle.iter().map(|connection| count(connection)).max();
            victims = idle.into_iter().filter(|connection| Some(count(connection)) == most).collect();
        }
        victims.sort_by_key(|connection| (connection.idle_since.load(Ordering::Relaxed), connection.number));
        victims.into_iter().take(VICTIMS).cloned().collect()
    }

    /// Closes the oldest reserved connection that has no request.
    fn evict_reserved(&mut self) -> Option<()> {
        let idle = self.open.values().filter(|connection| connection.is_reserved() && connection.is_idle());
        let oldest = idle.min_by_key(|connection| connection.number).cloned()?;
        self.evict(&oldest);
        Some(())
    }

    fn evict(&mut self, connection: &OpenConnection) {
        self.remove(connection);
        connection.release();
        connection.evicted.cancel();
    }

    fn remove(&mut self, connection: &OpenConnection) {
        if self.open.remove(&connection.number).is_some() && connection.is_reserved() {
            self.reserved -= 1;
        }
    }
}

impl OpenConnection {
    /// Notes that a request has arrived.
    pub(crate) fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a response was sent.
    pub(crate) fn end(&self) {
        self.idle_since.store(now(), Ordering::Relaxed);
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns `true` if no request is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) == 0
    }

    /// Returns `true` if the connection exceeds the limit and may only probe the gateway.
    pub(crate) fn is_reserved(&self) -> bool {
        self.is_reserved.load(Ordering::Relaxed)
    }

    /// Returns `true` if the client has authenticated a request.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.holder() != 0
    }

    /// Keeps the connection from being closed in favour of others, because a session ends with it.
    pub(crate) fn pin(&self) {
        self.is_pinned.store(true, Ordering::Relaxed);
    }

    /// Waits until the connection has to be closed in favour of another one.
    pub(crate) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Counts the connection for a principal, which has authenticated a request on it.
    ///
    /// # Errors
    ///
    /// Fails if the principal has too many connections.
    pub(crate) fn hold(&self, shares: &Shares, principal: &Holdings) -> Result<(), ShareError> {
        if self.holder() == principal.address() {
            return Ok(());
        }
        let hold = shares.take(Resource::Connections, principal, 1)?;
        let before = lock(&self.hold).replace(hold);
        drop(before);
        self.holder.store(principal.address(), Ordering::Relaxed);
        Ok(())
    }

    /// Gives back what the principal holds.
    fn release(&self) {
        let hold = lock(&self.hold).take();
        drop(hold);
        self.holder.store(0, Ordering::Relaxed);
    }

    fn holder(&self) -> usize {
        self.holder.load(Ordering::Relaxed)
    }

    /// Returns `true` if the connection may be closed in favour of another one.
    fn is_evictable(&self) -> bool {
        let age = || Duration::from_millis(now().saturating_sub(self.idle_since.load(Ordering::Relaxed)));
        let is_pinned = self.is_pinned.load(Ordering::Relaxed);
        self.is_idle() && !is_pinned && (!self.is_authenticated() || age() >= MIN_IDLE)
    }
}

/// Returns the milliseconds since the first connection.
fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = Instant::now().saturating_duration_since(*START.get_or_init(Instant::now));
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

/// An open connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    connections: Connections,
    pub(crate) connection: Arc<OpenConnection>,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        lock(&self.connections.0.slots).remove(&self.connection);
        self.connection.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_config::GatewayLimits;

    fn shares(connections: usize) -> Shares {
        Shares::new(&GatewayLimits { connections, ..GatewayLimits::default() })
    }

    fn is_evicted(permit: &ConnectionPermit) -> bool {
        permit.connection.evicted.is_cancelled()
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_unknown_client_makes_room() {
        let (connections, shares, alice) = (Connections::new(3), shares(8), Holdings::new(true));
        let known = connections.open().expect("a slot");
        known.connection.hold(&shares, &alice).expect("room");
        tokio::time::advance(MIN_IDLE).await;
        let (busy, idle) = (connections.open().expect("a slot"), connections.open().expect("a slot"));
        busy.connection.begin();
        let new = connections.open().expect("the slot of the idle one");
        assert!(!new.connection.is_reserved());
        assert_eq!([&known, &busy, &idle].map(is_evicted), [false, false, true]);
        assert_eq!(connections.len(), 3, "the closing one does not count");
        drop(idle);
        assert_eq!(connections.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn the_principal_with_the_most_connections_makes_room() {
        let (connections, shares) = (Connections::new(3), shares(8));
        let (alice, bob) = (Holdings::new(true), Holdings::new(true));
        let open = |of: &Holdings| {
            let permit = connections.open().expect("a slot");
            permit.connection.hold(&shares, of).expect("room");
            permit
        };
        let permits = [open(&bob), open(&alice), open(&alice)];
        assert!(connections.open().expect("the reserve").connection.is_reserved(), "nothing is idle long enough");
        tokio::time::advance(MIN_IDLE).await;
        let new = connections.open().expect("a slot");
        assert!(!new.connection.is_reserved());
        assert_eq!(permits.each_ref().map(is_evicted), [false, true, false]);
        assert_eq!(alice.held(Resource::Connections), 1, "an evicted connection is not held");
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_gateway_has_a_reserve_that_admits_clients_later() {
        let connections = Connections::new(1);
        let busy = connections.open().expect("a slot");
        busy.connection.begin();
        let reserve: Vec<_> = (0..RESERVE).map(|_| connections.open().expect("the reserve")).collect();
        assert!(reserve.iter().all(|permit| permit.connection.is_reserved()));
        reserve[0].connection.begin();
        let another = connections.open().expect("the place of an idle one");
        assert_eq!([&reserve[0], &reserve[1], &reserve[2]].map(is_evicted), [false, true, false]);
        assert!(!connections.admit(&another.connection), "the slot is in use");
        drop(busy);
        assert!(connections.admit(&another.connection) && !another.connection.is_reserved());
        drop((reserve, another));
        assert_eq!((connections.len(), lock(&connections.0.slots).reserved), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pinned_connection_stays() {
        let connections = Connections::new(1);
        let pipe = connections.open().expect("a slot");
        pipe.connection.pin();
        tokio::time::advance(MIN_IDLE * 2).await;
        assert!(connections.open().expect("the reserve").connection.is_reserved());
        assert!(!is_evicted(&pipe));
    }
}
