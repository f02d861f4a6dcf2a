//! One resumable event stream: a ring of events between a writer and a reader that may reconnect.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use ropeway_core::sync::{lock, sleep_until};

/// Maximum number of events that a stream keeps for a resume.
const MAX_EVENTS: usize = 256;

/// Maximum bytes that a stream keeps for a resume. The last event is always kept.
const MAX_BYTES: usize = 1 << 20;

/// A stream's writer waits while its reader is this many events or bytes behind.
const MAX_BEHIND: (usize, usize) = (64, 1 << 20);

/// One event stream. It has one writer, and one reader at a time.
///
/// [`Streams`](crate::client::replay::Streams), the writer and the reader share it. The lock around the ring may be
/// taken under the table's lock in `Streams`; no lock is taken under it. Wakers and `changed` are called after it is
/// released, and the waits in `writable` and `abandoned` do not hold it.
///
/// A stream is open or ended, with or without a reader. A new reader replaces the previous one. Dropping an
/// [`EventReader`] only detaches it: the writer no longer waits, and the last events are kept for a resume.
/// [`close`](Self::close) ends the stream, and [`reopen`](Self::reopen) continues it. Dropping the last clone subtracts
/// the events from `total`.
pub(crate) struct EventStream {
    number: u64,
    is_standalone: bool,
    token: Box<str>,
    ring: Mutex<Ring>,
    /// Wakes the writer when the reader has read, attaches or detaches.
    changed: Notify,
    /// Event bytes in all streams.
    total: Arc<AtomicUsize>,
}

struct Ring {
    events: VecDeque<Bytes>,
    bytes: usize,
    /// The first kept event's sequence number.
    first: u64,
    ended: bool,
    /// The current reader's number.
    reader: Option<u64>,
    next_reader: u64,
    /// The sequence number that the reader gets next.
    cursor: u64,
    unread_since: Instant,
    waker: Option<Waker>,
}

impl EventStream {
    /// Creates a stream. `total` counts the event bytes in all streams.
    pub(crate) fn new(number: u64, is_standalone: bool, token: impl Into<Box<str>>, total: Arc<AtomicUsize>) -> Self {
        Self {
            number,
            is_standalone,
            token: token.into(),
            ring: Mutex::new(Ring::new()),
            changed: Notify::new(),
            total,
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns `true` if the stream belongs to no request.
    pub(crate) fn is_standalone(&self) -> bool {
        self.is_standalone
    }

    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.ring).ended
    }

    /// Returns `true` if the stream belongs to a call in progress.
    pub(crate) fn is_running(&self) -> bool {
        !self.is_standalone && !self.has_ended()
    }

    pub(crate) fn has_reader(&self) -> bool {
        lock(&self.ring).reader.is_some()
    }

    /// Returns `true` if the stream has a reader or may still get events.
    pub(crate) fn is_live(&self) -> bool {
        let ring = lock(&self.ring);
        !ring.ended || ring.reader.is_some()
    }

    /// Returns `true` if the stream had no reader for some time.
    pub(crate) fn is_unread_for(&self, age: Duration, now: Instant) -> bool {
        let ring = lock(&self.ring);
        ring.reader.is_none() && now.saturating_duration_since(ring.unread_since) >= age
    }

    /// Appends the event that lets a client resume before the first message has arrived.
    pub(crate) fn prime(&self) {
        self.append(|id| format!("id: {id}\nretry: 1000\ndata: \n\n").into());
    }

    /// Appends one message. Returns `false` if the stream has ended.
    pub(crate) fn push(&self, message: &[u8]) -> bool {
        self.append(|id| {
            let mut event = Vec::with_capacity(message.len() + id.len() + 16);
            event.extend_from_slice(b"id: ");
            event.extend_from_slice(id.as_bytes());
            event.extend_from_slice(b"\ndata: ");
            event.extend_from_slice(message);
            event.extend_from_slice(b"\n\n");
            event.into()
        })
    }

