//! The HTTP listener: Streamable HTTP in both eras, and legacy HTTP+SSE.

mod activity;
mod api;
mod auth;
mod body;
mod head;
mod metrics;
mod page;
mod page_request;
mod post;
mod response;
mod restart;
mod route;
mod sign_in;
mod sse;
mod stream;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ORIGIN, USER_AGENT};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use self::activity::{Activity, Overdue, TICK, Watch, WatchedIo};
use self::api::ApiResource;
use self::body::Body;
use self::post::PostRequest;
use self::route::{Route, route};
use self::sse::SseSessions;
use crate::client::principal::Principal;
use crate::client::shares::{Hold, Resource};
use crate::listener::accept::{Accept, accept};
use crate::listener::connections::{ConnectionPermit, OpenConnection};
use crate::listener::origin::HostRules;
use crate::listener::tls::Tls;
use crate::observe::{AccessRecord, RefusedRequest};
use crate::request::errors::ErrorReply;
use crate::shared::GatewayShared;
use ropeway_core::sync::OnDrop;
use ropeway_core::tool::{BoxFuture, CancelToken};

/// Maximum size of a request head, and of a body piece.
const MAX_HEAD: usize = 64 << 10;

/// The connection limit's name in the audit log.
const TOO_MANY_CONNECTIONS: &str = "connections";

/// Interval between checks for calls in flight while the gateway stops.
const DRAIN_POLL: Duration = Duration::from_millis(20);

/// The response to a head that did not arrive in time. Hyper would close the connection without a response.
const HEAD_TIMEOUT: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Serves HTTP, or HTTPS, on a TCP listener until the gateway stops.
///
/// The future is boxed, so that it is compiled here and not again in every crate that awaits it.
pub(crate) fn serve_tcp(
    shared: Arc<GatewayShared>,
    listener: std::net::TcpListener,
    tls: Option<Tls>,
) -> BoxFuture<'static, io::Result<()>> {
    Box::pin(async move {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let settings = shared.settings();
        let rules = HostRules::new(listener.local_addr()?, &settings.allowed_hosts, &settings.allowed_origins);
        serve(shared, listener, rules, Some(tls)).await;
        Ok(())
    })
}

/// Serves HTTP on a Unix socket until the gateway stops.
#[cfg(unix)]
pub(crate) fn serve_unix(
    shared: Arc<GatewayShared>,
    listener: std::os::unix::net::UnixListener,
) -> BoxFuture<'static, io::Result<()>> {
    Box::pin(async move {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let settings = shared.settings();
        let rules = HostRules::unix(&settings.allowed_hosts, &settings.allowed_origins);
        serve(shared, listener, rules, None).await;
        Ok(())
    })
}

/// The state that all connections on a listener share.
struct Endpoint {
    shared: Arc<GatewayShared>,
    rules: HostRules,
    /// Whether only the user who runs the gateway can connect.
    is_local: bool,
    /// The URL scheme; `None` on a Unix socket.
    scheme: Option<&'static str>,
    sse: Arc<SseSessions>,
    /// Cancelled when the gateway has drained and accepts no more connections.
    drained: CancelToken,
    /// Cancelled when the listener has ended.
    closed: CancelToken,
}

/// Accepts connections until the gateway has drained. Dropping the future closes them all.
///
/// `tls` is `None` on a Unix socket, whose clients are local users.
async fn serve<A: Accept>(shared: Arc<GatewayShared>, listener: A, rules: HostRules, tls: Option<Option<Tls>>) {
    let scheme = tls.as_ref().map(|tls| if tls.is_some() { "https" } else { "http" });
    let (is_local, tls) = (tls.is_none(), tls.flatten());
    let closed = CancelToken::new();
    let _closed = OnDrop({
        let closed = closed.clone();
        move || closed.cancel()
    });
    let (sse, after_drain) = (Arc::default(), CancelToken::new());
    let endpoint = Arc::new(Endpoint { shared, rules, is_local, scheme, sse, drained: after_drain, closed });
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            (io, permit) = accept(&listener, &endpoint.shared.connections) => {
                let peer = A::peer(&io);
                connections.spawn(serve_accepted(Arc::clone(&endpoint), tls.clone(), permit, peer, io));
            }
            Some(ended) = connections.join_next(), if !connections.is_empty() => {
                if ended.is_err_and(|error| error.is_panic()) {
                    tracing::error!("a connection ended with a panic");
                }
            }
            // Calls in flight may still need client answers, which arrive on separate connections.
            () = drained(&endpoint.shared) => break,
        }
    }
    drop(listener);
    endpoint.drained.cancel();
    while connections.join_next().await.is_some() {}
}

