//! Detects clients that send or read too slowly.

use std::any::Any;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::listener::connections::OpenConnection;
use ropeway_core::sync::lock;

/// Interval between connection checks.
pub(super) const TICK: Duration = Duration::from_secs(5);

/// Ticks within which a client has to send the whole head after it has begun a request.
const HEAD_TICKS: u32 = 2;

/// Ticks after which an idle connection is closed while its client has not authenticated a request.
const UNKNOWN_IDLE_TICKS: u32 = 3;

/// Ticks after which a connection is closed while its client has not authenticated a request, even if it sends others.
const UNKNOWN_LIFE_TICKS: u32 = 12;

/// Ticks after which an authenticated client's idle connection is closed: later than common clients' connection pools (90 s),
/// because a request on a closing connection fails.
const IDLE_TICKS: u32 = 24;

/// Ticks after which a client that does not read its response, or too little of it, is disconnected.
const STALL_TICKS: u32 = 12;

/// Bytes that a client has to read within [`STALL_TICKS`] while more is waiting: 16 KiB per second.
const MIN_READ: u64 = STALL_TICKS as u64 * TICK.as_secs() * (16 << 10);

/// The activity on one connection. Shared by its socket, its requests and its task.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// The requests in flight, and the client's principal. Unknown clients must not occupy connections that others need.
    connection: Arc<OpenConnection>,
    /// Whether part of a request has arrived.
    has_begun: AtomicBool,
    /// Whether the client does not read pending output.
    is_stalled: AtomicBool,
    /// Counts requests and responses.
    steps: AtomicU64,
    /// Counts the bytes that were written.
    written: AtomicU64,
    /// Dropped when everything is written.
    held: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
    /// Set while something is held, so that other writes need no lock.
    has_held: AtomicBool,
}

impl Activity {
    pub(super) fn new(connection: Arc<OpenConnection>) -> Self {
        Self { connection, ..Self::default() }
    }

    pub(super) fn connection(&self) -> &Arc<OpenConnection> {
        &self.connection
    }

    /// Counts a request until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        self.connection.begin();
        self.has_begun.store(false, Ordering::Relaxed);
        self.steps.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    fn on_read(&self) {
        if self.connection.is_idle() {
            self.has_begun.store(true, Ordering::Relaxed);
        }
    }

    fn on_write(&self, result: &Poll<io::Result<usize>>) {
        self.is_stalled.store(result.is_pending(), Ordering::Relaxed);
        if let Poll::Ready(Ok(bytes)) = result {
            self.written.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
    }

    /// Hyper flushes the socket when it has written everything.
    fn on_flush(&self) {
        if self.has_held.load(Ordering::Relaxed) {
            self.has_held.store(false, Ordering::Relaxed);
            let sent = std::mem::take(&mut *lock(&self.held));
            drop(sent);
        }
    }
}

/// A request whose response is not sent yet.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Activity>);

impl InFlight {
    /// Keeps a value until the whole response is written, or the client has disconnected.
    pub(super) fn hold_until_sent(&self, value: Arc<dyn Any + Send + Sync>) {
        lock(&self.0.held).push(value);
        self.0.has_held.store(true, Ordering::Relaxed);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.connection.end();
        self.0.steps.fetch_add(1, Ordering::Relaxed);
    }
}

/// Why a connection is closed: its state has not changed for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// A request's head is incomplete.
    Head,
    /// No request has arrived, or none that could be authenticated.
    Idle,
    /// The client does not read, or too slowly.
    Stalled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Head,
    Idle,
    Stalled,
    Busy,
}

/// Counts a connection's ticks in one state.
#[derive(Debug)]
pub(super) struct Watch {
    activity: Arc<Activity>,
    phase: Phase,
    steps: u64,
    /// Bytes that were written when this count began.
    written: u64,
    ticks: u32,
    /// Ticks since the connection was opened.
    age: u32,
}

impl Watch {
    pub(super) fn new(activity: Arc<Activity>) -> Self {
        Self { activity, phase: Phase::Idle, steps: 0, written: 0, ticks: 0, age: 0 }
    }

