//! Streamable HTTP: every request is a POST, and its response a JSON body or an event stream.
//!
//! See [Streamable HTTP](https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http).

use std::sync::{Arc, RwLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::HeaderValue;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use tokio::time::Instant;

use super::authorized::{Target, waiting};
use super::background_tasks::BackgroundTasks;
use super::cancel::CancelOnDrop;
use super::disconnect::DisconnectReason;
use super::http_client::{ErrorResponse, HttpClient, ResponseBody};
use super::outgoing::{Notifier, OutgoingQueue, reply_sender, send_later};
use super::session_expiry::SessionExpiry;
use crate::error::{ConnectErrorKind, RequestError};
use crate::host::Host;
use crate::message_log;
use crate::oauth::{Access, Waiting};
use crate::pending::PendingRequests;
use crate::protocol::{self, Era, MODERN};
use crate::raw_response::RequestResult;
use crate::request::Request;
use ropeway_config::HttpServer;
use ropeway_core::sync::{read, write};

const SESSION: &str = "mcp-session-id";

/// Maximum session id size.
const MAX_SESSION_ID_BYTES: usize = 4 << 10;

/// Maximum attempts while the server is busy.
const BUSY_ATTEMPTS: u32 = 3;

/// Minimum delay before a request to a busy server is repeated.
const MIN_BUSY_WAIT: Duration = Duration::from_millis(100);

/// Maximum delay that a busy server can request, to avoid an overflow.
const MAX_BUSY_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Timeout for the check whether the session has expired.
const SESSION_CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// A link over Streamable HTTP.
#[derive(Debug)]
pub(crate) struct Http {
    pub(super) this: Weak<Self>,
    pub(super) pending: Arc<PendingRequests>,
    pub(super) client: HttpClient,
    pub(super) state: RwLock<LinkState>,
    disconnected: DisconnectReason,
    /// The standalone stream, replies and cancellations.
    pub(super) tasks: BackgroundTasks,
    outgoing: OutgoingQueue,
}

/// What the handshake has negotiated.
#[derive(Clone, Debug)]
pub(super) struct LinkState {
    pub(super) era: Era,
    version: Option<String>,
    pub(super) session: Option<HeaderValue>,
    /// Whether a standalone stream is open, which may also carry responses.
    pub(super) streaming: bool,
}

impl Http {
    pub(crate) fn new(
        server: &HttpServer,
        pending: Arc<PendingRequests>,
        limit: usize,
    ) -> Result<Arc<Self>, ConnectErrorKind> {
        let client = HttpClient::new(server, limit, pending.host())?;
        let state = LinkState { era: Era::Modern, version: Some(MODERN.to_owned()), session: None, streaming: false };
        Ok(Arc::new_cyclic(|this| Self {
            this: this.clone(),
            pending,
            client,
            state: RwLock::new(state),
            disconnected: DisconnectReason::default(),
            tasks: BackgroundTasks::default(),
            outgoing: OutgoingQueue::default(),
        }))
    }

    /// Sets the era, and the negotiated version for the `MCP-Protocol-Version` header.
    pub(crate) fn set_era(&self, era: Era, version: Option<&str>) {
        let mut state = write(&self.state);
        state.era = era;
        state.version = version.map(str::to_owned);
    }

    pub(super) fn state(&self) -> LinkState {
        read(&self.state).clone()
    }

    /// Marks the link as closed for new requests. Pending ones may still succeed.
    pub(super) fn retire(&self, cause: &Arc<ConnectErrorKind>) {
        self.disconnected.set(cause.clone());
        self.tasks.abort_all();
    }

    pub(crate) async fn request(&self, request: &Request<'_>) -> RequestResult {
        if let Some(cause) = self.disconnected.get() {
            return Err(RequestError::Disconnected { started: false, cause });
        }
        let mut receiver = self.pending.register(request)?;
        let id = receiver.id();
        let message = Bytes::from(request.encode(id));
        let legacy = self.state().era == Era::Legacy;
        // A modern server is cancelled by closing the stream.
        let cancel = CancelOnDrop::new(id, legacy && request.cancellable, |message| send_later(&self.this, message));
        let exchange = async {
            match self.exchange(id, request, message).await {
                // The response was received, or will arrive on another stream.
                Ok(()) => std::future::pending().await,
                Err(error) => error,
            }
        };
        let outcome = tokio::select! {
            biased;
            error = exchange => Err(error),
            outcome = receiver.recv(request) => outcome,
        };
        cancel.finish(&outcome);
        match &outcome {
            // The session is still valid: another call may get a token.
            Err(RequestError::Disconnected { cause, .. }) if matches!(**cause, ConnectErrorKind::Auth(_)) => {}
            Err(RequestError::Disconnected { started: false, cause }) => self.retire(cause),
            Err(RequestError::Disconnected { started: true, cause }) if is_broken(cause) => {
                self.client.reset_connections()
            }
            _ => {}
        }
        outcome
    }

    /// Sends a request and reads the response.
    async fn exchange(&self, id: u64, request: &Request<'_>, message: Bytes) -> Result<(), RequestError> {
        let started = Instant::now();
        let mut attempts = 0;
        let mut wait = Duration::from_millis(500);
        loop {
            let response = self.send(id, request, &message).await?;
            if response.status().is_success() {
                return self.read_response(id, request, response).await;
            }
            let rejected = self.client.error_response(response).await;
            message_log::error_status(self.pending.host(), rejected.status.as_u16(), &rejected.body);
            let expiry = self.session_expiry(&rejected, Some(id));
            if expiry == SessionExpiry::Certain || (expiry == SessionExpiry::Possible && !self.is_session_known().await)
            {
                let cause = Arc::new(ConnectErrorKind::SessionExpired);
                if request.idempotent || expiry == SessionExpiry::Certain {
                    return Err(RequestError::Disconnected { started: false, cause });
                }
                // The next call gets a new session. This one may have been executed, so it is not repeated.
                self.retire(&cause);
                return Err(rejected.into_request_error());
            }
            attempts += 1;
            let retry_at = Instant::now() + rejected.retry_after.unwrap_or(wait).clamp(MIN_BUSY_WAIT, MAX_BUSY_WAIT);
            let in_time = retry_at < request.timeouts.deadline.min(started + request.timeouts.idle);
            // Gateways also answer 503 if the server behind them fails in the middle of a request, with or without
            // `Retry-After`. Only 429 means that the request was not processed
            // (https://www.rfc-editor.org/rfc/rfc6585#section-4).
            let not_started = rejected.status == StatusCode::TOO_MANY_REQUESTS;
            let may_repeat = rejected.is_busy() && (request.idempotent || not_started);
            if !may_repeat || attempts >= BUSY_ATTEMPTS || !in_time {
                return Err(rejected.into_call_error(waiting(request)));
            }
            tokio::time::sleep_until(retry_at).await;
            wait *= 2;
        }
    }

    async fn send(&self, id: u64, request: &Request<'_>, message: &Bytes) -> Result<Response, RequestError> {
        let target = Target { pending: Some((&self.pending, id)), ..self.target(Method::POST, waiting(request)) };
        self.client.send_authorized(target, |access| self.send_once(request, message, access)).await
    }

    async fn send_once(
        &self,
        request: &Request<'_>,
        message: &Bytes,
        access: Option<Access>,
    ) -> Result<Response, RequestError> {
        message_log::sent(self.pending.host(), message);
        let build = || {
            let mut post = self.with_session_headers(self.client.post(self.client.url.clone(), message.clone()));
            if self.state().era == Era::Modern {
                post = post.header("Mcp-Method", request.method);
                if let Some(name) = request.name {
                    post = post.header("Mcp-Name", protocol::header_value(name));
                }
                for (name, value) in request.headers {
                    post = post.header(name, value);
                }
            }
            authorize(post, access.as_ref())
        };
        let lost = |started, error| RequestError::disconnected(started, self.client.connect_error(error));
        match build().send().await {
            Ok(response) => Ok(response),
            Err(error) if error.is_connect() => Err(lost(false, error)),
            Err(error) if error.is_builder() => Err(lost(true, error)),
            // The server may close an idle connection while it is reused. An idempotent request is repeated.
            Err(_) if request.idempotent => match build().send().await {
                Ok(response) => Ok(response),
                Err(error) => Err(lost(!error.is_connect(), error)),
            },
            Err(error) => Err(lost(true, error)),
        }
    }

    /// Returns the target for a request without a pending one.
    pub(super) fn target(&self, method: Method, waiting: Waiting) -> Target<'_> {
        Target { method, url: &self.client.url, host: self.pending.host(), waiting, pending: None }
    }

    /// Sends a message without a response.
    async fn post(&self, message: Bytes, waiting: Waiting) -> Result<Response, RequestError> {
        let target = self.target(Method::POST, waiting);
        let send = |access: Option<Access>| {
            message_log::sent(self.pending.host(), &message);
            let post = self.with_session_headers(self.client.post(self.client.url.clone(), message.clone()));
            let sending = authorize(post, access.as_ref()).send();
            async { sending.await.map_err(|error| RequestError::disconnected(false, self.client.connect_error(error))) }
        };
        self.client.send_authorized(target, send).await
    }

    /// Adds the headers for the negotiated version and the session.
    pub(super) fn with_session_headers(&self, request: RequestBuilder) -> RequestBuilder {
        let state = self.state();
        let request = match state.version {
            Some(version) => request.header("MCP-Protocol-Version", version),
            None => request,
        };
        match state.session {
            Some(session) => request.header(SESSION, session),
            None => request,
        }
    }

    fn session_expiry(&self, rejected: &ErrorResponse, id: Option<u64>) -> SessionExpiry {
        if self.state().session.is_none() { SessionExpiry::No } else { SessionExpiry::of(rejected, id) }
    }

    /// Sends a `ping`. Returns `false` if it shows that the session has expired, and `true` without an answer.
    pub(super) async fn is_session_known(&self) -> bool {
        let ping = br#"{"jsonrpc":"2.0","id":"session-check","method":"ping"}"#;
        let ask = async {
            match self.post(Bytes::from_static(ping), Waiting::Optional).await {
                Ok(response) if !response.status().is_success() => {
                    let rejected = self.client.error_response(response).await;
                    self.session_expiry(&rejected, None) == SessionExpiry::No
                }
                _ => true,
            }
        };
        tokio::time::timeout(SESSION_CHECK_TIMEOUT, ask).await.unwrap_or(true)
    }

    async fn read_response(&self, id: u64, request: &Request<'_>, response: Response) -> Result<(), RequestError> {
        if request.method == "initialize" {
            let session = response.headers().get(SESSION).cloned();
            if let Some(length) = session.as_ref().map(HeaderValue::len).filter(|length| *length > MAX_SESSION_ID_BYTES)
            {
                return Err(RequestError::Unreadable(format!("a session id of {length} bytes")));
            }
            write(&self.state).session = session;
        }
        let status = response.status();
        match self.client.body(response).await? {
            ResponseBody::Json(text) => {
                let received = self.pending.receive(&text, &reply_sender(&self.this), Some(id));
                received.map_err(|error| RequestError::Unreadable(error.to_string()))?;
                if self.pending.is_pending(id) {
                    return Err(RequestError::Unreadable("the body contains no response".to_owned()));
                }
                Ok(())
            }
            ResponseBody::Events(events) => self.follow_stream(id, events).await,
            ResponseBody::Empty if self.state().streaming => Ok(()),
            ResponseBody::Empty => Err(RequestError::Unreadable(format!("HTTP {} without a body", status.as_u16()))),
        }
    }

    pub(crate) async fn disconnected(&self) -> Arc<ConnectErrorKind> {
        self.disconnected.wait().await
    }

    pub(crate) async fn close(&self, grace: Duration) {
        let cause = Arc::new(ConnectErrorKind::Closed);
        self.retire(&cause);
        self.pending.fail_all(&cause);
        if self.state().era == Era::Legacy && self.state().session.is_some() {
            let delete = async {
                let delete = self.with_session_headers(self.client.request(Method::DELETE, self.client.url.clone()));
                let access = match &self.client.auth {
                    Some(auth) => auth.authorize(&Method::DELETE, &self.client.url).await.ok(),
                    None => None,
                };
                let _ = authorize(delete, access.as_ref()).send().await;
            };
            // On failure, the session expires on the server.
            let _ = tokio::time::timeout(grace, delete).await;
        }
    }
}

