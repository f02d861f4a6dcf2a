//! Legacy HTTP+SSE: an event stream per client, and POST for its messages.
//!
//! See [HTTP with SSE](https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse).

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::Response;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::sync::mpsc;

use super::auth::check_profile;
use super::body::{Body, Events, read_body};
use super::head;
use super::post::{body_limit, limited};
use super::response;
use crate::catalog::profile::Selector;
use crate::client::principal::Principal;
use crate::client::shares::Hold;
use crate::listener::step::{close_pipe, step};
use crate::request::dispatch::{Caller, ClientRef, Dispatch, PipeClient, dispatch};
use crate::request::errors::ErrorReply;
use crate::request::exchange::Exchange;
use crate::shared::GatewayShared;
use ropeway_core::sync::lock;
use ropeway_core::tool::CancelToken;

/// Maximum number of messages that wait for a client.
const MAX_QUEUED: usize = 16;

/// The open event streams, by their tokens.
#[derive(Default)]
pub(super) struct SseSessions(Mutex<HashMap<Box<str>, Arc<SseSession>>>);

struct SseSession {
    pipe: Arc<PipeClient>,
    selector: Selector,
    principal: Principal,
    messages: mpsc::Sender<SseMessage>,
    /// Cancelled when the client has disconnected.
    gone: CancelToken,
    /// Its share of the principal's sessions.
    _hold: Hold,
}

/// A message that waits for a client.
struct SseMessage {
    event: Bytes,
    /// The call that the message answers. It counts until the message is sent.
    call: Option<Arc<Exchange>>,
}

/// Opens a client's event stream. Its first event names the URL for messages.
pub(super) fn open(
    shared: &Arc<GatewayShared>,
    sessions: &Arc<SseSessions>,
    head: &Parts,
    selector: Selector,
    principal: Principal,
) -> Response<Body> {
    if !head::accepts(&head.headers, "text/event-stream") {
        return response::refuse(406, "Not Acceptable: Client must accept text/event-stream");
    }
    if let Err(error) = shared.profile(&selector) {
        return response::error(&error);
    }
    let hold = match shared.reserve_session(&principal) {
        Ok(hold) => hold,
        Err(error) => {
            let rule = if error.status == 429 { "sessions_per_principal" } else { "sessions" };
            return response::refused_by(rule, response::error(&error));
        }
    };
    let Some(token) = random_token() else {
        return response::refuse(503, "the system's random number generator failed");
    };
    let (messages, receiver) = mpsc::channel(MAX_QUEUED);
    let pipe = Arc::new(PipeClient::new(None));
    let session = Arc::new(SseSession { pipe, selector, principal, messages, gone: CancelToken::new(), _hold: hold });
    lock(&sessions.0).insert(token.clone(), Arc::clone(&session));
    let endpoint = format!("event: endpoint\ndata: /messages?session={token}\n\n").into();
    let (draining, revoked) = (shared.draining.clone(), session.principal.revoked());
    response::events(SseEvents {
        shared: Arc::clone(shared),
        sessions: Arc::clone(sessions),
        token,
        session,
        endpoint: Some(endpoint),
        messages: receiver,
        sending: None,
        draining: Box::pin(async move { draining.cancelled().await }),
        revoked: Box::pin(async move { revoked.cancelled().await }),
    })
}

