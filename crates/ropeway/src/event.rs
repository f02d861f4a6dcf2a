//! Events: what happens, for whoever wants to know.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::Value;
use tokio::sync::broadcast;

use crate::tool::{Alias, CallId, Progress};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event")]
#[non_exhaustive]
pub enum Event {
    /// A connection is being made.
    #[serde(rename = "server.connecting")]
    Connecting {
        /// The server.
        server: Alias,
        /// How many tries have failed in a row.
        failures: u32,
    },
    /// A connection is made.
    #[serde(rename = "server.ready")]
    Ready {
        /// The server.
        server: Alias,
        /// The protocol version that was agreed on.
        protocol_version: String,
    },
    /// A connection is lost, or could not be made.
    #[serde(rename = "server.down")]
    Down {
        /// The server.
        server: Alias,
        /// Why.
        cause: String,
        /// When it will be tried again; absent when it will not.
        #[serde(rename = "retry_in_ms", serialize_with = "maybe_milliseconds")]
        retry_in: Option<Duration>,
    },
    /// A server wants to know who is asking.
    #[serde(rename = "server.needs_auth")]
    NeedsAuth {
        /// The server.
        server: Alias,
    },
    /// A connection was closed by its owner.
    #[serde(rename = "server.closed")]
    Closed {
        /// The server.
        server: Alias,
    },
    /// A server's tools are not what they were.
    #[serde(rename = "server.tools_changed")]
    ToolsChanged {
        /// The server.
        server: Alias,
    },
    /// A server's prompts are not what they were.
    #[serde(rename = "server.prompts_changed")]
    PromptsChanged {
        /// The server.
        server: Alias,
    },
    /// A server's resources are not what they were.
    #[serde(rename = "server.resources_changed")]
    ResourcesChanged {
        /// The server.
        server: Alias,
    },
    /// A resource that we subscribed to has changed.
    #[serde(rename = "server.resource_updated")]
    ResourceUpdated {
        /// The server.
        server: Alias,
        /// Where the resource lives.
        uri: String,
    },
    /// A tool answered; also when its answer is that it failed.
    #[serde(rename = "mcp.tool_called")]
    ToolCalled {
        /// The server.
        server: Alias,
        /// The server's name for the tool.
        tool: String,
        /// The call.
        call: CallId,
        /// How long it took.
        #[serde(rename = "took_ms", serialize_with = "milliseconds")]
        took: Duration,
        /// The tool reports a failure.
        is_error: bool,
    },
    /// A call has no answer.
    #[serde(rename = "mcp.tool_failed")]
    ToolFailed {
        /// The server.
        server: Alias,
        /// The server's name for the tool.
        tool: String,
        /// The call.
        call: CallId,
        /// How long it took.
        #[serde(rename = "took_ms", serialize_with = "milliseconds")]
        took: Duration,
        /// Why there is no answer.
        cause: String,
    },
    /// A call has come a little further.
    #[serde(rename = "progress")]
    Progress {
        /// The server.
        server: Alias,
        /// The call.
        call: CallId,
        /// How far.
        #[serde(flatten)]
        progress: Progress,
    },
    /// A server has something to say.
    #[serde(rename = "log")]
    Log {
        /// The server.
        server: Alias,
        /// How important it says that it is.
        level: String,
        /// Which part of the server speaks.
        logger: Option<String>,
        /// What it says.
        data: Value,
    },
    /// A new configuration is in use.
    #[serde(rename = "config.reloaded")]
    Reloaded {
        /// Servers that are new.
        started: Vec<Alias>,
        /// Servers that are gone.
        stopped: Vec<Alias>,
        /// Servers whose entry has changed.
        restarted: Vec<Alias>,
    },
    /// Something is odd but was dealt with.
    #[serde(rename = "warning")]
    Warning {
        /// The server, when it is about one.
        #[serde(skip_serializing_if = "Option::is_none")]
        server: Option<Alias>,
        /// What is odd.
        message: String,
    },
    /// The listener was too slow: this many events are lost to it.
    #[serde(rename = "lagged")]
    Lagged {
        /// How many.
        missed: u64,
    },
}

fn milliseconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_micros() as f64 / 1000.0)
}