    fn append(&self, render: impl FnOnce(&str) -> Bytes) -> bool {
        let mut ring = lock(&self.ring);
        if ring.ended {
            return false;
        }
        let sequence = ring.first + ring.events.len() as u64;
        let event = render(&format!("{}.{sequence}", self.token));
        self.total.fetch_add(event.len(), Ordering::Relaxed);
        ring.bytes += event.len();
        ring.events.push_back(event);
        self.shrink(&mut ring);
        let waker = ring.waker.take();
        drop(ring);
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// Drops events that are too old, except those that the current reader still needs.
    fn shrink(&self, ring: &mut Ring) {
        while ring.events.len() > 1
            && (ring.events.len() > MAX_EVENTS || ring.bytes > MAX_BYTES)
            && (ring.reader.is_none() || ring.first < ring.cursor)
        {
            let dropped = ring.events.pop_front().map_or(0, |event| event.len());
            ring.first += 1;
            ring.bytes -= dropped;
            self.total.fetch_sub(dropped, Ordering::Relaxed);
        }
    }

    /// Drops all events, unless the stream has a reader. An ended stream is useless afterwards.
    pub(crate) fn forget(&self) {
        let mut ring = lock(&self.ring);
        if ring.reader.is_some() {
            return;
        }
        ring.first += ring.events.len() as u64;
        ring.events.clear();
        self.total.fetch_sub(std::mem::take(&mut ring.bytes), Ordering::Relaxed);
    }

    /// Returns `true` if the stream has ended and has no events.
    pub(crate) fn is_forgotten(&self) -> bool {
        let ring = lock(&self.ring);
        ring.ended && ring.reader.is_none() && ring.events.is_empty()
    }

    /// Continues a stream that has ended.
    pub(crate) fn reopen(&self) {
        lock(&self.ring).ended = false;
    }

    /// Ends the stream behind its last event.
    pub(crate) fn close(&self) {
        let mut ring = lock(&self.ring);
        ring.ended = true;
        let waker = ring.waker.take();
        drop(ring);
        waker.into_iter().for_each(Waker::wake);
        self.changed.notify_waiters();
    }

    /// Waits until the reader has read enough or detached, or the stream has ended.
    pub(crate) async fn writable(&self) {
        loop {
            let changed = self.changed.notified();
            if lock(&self.ring).is_writable() {
                return;
            }
            changed.await;
        }
    }

    /// Waits until the stream had no reader for some time, or has ended.
    pub(crate) async fn abandoned(&self, grace: Duration) {
        loop {
            let changed = self.changed.notified();
            let deadline = {
                let ring = lock(&self.ring);
                let deadline = ring.reader.is_none().then(|| ring.unread_since + grace);
                if ring.ended || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                    return;
                }
                deadline
            };
            tokio::select! {
                () = changed => {}
                () = sleep_until(deadline) => {}
            }
        }
    }

    /// Reads all kept events, then the events to come. The previous reader ends.
    pub(crate) fn read(self: &Arc<Self>) -> EventReader {
        self.read_from(0)
    }

    /// Reads from this event on, or from the first kept event.
    pub(crate) fn read_from(self: &Arc<Self>, sequence: u64) -> EventReader {
        let mut ring = lock(&self.ring);
        let number = ring.next_reader;
        ring.next_reader += 1;
        ring.reader = Some(number);
        ring.cursor = sequence.clamp(ring.first, ring.first + ring.events.len() as u64);
        let waker = ring.waker.take();
        drop(ring);
        // The previous reader notices that it was replaced.
        waker.into_iter().for_each(Waker::wake);
        self.changed.notify_waiters();
        EventReader { stream: Arc::clone(self), number }
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.total.fetch_sub(lock(&self.ring).bytes, Ordering::Relaxed);
    }
}

impl Ring {
    fn new() -> Self {
        Self {
            events: VecDeque::new(),
            bytes: 0,
            first: 0,
            ended: false,
            reader: None,
            next_reader: 0,
            cursor: 0,
            unread_since: Instant::now(),
            waker: None,
        }
    }

    fn behind(&self) -> impl Iterator<Item = &Bytes> {
        self.events.iter().skip((self.cursor - self.first) as usize)
    }

    fn is_writable(&self) -> bool {
        let (events, bytes) = MAX_BEHIND;
        let is_near = || self.behind().count() < events && self.behind().map(Bytes::len).sum::<usize>() < bytes;
        self.ended || self.reader.is_none() || is_near()
    }
}

/// Reads a stream's events. Dropping it detaches the client, which may resume the stream.
pub(crate) struct EventReader {
    stream: Arc<EventStream>,
    number: u64,
}

impl EventReader {
    pub(crate) fn stream(&self) -> &Arc<EventStream> {
        &self.stream
    }