/// Serves a connection after its TLS handshake, if any. A connection in its handshake makes room for others like an idle one.
async fn serve_accepted<I: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    endpoint: Arc<Endpoint>,
    tls: Option<Tls>,
    permit: ConnectionPermit,
    peer: Option<SocketAddr>,
    io: I,
) {
    let connection = &permit.connection;
    let Some(tls) = tls else { return serve_connection(endpoint, connection, peer, io).await };
    let handshake = tokio::select! {
        handshake = tls.accept(io) => handshake,
        () = connection.evicted() => return,
    };
    match handshake {
        Ok(io) => serve_connection(endpoint, connection, peer, io).await,
        Err(error) => tracing::debug!(%error, "TLS handshake failed"),
    }
}

/// Waits until the gateway stops and no call is in flight.
async fn drained(shared: &GatewayShared) {
    shared.draining.cancelled().await;
    while shared.shares.held(Resource::Calls) > 0 {
        tokio::time::sleep(DRAIN_POLL).await;
    }
}

/// Serves one connection's requests.
async fn serve_connection<I: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    endpoint: Arc<Endpoint>,
    open: &Arc<OpenConnection>,
    peer: Option<SocketAddr>,
    io: I,
) {
    let activity = Arc::new(Activity::new(Arc::clone(open)));
    let mut watch = Watch::new(Arc::clone(&activity));
    // A connection that is opened while the gateway drains may carry the answer that a call waits for. It serves one request.
    let is_late = endpoint.shared.draining.is_cancelled();
    let closing = if is_late { &endpoint.drained } else { &endpoint.shared.draining }.clone();
    let io = TokioIo::new(WatchedIo::new(io, Arc::clone(&activity)));
    let service = service_fn(move |request| handle(Arc::clone(&endpoint), peer, Arc::clone(&activity), request));
    let keep_alive = !is_late && !open.is_reserved();
    let mut connection =
        http1::Builder::new().max_buf_size(MAX_HEAD).keep_alive(keep_alive).serve_connection(io, service);
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_closing = false;
    loop {
        tokio::select! {
            biased;
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection failed");
                }
                return;
            }
            () = closing.cancelled(), if !is_closing => {
                is_closing = true;
                std::pin::Pin::new(&mut connection).graceful_shutdown();
            }
            () = open.evicted(), if !is_closing => {
                // A request that has arrived at the last moment is answered.
                if open.is_idle() {
                    return tracing::debug!("idle connection closed: all connections are in use");
                }
                is_closing = true;
                std::pin::Pin::new(&mut connection).graceful_shutdown();
            }
            _ = ticks.tick() => match watch.tick() {
                None => {}
                Some(Overdue::Idle) => {
                    is_closing = true;
                    std::pin::Pin::new(&mut connection).graceful_shutdown();
                }
                Some(Overdue::Stalled) => return tracing::debug!("client disconnected: it does not read responses"),
                Some(Overdue::Head) => {
                    tracing::debug!("client disconnected: its request headers timed out");
                    let mut io = connection.into_parts().io.into_inner();
                    let _ = tokio::time::timeout(TICK, io.write_all(HEAD_TIMEOUT)).await;
                    return;
                }
            },
        }
    }
}

