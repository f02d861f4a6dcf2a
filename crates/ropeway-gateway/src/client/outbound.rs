//! A frame queue for one client stream, bounded in number and size.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use ropeway_core::sync::lock;

/// Maximum number of waiting frames, not counting changes.
const MAX_FRAMES: usize = 256;

/// Maximum number of waiting changes: one for each subscription, and lists.
const MAX_CHANGES: usize = 1024;

/// Maximum total bytes that wait. One larger frame is accepted while nothing else waits.
const MAX_BYTES: usize = 4 << 20;

/// Determines what happens to a frame when the client does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// A progress notification. A newer one replaces it.
    Progress,
    /// A log message. It may be dropped.
    Log,
    /// A changed list or resource. It may be dropped.
    Change,
    /// A request to the client. It must arrive.
    ServerRequest,
    /// A response. It must arrive.
    Response,
}

impl FrameKind {
    fn must_arrive(self) -> bool {
        matches!(self, Self::ServerRequest | Self::Response)
    }
}

/// One JSON-RPC message for a client, without newlines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: FrameKind,
    pub(crate) text: Bytes,
}

impl Frame {
    pub(crate) fn new(kind: FrameKind, text: impl Into<Bytes>) -> Self {
        Self { kind, text: text.into() }
    }
}

/// A bounded queue of frames with one reader.
///
/// A client or an exchange owns it. Any task may send, and the task that serves the stream reads. The only lock is held to change
/// the queue; no other lock is taken under it, wakers are called after it is released, and `ready` polls instead of holding it
/// across an `.await`. `close` is final: frames that wait can still be taken, and new ones are refused. Dropping the queue drops
/// the frames that wait.
///
/// A full queue drops superseded progress, then log messages and changes. A server request that still does not fit is refused; a
/// response that does not fit closes the queue, because its client would wait for it forever.
#[derive(Debug, Default)]
pub(crate) struct Outbound(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<Frame>,
    /// Number of changes among the frames.
    changes: usize,
    bytes: usize,
    dropped: u64,
    /// Whether the reader has to check the exchange, although no frame waits.
    woken: bool,
    closed: bool,
    waker: Option<Waker>,
}

impl Outbound {
    /// Queues a frame. Returns `false` if the queue is closed, or if a frame that must arrive does not fit. Other frames are
    /// dropped if they do not fit.
    pub(crate) fn send(&self, frame: Frame) -> bool {
        let mut queue = lock(&self.0);
        let sent = !queue.closed && queue.push(frame);
        let waker = queue.waker.take();
        drop(queue);
        waker.into_iter().for_each(Waker::wake);
        sent
    }

    /// Makes [`ready`](Self::ready) return once, although no frame waits.
    pub(crate) fn wake(&self) {
        let mut queue = lock(&self.0);
        queue.woken = true;
        let waker = queue.waker.take();
        drop(queue);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Ends the queue. Waiting frames can still be taken.
    pub(crate) fn close(&self) {
        lock(&self.0).closed = true;
        self.wake();
    }

    /// Returns `true` if no more frames are accepted.
    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.0).closed
    }

    /// Waits until frames wait, [`wake`](Self::wake) was called or the queue was just closed. Only the latest caller is woken.
    pub(crate) async fn ready(&self) {
        poll_fn(|cx| self.poll_ready(cx)).await;
    }

    /// Polls [`ready`](Self::ready).
    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut queue = lock(&self.0);
        if !queue.frames.is_empty() || std::mem::take(&mut queue.woken) {
            return Poll::Ready(());
        }
        if !queue.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            queue.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Takes all waiting frames, oldest first.
    pub(crate) fn take(&self) -> Vec<Frame> {
        let mut queue = lock(&self.0);
        (queue.bytes, queue.changes) = (0, 0);
        std::mem::take(&mut queue.frames).into()
    }

    /// Returns the number of frames that were dropped because the client did not read.
    #[cfg(test)]
    fn dropped(&self) -> u64 {
        lock(&self.0).dropped
    }
}

impl Queue {
    fn push(&mut self, frame: Frame) -> bool {
        let is_change = frame.kind == FrameKind::Change;
        if is_change && self.frames.contains(&frame) {
            return true;
        }
        while !self.fits(&frame) {
            let is_too_large = self.bytes + frame.text.len() > MAX_BYTES;
            let makes_room = |kind| is_too_large || (kind == FrameKind::Change) == is_change;
            let superseded = self.position(|kind| kind == FrameKind::Progress && makes_room(kind));
            let droppable = superseded.or_else(|| {
                let expendable = |kind| matches!(kind, FrameKind::Log | FrameKind::Change) && makes_room(kind);
                self.position(expendable).filter(|_| frame.kind.must_arrive())
            });
            match droppable {
                Some(at) => self.drop_frame(at),
                None => {
                    self.dropped += 1;
                    if frame.kind == FrameKind::Response {
                        self.closed = true;
                        self.woken = true;
                    }
                    return !frame.kind.must_arrive();
                }
            }
        }
        self.bytes += frame.text.len();
        self.changes += usize::from(is_change);
        self.frames.push_back(frame);
        true
    }