    /// Checks the connection, once per tick. Returns the overdue state, if any.
    pub(super) fn tick(&mut self) -> Option<Overdue> {
        let steps = self.activity.steps.load(Ordering::Relaxed);
        let phase = if self.activity.is_stalled.load(Ordering::Relaxed) {
            Phase::Stalled
        } else if !self.activity.connection.is_idle() {
            Phase::Busy
        } else if self.activity.has_begun.load(Ordering::Relaxed) {
            Phase::Head
        } else {
            Phase::Idle
        };
        let written = self.activity.written.load(Ordering::Relaxed);
        let has_changed = match phase {
            Phase::Stalled => phase != self.phase || written - self.written >= MIN_READ,
            Phase::Head | Phase::Idle | Phase::Busy => (phase, steps) != (self.phase, self.steps),
        };
        if has_changed {
            (self.phase, self.steps, self.written, self.ticks) = (phase, steps, written, 0);
        }
        self.ticks += 1;
        self.age = self.age.saturating_add(1);
        let is_known = self.activity.connection.is_authenticated();
        match phase {
            Phase::Head => (self.ticks > HEAD_TICKS).then_some(Overdue::Head),
            Phase::Idle | Phase::Busy if !is_known && self.age > UNKNOWN_LIFE_TICKS => Some(Overdue::Idle),
            Phase::Idle => {
                let limit = if is_known { IDLE_TICKS } else { UNKNOWN_IDLE_TICKS };
                (self.ticks > limit).then_some(Overdue::Idle)
            }
            Phase::Stalled => (self.ticks > STALL_TICKS).then_some(Overdue::Stalled),
            Phase::Busy => None,
        }
    }
}

/// A socket that reports reads and writes.
pub(super) struct WatchedIo<T> {
    io: T,
    activity: Arc<Activity>,
}

impl<T> WatchedIo<T> {
    pub(super) fn new(io: T, activity: Arc<Activity>) -> Self {
        Self { io, activity }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WatchedIo<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.activity.on_read();
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WatchedIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, data);
        self.activity.on_write(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, data);
        self.activity.on_write(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        if flushed.is_ready() {
            self.activity.on_flush();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::shares::{Holdings, Shares};
    use ropeway_config::GatewayLimits;

    fn authenticate(activity: &Activity) {
        let shares = Shares::new(&GatewayLimits::default());
        activity.connection.hold(&shares, &Holdings::new(true)).unwrap();
    }

    fn ticks_until_overdue(watch: &mut Watch) -> (u32, Overdue) {
        (1..1000).find_map(|ticks| watch.tick().map(|overdue| (ticks, overdue))).unwrap()
    }

    #[tokio::test]
    async fn a_slow_head_an_idle_connection_and_a_stalled_client_are_noticed() {
        let activity = Arc::new(Activity::default());
        let mut watch = Watch::new(Arc::clone(&activity));
        assert_eq!(ticks_until_overdue(&mut watch), (UNKNOWN_IDLE_TICKS + 1, Overdue::Idle));
        activity.on_read();
        assert_eq!(ticks_until_overdue(&mut watch), (HEAD_TICKS + 1, Overdue::Head));
        let request = activity.begin();
        authenticate(&activity);
        activity.on_write(&Poll::Pending);
        assert_eq!(ticks_until_overdue(&mut watch), (STALL_TICKS + 1, Overdue::Stalled));
        activity.on_write(&Poll::Ready(Ok(1)));
        assert!((0..1000).all(|_| watch.tick().is_none()), "a long call is not overdue");
        drop(request);
        assert_eq!(ticks_until_overdue(&mut watch), (IDLE_TICKS + 1, Overdue::Idle));
    }

    #[tokio::test]
    async fn a_client_that_only_probes_is_disconnected_after_a_while() {
        let activity = Arc::new(Activity::default());
        let mut watch = Watch::new(Arc::clone(&activity));
        let mut poll = || {
            drop(activity.begin());
            watch.tick()
        };
        assert!((0..UNKNOWN_LIFE_TICKS).all(|_| poll().is_none()));
        assert_eq!(poll(), Some(Overdue::Idle));
        authenticate(&activity);
        assert!((0..1000).all(|_| poll().is_none()), "an authenticated client stays");
    }

    /// Lets a client read this many bytes per tick, and returns the ticks until it is overdue.
    fn ticks_of_a_reader(bytes: usize) -> Option<u32> {
        let activity = Arc::new(Activity::default());
        let mut watch = Watch::new(Arc::clone(&activity));
        let _request = activity.begin();
        (1..1000).find(|_| {
            activity.on_write(&Poll::Ready(Ok(bytes)));
            activity.on_write(&Poll::Pending);
            watch.tick().is_some()
        })
    }

    #[tokio::test]
    async fn a_client_that_reads_slowly_is_stalled_below_a_minimum_rate() {
        let minimum = (16 << 10) * TICK.as_secs() as usize;
        assert_eq!(ticks_of_a_reader(minimum), None);
        assert_eq!(ticks_of_a_reader(minimum * 4 / 5), Some(STALL_TICKS + 1));
        assert_eq!(ticks_of_a_reader(1), Some(STALL_TICKS + 1));
    }

    #[tokio::test]
    async fn a_held_value_is_dropped_when_everything_is_written() {
        let activity = Arc::new(Activity::default());
        let value = Arc::new(());
        activity.begin().hold_until_sent(value.clone());
        activity.on_write(&Poll::Ready(Ok(1)));
        assert_eq!(Arc::strong_count(&value), 2);
        activity.on_flush();
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
