//! POST in Streamable HTTP: one message, answered with JSON or with an event stream.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Response};
use serde_json::value::RawValue;

use super::body::{Body, Events, KEEP_ALIVE, read_body};
use super::head::{self, METHOD, NAME, SESSION, VERSION};
use super::response;
use crate::catalog::profile::Selector;
use crate::client::event_stream::{EventReader, EventStream};
use crate::client::principal::Principal;
use crate::listener::step::{step, texts};
use crate::request::dispatch::{Caller, ClientRef, Dispatch, dispatch};
use crate::request::errors::ErrorReply;
use crate::request::exchange::{Exchange, Next, Work, next};
use crate::request::header_view::HeaderView;
use crate::request::reply::Reply;
use crate::shared::GatewayShared;
use ropeway_core::sync::lock;
use ropeway_core::tool::CancelToken;
use ropeway_mcp::protocol::{ClientMessage, Era, LATEST_LEGACY, read_client_message};

/// Time within which a legacy client can resume a running request's stream.
const RESUME_GRACE: Duration = Duration::from_secs(30);

/// Maximum body size for which a refused message's id is still read.
const MAX_REFUSED_BODY: usize = 64 << 10;

/// A POST request before its body is read.
pub(super) struct PostRequest {
    pub(super) connection: u64,
    pub(super) selector: Selector,
    pub(super) principal: Principal,
    /// The error if the principal sends too many requests. It is sent with the message's id.
    pub(super) limited: Result<(), ErrorReply>,
}

/// Handles one message. `closed` ends requests whose clients may reconnect.
pub(super) async fn post(
    shared: &Arc<GatewayShared>,
    closed: &CancelToken,
    (head, body): (&Parts, Incoming),
    request: PostRequest,
) -> Response<Body> {
    if !head::is_json(&head.headers) {
        return response::refuse(415, "Unsupported Media Type: Content-Type must be application/json");
    }
    if !head::accepts(&head.headers, "application/json") || !head::accepts(&head.headers, "text/event-stream") {
        let message = "Not Acceptable: Client must accept both application/json and text/event-stream";
        return response::refuse(406, message);
    }
    if let Some(name) = head::repeated(&head.headers) {
        return response::refuse(400, format!("Bad Request: several {name} headers"));
    }
    if let Err(error) = &request.limited {
        return limited(shared, &request.principal, body, error).await;
    }
    let limit = body_limit(shared, &request.principal);
    let body = match read_body(shared, &request.principal, body, limit).await {
        Ok(body) => body,
        Err(error) => return response::bad_body(error, limit),
    };
    let dispatch = receive(shared, &head.headers, request, &body);
    // Requests in progress keep the body parts that they need.
    drop(body);
    match dispatch {
        Dispatch::Done { status, reply } => response::json(status, reply),
        Dispatch::Opened { session, reply, .. } => {
            let mut response = response::json(200, reply);
            if let Ok(session) = HeaderValue::from_str(&session) {
                response.headers_mut().insert(SESSION, session);
            }
            response
        }
        Dispatch::Accepted => response::empty(202),
        Dispatch::Running { exchange, work } => run(shared, closed, exchange, work).await,
    }
}

/// Returns the maximum body size for a principal.
pub(super) fn body_limit(shared: &GatewayShared, principal: &Principal) -> usize {
    let limit = shared.settings().limits.body;
    principal.limits().body.map_or(limit, |own| own.min(limit))
}

/// Refuses a message because a limit is reached. The error has the message's id, unless the message is large.
pub(super) async fn limited(
    shared: &GatewayShared,
    principal: &Principal,
    body: Incoming,
    error: &ErrorReply,
) -> Response<Body> {
    match read_body(shared, principal, body, body_limit(shared, principal).min(MAX_REFUSED_BODY)).await {
        Ok(body) => match read_client_message(&body) {
            Ok(ClientMessage::Request { id, .. }) => refusal(Some(id), error),
            _ => refusal(None, error),
        },
        // The rest of the body may follow.
        Err(_) => response::closing(refusal(None, error)),
    }
}

fn refusal(id: Option<&RawValue>, error: &ErrorReply) -> Response<Body> {
    response::with_retry_after(response::json(error.status, Reply::error(id, error)), error.retry_after())
}

/// Dispatches a message with the headers that belong to it.
fn receive(shared: &Arc<GatewayShared>, headers: &HeaderMap, request: PostRequest, body: &Bytes) -> Dispatch {
    let get = |name: &str| headers.get(name)?.to_str().ok().map(str::to_owned);
    let headers = HeaderView {
        version: head::text(headers, &VERSION),
        method: head::text(headers, &METHOD),
        name: head::text(headers, &NAME),
        session: head::text(headers, &SESSION),
        get: &get,
    };
    let PostRequest { connection, selector, principal, .. } = request;
    let client = ClientRef::Http { connection };
    dispatch(shared, &Caller { client, selector, principal, headers: Some(headers) }, body)
}

