//! Where events are told, and heard.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, Weak};

use tokio::sync::broadcast;

use super::Event;
use crate::sync::{read, write};
use crate::tool::Alias;

/// Where events are told. Telling never waits.
///
/// Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct Events(Arc<Teller>);

#[derive(Debug)]
struct Teller {
    own: broadcast::Sender<Event>,
    relays: RwLock<Vec<Onward>>,
    /// How many relays there are, so that the many tellers without one need no lock.
    count: AtomicUsize,
    /// What tools are called with and what they answer is told as well.
    payloads: AtomicBool,
}

/// Where else events are told, and under which name of the server.
#[derive(Debug)]
struct Onward {
    number: u64,
    alias: Alias,
    to: Events,
}

impl Default for Events {
    fn default() -> Self {
        Self::new(1024)
    }
}

impl Events {
    /// Keeps up to `capacity` events for a slow listener.
    pub fn new(capacity: usize) -> Self {
        let own = broadcast::Sender::new(capacity.max(1));
        Self(Arc::new(Teller {
            own,
            relays: RwLock::default(),
            count: AtomicUsize::new(0),
            payloads: AtomicBool::new(false),
        }))
    }

    /// From here on tells also what tools are called with and what they answer, without what is known to be secret.
    #[must_use]
    pub fn with_payloads(self) -> Self {
        self.0.payloads.store(true, Ordering::Release);
        self
    }

    /// Does anybody who listens want to know what tools are called with and what they answer?
    #[cfg(feature = "mcp")]
    pub(crate) fn wants_payloads(&self) -> bool {
        (self.0.tells_payloads() && self.0.own.receiver_count() > 0)
            || (self.0.is_relayed() && self.0.relays().iter().any(|onward| onward.to.wants_payloads()))
    }

    /// Tells an event to everybody who listens now.
    pub fn tell(&self, event: Event) {
        if self.0.is_relayed() {
            // That tools have changed is told by whoever has the new ones ready.
            let is_passed_on = !matches!(event, Event::ToolsChanged { .. });
            for onward in self.0.relays().iter().filter(|onward| is_passed_on && onward.to.heard()) {
                onward.to.tell(event.clone().renamed(&onward.alias));
            }
        }
        // Who did not ask for them is not told them, though somebody else may be.
        let plain = event.has_payload() && !self.0.tells_payloads();
        // An error only says that nobody listens.
        let _ = self.0.own.send(if plain { event.without_payload() } else { event });
    }

    /// Is anybody listening? Spares the making of an event that nobody would hear.
    pub fn heard(&self) -> bool {
        self.0.own.receiver_count() > 0
            || (self.0.is_relayed() && self.0.relays().iter().any(|onward| onward.to.heard()))
    }

    /// Listens from now on.
    pub fn listen(&self) -> EventStream {
        EventStream { earlier: VecDeque::new(), receiver: self.0.own.subscribe() }
    }

    /// Listens from now on, after some events that were told before.
    #[cfg(feature = "bridge")]
    pub(crate) fn listen_after(&self, earlier: impl IntoIterator<Item = Event>) -> EventStream {
        EventStream { earlier: earlier.into_iter().collect(), ..self.listen() }
    }

    /// From now on tells every event to somebody else as well, whose name for the server is `alias`.
    ///
    /// For a connection that several owners share, each of whom tells changes of the tools itself. Two that relay to each
    /// other would never come to an end.
    #[cfg_attr(not(feature = "bridge"), expect(dead_code, reason = "it is the bridge that shares connections"))]
    pub(crate) fn relay(&self, alias: Alias, to: Self) -> Relay {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.0.change(|relays| relays.push(Onward { number, alias, to }));
        Relay { from: Arc::downgrade(&self.0), number }
    }
}

impl Teller {
    fn tells_payloads(&self) -> bool {
        self.payloads.load(Ordering::Acquire)
    }

    fn is_relayed(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    fn relays(&self) -> RwLockReadGuard<'_, Vec<Onward>> {
        read(&self.relays)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Onward>)) {
        let mut relays = write(&self.relays);
        change(&mut relays);
        self.count.store(relays.len(), Ordering::Release);
    }
}

/// A relay of events. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Relay {
    from: Weak<Teller>,
    number: u64,
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(from) = self.from.upgrade() {
            from.change(|relays| relays.retain(|onward| onward.number != self.number));
        }
    }
}

