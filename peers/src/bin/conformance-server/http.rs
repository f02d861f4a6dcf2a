//! Streamable HTTP, in both eras.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use axum::routing::any;
use axum::serve::ListenerExt as _;
use futures::stream::unfold;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use crate::call::Outgoing;
use crate::legacy::Session;
use crate::modern;
use crate::server::{Eras, Server, lock};
use crate::wire::{
    HEADER_MISMATCH, Incoming, LEGACY, METHOD_NOT_FOUND, MISSING_CAPABILITY, MODERN, RpcError, UNSUPPORTED_VERSION,
    VERSION, is_response,
};

/// Maximum request size in bytes.
const MAX_BODY: usize = 16 << 20;
/// Maximum event streams per session that can be resumed.
const MAX_STREAMS: usize = 64;

/// Serves all clients.
pub async fn serve(server: Arc<Server>, address: &str) -> Result<()> {
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}/mcp", listener.local_addr()?);
    // Otherwise every response on a kept-alive connection is delayed by 40 ms (delayed ACK).
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    let state = Arc::new(Http { server, sessions: Mutex::default() });
    axum::serve(listener, axum::Router::new().route("/mcp", any(handle)).with_state(state)).await?;
    Ok(())
}

struct Http {
    server: Arc<Server>,
    sessions: Mutex<HashMap<String, Arc<HttpSession>>>,
}

struct HttpSession {
    session: Arc<Session>,
    /// The stream for messages that belong to no request.
    unrelated: Arc<EventStream>,
    /// The request streams, oldest first.
    streams: Mutex<Vec<(String, Arc<EventStream>)>>,
}