/// Waits for the first message: a response becomes a JSON body, anything else starts an event stream.
async fn run(
    shared: &Arc<GatewayShared>,
    closed: &CancelToken,
    exchange: Arc<Exchange>,
    mut work: Work,
) -> Response<Body> {
    let first = match tokio::time::timeout(KEEP_ALIVE, next(&exchange, &mut work)).await {
        Ok(Next::Outcome(outcome)) => {
            let retry_after = outcome.retry_after();
            // A cancelled request has no response.
            let reply = outcome.into_reply(&exchange.id(), exchange.client.era);
            let response = reply.map_or_else(|| response::empty(202), |(status, reply)| response::json(status, reply));
            let response = response::with_retry_after(response, retry_after);
            return response.map(|body| body.holding(exchange));
        }
        Ok(Next::ServerRequests(asked)) => return response::json(200, shared.parked.park(exchange, work, asked)),
        Ok(Next::Frames(frames)) => texts(frames),
        Err(_) => Vec::new(),
    };
    let call = Arc::clone(&exchange);
    let response = match exchange.client.era {
        Era::Modern => response::events(RunningEvents::new(Arc::clone(shared), exchange, work, first)),
        Era::Legacy => response::events(resumable(shared, closed, exchange, work, first)),
    };
    response.map(|body| body.holding(call))
}

/// A modern request's events. Dropping them cancels the request.
struct RunningEvents {
    /// Adds events to the queue; completes with the response.
    source: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    queue: Arc<Mutex<VecDeque<Bytes>>>,
}

impl RunningEvents {
    fn new(shared: Arc<GatewayShared>, exchange: Arc<Exchange>, work: Work, first: Vec<Bytes>) -> Self {
        let queue = Arc::new(Mutex::new(first.iter().map(|message| event(message)).collect::<VecDeque<_>>()));
        let source = {
            let queue = Arc::clone(&queue);
            async move {
                let mut work = Some(work);
                while let Some(running) = work {
                    let step = step(&shared, &exchange, running).await;
                    lock(&queue).extend(step.messages.iter().map(|message| event(message)));
                    work = step.work;
                    pause().await;
                }
            }
        };
        Self { source: Some(Box::pin(source)), queue }
    }
}

impl Events for RunningEvents {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            let event = lock(&self.queue).pop_front();
            if event.is_some() {
                return Poll::Ready(event);
            }
            let Some(source) = &mut self.source else { return Poll::Ready(None) };
            match source.as_mut().poll(cx) {
                Poll::Ready(()) => self.source = None,
                Poll::Pending if lock(&self.queue).is_empty() => return Poll::Pending,
                Poll::Pending => {}
            }
        }
    }
}

/// Returns once without a wake-up. The events that were queued are sent before the next poll.
async fn pause() {
    let mut is_first = true;
    poll_fn(|_| if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }).await;
}

/// Encodes an event without an id.
fn event(message: &[u8]) -> Bytes {
    [b"data: ", message, b"\n\n"].concat().into()
}

/// Moves a legacy client's request to a task, so that the client can resume its stream. Returns the event reader.
fn resumable(
    shared: &Arc<GatewayShared>,
    closed: &CancelToken,
    exchange: Arc<Exchange>,
    work: Work,
    first: Vec<Bytes>,
) -> EventReader {
    let stream = shared.streams.open(&exchange.client, Some(&exchange.id()));
    prime(&stream, &exchange.client.description.version);
    for message in &first {
        stream.push(message);
    }
    let reader = stream.read();
    tokio::spawn(write_events(Arc::clone(shared), closed.clone(), exchange, work, stream));
    reader
}

/// Sends the first event, except to older clients, which would mistake it for a message.
pub(super) fn prime(stream: &EventStream, version: &str) {
    if version >= LATEST_LEGACY {
        stream.prime();
    }
}

/// Writes a request's messages to its stream, until the response or until the client does not reconnect in time.
async fn write_events(
    shared: Arc<GatewayShared>,
    closed: CancelToken,
    exchange: Arc<Exchange>,
    work: Work,
    stream: Arc<EventStream>,
) {
    let id = exchange.id();
    let write = async {
        let mut work = Some(work);
        while let Some(running) = work {
            stream.writable().await;
            let step = step(&shared, &exchange, running).await;
            for message in &step.messages {
                stream.push(message);
            }
            work = step.work;
        }
    };
    let lost = tokio::select! {
        biased;
        () = write => None,
        () = stream.abandoned(RESUME_GRACE) => Some("the stream was not resumed in time; the call may have been executed"),
        () = closed.cancelled() => Some("the gateway was stopped during the call; it may have been executed"),
    };
    // A client that comes back later must not wait for a response.
    if let Some(message) = lost {
        stream.push(&Reply::error(Some(&id), &ErrorReply::internal(message)).into_bytes());
    }
    stream.close();
    shared.streams.trim();
}

impl Events for EventReader {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.poll_next(cx)
    }
}
