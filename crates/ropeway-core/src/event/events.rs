//! A broadcast channel for events.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, Weak};

use tokio::sync::broadcast;

use super::Event;
use crate::sync::{read, write};
use crate::tool::Alias;

/// A broadcast channel for [`Event`]s. Sending never waits.
///
/// Cloning is cheap, and all clones are the same channel.
///
/// Every clone may emit and subscribe. The events themselves travel through a tokio broadcast channel, so a slow listener
/// loses its oldest events instead of delaying the sender. A std `RwLock` guards the relays: [`emit`](Self::emit) reads it,
/// [`relay`](Self::relay) and dropping a [`Relay`] write it. `emit` holds its read lock while it emits to the relay targets,
/// which read their own lists: locks are taken from source to target, and no relay may lead back to its source. Nothing
/// awaits, so no lock is held across `.await`. When the last clone is dropped, streams yield what they have and then end. A
/// relay holds a clone of its target, and only a weak reference to its source.
#[derive(Clone, Debug)]
pub struct Events(Arc<EventBus>);

#[derive(Debug)]
struct EventBus {
    own: broadcast::Sender<Event>,
    relays: RwLock<Vec<RelayTarget>>,
    /// Relay count, so that channels without relays need no lock.
    count: AtomicUsize,
    /// Whether events include arguments and results.
    payloads: AtomicBool,
}

/// Another channel that receives all events, under another server alias.
#[derive(Debug)]
struct RelayTarget {
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
    /// Creates a channel that buffers up to `capacity` events for slow listeners.
    pub fn new(capacity: usize) -> Self {
        let own = broadcast::Sender::new(capacity.max(1));
        Self(Arc::new(EventBus {
            own,
            relays: RwLock::default(),
            count: AtomicUsize::new(0),
            payloads: AtomicBool::new(false),
        }))
    }

    /// Includes tool call arguments and results in events, with known secrets redacted.
    #[must_use]
    pub fn with_payloads(self) -> Self {
        self.0.payloads.store(true, Ordering::Release);
        self
    }

    /// Returns `true` if a listener receives arguments and results.
    pub fn wants_payloads(&self) -> bool {
        (self.0.has_payloads() && self.0.own.receiver_count() > 0)
            || (self.0.is_relayed() && self.0.relays().iter().any(|target| target.to.wants_payloads()))
    }

    /// Sends an event to all current listeners.
    pub fn emit(&self, event: Event) {
        if self.0.is_relayed() {
            // Each owner of a shared connection emits its own `ToolsChanged`.
            let is_passed_on = !matches!(event, Event::ToolsChanged { .. });
            for target in self.0.relays().iter().filter(|target| is_passed_on && target.to.has_listeners()) {
                target.to.emit(event.clone().renamed(&target.alias));
            }
        }
        // A relay target may include payloads that this channel does not.
        let plain = event.has_payload() && !self.0.has_payloads();
        // Sending fails only without listeners.
        let _ = self.0.own.send(if plain { event.without_payload() } else { event });
    }

    /// Returns `true` if the channel has listeners. Callers can skip creating an event otherwise.
    pub fn has_listeners(&self) -> bool {
        self.0.own.receiver_count() > 0
            || (self.0.is_relayed() && self.0.relays().iter().any(|target| target.to.has_listeners()))
    }

    /// Subscribes to future events.
    pub fn subscribe(&self) -> EventStream {
        EventStream { earlier: VecDeque::new(), receiver: self.0.own.subscribe() }
    }

    /// Subscribes to future events, preceded by some earlier ones.
    pub fn subscribe_after(&self, earlier: impl IntoIterator<Item = Event>) -> EventStream {
        EventStream { earlier: earlier.into_iter().collect(), ..self.subscribe() }
    }

    /// Forwards all future events to another channel, with `alias` as the server.
    ///
    /// For a connection with several owners, each of which emits its own `ToolsChanged`. Two channels must not relay to each
    /// other.
    pub fn relay(&self, alias: Alias, to: Self) -> Relay {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.0.change(|relays| relays.push(RelayTarget { number, alias, to }));
        Relay { from: Arc::downgrade(&self.0), number }
    }
}

