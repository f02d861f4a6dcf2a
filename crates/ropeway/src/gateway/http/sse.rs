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

use super::body::{Body, Events, read_body};
use super::head::{self, anyone};
use super::response;
use crate::gateway::dispatch::{Caller, ClientRef, Dispatch, PipeClient, dispatch};
use crate::gateway::profile::Selector;
use crate::gateway::shared::GatewayShared;
use crate::gateway::step::{close_pipe, step};
use crate::sync::lock;
use crate::tool::CancelToken;

/// Number of messages that wait for a client.
const MAX_QUEUED: usize = 16;

/// The open event streams, by their tokens.
#[derive(Default)]
pub(super) struct SseSessions(Mutex<HashMap<Box<str>, Arc<SseSession>>>);

struct SseSession {
    pipe: Arc<PipeClient>,
    selector: Selector,
    messages: mpsc::Sender<Bytes>,
    /// Cancelled when the client has disconnected.
    gone: CancelToken,
}

/// Opens the event stream of a client. Its first event tells where messages go.
pub(super) fn open(
    shared: &Arc<GatewayShared>,
    sessions: &Arc<SseSessions>,
    head: &Parts,
    selector: Selector,
) -> Response<Body> {
    if !head::accepts(&head.headers, "text/event-stream") {
        return response::refuse(406, "Not Acceptable: Client must accept text/event-stream");
    }
    if let Err(error) = shared.profile(&selector) {
        return response::error(&error);
    }
    let Some(token) = random_token() else { return response::refuse(503, "no random numbers are available") };
    let (messages, receiver) = mpsc::channel(MAX_QUEUED);
    let pipe = Arc::new(PipeClient::new(None));
    let session = Arc::new(SseSession { pipe, selector, messages, gone: CancelToken::new() });
    lock(&sessions.0).insert(token.clone(), Arc::clone(&session));
    let endpoint = format!("event: endpoint\ndata: /messages?session={token}\n\n").into();
    let draining = shared.draining.clone();
    response::events(SseEvents {
        shared: Arc::clone(shared),
        sessions: Arc::clone(sessions),
        token,
        session,
        endpoint: Some(endpoint),
        messages: receiver,
        draining: Box::pin(async move { draining.cancelled().await }),
    })
}

/// Handles one message. Its response goes to the event stream.
pub(super) async fn message(
    shared: &Arc<GatewayShared>,
    sessions: &SseSessions,
    head: &Parts,
    body: Incoming,
) -> Response<Body> {
    let token = head.uri.query().and_then(token_of);
    let session = token.and_then(|token| lock(&sessions.0).get(token).cloned());
    let Some(session) = session else { return response::refuse(404, "Session not found") };
    if !head::is_json(&head.headers) {
        return response::refuse(415, "Unsupported Media Type: Content-Type must be application/json");
    }
    let limit = shared.settings().limits.body;
    let body = match read_body(body, limit).await {
        Ok(body) => body,
        Err(error) => return response::bad_body(error, limit),
    };
    let client = ClientRef::Pipe(Arc::clone(&session.pipe));
    let caller = Caller { client, selector: session.selector.clone(), principal: anyone(), headers: None };
    match dispatch(shared, &caller, &body) {
        Dispatch::Accepted => {}
        Dispatch::Done { reply, .. } | Dispatch::Opened { reply, .. } => {
            let sent = tokio::select! {
                sent = session.messages.send(event(&reply.into_bytes())) => sent.is_ok(),
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
                            let _ = session.messages.send(event(&message)).await;
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

/// Returns the token in the query of a message.
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

/// The events of one client. Dropping them ends its session and its requests.
struct SseEvents {
    shared: Arc<GatewayShared>,
    sessions: Arc<SseSessions>,
    token: Box<str>,
    session: Arc<SseSession>,
    endpoint: Option<Bytes>,
    messages: mpsc::Receiver<Bytes>,
    /// Ends the stream when the gateway stops and no request is in progress.
    draining: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Events for SseEvents {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(endpoint) = self.endpoint.take() {
            return Poll::Ready(Some(endpoint));
        }
        if let Poll::Ready(message) = self.messages.poll_recv(cx) {
            return Poll::Ready(message);
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