    fn fits(&self, frame: &Frame) -> bool {
        let has_place = match frame.kind {
            FrameKind::Change => self.changes < MAX_CHANGES,
            _ => self.frames.len() - self.changes < MAX_FRAMES,
        };
        self.frames.is_empty() || (has_place && self.bytes + frame.text.len() <= MAX_BYTES)
    }

    fn position(&self, is_wanted: impl Fn(FrameKind) -> bool) -> Option<usize> {
        self.frames.iter().position(|frame| is_wanted(frame.kind))
    }

    fn drop_frame(&mut self, at: usize) {
        if let Some(frame) = self.frames.remove(at) {
            self.bytes -= frame.text.len();
            self.changes -= usize::from(frame.kind == FrameKind::Change);
            self.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: FrameKind, text: &str) -> Frame {
        Frame::new(kind, text.to_owned())
    }

    fn texts(outbound: &Outbound) -> Vec<String> {
        outbound.take().into_iter().map(|frame| String::from_utf8_lossy(&frame.text).into_owned()).collect()
    }

    #[test]
    fn newer_progress_replaces_older_in_a_full_queue() {
        let outbound = Outbound::default();
        for number in 0..MAX_FRAMES + 10 {
            assert!(outbound.send(frame(FrameKind::Progress, &number.to_string())));
        }
        let texts = texts(&outbound);
        assert_eq!(texts.len(), MAX_FRAMES);
        assert_eq!(texts.first().map(String::as_str), Some("10"));
        assert_eq!(texts.last(), Some(&(MAX_FRAMES + 9).to_string()));
        assert_eq!(outbound.dropped(), 10);
    }

    #[test]
    fn a_response_pushes_out_log_messages() {
        let outbound = Outbound::default();
        for number in 0..MAX_FRAMES + 5 {
            assert!(outbound.send(frame(FrameKind::Log, &number.to_string())));
        }
        assert!(outbound.send(frame(FrameKind::Response, "result")));
        let texts = texts(&outbound);
        // The newest five messages were dropped, and the oldest one made room.
        assert_eq!((texts[0].as_str(), texts.len()), ("1", MAX_FRAMES));
        assert_eq!(texts.last().map(String::as_str), Some("result"));
        assert_eq!(outbound.dropped(), 6);
    }

    #[test]
    fn the_changes_of_all_subscriptions_wait_once_beside_other_frames() {
        let outbound = Outbound::default();
        for number in (0..MAX_CHANGES).chain(0..MAX_CHANGES) {
            assert!(outbound.send(frame(FrameKind::Change, &number.to_string())));
        }
        assert_eq!(outbound.dropped(), 0);
        for number in 0..MAX_FRAMES {
            assert!(outbound.send(frame(FrameKind::Progress, &format!("p{number}"))));
        }
        assert!(outbound.send(frame(FrameKind::Change, "one more")));
        assert!(outbound.send(frame(FrameKind::Response, "result")));
        // The last change was dropped, and the oldest progress made room.
        assert_eq!((outbound.dropped(), texts(&outbound).len()), (2, MAX_CHANGES + MAX_FRAMES));
    }

    #[test]
    fn a_question_that_does_not_fit_is_refused() {
        let outbound = Outbound::default();
        for _ in 0..MAX_FRAMES {
            assert!(outbound.send(frame(FrameKind::ServerRequest, "q")));
        }
        assert!(outbound.send(frame(FrameKind::Log, "dropped")));
        assert!(!outbound.send(frame(FrameKind::ServerRequest, "q")));
        assert!(!outbound.is_closed());
        assert_eq!(texts(&outbound).len(), MAX_FRAMES);
        assert!(outbound.send(frame(FrameKind::ServerRequest, "q")));
    }

    #[test]
    fn a_response_that_does_not_fit_closes_the_queue() {
        let outbound = Outbound::default();
        let large = "x".repeat(MAX_BYTES + 1);
        assert!(outbound.send(frame(FrameKind::Response, &large)), "one frame of any size fits");
        assert!(!outbound.send(frame(FrameKind::Response, "y")));
        assert!(outbound.is_closed());
        assert!(!outbound.send(frame(FrameKind::Progress, "p")));
        assert_eq!(texts(&outbound), [large]);
    }

    #[tokio::test]
    async fn a_reader_is_woken_by_frames_by_wake_and_by_the_end() {
        let outbound = std::sync::Arc::new(Outbound::default());
        for act in [
            (|outbound| assert!(outbound.send(Frame::new(FrameKind::Log, "l")))) as fn(&Outbound),
            Outbound::wake,
            Outbound::close,
        ] {
            let reader = tokio::spawn({
                let outbound = std::sync::Arc::clone(&outbound);
                async move { outbound.ready().await }
            });
            tokio::task::yield_now().await;
            assert!(!reader.is_finished());
            act(&outbound);
            reader.await.unwrap();
            outbound.take();
        }
    }
}