impl EventBus {
    fn has_payloads(&self) -> bool {
        self.payloads.load(Ordering::Acquire)
    }

    fn is_relayed(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    fn relays(&self) -> RwLockReadGuard<'_, Vec<RelayTarget>> {
        read(&self.relays)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<RelayTarget>)) {
        let mut relays = write(&self.relays);
        change(&mut relays);
        self.count.store(relays.len(), Ordering::Release);
    }
}

/// An event relay. Dropping it stops the relay.
#[derive(Debug)]
pub struct Relay {
    from: Weak<EventBus>,
    number: u64,
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(from) = self.from.upgrade() {
            from.change(|relays| relays.retain(|target| target.number != self.number));
        }
    }
}

/// One listener's events, in order.
///
/// One listener owns the stream and reads it through `&mut self`, so it needs no lock. [`next`](Self::next) first returns
/// the earlier events, then those that were emitted since the subscription. A listener that falls behind by more than the
/// channel's capacity receives one [`Event::Lagged`] with the number of missed events, and continues with the oldest one
/// still buffered. The stream ends once every [`Events`] clone is dropped; it keeps no channel open. Dropping the stream
/// unsubscribes: without listeners, events are discarded.
#[derive(Debug)]
pub struct EventStream {
    /// Events that precede the receiver's.
    earlier: VecDeque<Event>,
    receiver: broadcast::Receiver<Event>,
}

impl EventStream {
    /// Returns the next event, or `None` once the channel is closed.
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

    /// Returns the number of unread events, including those that were missed.
    pub(crate) fn waiting(&self) -> usize {
        self.earlier.len() + self.receiver.len()
    }

    /// Returns the next event, if one is available.
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
    async fn a_slow_listener_gets_the_number_of_missed_events() {
        let events = Events::new(2);
        let mut slow = events.subscribe();
        for name in ["a", "b", "c", "d"] {
            events.emit(closed(name));
        }
        assert_eq!(slow.next().await, Some(Event::Lagged { missed: 2 }));
        assert_eq!(slow.next().await, Some(closed("c")));
        assert_eq!(slow.next().await, Some(closed("d")));
        drop(events);
        assert_eq!(slow.next().await, None);
    }

    #[test]
    fn sending_without_a_listener_is_allowed() {
        let events = Events::default();
        assert!(!events.has_listeners());
        events.emit(closed("a"));
    }

    #[test]
    fn a_relay_forwards_events_under_its_own_alias_until_dropped() {
        let (shared, one, two) = (Events::default(), Events::default(), Events::default());
        let relay = shared.relay("one".into(), one.clone());
        let _other = shared.relay("two".into(), two.clone());
        assert!(!shared.has_listeners());
        let mut at_one = one.subscribe();
        assert!(shared.has_listeners());
        let mut at_two = two.subscribe();
        let general = Event::Warning { server: None, message: "general".into() };
        shared.emit(closed("shared"));
        shared.emit(general.clone());
        drop(relay);
        shared.emit(closed("shared"));
        let all = |stream: &mut EventStream| std::iter::from_fn(|| stream.try_next()).collect::<Vec<_>>();
        assert_eq!(all(&mut at_one), [closed("one"), general.clone()]);
        assert_eq!(all(&mut at_two), [closed("two"), general, closed("two")]);
        drop(at_two);
        assert!(!shared.has_listeners());
    }

    #[test]
    fn only_listeners_that_ask_for_payloads_get_them() {
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
        let (mut at_shared, mut at_plain) = (shared.subscribe(), plain.subscribe());
        assert!(!shared.wants_payloads());
        let mut at_full = full.subscribe();
        assert!(shared.wants_payloads());
        let secret = Some(Value::from("private"));
        shared.emit(called(secret.clone()));
        assert_eq!(at_shared.try_next(), Some(called(None)));
        assert_eq!(at_plain.try_next(), Some(called(None)));
        assert_eq!(at_full.try_next(), Some(called(secret)));
    }

    #[test]
    fn a_relay_may_outlive_its_source() {
        let (shared, one) = (Events::default(), Events::default());
        let relay = shared.relay("one".into(), one.clone());
        let mut listener = one.subscribe();
        drop((shared, one));
        drop(relay);
        assert_eq!(listener.try_next(), None);
    }
}
