//! The HTTP listener: Streamable HTTP of both eras, and legacy HTTP+SSE.

mod activity;
mod body;
mod head;
mod post;
mod response;
mod route;
mod sse;
mod stream;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::ORIGIN;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use self::activity::{Activity, Overdue, TICK, Watch, WatchedIo};
use self::body::Body;
use self::route::{Route, route};
use self::sse::SseSessions;
use super::accept::{Accept, accept};
use super::origin::HostRules;
use super::shared::GatewayShared;
use crate::tool::CancelToken;

/// Maximum size of the head of a request, and of a piece of its body.
const MAX_HEAD: usize = 64 << 10;

/// Time between two looks at the calls in flight while the gateway stops.
const DRAIN_POLL: Duration = Duration::from_millis(20);

/// The response to a head that did not arrive in time. Hyper would close the connection without a word.
const HEAD_TIMEOUT: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Serves HTTP on a TCP listener until the gateway stops.
pub(crate) async fn serve_tcp(shared: Arc<GatewayShared>, listener: std::net::TcpListener) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let settings = shared.settings();
    let rules = HostRules::new(listener.local_addr()?, &settings.allowed_hosts, &settings.allowed_origins);
    serve(shared, listener, rules).await;
    Ok(())
}

/// Serves HTTP on a Unix socket until the gateway stops.
#[cfg(unix)]
pub(crate) async fn serve_unix(
    shared: Arc<GatewayShared>,
    listener: std::os::unix::net::UnixListener,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let settings = shared.settings();
    let rules = HostRules::unix(&settings.allowed_hosts, &settings.allowed_origins);
    serve(shared, listener, rules).await;
    Ok(())
}

/// What all connections of a listener share.
struct Endpoint {
    shared: Arc<GatewayShared>,
    rules: HostRules,
    sse: Arc<SseSessions>,
    /// Cancelled when the gateway has drained and accepts no more connections.
    drained: CancelToken,
    /// Cancelled when the listener has ended.
    closed: CancelToken,
}

/// Cancels a token when dropped.
struct CancelOnDrop(CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Accepts connections until the gateway has drained. Dropping the future closes all of them.
async fn serve<A: Accept>(shared: Arc<GatewayShared>, listener: A, rules: HostRules) {
    let closed = CancelToken::new();
    let _closed = CancelOnDrop(closed.clone());
    let endpoint = Arc::new(Endpoint { shared, rules, sse: Arc::default(), drained: CancelToken::new(), closed });
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            (io, permit) = accept(&listener, &endpoint.shared.limits) => {
                let endpoint = Arc::clone(&endpoint);
                connections.spawn(async move {
                    serve_connection(endpoint, permit.number, io).await;
                    drop(permit);
                });
            }
            Some(ended) = connections.join_next(), if !connections.is_empty() => {
                if ended.is_err_and(|error| error.is_panic()) {
                    tracing::error!("a connection ended with a panic");
                }
            }
            // Calls in flight may still need answers of their clients, which come on connections of their own.
            () = drained(&endpoint.shared) => break,
        }
    }
    drop(listener);
    endpoint.drained.cancel();
    while connections.join_next().await.is_some() {}
}

/// Waits until the gateway stops and no call is in flight.
async fn drained(shared: &GatewayShared) {
    shared.draining.cancelled().await;
    while shared.limits.calls() > 0 {
        tokio::time::sleep(DRAIN_POLL).await;
    }
}

/// Serves the requests of one connection.
async fn serve_connection<I: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    endpoint: Arc<Endpoint>,
    number: u64,
    io: I,
) {
    let activity = Arc::new(Activity::default());
    let mut watch = Watch::new(Arc::clone(&activity));
    // A connection that is opened while the gateway drains may bring the answer that a call waits for. It serves one request.
    let is_late = endpoint.shared.draining.is_cancelled();
    let closing = if is_late { &endpoint.drained } else { &endpoint.shared.draining }.clone();
    let io = TokioIo::new(WatchedIo::new(io, Arc::clone(&activity)));
    let service = service_fn(move |request| handle(Arc::clone(&endpoint), number, Arc::clone(&activity), request));
    let mut connection =
        http1::Builder::new().max_buf_size(MAX_HEAD).keep_alive(!is_late).serve_connection(io, service);
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
            _ = ticks.tick() => match watch.tick() {
                None => {}
                Some(Overdue::Idle) => {
                    is_closing = true;
                    std::pin::Pin::new(&mut connection).graceful_shutdown();
                }
                Some(Overdue::Stalled) => return tracing::debug!("client disconnected: it does not read"),
                Some(Overdue::Head) => {
                    tracing::debug!("client disconnected: the head of its request did not arrive in time");
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
    connection: u64,
    activity: Arc<Activity>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let in_flight = activity.begin();
    let (head, body) = request.into_parts();
    if let Err(denied) = head::check_host(&head, &endpoint.rules) {
        tracing::warn!(value = denied.shown(), "{denied}; see `allowed_hosts` and `allowed_origins` of `gateway`");
        return Ok(response::closing(response::refuse(403, denied.to_string())));
    }
    let shared = &endpoint.shared;
    let mut response = match route(&head.method, head.uri.path()) {
        Route::Mcp(selector) if head.method == Method::POST => {
            post::post(shared, &endpoint.closed, connection, (&head, body), selector).await
        }
        Route::Mcp(selector) if head.method == Method::GET => stream::get(shared, &head, &selector),
        Route::Mcp(selector) => stream::delete(shared, &head, &selector),
        Route::Sse(selector) => sse::open(shared, &endpoint.sse, &head, selector),
        Route::Messages => sse::message(shared, &endpoint.sse, &head, body).await,
        Route::Health => response::document(200, r#"{"status":"ok"}"#),
        Route::Ready => ready(shared),
        Route::Preflight => {
            let mut response = response::empty(204);
            head::allow_requests(&head.headers, response.headers_mut());
            response
        }
        Route::NotFound => response::refuse(404, "Not Found: MCP is served at /mcp"),
        Route::Method(allow) => response::method_not_allowed(allow),
    };
    if let Some(origin) = head.headers.get(ORIGIN) {
        head::allow_origin(response.headers_mut(), origin.clone());
    }
    Ok(response.map(|body| body.with_guard(in_flight)))
}

/// Tells a load balancer whether the gateway takes requests.
fn ready(shared: &GatewayShared) -> Response<Body> {
    if shared.draining.is_cancelled() {
        response::document(503, r#"{"status":"draining"}"#)
    } else if shared.started.is_cancelled() {
        response::document(200, r#"{"status":"ready"}"#)
    } else {
        response::document(503, r#"{"status":"starting"}"#)
    }
}
