//! The messages that a link over HTTP owes its server: a few under way at once, a bounded number waiting.
//!
//! Each message is a POST of its own, and so a connection. Without bounds, a server that asks without end and never
//! answers those POSTs would take every descriptor of this process.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use super::errands::Errands;
use crate::mcp::fault::Fault;
use crate::mcp::host::{Host, Reply, ReplyPath};
use crate::sync::lock;

/// How many messages are under way at once.
const AT_ONCE: usize = 4;

/// How many replies may wait.
const MOST_REPLIES: usize = 64;

/// How many notifications of ours may wait.
const MOST_NOTIFICATIONS: usize = 256;

/// How many bytes may wait; one message may be larger.
const MOST_BYTES: usize = 16 << 20;

/// How long a message may take whose result is not waited for.
const DELIVERY: Duration = Duration::from_secs(10);

/// The messages that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Outgoing(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    notifications: VecDeque<Vec<u8>>,
    replies: VecDeque<Vec<u8>>,
    bytes: usize,
    /// How many tasks send messages.
    senders: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Reply,
    Notification,
}

/// What becomes of a message.
#[derive(Debug, PartialEq)]
enum Queued {
    /// There is no room.
    Dropped,
    /// It waits for a task that sends messages.
    Waits,
    /// It waits, and one more task may send messages.
    NeedsSender,
}

impl Queue {
    fn has_room(&self, kind: Kind) -> bool {
        let (waiting, most) = match kind {
            Kind::Reply => (self.replies.len(), MOST_REPLIES),
            Kind::Notification => (self.notifications.len(), MOST_NOTIFICATIONS),
        };
        waiting < most && self.bytes < MOST_BYTES
    }

    fn push(&mut self, message: Vec<u8>, kind: Kind) -> Queued {
        if !self.has_room(kind) || (self.bytes > 0 && self.bytes + message.len() > MOST_BYTES) {
            return Queued::Dropped;
        }
        self.bytes += message.len();
        match kind {
            Kind::Reply => self.replies.push_back(message),
            Kind::Notification => self.notifications.push_back(message),
        }
        if self.senders == AT_ONCE {
            return Queued::Waits;
        }
        self.senders += 1;
        Queued::NeedsSender
    }

    /// The next message. What we have to say ourselves, such as that a call is cancelled, goes first.
    fn pop(&mut self) -> Option<Vec<u8>> {
        let message = self.notifications.pop_front().or_else(|| self.replies.pop_front())?;
        self.bytes -= message.len();
        Some(message)
    }
}

impl Outgoing {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.0)
    }
}

/// A link on which each of our messages is a request of its own.
pub(crate) trait Messenger: Send + Sync + 'static {
    /// The tasks of the link.
    fn errands(&self) -> &Errands;

    /// What waits to be sent.
    fn outgoing(&self) -> &Outgoing;

    fn host(&self) -> &Arc<Host>;

    /// Sends a message that wants no answer.
    fn notify(&self, message: Vec<u8>) -> impl Future<Output = Result<(), Fault>> + Send;
}

/// The way back over a link. It does not keep the link alive.
struct WayBack<L>(Weak<L>);

impl<L: Messenger> ReplyPath for WayBack<L> {
    fn has_room(&self) -> bool {
        self.0.upgrade().is_some_and(|link| link.outgoing().queue().has_room(Kind::Reply))
    }

    fn send(&self, message: Vec<u8>) {
        post(&self.0, message, Kind::Reply);
    }
}

/// A way back to the server: answers to its requests are messages of their own.
pub(crate) fn reply<L: Messenger>(link: &Weak<L>) -> Reply {
    Arc::new(WayBack(link.clone()))
}

/// Sends a message when there is time; without a runtime there is nobody left to send it.
pub(crate) fn mention<L: Messenger>(link: &Weak<L>, message: Vec<u8>) {
    if tokio::runtime::Handle::try_current().is_ok() {
        post(link, message, Kind::Notification);
    }
}

fn post<L: Messenger>(link: &Weak<L>, message: Vec<u8>, kind: Kind) {
    let Some(alive) = link.upgrade() else { return };
    let queued = alive.outgoing().queue().push(message, kind);
    match queued {
        Queued::Dropped => alive.host().drop_reply(),
        Queued::Waits => {}
        Queued::NeedsSender => alive.errands().run(send_all(Sender(link.clone()))),
    }
}

/// A task that sends messages; it gives its place back however it ends.
struct Sender<L: Messenger>(Weak<L>);

impl<L: Messenger> Drop for Sender<L> {
    fn drop(&mut self) {
        if let Some(link) = self.0.upgrade() {
            link.outgoing().queue().senders -= 1;
        }
    }
}

async fn send_all<L: Messenger>(sender: Sender<L>) {
    while let Some(link) = sender.0.upgrade() {
        let Some(message) = link.outgoing().queue().pop() else { return };
        if tokio::time::timeout(DELIVERY, link.notify(message)).await.is_err() {
            link.host().drop_reply();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_and_notifications_wait_in_bounded_numbers_and_notifications_go_first() {
        let mut queue = Queue::default();
        for number in 0..MOST_REPLIES {
            let expected = if number < AT_ONCE { Queued::NeedsSender } else { Queued::Waits };
            assert_eq!(queue.push(vec![1], Kind::Reply), expected);
        }
        assert_eq!(queue.push(vec![1], Kind::Reply), Queued::Dropped);
        assert_eq!(queue.push(vec![2], Kind::Notification), Queued::Waits);
        assert_eq!(queue.pop(), Some(vec![2]));
        assert_eq!(queue.pop(), Some(vec![1]));
        assert!(queue.has_room(Kind::Reply));
    }

    #[test]
    fn a_large_message_goes_alone() {
        let mut queue = Queue::default();
        assert_eq!(queue.push(vec![0; MOST_BYTES + 1], Kind::Reply), Queued::NeedsSender);
        assert_eq!(queue.push(vec![0], Kind::Reply), Queued::Dropped);
        queue.pop().expect("a message");
        assert_eq!(queue.push(vec![0; 8], Kind::Reply), Queued::NeedsSender);
        assert_eq!(queue.push(vec![0; MOST_BYTES], Kind::Reply), Queued::Dropped);
        assert_eq!(queue.bytes, 8);
    }
}