async fn handle(State(http): State<Arc<Http>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if !is_local(&parts.headers) {
        return plain(StatusCode::FORBIDDEN, "Host or Origin is not allowed");
    }
    match parts.method {
        Method::POST => {
            let Ok(body) = to_bytes(body, MAX_BODY).await else {
                return plain(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large");
            };
            post(&http, &parts.headers, &body).await
        }
        Method::GET => get(&http, &parts.headers),
        Method::DELETE => match header(&parts.headers, "mcp-session-id") {
            Some(id) if lock(&http.sessions).remove(&id).is_some() => plain(StatusCode::NO_CONTENT, ""),
            Some(_) => plain(StatusCode::NOT_FOUND, "Session not found"),
            None => plain(StatusCode::METHOD_NOT_ALLOWED, ""),
        },
        _ => plain(StatusCode::METHOD_NOT_ALLOWED, ""),
    }
}

async fn post(http: &Arc<Http>, headers: &HeaderMap, body: &[u8]) -> Response {
    let message = match Incoming::read(body) {
        Ok(message) => message,
        Err(error) => return json(StatusCode::BAD_REQUEST, &error.response(&Value::Null)),
    };
    let version = header(headers, "mcp-protocol-version").unwrap_or_default();
    match message {
        Incoming::Request { id, method, params } if is_modern(http.server.eras, &version, &method, &params) => {
            post_modern(http, headers, (id, method, params)).await
        }
        Incoming::Notification { .. } if version == MODERN && http.server.eras != Eras::Legacy => {
            plain(StatusCode::ACCEPTED, "")
        }
        message => post_legacy(http, headers, &version, message).await,
    }
}

fn is_modern(eras: Eras, version: &str, method: &str, params: &Map<String, Value>) -> bool {
    match eras {
        Eras::Legacy => false,
        Eras::Modern => true,
        Eras::Both => {
            let claims = params.get("_meta").is_some_and(|meta| meta.get(VERSION).is_some());
            version == MODERN || claims || matches!(method, "server/discover" | "subscriptions/listen")
        }
    }
}

async fn post_modern(http: &Arc<Http>, headers: &HeaderMap, request: (Value, String, Map<String, Value>)) -> Response {
    let id = request.0.clone();
    if request.1 == "initialize" && header(headers, "mcp-protocol-version").is_none_or(|version| version != MODERN) {
        let asked = request.2.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        return json(StatusCode::BAD_REQUEST, &RpcError::unsupported_version(asked).response(&id));
    }
    let (outlet, mut messages) = mpsc::unbounded_channel();
    let headers = |name: &str| header(headers, name);
    let call = match modern::accept(&http.server, request, Some(&headers), outlet) {
        Ok(call) => call,
        Err(error) => return json(StatusCode::BAD_REQUEST, &error.response(&id)),
    };
    // A client that disconnects cancels the call.
    let running = AbortOnDrop(tokio::spawn(modern::run(call)).abort_handle());
    let first = loop {
        match messages.recv().await {
            Some(Outgoing::Message(message)) => break message,
            Some(Outgoing::EndStream) => {}
            None => return plain(StatusCode::INTERNAL_SERVER_ERROR, "the call ended"),
        }
    };
    if is_response(&first) {
        return json(modern_status(&first), &first);
    }
    let events = unfold((Some(first), messages, running), |(first, mut messages, running)| async move {
        let message = match first {
            Some(message) => message,
            None => loop {
                match messages.recv().await? {
                    Outgoing::Message(message) => break message,
                    Outgoing::EndStream => {}
                }
            },
        };
        let event = format!("event: message\ndata: {message}\n\n");
        Some((Ok::<_, std::convert::Infallible>(event), (None, messages, running)))
    });
    event_stream(Body::from_stream(events))
}

fn modern_status(message: &Value) -> StatusCode {
    match message["error"]["code"].as_i64() {
        Some(HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION) => StatusCode::BAD_REQUEST,
        Some(METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        _ => StatusCode::OK,
    }
}

async fn post_legacy(http: &Arc<Http>, headers: &HeaderMap, version: &str, message: Incoming) -> Response {
    if !version.is_empty() && !LEGACY.contains(&version) {
        return error(StatusCode::BAD_REQUEST, -32000, "Unsupported protocol version");
    }
    if let Incoming::Request { id, method, params } = &message
        && method == "initialize"
    {
        return initialize(http, id, params);
    }
    let session = match session(http, headers) {
        Ok(session) => session,
        Err(response) => return *response,
    };
    match message {
        Incoming::Notification { method, params } => session.session.on_notification(&method, &params),
        Incoming::Response { id, message } => session.session.questions.complete(&id, message),
        Incoming::Request { id, method, params } => {
            let mut messages = session.session.start(id, method, params);
            return match messages.recv().await {
                Some(Outgoing::Message(message)) if is_response(&message) => json(StatusCode::OK, &message),
                Some(first) => session.stream(&http.server, first, messages),
                // The client cancelled it.
                None => plain(StatusCode::ACCEPTED, ""),
            };
        }
    }
    plain(StatusCode::ACCEPTED, "")
}

fn initialize(http: &Arc<Http>, id: &Value, params: &Map<String, Value>) -> Response {
    let key = http.server.fresh_id("session");
    let (outlet, messages) = mpsc::unbounded_channel();
    let session = Session::open(&http.server, params, outlet);
    let unrelated = Arc::new(EventStream::new("unrelated", None));
    tokio::spawn(Arc::clone(&unrelated).pump(messages));
    let mut response = json(StatusCode::OK, &session.initialized(id));
    if let Ok(value) = key.parse() {
        response.headers_mut().insert("mcp-session-id", value);
    }
    lock(&http.sessions).insert(key, Arc::new(HttpSession { session, unrelated, streams: Mutex::default() }));
    response
}

fn session(http: &Http, headers: &HeaderMap) -> Result<Arc<HttpSession>, Box<Response>> {
    let Some(id) = header(headers, "mcp-session-id") else {
        let message = "Bad Request: Mcp-Session-Id header is required";
        return Err(error(StatusCode::BAD_REQUEST, -32000, message).into());
    };
    let session = lock(&http.sessions).get(&id).cloned();
    session.ok_or_else(|| error(StatusCode::NOT_FOUND, -32001, "Session not found").into())
}

fn get(http: &Http, headers: &HeaderMap) -> Response {
    if header(headers, "mcp-session-id").is_none() {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "");
    }
    let session = match session(http, headers) {
        Ok(session) => session,
        Err(response) => return *response,
    };
    let Some(last) = header(headers, "last-event-id") else {
        let from = session.unrelated.state.borrow().events.len();
        return Arc::clone(&session.unrelated).body(from);
    };
    let Some((name, position)) = last.rsplit_once('.') else {
        return plain(StatusCode::BAD_REQUEST, "unknown event id");
    };
    let from = position.parse::<usize>().map_or(0, |position| position + 1);
    let streams = lock(&session.streams);
    let named = streams.iter().find(|(stream, _)| stream == name).map(|(_, stream)| stream);
    Arc::clone(named.unwrap_or(&session.unrelated)).body(from)
}

impl HttpSession {
    /// Returns a response that is an event stream, and can be resumed.
    fn stream(&self, server: &Server, first: Outgoing, messages: mpsc::UnboundedReceiver<Outgoing>) -> Response {
        let name = server.fresh_id("stream");
        // Clients before this version parse every event's data.
        let priming =
            (self.session.version.as_str() >= LEGACY[0]).then(|| format!("id: {name}.0\nretry: 500\ndata: \n\n"));
        let stream = Arc::new(EventStream::new(&name, priming));
        let body = Arc::clone(&stream).body(0);
        stream.push(first);
        tokio::spawn(Arc::clone(&stream).pump(messages));
        let mut streams = lock(&self.streams);
        if streams.len() == MAX_STREAMS {
            streams.remove(0);
        }
        streams.push((name, stream));
        body
    }
}

/// One stream's events, kept for clients that reconnect.
///
/// The creator may push a first event; then one detached `pump` task writes: it appends each message and marks the end when the
/// senders are gone. Connections only read: each holds a `watch` receiver and its own position, so a new connection can continue
/// where a dropped one stopped. The `watch` lock is held for one event at a time, never across `.await`. A session keeps its last
/// `MAX_STREAMS` request streams and removes the oldest first.
struct EventStream {
    name: String,
    state: watch::Sender<StreamState>,
}

#[derive(Default)]
struct StreamState {
    events: Vec<String>,
    is_complete: bool,
    /// How often the server has ended the stream's connections.
    cuts: usize,
}

impl EventStream {
    fn new(name: &str, priming: Option<String>) -> Self {
        let state = StreamState { events: priming.into_iter().collect(), ..StreamState::default() };
        Self { name: name.to_owned(), state: watch::Sender::new(state) }
    }

    fn push(&self, outgoing: Outgoing) {
        self.state.send_modify(|state| match outgoing {
            Outgoing::Message(message) => {
                let id = state.events.len();
                state.events.push(format!("event: message\nid: {}.{id}\ndata: {message}\n\n", self.name));
            }
            Outgoing::EndStream => state.cuts += 1,
        });
    }

    async fn pump(self: Arc<Self>, mut messages: mpsc::UnboundedReceiver<Outgoing>) {
        while let Some(outgoing) = messages.recv().await {
            self.push(outgoing);
        }
        self.state.send_modify(|state| state.is_complete = true);
    }

    /// Returns a response with the events from this position on.
    fn body(self: Arc<Self>, from: usize) -> Response {
        let receiver = self.state.subscribe();
        let cuts = receiver.borrow().cuts;
        let events = unfold((receiver, from), move |(mut receiver, from)| async move {
            let event = {
                let more = |state: &StreamState| state.events.len() > from || state.is_complete || state.cuts != cuts;
                let state = receiver.wait_for(more).await.ok()?;
                state.events.get(from)?.clone()
            };
            Some((Ok::<_, std::convert::Infallible>(event), (receiver, from + 1)))
        });
        event_stream(Body::from_stream(events))
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns `true` unless the request comes from another host's page (DNS rebinding).
fn is_local(headers: &HeaderMap) -> bool {
    let local = |host: &str| {
        let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(name, _)| name);
        ["localhost", "127.0.0.1", "[::1]"].contains(&name)
    };
    let origin = header(headers, "origin");
    let origin_is_local = origin.is_none_or(|origin| origin.split_once("://").is_some_and(|(_, host)| local(host)));
    header(headers, "host").is_some_and(|host| local(&host)) && origin_is_local
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(|value| value.trim().to_owned())
}

fn json(status: StatusCode, message: &Value) -> Response {
    respond(status, "application/json", Body::from(message.to_string()))
}

fn error(status: StatusCode, code: i64, message: &str) -> Response {
    json(status, &RpcError::new(code, message).response(&Value::Null))
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    respond(status, "text/plain", Body::from(text))
}

fn event_stream(body: Body) -> Response {
    respond(StatusCode::OK, "text/event-stream", body)
}

fn respond(status: StatusCode, kind: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", axum::http::HeaderValue::from_static(kind));
    response
}