fn maybe_milliseconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => milliseconds(time, serializer),
        None => serializer.serialize_none(),
    }
}

impl Event {
    /// The server that it is about, when it is about one.
    pub fn server(&self) -> Option<&Alias> {
        match self {
            Self::Connecting { server, .. }
            | Self::Ready { server, .. }
            | Self::Down { server, .. }
            | Self::NeedsAuth { server }
            | Self::Closed { server }
            | Self::ToolsChanged { server }
            | Self::PromptsChanged { server }
            | Self::ResourcesChanged { server }
            | Self::ResourceUpdated { server, .. }
            | Self::ToolCalled { server, .. }
            | Self::ToolFailed { server, .. }
            | Self::Progress { server, .. }
            | Self::Log { server, .. } => Some(server),
            Self::Warning { server, .. } => server.as_ref(),
            Self::Reloaded { .. } | Self::Lagged { .. } => None,
        }
    }

    /// The same event of a server that goes by another name here.
    fn renamed(mut self, alias: &Alias) -> Self {
        match &mut self {
            Self::Connecting { server, .. }
            | Self::Ready { server, .. }
            | Self::Down { server, .. }
            | Self::NeedsAuth { server }
            | Self::Closed { server }
            | Self::ToolsChanged { server }
            | Self::PromptsChanged { server }
            | Self::ResourcesChanged { server }
            | Self::ResourceUpdated { server, .. }
            | Self::ToolCalled { server, .. }
            | Self::ToolFailed { server, .. }
            | Self::Progress { server, .. }
            | Self::Log { server, .. }
            | Self::Warning { server: Some(server), .. } => *server = alias.clone(),
            Self::Warning { server: None, .. } | Self::Reloaded { .. } | Self::Lagged { .. } => {}
        }
        self
    }
}

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
        Self(Arc::new(Teller { own, relays: RwLock::default(), count: AtomicUsize::new(0) }))
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
        // An error only says that nobody listens.
        let _ = self.0.own.send(event);
    }

    /// Is anybody listening? Spares the making of an event that nobody would hear.
    pub fn heard(&self) -> bool {
        self.0.own.receiver_count() > 0
            || (self.0.is_relayed() && self.0.relays().iter().any(|onward| onward.to.heard()))
    }

    /// Listens from now on.
    pub fn listen(&self) -> EventStream {
        EventStream(self.0.own.subscribe())
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
    fn is_relayed(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    fn relays(&self) -> RwLockReadGuard<'_, Vec<Onward>> {
        self.relays.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Onward>)) {
        let mut relays = self.relays.write().unwrap_or_else(PoisonError::into_inner);
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
pub struct EventStream(broadcast::Receiver<Event>);

impl EventStream {
    /// The next event; `None` once nobody can tell any more.
    pub async fn next(&mut self) -> Option<Event> {
        match self.0.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Event::Lagged { missed }),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }

    /// The next event if there is one already.
    pub fn try_next(&mut self) -> Option<Event> {
        match self.0.try_recv() {
            Ok(event) => Some(event),
            Err(broadcast::error::TryRecvError::Lagged(missed)) => Some(Event::Lagged { missed }),
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn an_event_is_one_flat_json_object_with_times_in_milliseconds() {
        let event = Event::ToolFailed {
            server: "a".into(),
            tool: "t".into(),
            call: CallId("c".into()),
            took: Duration::from_micros(1500),
            cause: "why".into(),
        };
        let expected = serde_json::json!({"event": "mcp.tool_failed", "server": "a", "tool": "t", "call": "c", "took_ms": 1.5, "cause": "why"});
        assert_eq!(serde_json::to_value(event).expect("JSON"), expected);
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
    fn a_relay_may_outlive_what_it_relays_from() {
        let (shared, one) = (Events::default(), Events::default());
        let relay = shared.relay("one".into(), one.clone());
        let mut listener = one.listen();
        drop((shared, one));
        drop(relay);
        assert_eq!(listener.try_next(), None);
    }

    #[test]
    fn an_event_names_the_server_that_it_is_about() {
        assert_eq!(closed("a").server(), Some(&"a".into()));
        assert_eq!(Event::Lagged { missed: 1 }.server(), None);
        assert_eq!(Event::Warning { server: None, message: String::new() }.server(), None);
    }
}
