//! A bounded queue for replies and notifications on HTTP links.
//!
//! Each message is a POST and may need its own connection. Without limits, a server that sends requests without end and
//! never answers the POSTs would use up this process's file descriptors.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use super::background_tasks::BackgroundTasks;
use crate::error::RequestError;
use crate::host::{Host, ReplySender, ReplySink};
use ropeway_core::sync::lock;

/// Maximum concurrent sender tasks.
const MAX_SENDERS: usize = 4;

/// Maximum queued replies.
const MAX_REPLIES: usize = 64;

/// Maximum queued notifications.
const MAX_NOTIFICATIONS: usize = 256;

/// Maximum queued bytes. A single message may be larger.
const MAX_BYTES: usize = 16 << 20;

/// Timeout for sending a queued message.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// A link's queued messages.
#[derive(Debug, Default)]
pub(crate) struct OutgoingQueue(Mutex<QueueState>);

#[derive(Debug, Default)]
struct QueueState {
    notifications: VecDeque<Vec<u8>>,
    replies: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Counts running sender tasks.
    senders: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum MessageKind {
    ReplySender,
    Notification,
}

/// What became of a message.
#[derive(Debug, PartialEq)]
enum PushOutcome {
    /// The queue is full.
    Dropped,
    /// The message waits for a running sender task.
    Queued,
    /// The message waits, and the caller has to start a sender task.
    NeedsSender,
}

impl QueueState {
    fn has_room(&self, kind: MessageKind) -> bool {
        let (waiting, most) = match kind {
            MessageKind::ReplySender => (self.replies.len(), MAX_REPLIES),
            MessageKind::Notification => (self.notifications.len(), MAX_NOTIFICATIONS),
        };
        waiting < most && self.bytes < MAX_BYTES
    }

    fn push(&mut self, message: Vec<u8>, kind: MessageKind) -> PushOutcome {
        if !self.has_room(kind) || (self.bytes > 0 && self.bytes + message.len() > MAX_BYTES) {
            return PushOutcome::Dropped;
        }
        self.bytes += message.len();
        match kind {
            MessageKind::ReplySender => self.replies.push_back(message),
            MessageKind::Notification => self.notifications.push_back(message),
        }
        if self.senders == MAX_SENDERS {
            return PushOutcome::Queued;
        }
        self.senders += 1;
        PushOutcome::NeedsSender
    }

    /// Takes the next message. Notifications, such as cancellations, go first.
    fn pop(&mut self) -> Option<Vec<u8>> {
        let message = self.notifications.pop_front().or_else(|| self.replies.pop_front())?;
        self.bytes -= message.len();
        Some(message)
    }
}

impl OutgoingQueue {
    fn queue(&self) -> MutexGuard<'_, QueueState> {
        lock(&self.0)
    }
}

/// A link that sends each message as an HTTP request.
pub(crate) trait Notifier: Send + Sync + 'static {
    fn tasks(&self) -> &BackgroundTasks;

    fn outgoing(&self) -> &OutgoingQueue;

    fn host(&self) -> &Arc<Host>;

    /// Sends a message that expects no response.
    fn notify(&self, message: Vec<u8>) -> impl Future<Output = Result<(), RequestError>> + Send;
}

/// Sends replies over a link, without keeping the link alive.
struct QueueReplySink<L>(Weak<L>);

impl<L: Notifier> ReplySink for QueueReplySink<L> {
    fn has_room(&self) -> bool {
        self.0.upgrade().is_some_and(|link| link.outgoing().queue().has_room(MessageKind::ReplySender))
    }

    fn send(&self, message: Vec<u8>) {
        enqueue(&self.0, message, MessageKind::ReplySender);
    }
}

/// Returns a reply sender for the server's requests.
pub(crate) fn reply_sender<L: Notifier>(link: &Weak<L>) -> ReplySender {
    Arc::new(QueueReplySink(link.clone()))
}

/// Queues a notification. Drops it if the runtime has shut down.
pub(crate) fn send_later<L: Notifier>(link: &Weak<L>, message: Vec<u8>) {
    if tokio::runtime::Handle::try_current().is_ok() {
        enqueue(link, message, MessageKind::Notification);
    }
}

fn enqueue<L: Notifier>(link: &Weak<L>, message: Vec<u8>, kind: MessageKind) {
    let Some(alive) = link.upgrade() else { return };
    let outcome = alive.outgoing().queue().push(message, kind);
    match outcome {
        PushOutcome::Dropped => alive.host().count_dropped_reply(),
        PushOutcome::Queued => {}
        PushOutcome::NeedsSender => alive.tasks().spawn(send_all(SenderGuard(link.clone()))),
    }
}

/// Counts a sender task until it ends.
struct SenderGuard<L: Notifier>(Weak<L>);

impl<L: Notifier> Drop for SenderGuard<L> {
    fn drop(&mut self) {
        if let Some(link) = self.0.upgrade() {
            link.outgoing().queue().senders -= 1;
        }
    }
}

async fn send_all<L: Notifier>(sender: SenderGuard<L>) {
    while let Some(link) = sender.0.upgrade() {
        let Some(message) = link.outgoing().queue().pop() else { return };
        if tokio::time::timeout(SEND_TIMEOUT, link.notify(message)).await.is_err() {
            link.host().count_dropped_reply();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_bounded_and_notifications_go_first() {
        let mut queue = QueueState::default();
        for number in 0..MAX_REPLIES {
            let expected = if number < MAX_SENDERS { PushOutcome::NeedsSender } else { PushOutcome::Queued };
            assert_eq!(queue.push(vec![1], MessageKind::ReplySender), expected);
        }
        assert_eq!(queue.push(vec![1], MessageKind::ReplySender), PushOutcome::Dropped);
        assert_eq!(queue.push(vec![2], MessageKind::Notification), PushOutcome::Queued);
        assert_eq!(queue.pop(), Some(vec![2]));
        assert_eq!(queue.pop(), Some(vec![1]));
        assert!(queue.has_room(MessageKind::ReplySender));
    }

    #[test]
    fn a_large_message_is_queued_alone() {
        let mut queue = QueueState::default();
        assert_eq!(queue.push(vec![0; MAX_BYTES + 1], MessageKind::ReplySender), PushOutcome::NeedsSender);
        assert_eq!(queue.push(vec![0], MessageKind::ReplySender), PushOutcome::Dropped);
        queue.pop().expect("a message");
        assert_eq!(queue.push(vec![0; 8], MessageKind::ReplySender), PushOutcome::NeedsSender);
        assert_eq!(queue.push(vec![0; MAX_BYTES], MessageKind::ReplySender), PushOutcome::Dropped);
        assert_eq!(queue.bytes, 8);
    }
}
