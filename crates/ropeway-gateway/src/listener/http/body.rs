//! Request and response bodies.

use std::any::Any;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as _, Frame as BodyFrame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use super::activity::InFlight;
use crate::client::principal::Principal;
use crate::client::shares::{Hold, Resource, ShareError, Shares};
use crate::observe::AccessRecord;
use crate::shared::GatewayShared;

/// Time within which a client has to send a whole request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Size above which a body counts as large: its client has to send it at a minimum rate.
const SMALL_BODY: usize = 64 << 10;

/// Memory for a whole body is reserved once one part in this many has arrived.
const RESERVED_PARTS: usize = 8;

/// Minimum bytes per second for a large body.
const MIN_RATE: u64 = 16 << 10;

/// Time that a client may be behind the minimum rate.
const MAX_BEHIND: Duration = Duration::from_secs(10);

/// Time that a client may be behind while memory for bodies is short. Also the interval between checks.
const MAX_BEHIND_IF_SHORT: Duration = Duration::from_secs(2);

/// Time after which a silent event stream gets a comment, so that proxies and clients keep it open.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Size up to which a response piece counts as sent when hyper has accepted it.
const SMALL_PIECE: usize = 64 << 10;

/// The comment that keeps an event stream open.
const COMMENT: &[u8] = b": \n\n";

/// Why a request body could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyError {
    TooLarge,
    TooSlow,
    /// The client has disconnected, or its encoding is invalid.
    Broken,
    /// The bodies in memory are too large already.
    NoRoom(ShareError),
}

/// Reads a request body. A body that arrives in one piece is not copied.
///
/// Other bodies are counted as held by the principal, piece by piece, until the last slice of the returned bytes is dropped. A
/// single piece lies in the buffer that each connection has anyway.
pub(super) async fn read_body(
    shared: &GatewayShared,
    principal: &Principal,
    body: Incoming,
    limit: usize,
) -> Result<Bytes, BodyError> {
    // The length is exact if the client has declared it.
    if body.size_hint().lower() > limit as u64 {
        return Err(BodyError::TooLarge);
    }
    let read = tokio::time::timeout(BODY_TIMEOUT, collect(&shared.shares, principal, body, limit));
    read.await.unwrap_or(Err(BodyError::TooSlow))
}

async fn collect(shares: &Shares, principal: &Principal, mut body: Incoming, limit: usize) -> Result<Bytes, BodyError> {
    let length = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
    let first = next_data(&mut body).await?.unwrap_or_default();
    if first.len() > limit {
        return Err(BodyError::TooLarge);
    }
    let Some(second) = next_data(&mut body).await? else { return Ok(first) };
    let mut buffer = BodyBuffer::new(shares, principal, length.map_or(limit, |length| length.min(limit)))?;
    buffer.push(&first)?;
    drop(first);
    let mut next = Some(second);
    while let Some(data) = next {
        if buffer.bytes.len() + data.len() > limit {
            return Err(BodyError::TooLarge);
        }
        buffer.push(&data)?;
        drop(data);
        next = buffer.next_data(&mut body).await?;
    }
    Ok(buffer.finish())
}

/// The pieces of a body that have arrived.
struct BodyBuffer<'a> {
    shares: &'a Shares,
    principal: &'a Principal,
    bytes: Vec<u8>,
    hold: Hold,
    /// Bytes that the principal holds: at least those that have arrived.
    held: usize,
    /// Maximum size of the whole body.
    max: usize,
    /// Set once the body is large.
    large: Option<LargeBody>,
}

/// Counts a large body, and measures how fast it arrives.
struct LargeBody {
    _hold: Hold,
    /// When the client is too far behind. Each byte moves it, so that it is at most [`MAX_BEHIND`] ahead.
    deadline: Instant,
}

