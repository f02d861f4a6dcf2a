//! Bodies of requests and responses.

use std::any::Any;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body as _, Frame as BodyFrame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use super::activity::InFlight;
use crate::gateway::observe::AccessRecord;

/// Time within which a client has to send the whole body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum size that is allocated for a body before it has arrived.
const MAX_TRUSTED_LENGTH: usize = 1 << 20;

/// Time after which a silent event stream gets a comment, so that proxies and clients keep it open.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Size up to which a piece of a response counts as sent when hyper has accepted it.
const SMALL_PIECE: usize = 64 << 10;

/// The comment that keeps an event stream open.
const COMMENT: &[u8] = b": \n\n";

/// Why the body of a request could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyError {
    TooLarge,
    TooSlow,
    /// The client has disconnected, or its encoding is invalid.
    Broken,
}

/// Reads the body of a request. A body that arrives in one piece is not copied.
pub(super) async fn read_body(body: Incoming, limit: usize) -> Result<Bytes, BodyError> {
    // The length is exact if the client has declared it.
    if body.size_hint().lower() > limit as u64 {
        return Err(BodyError::TooLarge);
    }
    let read = tokio::time::timeout(BODY_TIMEOUT, collect(body, limit));
    read.await.unwrap_or(Err(BodyError::TooSlow))
}

async fn collect(mut body: Incoming, limit: usize) -> Result<Bytes, BodyError> {
    let length = body.size_hint().lower() as usize;
    let first = next_data(&mut body).await?.unwrap_or_default();
    if first.len() > limit {
        return Err(BodyError::TooLarge);
    }
    let Some(second) = next_data(&mut body).await? else { return Ok(first) };
    let mut whole = BytesMut::with_capacity(
        length.clamp(first.len() + second.len(), MAX_TRUSTED_LENGTH.max(first.len() + second.len())),
    );
    whole.extend_from_slice(&first);
    let mut next = Some(second);
    while let Some(data) = next {
        if whole.len() + data.len() > limit {
            return Err(BodyError::TooLarge);
        }
        whole.extend_from_slice(&data);
        next = next_data(&mut body).await?;
    }
    Ok(whole.freeze())
}

/// Returns the next data of a body; `None` at its end. Trailers are ignored.
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

/// The events of a response, encoded for an event stream.
pub(super) trait Events: Send {
    /// Polls for the next event; `None` at the end of the stream.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>>;
}

/// The body of a response.
pub(super) struct Body {
    content: Content,
    /// Counts the request as in flight until the body is sent or the client has disconnected.
    in_flight: Option<InFlight>,
    /// Writes the line of the access log when the body is sent or the client has disconnected.
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

    /// Ends the body. Hyper may not have written all of it: a call with a large result counts until it has.
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