/// Handles one message. Its response goes to the event stream.
pub(super) async fn message(
    shared: &Arc<GatewayShared>,
    sessions: &SseSessions,
    (head, body): (&Parts, Incoming),
    principal: &Principal,
    is_limited: Result<(), ErrorReply>,
) -> Response<Body> {
    let token = head.uri.query().and_then(token_of);
    let session = token.and_then(|token| lock(&sessions.0).get(token).cloned());
    // A session belongs to the principal that opened it.
    let session = session.filter(|session| session.principal == *principal);
    let Some(session) = session else { return response::refuse(404, "Session not found") };
    if let Err(refused) = check_profile(principal, &session.selector) {
        return *refused;
    }
    if !head::is_json(&head.headers) {
        return response::refuse(415, "Unsupported Media Type: Content-Type must be application/json");
    }
    if let Err(error) = &is_limited {
        return limited(shared, principal, body, error).await;
    }
    let limit = body_limit(shared, principal);
    let body = match read_body(shared, principal, body, limit).await {
        Ok(body) => body,
        Err(error) => return response::bad_body(error, limit),
    };
    let client = ClientRef::Pipe(Arc::clone(&session.pipe));
    let (selector, principal) = (session.selector.clone(), principal.clone());
    let caller = Caller { client, selector, principal, headers: None };
    match dispatch(shared, &caller, &body) {
        Dispatch::Accepted => {}
        Dispatch::Done { reply, .. } | Dispatch::Opened { reply, .. } => {
            let sent = tokio::select! {
                sent = session.messages.send(SseMessage { event: event(&reply.into_bytes()), call: None }) => sent.is_ok(),
                () = session.gone.cancelled() => false,
            };
            if !sent {
                return response::refuse(404, "Session not found");
            }
        }
        Dispatch::Running { exchange, work } => {
            let shared = Arc::clone(shared);
            tokio::spawn(async move {
                let write = async {
                    let mut work = Some(work);
                    while let Some(running) = work {
                        let step = step(&shared, &exchange, running).await;
                        for message in step.messages {
                            let message = SseMessage { event: event(&message), call: Some(Arc::clone(&exchange)) };
                            let _ = session.messages.send(message).await;
                        }
                        work = step.work;
                    }
                };
                tokio::select! {
                    () = write => {}
                    () = session.gone.cancelled() => {}
                }
            });
        }
    }
    response::text(202, "Accepted")
}

/// Returns the token in a message's query.
fn token_of(query: &str) -> Option<&str> {
    query.split('&').find_map(|pair| pair.strip_prefix("session="))
}

/// Returns a token that cannot be guessed.
fn random_token() -> Option<Box<str>> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into())
}

fn event(message: &[u8]) -> Bytes {
    [b"event: message\ndata: ", message, b"\n\n"].concat().into()
}

/// One client's events. Dropping them ends its session and its requests.
struct SseEvents {
    shared: Arc<GatewayShared>,
    sessions: Arc<SseSessions>,
    token: Box<str>,
    session: Arc<SseSession>,
    endpoint: Option<Bytes>,
    messages: mpsc::Receiver<SseMessage>,
    /// The call whose event is being sent.
    sending: Option<Arc<Exchange>>,
    /// Ends the stream when the gateway stops and no request is in progress.
    draining: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Ends the stream when the client's key is revoked.
    revoked: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Events for SseEvents {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(endpoint) = self.endpoint.take() {
            return Poll::Ready(Some(endpoint));
        }
        // The next event is polled when the previous one is sent.
        self.sending = None;
        if let Poll::Ready(message) = self.messages.poll_recv(cx) {
            return Poll::Ready(message.map(|message| {
                self.sending = message.call;
                message.event
            }));
        }
        if self.revoked.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        let client = self.session.pipe.legacy();
        let is_busy = client.as_ref().is_some_and(|client| client.running() > 0);
        if !is_busy && self.draining.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        let Some(client) = client else { return Poll::Pending };
        while client.outbound.poll_ready(cx).is_ready() {
            let frames: Vec<u8> = client.outbound.take().iter().flat_map(|frame| event(&frame.text)).collect();
            if !frames.is_empty() {
                return Poll::Ready(Some(frames.into()));
            }
        }
        if client.outbound.is_closed() { Poll::Ready(None) } else { Poll::Pending }
    }
}

impl Drop for SseEvents {
    fn drop(&mut self) {
        lock(&self.sessions.0).remove(&self.token);
        self.session.gone.cancel();
        close_pipe(&self.shared, &self.session.pipe);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_in_the_query() {
        assert_eq!(token_of("session=abc"), Some("abc"));
        assert_eq!(token_of("x=1&session=abc&y=2"), Some("abc"));
        assert_eq!(token_of("xsession=abc"), None);
        assert_eq!(token_of(""), None);
    }

    #[test]
    fn tokens_are_long_and_differ() {
        let (a, b) = (random_token().unwrap(), random_token().unwrap());
        assert_eq!((a.len(), b.len()), (32, 32));
        assert_ne!(a, b);
    }
}