impl<'a> BodyBuffer<'a> {
    fn new(shares: &'a Shares, principal: &'a Principal, max: usize) -> Result<Self, BodyError> {
        let hold = shares.take(Resource::BodyBytes, principal.holdings(), 0).map_err(BodyError::NoRoom)?;
        Ok(Self { shares, principal, bytes: Vec::new(), hold, held: 0, max, large: None })
    }

    /// Appends a piece. What is held doubles, whatever length the client has declared.
    fn push(&mut self, data: &[u8]) -> Result<(), BodyError> {
        let length = self.bytes.len() + data.len();
        if length > SMALL_BODY && self.large.is_none() {
            // As many bodies as calls, so that the answer to a server request can arrive while all calls are in use.
            let calls = self.principal.limits().calls.unwrap_or(usize::MAX);
            let hold = self.shares.take_within(Resource::Bodies, self.principal.holdings(), 1, calls);
            let hold = hold.map_err(BodyError::NoRoom)?;
            self.large = Some(LargeBody { _hold: hold, deadline: Instant::now() + MAX_BEHIND });
        }
        if let Some(large) = &mut self.large {
            large.note(data.len());
        }
        if length > self.held {
            let wanted = (2 * self.held).min(self.max).max(length);
            self.hold.grow(wanted - self.held).map_err(BodyError::NoRoom)?;
            self.held = wanted;
        }
        if length > self.bytes.capacity() {
            // A copy into a larger buffer takes the memory of both. What is reserved and not written takes none.
            let is_sure = length >= self.max / RESERVED_PARTS;
            if !is_sure || self.bytes.try_reserve_exact(self.max - self.bytes.len()).is_err() {
                self.bytes.reserve_exact(self.held - self.bytes.len());
            }
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    /// Returns a body's next data; `None` at its end. Fails if a large body arrives too slowly.
    async fn next_data(&mut self, body: &mut Incoming) -> Result<Option<Bytes>, BodyError> {
        let Some(large) = &self.large else { return next_data(body).await };
        loop {
            // Once the whole body has arrived, it is never too late.
            if !body.is_end_stream() && large.is_too_slow(self.shares, self.principal) {
                return Err(BodyError::TooSlow);
            }
            if let Ok(next) = tokio::time::timeout(MAX_BEHIND_IF_SHORT, next_data(body)).await {
                return next;
            }
        }
    }

    /// Returns the whole body, which the principal holds until it is dropped.
    fn finish(self) -> Bytes {
        self.hold.attach(Bytes::from(self.bytes))
    }
}

impl LargeBody {
    /// Notes that bytes have arrived.
    fn note(&mut self, bytes: usize) {
        let earned = Duration::from_micros(bytes as u64 * 1_000_000 / MIN_RATE);
        self.deadline = (self.deadline + earned).min(Instant::now() + MAX_BEHIND);
    }

    fn is_too_slow(&self, shares: &Shares, principal: &Principal) -> bool {
        let is_short = shares.is_short(Resource::BodyBytes, principal.holdings());
        let spare = if is_short { MAX_BEHIND - MAX_BEHIND_IF_SHORT } else { Duration::ZERO };
        Instant::now() + spare >= self.deadline
    }
}

/// Returns a body's next data; `None` at its end. Trailers are ignored.
async fn next_data(body: &mut Incoming) -> Result<Option<Bytes>, BodyError> {
    loop {
        if body.is_end_stream() {
            return Ok(None);
        }
        match poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
            None => return Ok(None),
            Some(Err(_)) => return Err(BodyError::Broken),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// A response's events, encoded for an event stream.
pub(super) trait Events: Send {
    /// Polls for the next event; `None` when the stream ends.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>>;
}

/// A response body.
pub(super) struct Body {
    content: Content,
    /// Counts the request as in flight until the body is sent or the client has disconnected.
    in_flight: Option<InFlight>,
    /// Writes the access log line when the body is sent or the client has disconnected.
    access: Option<AccessRecord>,
    /// Counts the call or the stream until the body is sent.
    held: Option<Arc<dyn Any + Send + Sync>>,
    /// Size of the largest piece.
    largest: usize,
}

enum Content {
    Empty,
    One(Bytes),
    Pieces(std::vec::IntoIter<Bytes>),
    Events(EventStreamBody),
}

struct EventStreamBody {
    events: Box<dyn Events>,
    keep_alive: Pin<Box<Sleep>>,
    /// An event has to be flushed before the next one is taken.
    must_flush: bool,
}

impl Body {
    fn new(content: Content) -> Self {
        Self { content, in_flight: None, access: None, held: None, largest: 0 }
    }

    pub(super) fn empty() -> Self {
        Self::new(Content::Empty)
    }

    pub(super) fn one(bytes: impl Into<Bytes>) -> Self {
        Self::new(Content::One(bytes.into()))
    }

    pub(super) fn pieces(pieces: Vec<Bytes>) -> Self {
        Self::new(Content::Pieces(pieces.into_iter()))
    }

    pub(super) fn events(events: impl Events + 'static) -> Self {
        let keep_alive = Box::pin(tokio::time::sleep(KEEP_ALIVE));
        let events = EventStreamBody { events: Box::new(events), keep_alive, must_flush: false };
        Self::new(Content::Events(events))
    }

    pub(super) fn with_guard(mut self, in_flight: InFlight) -> Self {
        self.in_flight = Some(in_flight);
        self
    }

    /// Keeps a value until the body is sent.
    pub(super) fn holding(mut self, value: Arc<dyn Any + Send + Sync>) -> Self {
        self.held = Some(value);
        self
    }

    pub(super) fn with_access(mut self, access: Option<AccessRecord>) -> Self {
        self.access = access;
        self
    }

    /// Ends the body. Hyper may not have written it all: a call with a large result counts until it has.
    fn end(&mut self) {
        // Ends work that would outlive the response.
        self.content = Content::Empty;
        if let Some(held) = self.held.take()
            && self.largest > SMALL_PIECE
            && let Some(in_flight) = &self.in_flight
        {
            in_flight.hold_until_sent(held);
        }
        self.in_flight = None;
        self.access = None;
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.end();
    }
}

impl EventStreamBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        // A pending body makes hyper flush. The TypeScript SDK 1.x loses a progress notification that it reads together with
        // the response.
        if std::mem::take(&mut self.must_flush) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Poll::Ready(event) = self.events.poll_event(cx) {
            if event.is_some() {
                self.restart_timer();
                self.must_flush = true;
            }
            return Poll::Ready(event);
        }
        ready!(self.keep_alive.as_mut().poll(cx));
        self.restart_timer();
        Poll::Ready(Some(Bytes::from_static(COMMENT)))
    }

    fn restart_timer(&mut self) {
        self.keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame<Bytes>, Infallible>>> {
        let data = match &mut self.content {
            Content::Empty => None,
            Content::One(bytes) => {
                let bytes = std::mem::take(bytes);
                self.content = Content::Empty;
                Some(bytes)
            }
            Content::Pieces(pieces) => pieces.next(),
            Content::Events(events) => ready!(events.poll_next(cx)),
        };
        match &data {
            Some(data) => self.largest = self.largest.max(data.len()),
            None => self.end(),
        }
        if let (Some(data), Some(access)) = (&data, &mut self.access) {
            access.note_bytes(data.len());
        }
        Poll::Ready(data.map(|data| Ok(BodyFrame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Empty => true,
            Content::Pieces(pieces) => pieces.len() == 0,
            Content::One(_) | Content::Events(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        let length = match &self.content {
            Content::Empty => 0,
            Content::One(bytes) => bytes.len(),
            Content::Pieces(pieces) => pieces.as_slice().iter().map(Bytes::len).sum(),
            Content::Events(_) => return SizeHint::default(),
        };
        SizeHint::with_exact(length as u64)
    }
}
