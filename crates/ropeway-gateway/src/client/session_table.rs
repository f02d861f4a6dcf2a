//! The sessions in memory, ordered by last use.
//!
//! Each operation costs the same for ten sessions and for a hundred thousand: the orders are linked lists through the sessions,
//! one over all sessions and one per principal.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::client::journal::NotedSession;
use crate::client::shares::Hold;
use crate::client::{Client, ClientId};

/// Maximum number of principals whose sessions are considered for eviction.
const MAX_CONSIDERED: usize = 8;

/// Marks the end of a list.
const NONE: usize = usize::MAX;

/// A session in memory.
pub(crate) struct Session {
    pub(crate) id: Arc<str>,
    pub(crate) client: Arc<Client>,
    pub(crate) noted: NotedSession,
    /// Counts the session against the principal's share.
    pub(crate) _hold: Hold,
}

struct Slot {
    session: Session,
    used_at: Instant,
    /// The neighbours in the overall order, and in the principal's order.
    links: [Link; 2],
}

#[derive(Clone, Copy)]
struct Link {
    before: usize,
    after: usize,
}

/// Sessions ordered by last use, oldest first.
#[derive(Clone, Copy)]
struct Order {
    first: usize,
    last: usize,
}

impl Order {
    const EMPTY: Self = Self { first: NONE, last: NONE };
}

/// Selects a session's link in the overall order.
const ALL: usize = 0;

/// Selects a session's link in its principal's order.
const OWN: usize = 1;

/// One principal's sessions.
struct Holder {
    order: Order,
    count: usize,
}

/// All sessions in memory.
///
/// [`Sessions`](crate::client::session::Sessions) owns the table behind a mutex, which it takes before the journal's. The table
/// has no lock itself, and its methods take only one: evictions ask [`Client::is_idle`], which locks the client's running
/// requests.
///
/// A session is one slot. The maps and the linked lists refer to it by index, and `insert` and `remove_at` are the only functions
/// that add or free a slot, so they keep the maps, the orders and the counts consistent. Removing a session hands it to the
/// caller, which releases the client after the lock; dropping a [`Session`] gives back its [`Hold`] and closes nothing.
pub(crate) struct SessionTable {
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    by_id: HashMap<Arc<str>, usize>,
    by_client: HashMap<ClientId, usize>,
    order: Order,
    /// Principals by their ids. A principal whose key was replaced keeps its sessions.
    holders: HashMap<Arc<str>, Holder>,
    /// Principals by session count.
    by_count: BTreeSet<(usize, Arc<str>)>,
}

impl Default for SessionTable {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::new(),
            by_client: HashMap::new(),
            order: Order::EMPTY,
            holders: HashMap::new(),
            by_count: BTreeSet::new(),
        }
    }
}

impl SessionTable {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Finds a session.
    pub(crate) fn get(&self, id: &str) -> Option<&Session> {
        let index = *self.by_id.get(id)?;
        self.slots[index].as_ref().map(|slot| &slot.session)
    }

    /// Finds a client's session.
    pub(crate) fn of_client(&self, client: ClientId) -> Option<&Session> {
        let index = *self.by_client.get(&client)?;
        self.slots[index].as_ref().map(|slot| &slot.session)
    }