impl Notifier for Http {
    fn tasks(&self) -> &BackgroundTasks {
        &self.tasks
    }

    fn outgoing(&self) -> &OutgoingQueue {
        &self.outgoing
    }

    fn host(&self) -> &Arc<Host> {
        self.pending.host()
    }

    async fn notify(&self, message: Vec<u8>) -> Result<(), RequestError> {
        let response = self.post(message.into(), Waiting::Background).await?;
        if response.status().is_success() {
            return Ok(());
        }
        let rejected = self.client.error_response(response).await;
        message_log::error_status(self.pending.host(), rejected.status.as_u16(), &rejected.body);
        if self.session_expiry(&rejected, None) == SessionExpiry::Certain {
            let cause = Arc::new(ConnectErrorKind::SessionExpired);
            self.retire(&cause);
            return Err(RequestError::Disconnected { started: false, cause });
        }
        Err(rejected.into_request_error())
    }
}

/// Adds the authorization to a request.
pub(super) fn authorize(request: RequestBuilder, access: Option<&Access>) -> RequestBuilder {
    match access {
        Some(access) => access.apply(request),
        None => request,
    }
}

/// Returns `true` if the connection itself failed.
fn is_broken(cause: &ConnectErrorKind) -> bool {
    matches!(cause, ConnectErrorKind::Broken(_) | ConnectErrorKind::Hangup { .. })
}