/// One listener's events, in order.
#[derive(Debug)]
pub struct EventStream {
    /// Events that come before those of the receiver.
    earlier: VecDeque<Event>,
    receiver: broadcast::Receiver<Event>,
}

impl EventStream {
    /// The next event; `None` once nobody can tell any more.
    pub async fn next(&mut self) -> Option<Event> {
        if let Some(event) = self.earlier.pop_front() {
            return Some(event);
        }
        match self.receiver.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Event::Lagged { missed }),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }

    /// How many events wait to be heard, those that are lost already included.
    pub(crate) fn waiting(&self) -> usize {
        self.earlier.len() + self.receiver.len()
    }

    /// The next event if there is one already.
    pub fn try_next(&mut self) -> Option<Event> {
        if let Some(event) = self.earlier.pop_front() {
            return Some(event);
        }
        match self.receiver.try_recv() {
            Ok(event) => Some(event),
            Err(broadcast::error::TryRecvError::Lagged(missed)) => Some(Event::Lagged { missed }),
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;

    use super::*;
    use crate::tool::CallId;

    fn closed(name: &str) -> Event {
        Event::Closed { server: name.into() }
    }

    #[tokio::test]
    async fn a_slow_listener_loses_old_events_and_is_told_how_many() {
        let events = Events::new(2);
        let mut slow = events.listen();
        for name in ["a", "b", "c", "d"] {
            events.tell(closed(name));
        }
        assert_eq!(slow.next().await, Some(Event::Lagged { missed: 2 }));
        assert_eq!(slow.next().await, Some(closed("c")));
        assert_eq!(slow.next().await, Some(closed("d")));
        drop(events);
        assert_eq!(slow.next().await, None);
    }

    #[test]
    fn telling_without_a_listener_is_fine() {
        let events = Events::default();
        assert!(!events.heard());
        events.tell(closed("a"));
    }
    #[test]
    fn a_relay_tells_events_under_its_own_name_until_it_is_dropped() {
        let (shared, one, two) = (Events::default(), Events::default(), Events::default());
        let relay = shared.relay("one".into(), one.clone());
        let _other = shared.relay("two".into(), two.clone());
        assert!(!shared.heard());
        let mut at_one = one.listen();
        assert!(shared.heard());
        let mut at_two = two.listen();
        let general = Event::Warning { server: None, message: "general".into() };
        shared.tell(closed("shared"));
        shared.tell(general.clone());
        drop(relay);
        shared.tell(closed("shared"));
        let all = |stream: &mut EventStream| std::iter::from_fn(|| stream.try_next()).collect::<Vec<_>>();
        assert_eq!(all(&mut at_one), [closed("one"), general.clone()]);
        assert_eq!(all(&mut at_two), [closed("two"), general, closed("two")]);
        drop(at_two);
        assert!(!shared.heard());
    }

    #[test]
    fn only_who_asks_for_payloads_is_told_them() {
        let called = |arguments: Option<Value>| Event::ToolCalled {
            server: "one".into(),
            tool: "t".into(),
            call: CallId("c".into()),
            took: Duration::ZERO,
            is_error: false,
            result: arguments.clone().map(Arc::new),
            arguments: arguments.map(Arc::new),
        };
        let (shared, plain, full) = (Events::default(), Events::default(), Events::default().with_payloads());
        let _relays = [shared.relay("one".into(), plain.clone()), shared.relay("one".into(), full.clone())];
        let (mut at_shared, mut at_plain) = (shared.listen(), plain.listen());
        assert!(!shared.wants_payloads());
        let mut at_full = full.listen();
        assert!(shared.wants_payloads());
        let secret = Some(Value::from("private"));
        shared.tell(called(secret.clone()));
        assert_eq!(at_shared.try_next(), Some(called(None)));
        assert_eq!(at_plain.try_next(), Some(called(None)));
        assert_eq!(at_full.try_next(), Some(called(secret)));
    }

    #[test]
    fn a_relay_may_outlive_what_it_relays_from() {
        let (shared, one) = (Events::default(), Events::default());
        let relay = shared.relay("one".into(), one.clone());
        let mut listener = one.listen();
        drop((shared, one));
        drop(relay);
        assert_eq!(listener.try_next(), None);
    }
}
