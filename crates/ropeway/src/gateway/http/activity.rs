//! Notices clients that send or read too slowly.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Time between two looks at a connection.
pub(super) const TICK: Duration = Duration::from_secs(5);

/// Ticks within which a client has to send the head of a request that it has begun.
const HEAD_TICKS: u32 = 2;

/// Ticks after which an idle connection is closed: later than the connection pools of common clients do it (90 s), because a
/// request that meets a closing connection fails.
const IDLE_TICKS: u32 = 24;

/// Ticks after which a client that does not read its response is disconnected.
const STALL_TICKS: u32 = 12;

/// What happens on one connection. Shared by its socket, its requests and its task.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// Responses that are not sent yet.
    in_flight: AtomicUsize,
    /// Part of a request has arrived.
    has_begun: AtomicBool,
    /// The client does not read what the gateway wants to write.
    is_stalled: AtomicBool,
    /// Counts writes and requests.
    steps: AtomicU64,
}

impl Activity {
    /// Counts a request until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.has_begun.store(false, Ordering::Relaxed);
        self.steps.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    fn on_read(&self) {
        if self.in_flight.load(Ordering::Relaxed) == 0 {
            self.has_begun.store(true, Ordering::Relaxed);
        }
    }

    fn on_write<T>(&self, result: &Poll<T>) {
        self.is_stalled.store(result.is_pending(), Ordering::Relaxed);
        if result.is_ready() {
            self.steps.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A request whose response is not sent yet.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Activity>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.0.steps.fetch_add(1, Ordering::Relaxed);
    }
}

/// The state of a connection that has not changed for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// The head of a request is incomplete.
    Head,
    /// No request has come.
    Idle,
    /// The client does not read.
    Stalled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Head,
    Idle,
    Stalled,
    Busy,
}

/// Counts the ticks of a connection in one state.
#[derive(Debug)]
pub(super) struct Watch {
    activity: Arc<Activity>,
    phase: Phase,
    steps: u64,
    ticks: u32,
}

impl Watch {
    pub(super) fn new(activity: Arc<Activity>) -> Self {
        Self { activity, phase: Phase::Idle, steps: 0, ticks: 0 }
    }

    /// Looks at the connection, once per tick. Returns what is overdue.
    pub(super) fn tick(&mut self) -> Option<Overdue> {
        let steps = self.activity.steps.load(Ordering::Relaxed);
        let phase = if self.activity.is_stalled.load(Ordering::Relaxed) {
            Phase::Stalled
        } else if self.activity.in_flight.load(Ordering::Relaxed) > 0 {
            Phase::Busy
        } else if self.activity.has_begun.load(Ordering::Relaxed) {
            Phase::Head
        } else {
            Phase::Idle
        };
        if (phase, steps) != (self.phase, self.steps) {
            (self.phase, self.steps, self.ticks) = (phase, steps, 0);
        }
        self.ticks += 1;
        match phase {
            Phase::Head => (self.ticks > HEAD_TICKS).then_some(Overdue::Head),
            Phase::Idle => (self.ticks > IDLE_TICKS).then_some(Overdue::Idle),
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
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks_until_overdue(watch: &mut Watch) -> (u32, Overdue) {
        (1..1000).find_map(|ticks| watch.tick().map(|overdue| (ticks, overdue))).unwrap()
    }

    #[test]
    fn a_slow_head_an_idle_connection_and_a_stalled_client_are_noticed() {
        let activity = Arc::new(Activity::default());
        let mut watch = Watch::new(Arc::clone(&activity));
        assert_eq!(ticks_until_overdue(&mut watch), (IDLE_TICKS + 1, Overdue::Idle));
        activity.on_read();
        assert_eq!(ticks_until_overdue(&mut watch), (HEAD_TICKS + 1, Overdue::Head));
        let request = activity.begin();
        activity.on_write(&Poll::<()>::Pending);
        assert_eq!(ticks_until_overdue(&mut watch), (STALL_TICKS + 1, Overdue::Stalled));
        activity.on_write(&Poll::Ready(()));
        assert!((0..1000).all(|_| watch.tick().is_none()), "a long call is not overdue");
        drop(request);
        assert_eq!(ticks_until_overdue(&mut watch), (IDLE_TICKS + 1, Overdue::Idle));
    }

    #[test]
    fn a_client_that_reads_slowly_is_not_stalled() {
        let activity = Arc::new(Activity::default());
        let mut watch = Watch::new(Arc::clone(&activity));
        let _request = activity.begin();
        for _ in 0..100 {
            activity.on_write(&Poll::Ready(()));
            activity.on_write(&Poll::<()>::Pending);
            assert_eq!(watch.tick(), None);
        }
    }
}
