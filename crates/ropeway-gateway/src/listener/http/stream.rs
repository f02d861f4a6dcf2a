//! GET and DELETE in Streamable HTTP: the standalone stream, resumed streams, and the end of a session.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Response};
use serde_json::value::RawValue;

use super::body::{Body, Events};
use super::head::{self, LAST_EVENT, SESSION, VERSION};
use super::post::prime;
use super::response;
use crate::catalog::profile::Selector;
use crate::client::event_stream::EventReader;
use crate::client::journal::NotStored;
use crate::client::replay::Resumed;
use crate::client::{Client, OpenStream, Principal};
use crate::request::errors::ErrorReply;
use crate::request::reply::Reply;
use crate::request::subscribe;
use crate::shared::GatewayShared;
use ropeway_mcp::protocol::{LEGACY_VERSIONS, is_modern};

/// Time after which a client may try again to end a session.
const STORE_WAIT: Duration = Duration::from_secs(5);

/// Opens a session's standalone stream, or continues a stream after `Last-Event-ID`.
pub(super) fn get(
    shared: &Arc<GatewayShared>,
    head: &Parts,
    selector: &Selector,
    principal: &Principal,
) -> Response<Body> {
    let client = match legacy_client(shared, &head.headers, selector, principal) {
        Ok(client) => client,
        Err(refused) => return *refused,
    };
    if !head::accepts(&head.headers, "text/event-stream") {
        return response::refuse(406, "Not Acceptable: Client must accept text/event-stream");
    }
    let Some(last_event) = head::text(&head.headers, &LAST_EVENT) else { return standalone(shared, client) };
    match shared.streams.resume(&client, last_event) {
        Resumed::Found(reader) if reader.stream().is_standalone() => {
            response::events(StandaloneEvents::new(shared, client, reader))
        }
        Resumed::Found(reader) => response::events(reader),
        Resumed::Lost { request: Some(request), is_restarted } => lost(shared, &client, &request, is_restarted),
        // The revived session announces the changes that the client has missed.
        Resumed::Lost { request: None, .. } | Resumed::Unknown => standalone(shared, client),
    }
}

/// Ends a session. Answers 204 when its end is stored, so that it does not come back after a restart.
pub(super) async fn delete(
    shared: &Arc<GatewayShared>,
    head: &Parts,
    selector: &Selector,
    principal: &Principal,
) -> Response<Body> {
    let requested = match requested_session(shared, &head.headers, selector) {
        Ok(requested) => requested,
        Err(refused) => return *refused,
    };
    let ended = match shared.sessions.end(requested.id, principal, &requested.profile) {
        None => return response::error(&ErrorReply::session_not_found()),
        Some(Err(error)) => return not_stored(error),
        Some(Ok(ended)) => ended,
    };
    if let Some(client) = &ended.client {
        shared.forget(client);
    }
    match ended.pending.stored().await {
        Ok(()) => response::empty(204),
        Err(error) => not_stored(error),
    }
}

/// Refuses to confirm that a session has ended.
fn not_stored(error: NotStored) -> Response<Body> {
    response::error(&ErrorReply { status: 503, ..ErrorReply::limited(error.to_string(), STORE_WAIT) })
}

/// The session that a request names.
struct RequestedSession<'a> {
    id: &'a str,
    /// The profile that the path selects.
    profile: Arc<str>,
}

/// Returns the client for the request's session.
fn legacy_client(
    shared: &Arc<GatewayShared>,
    headers: &HeaderMap,
    selector: &Selector,
    principal: &Principal,
) -> Result<Arc<Client>, Box<Response<Body>>> {
    let RequestedSession { id, profile } = requested_session(shared, headers, selector)?;
    let client = find_session(shared, id, principal).map_err(|error| Box::new(response::error(&error)))?;
    // The path selects the profile, and a session belongs to one.
    if client.profile != profile {
        return Err(Box::new(response::error(&ErrorReply::session_not_found())));
    }
    Ok(client)
}

/// Returns the session that a request names. Modern requests have no session, and only POST.
fn requested_session<'a>(
    shared: &GatewayShared,
    headers: &'a HeaderMap,
    selector: &Selector,
) -> Result<RequestedSession<'a>, Box<Response<Body>>> {
    if let Some(name) = head::repeated(headers) {
        return Err(Box::new(response::refuse(400, format!("Bad Request: several {name} headers"))));
    }
    let version = head::text(headers, &VERSION);
    if version.is_some_and(is_modern) || !headers.contains_key(SESSION) {
        return Err(Box::new(response::method_not_allowed("POST")));
    }
    if version.is_some_and(|version| !LEGACY_VERSIONS.contains(&version)) {
        return Err(Box::new(response::error(&ErrorReply::unsupported_legacy_version())));
    }
    let profile = shared.profile(selector).map_err(|error| Box::new(response::error(&error)))?;
    let id = head::text(headers, &SESSION);
    let id = id.ok_or_else(|| Box::new(response::error(&ErrorReply::session_not_found())))?;
    Ok(RequestedSession { id, profile })
}

/// Finds a session. Its subscriptions are restored if the gateway was restarted.
fn find_session(shared: &Arc<GatewayShared>, id: &str, principal: &Principal) -> Result<Arc<Client>, ErrorReply> {
    let (client, subscriptions) = shared.session(id, principal)?;
    subscribe::restore(shared, &client, subscriptions);
    Ok(client)
}

fn standalone(shared: &Arc<GatewayShared>, client: Arc<Client>) -> Response<Body> {
    let stream = shared.streams.open(&client, None);
    prime(&stream, &client.description.version);
    response::events(StandaloneEvents::new(shared, client, stream.read()))
}

/// Answers a request whose response is lost, so that its client does not wait forever.
fn lost(shared: &Arc<GatewayShared>, client: &Client, request: &RawValue, is_restarted: bool) -> Response<Body> {
    let message = if is_restarted {
        "the gateway was restarted during the call; it may have been executed"
    } else {
        "the response is not stored; the call may have been executed"
    };
    let stream = shared.streams.open(client, Some(request));
    stream.push(&Reply::error(Some(request), &ErrorReply::internal(message)).into_bytes());
    stream.close();
    response::events(stream.read())
}

/// A standalone stream's events: the client's frames that belong to no request.
struct StandaloneEvents {
    client: Arc<Client>,
    reader: EventReader,
    /// Keeps the session in memory.
    _open: OpenStream,
    /// Ends the stream when the gateway stops, or when the client's key is revoked.
    ending: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl StandaloneEvents {
    fn new(shared: &Arc<GatewayShared>, client: Arc<Client>, reader: EventReader) -> Self {
        let (draining, revoked) = (shared.draining.clone(), client.principal.revoked());
        let ending = Box::pin(async move {
            tokio::select! {
                () = draining.cancelled() => {}
                () = revoked.cancelled() => {}
            }
        });
        Self { _open: client.open_stream(), client, reader, ending }
    }
}

impl Events for StandaloneEvents {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        // Frames stay with the client, which bounds them, until its connection takes them.
        if let Poll::Ready(event) = self.reader.poll_next(cx) {
            return Poll::Ready(event);
        }
        if self.ending.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        while self.client.outbound.poll_ready(cx).is_ready() {
            for frame in self.client.outbound.take() {
                self.reader.stream().push(&frame.text);
            }
            if let Poll::Ready(event) = self.reader.poll_next(cx) {
                return Poll::Ready(event);
            }
        }
        if self.client.outbound.is_closed() { Poll::Ready(None) } else { Poll::Pending }
    }
}