    /// Polls for the next event; `None` if the stream has ended or has another reader now.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut ring = lock(&self.stream.ring);
        if ring.reader != Some(self.number) {
            return Poll::Ready(None);
        }
        let next = ring.behind().next().cloned();
        if let Some(event) = next {
            ring.cursor += 1;
            self.stream.shrink(&mut ring);
            drop(ring);
            self.stream.changed.notify_waiters();
            return Poll::Ready(Some(event));
        }
        if ring.ended {
            return Poll::Ready(None);
        }
        ring.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for EventReader {
    fn drop(&mut self) {
        let mut ring = lock(&self.stream.ring);
        if ring.reader == Some(self.number) {
            ring.reader = None;
            ring.unread_since = Instant::now();
            self.stream.shrink(&mut ring);
            drop(ring);
            self.stream.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    fn stream() -> (Arc<EventStream>, Arc<AtomicUsize>) {
        let total = Arc::new(AtomicUsize::new(0));
        (Arc::new(EventStream::new(1, false, "T", Arc::clone(&total))), total)
    }

    async fn next(reader: &EventReader) -> Option<String> {
        let event = poll_fn(|cx| reader.poll_next(cx)).await?;
        Some(String::from_utf8_lossy(&event).into_owned())
    }

    #[tokio::test]
    async fn a_resumed_reader_gets_what_it_has_missed() {
        let (stream, _) = stream();
        stream.prime();
        let reader = stream.read();
        assert_eq!(next(&reader).await.as_deref(), Some("id: T.0\nretry: 1000\ndata: \n\n"));
        assert!(stream.push(b"one"));
        assert_eq!(next(&reader).await.as_deref(), Some("id: T.1\ndata: one\n\n"));
        drop(reader);
        assert!(stream.push(b"two"));
        stream.close();
        assert!(!stream.push(b"three"));
        let reader = stream.read_from(2);
        assert_eq!(next(&reader).await.as_deref(), Some("id: T.2\ndata: two\n\n"));
        assert_eq!(next(&reader).await, None);
    }

    #[tokio::test]
    async fn a_new_reader_replaces_the_previous_one() {
        let (stream, _) = stream();
        let first = stream.read();
        let waiting = tokio::spawn(async move { next(&first).await });
        tokio::task::yield_now().await;
        let second = stream.read();
        assert_eq!(waiting.await.unwrap(), None);
        assert!(stream.push(b"x"));
        assert!(next(&second).await.is_some());
        assert!(stream.has_reader());
    }

    #[tokio::test]
    async fn kept_events_are_bounded_and_the_last_one_stays() {
        let (stream, total) = stream();
        for number in 0..MAX_EVENTS * 2 {
            assert!(stream.push(number.to_string().as_bytes()));
        }
        let reader = stream.read();
        let first = next(&reader).await.unwrap();
        assert!(first.starts_with(&format!("id: T.{MAX_EVENTS}\n")), "{first}");
        drop(reader);
        let large = vec![b'x'; MAX_BYTES * 2];
        assert!(stream.push(&large));
        assert!(total.load(Ordering::Relaxed) < MAX_BYTES * 2 + 100);
        let reader = stream.read();
        assert!(next(&reader).await.unwrap().len() > MAX_BYTES * 2);
        drop((reader, stream));
        assert_eq!(total.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_waits_for_a_slow_reader_but_not_for_an_absent_one() {
        let (stream, _) = stream();
        let reader = stream.read();
        for _ in 0..MAX_BEHIND.0 {
            stream.writable().await;
            assert!(stream.push(b"x"));
        }
        let waiting = tokio::time::timeout(Duration::from_secs(1), stream.writable());
        assert!(waiting.await.is_err(), "the reader has read nothing");
        next(&reader).await.unwrap();
        stream.writable().await;
        assert!(stream.push(b"x"));
        drop(reader);
        stream.writable().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_abandoned_after_the_grace_period_only() {
        let (stream, _) = stream();
        let grace = Duration::from_secs(30);
        let reader = stream.read();
        let long = Duration::from_secs(600);
        assert!(tokio::time::timeout(long, stream.abandoned(grace)).await.is_err());
        drop(reader);
        let start = Instant::now();
        stream.abandoned(grace).await;
        assert_eq!(start.elapsed(), grace);
        let reader = stream.read();
        assert!(tokio::time::timeout(long, stream.abandoned(grace)).await.is_err());
        stream.close();
        stream.abandoned(grace).await;
        drop(reader);
    }
}