    /// Returns all sessions.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.slots.iter().flatten().map(|slot| &slot.session)
    }

    /// Changes a session.
    #[cfg(test)]
    pub(crate) fn get_mut(&mut self, id: &str) -> Option<&mut Session> {
        let index = *self.by_id.get(id)?;
        self.slots[index].as_mut().map(|slot| &mut slot.session)
    }

    /// Makes a client's session the most recently used one.
    pub(crate) fn touch(&mut self, client: ClientId) {
        if let Some(index) = self.by_client.get(&client).copied() {
            self.move_to_end(index);
        }
    }

    /// Adds a session. A session with the same id is replaced.
    pub(crate) fn insert(&mut self, session: Session) {
        self.remove(&session.id.clone());
        let (id, client, principal) = (session.id.clone(), session.client.id, session.client.principal.shared_id());
        let unlinked = Link { before: NONE, after: NONE };
        let slot = Some(Slot { session, used_at: Instant::now(), links: [unlinked; 2] });
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        self.by_id.insert(id, index);
        self.by_client.insert(client, index);
        let holder = self.holders.entry(principal.clone()).or_insert(Holder { order: Order::EMPTY, count: 0 });
        self.by_count.remove(&(holder.count, principal.clone()));
        holder.count += 1;
        self.by_count.insert((holder.count, principal));
        link(&mut self.slots, &mut self.order, ALL, index);
        link(&mut self.slots, &mut holder.order, OWN, index);
    }

    /// Removes a session.
    pub(crate) fn remove(&mut self, id: &str) -> Option<Session> {
        let index = *self.by_id.get(id)?;
        self.remove_at(index)
    }

    fn remove_at(&mut self, index: usize) -> Option<Session> {
        let principal = self.principal_at(index)?;
        unlink(&mut self.slots, &mut self.order, ALL, index);
        if let Some(holder) = self.holders.get_mut(&principal) {
            unlink(&mut self.slots, &mut holder.order, OWN, index);
            self.by_count.remove(&(holder.count, principal.clone()));
            holder.count -= 1;
            if holder.count == 0 {
                self.holders.remove(&principal);
            } else {
                self.by_count.insert((holder.count, principal));
            }
        }
        self.free.push(index);
        let slot = self.slots[index].take()?;
        self.by_id.remove(&slot.session.id);
        self.by_client.remove(&slot.session.client.id);
        Some(slot.session)
    }

    /// Removes a principal's least recently used idle session.
    pub(crate) fn evict_of(&mut self, principal: &str) -> Option<Session> {
        // Sessions in use move to the end, so that the next search does not visit them first again. Connection and call limits
        // bound their number, however many sessions exist.
        let count = self.holders.get(principal)?.count;
        for _ in 0..count {
            let index = self.holders.get(principal)?.order.first;
            if self.slots.get(index)?.as_ref()?.session.client.is_idle() {
                return self.remove_at(index);
            }
            self.move_to_end(index);
        }
        None
    }

    /// Removes an idle session to make room for this principal. Tries the principals that have the most sessions and more than
    /// their fair share, then the principal itself.
    pub(crate) fn evict_for(&mut self, principal: &str, limit: usize) -> Option<Session> {
        let others = usize::from(!self.holders.contains_key(principal));
        let fair = limit / (self.holders.len() + others).max(1);
        let largest = self.by_count.iter().rev().take_while(|(count, _)| *count > fair).take(MAX_CONSIDERED);
        let considered: Vec<Arc<str>> = largest.map(|(_, id)| id.clone()).collect();
        considered.iter().find_map(|id| self.evict_of(id)).or_else(|| self.evict_of(principal))
    }

    /// Removes the next session that is idle and was not used for some time.
    pub(crate) fn evict_unused(&mut self, max_idle: Duration) -> Option<Session> {
        loop {
            let slot = self.slots.get(self.order.first)?.as_ref()?;
            if slot.used_at.elapsed() <= max_idle {
                return None;
            }
            if slot.session.client.is_idle() {
                return self.remove_at(self.order.first);
            }
            // An open stream or a running request counts as use.
            self.move_to_end(self.order.first);
        }
    }

    fn principal_at(&self, index: usize) -> Option<Arc<str>> {
        let slot = self.slots.get(index)?.as_ref();
        slot.map(|slot| slot.session.client.principal.shared_id())
    }

    fn move_to_end(&mut self, index: usize) {
        let Some(principal) = self.principal_at(index) else { return };
        // The last session overall is also its principal's last.
        if self.order.last != index {
            unlink(&mut self.slots, &mut self.order, ALL, index);
            link(&mut self.slots, &mut self.order, ALL, index);
            if let Some(holder) = self.holders.get_mut(&principal) {
                unlink(&mut self.slots, &mut holder.order, OWN, index);
                link(&mut self.slots, &mut holder.order, OWN, index);
            }
        }
        if let Some(slot) = &mut self.slots[index] {
            slot.used_at = Instant::now();
        }
    }
}

/// Returns a session's link in an order, or `None` past the end.
fn link_at(slots: &mut [Option<Slot>], which: usize, index: usize) -> Option<&mut Link> {
    slots.get_mut(index)?.as_mut().map(|slot| &mut slot.links[which])
}

/// Appends a session to an order.
fn link(slots: &mut [Option<Slot>], order: &mut Order, which: usize, index: usize) {
    if let Some(link) = link_at(slots, which, index) {
        *link = Link { before: order.last, after: NONE };
    }
    match link_at(slots, which, order.last) {
        Some(last) => last.after = index,
        None => order.first = index,
    }
    order.last = index;
}

/// Removes a session from an order.
fn unlink(slots: &mut [Option<Slot>], order: &mut Order, which: usize, index: usize) {
    let Some(Link { before, after }) = link_at(slots, which, index).copied() else { return };
    match link_at(slots, which, before) {
        Some(link) => link.after = after,
        None => order.first = after,
    }
    match link_at(slots, which, after) {
        Some(link) => link.before = before,
        None => order.last = before,
    }
}