/// Handles one request.
async fn handle(
    endpoint: Arc<Endpoint>,
    peer: Option<SocketAddr>,
    activity: Arc<Activity>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let in_flight = activity.begin();
    let (head, body) = request.into_parts();
    let route = route(&head.method, head.uri.path(), endpoint.shared.settings().page);
    let is_probe = matches!(route, Route::Health | Route::Ready);
    let agent = head::text(&head.headers, &USER_AGENT);
    let mut access =
        AccessRecord::begin(&endpoint.shared.observer, peer, (head.method.as_str(), head.uri.path()), agent);
    if let Err(denied) = head::check_host(&head, &endpoint.rules, is_probe) {
        tracing::warn!(value = denied.shown(), "{denied}; see `allowed_hosts` and `allowed_origins` of `gateway`");
        let mut response = response::refused_by("host", response::refuse(403, denied.to_string()));
        auth::record_refusal(&endpoint.shared, None, &mut response);
        endpoint.shared.observer.add_response(403);
        access.iter_mut().for_each(|access| access.note_status(403));
        return Ok(response::closing(response).map(|body| body.with_access(access)));
    }
    let shared = &endpoint.shared;
    let is_reserved = activity.connection().is_reserved();
    let mut response = match route {
        Route::Health => response::document(200, r#"{"status":"ok"}"#),
        Route::Ready => ready(shared),
        route @ (Route::Mcp(_)
        | Route::Sse(_)
        | Route::Messages
        | Route::Metrics
        | Route::Stats
        | Route::Api(_)
        | Route::SignIn
        | Route::Restart) => serve_principal(&endpoint, activity.connection(), route, (&head, body)).await,
        _ if is_reserved => response::refused_by(TOO_MANY_CONNECTIONS, response::error(&too_many_connections(shared))),
        Route::SignInCallback => sign_in::callback(shared, &head).await,
        Route::ResourceMetadata => auth::resource_metadata(shared, &head),
        Route::Page(asset) => page::get(asset, &head.headers),
        Route::Preflight => {
            let mut response = response::empty(204);
            head::allow_requests(&head.headers, response.headers_mut());
            response
        }
        Route::NotFound => response::refuse(404, "Not Found: MCP is served at /mcp"),
        Route::Method(allow) => response::method_not_allowed(allow),
    };
    auth::record_refusal(shared, None, &mut response);
    if let Some(origin) = head.headers.get(ORIGIN) {
        head::allow_origin(response.headers_mut(), origin.clone());
    }
    if shared.leaving.is_cancelled() || is_reserved {
        response = response::closing(response);
    }
    let status = response.status().as_u16();
    shared.observer.add_response(status);
    access.iter_mut().for_each(|access| access.note_status(status));
    Ok(response.map(|body| body.with_guard(in_flight).with_access(access)))
}

/// Handles a request that has to be authenticated.
async fn serve_principal(
    endpoint: &Endpoint,
    connection: &OpenConnection,
    route: Route,
    (head, body): (&Parts, Incoming),
) -> Response<Body> {
    let shared = &endpoint.shared;
    // A page from another site can make browsers send such requests.
    let is_simple = route.is_page_api() || matches!(route, Route::Sse(_));
    if is_simple && head::is_foreign(&head.headers) {
        return response::refuse(403, "Origin is not allowed");
    }
    let principal = match auth::authenticate(shared, endpoint.is_local, head).await {
        Ok(principal) => principal,
        Err(refused) => return *refused,
    };
    if let Err(error) = occupy(shared, connection, &principal) {
        return response::closing(response::error(&error));
    }
    let limited = take_request(shared, &principal);
    let opens_stream = match route {
        Route::Mcp(_) => head.method == Method::GET,
        _ => matches!(route, Route::Sse(_) | Route::Api(ApiResource::Events)),
    };
    let stream = if opens_stream { Some(open_stream(shared, &principal)) } else { None };
    let mut response = match (route, limited, stream) {
        (route, Err(error), _) if route.is_page_api() => response::error(&error),
        (_, Ok(()), Some(Err(error))) => response::error(&error),
        (Route::Restart, ..) => restart::restart(shared, &principal, head, body).await,
        (Route::SignIn, ..) => sign_in::change(shared, endpoint.scheme, &principal, (head, body)).await,
        (Route::Metrics | Route::Stats, ..) if !principal.is_operator() => api::not_operator(),
        (Route::Metrics, ..) => metrics::page(shared),
        (Route::Stats, ..) => metrics::stats(shared),
        (Route::Api(resource), _, stream) => {
            holding(api::get(shared, resource, head.uri.query(), &principal).await, stream)
        }
        (route, limited, stream) => {
            let principal = principal.clone();
            holding(serve_mcp(endpoint, connection.number, route, (principal, limited), (head, body)).await, stream)
        }
    };
    auth::record_refusal(shared, Some(&principal), &mut response);
    if is_simple {
        page::secure(response.headers_mut());
    }
    response
}

/// Counts a principal's request. Fails if there are too many.
fn take_request(shared: &GatewayShared, principal: &Principal) -> Result<(), ErrorReply> {
    principal.take_request().map_err(|wait| {
        shared.observer.add_refused_request(RefusedRequest::new(principal, "rate"));
        let rate = principal.limits().rate.map(|rate| format!(" (limit: {rate})")).unwrap_or_default();
        ErrorReply::limited(format!("too many requests{rate}"), wait)
    })
}

/// Counts a request's connection for its principal. Fails if the principal, or the gateway, has too many.
fn occupy(shared: &GatewayShared, connection: &OpenConnection, principal: &Principal) -> Result<(), ErrorReply> {
    if !shared.connections.admit(connection) {
        shared.observer.add_refused_request(RefusedRequest::new(principal, TOO_MANY_CONNECTIONS));
        return Err(too_many_connections(shared));
    }
    connection.hold(&shared.shares, principal.holdings()).map_err(|error| {
        shared.observer.add_refused_request(RefusedRequest::new(principal, error.rule()));
        ErrorReply::over_share(error)
    })
}

/// All connections are busy.
fn too_many_connections(shared: &GatewayShared) -> ErrorReply {
    let limit = shared.connections.max();
    ErrorReply::overloaded(format!("too many connections (limit: {limit}); try again later"))
}

/// Counts a principal's event stream, so that one principal cannot occupy all connections.
fn open_stream(shared: &GatewayShared, principal: &Principal) -> Result<Hold, ErrorReply> {
    let sessions = principal.limits().sessions;
    let own_limit =
        sessions.map_or(usize::MAX, |sessions| sessions.saturating_mul(shared.settings().limits.streams_per_client));
    shared.shares.take_within(Resource::Streams, principal.holdings(), 1, own_limit).map_err(|error| {
        shared.observer.add_refused_request(RefusedRequest::new(principal, error.rule()));
        let mut reply = ErrorReply::over_share(error);
        reply.message.push_str("; close one of them");
        reply
    })
}

/// Counts a stream until the response is sent.
fn holding(response: Response<Body>, stream: Option<Result<Hold, ErrorReply>>) -> Response<Body> {
    match stream {
        Some(Ok(hold)) => response.map(|body| body.holding(Arc::new(hold))),
        Some(Err(_)) | None => response,
    }
}

/// Handles a protocol request.
async fn serve_mcp(
    endpoint: &Endpoint,
    connection: u64,
    route: Route,
    (principal, limited): (Principal, Result<(), ErrorReply>),
    (head, body): (&Parts, Incoming),
) -> Response<Body> {
    let shared = &endpoint.shared;
    if let Route::Mcp(selector) | Route::Sse(selector) = &route
        && let Err(refused) = auth::check_profile(&principal, selector)
    {
        return *refused;
    }
    match route {
        Route::Mcp(selector) if head.method == Method::POST => {
            let request = PostRequest { connection, selector, principal, limited };
            post::post(shared, &endpoint.closed, (head, body), request).await
        }
        Route::Messages => sse::message(shared, &endpoint.sse, (head, body), &principal, limited).await,
        _ if limited.is_err() => limited.err().map_or_else(|| response::empty(429), |error| response::error(&error)),
        Route::Sse(selector) => sse::open(shared, &endpoint.sse, head, selector, principal),
        Route::Mcp(selector) if head.method == Method::GET => stream::get(shared, head, &selector, &principal),
        Route::Mcp(selector) => stream::delete(shared, head, &selector, &principal).await,
        _ => response::refuse(404, "Not Found"),
    }
}

/// Reports to a load balancer whether the gateway accepts requests.
fn ready(shared: &GatewayShared) -> Response<Body> {
    if shared.leaving.is_cancelled() {
        response::document(503, r#"{"status":"draining"}"#)
    } else if shared.started.is_cancelled() {
        response::document(200, r#"{"status":"ready"}"#)
    } else {
        response::document(503, r#"{"status":"starting"}"#)
    }
}
