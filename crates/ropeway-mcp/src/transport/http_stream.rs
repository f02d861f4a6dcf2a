//! Streamable HTTP's event streams: a request's stream, and a session's standalone stream.

use std::sync::{Arc, Weak};
use std::time::Duration;

use reqwest::{Method, Response, StatusCode};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::authorized::refusal;
use super::http::{Http, authorize};
use super::http_client::{ErrorResponse, ResponseBody, SseStream};
use super::outgoing::reply_sender;
use super::resume::{MAX_CALL_RETRY, MAX_RETRY, ResumeState};
use super::session_expiry::SessionExpiry;
use crate::error::{ConnectErrorKind, RequestError};
use crate::host::ReplySender;
use crate::oauth::{Access, Authorizer, Waiting};
use crate::protocol::Era;
use ropeway_core::sync::write;
use ropeway_web::SseEvent;

/// Maximum attempts to resume a call's stream without a new event.
const RESUME_ATTEMPTS: u32 = 5;

/// Maximum delay before a refused standalone stream is requested again.
const MAX_REFUSED_RETRY: Duration = Duration::from_secs(5 * 60);

/// Maximum delay that a busy server can request with `Retry-After`.
const MAX_BUSY_RETRY: Duration = Duration::from_secs(60 * 60);

/// A standalone stream that was open this long resets the backoff, even without an event.
const STABLE_STREAM: Duration = Duration::from_secs(10);

/// A call's stream that was open this long resets the backoff.
const STABLE_CALL_STREAM: Duration = Duration::from_secs(1);

/// Maximum time to wait for the standalone stream before the first request.
const STREAM_OPEN_WAIT: Duration = Duration::from_secs(1);

/// Obtains another token after the server refused the standalone stream. Does not prompt the user to sign in.
async fn is_recoverable(auth: Option<&Arc<Authorizer>>, access: Option<&Access>, response: &Response) -> bool {
    let (Some(auth), Some(access)) = (auth, access) else { return false };
    match refusal(auth, access, response) {
        Some(refusal) => auth.recover(&refusal, Waiting::Optional).await.is_ok(),
        None => false,
    }
}

/// What an error response to a `GET` means for the stream.
#[derive(Clone, Copy, Debug, PartialEq)]
enum StreamRefusal {
    /// The server has no stream.
    Unsupported,
    /// The session has expired, if a `ping` is refused as well.
    Session,
    /// The server or a proxy is busy, or fails.
    Busy,
    /// Another error, which is not expected to end soon.
    Other,
}

impl StreamRefusal {
    /// Classifies a response. Only status 405 means that the server has no stream
    /// (<https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#listening-for-messages-from-the-server>).
    fn of(rejected: &ErrorResponse) -> Self {
        match rejected.status {
            StatusCode::METHOD_NOT_ALLOWED => Self::Unsupported,
            StatusCode::NOT_IMPLEMENTED => Self::Other,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => Self::Busy,
            status if status.is_server_error() => Self::Busy,
            _ if SessionExpiry::of(rejected, None) != SessionExpiry::No => Self::Session,
            _ => Self::Other,
        }
    }
}

/// The session's earlier standalone streams.
#[derive(Clone, Copy)]
struct StreamsBefore {
    /// Whether the last request for one failed.
    failed: bool,
    was_open: bool,
}

/// How one attempt to read the standalone stream ends.
enum StreamEnd {
    /// The stream was open. It may be resumed after the server's delay.
    Closed {
        lasted: Duration,
    },
    /// The connection failed, or another token is needed.
    Failed,
    Refused(Box<ErrorResponse>),
    /// The link was dropped.
    LinkDropped,
}

/// Returns a random delay between half of `wait` and `wait`, so that a restarted server's clients do not all return at once.
fn with_jitter(wait: Duration) -> Duration {
    wait.mul_f64(0.5 + fastrand::f64() / 2.0)
}

impl Http {
    /// Reads a request's event stream, and resumes it after an interruption.
    pub(super) async fn follow_stream(&self, id: u64, mut events: Box<SseStream>) -> Result<(), RequestError> {
        let reply = reply_sender(&self.this);
        let mut resume = ResumeState::new(Duration::from_millis(500), MAX_CALL_RETRY);
        loop {
            let opened_at = Instant::now();
            let end = loop {
                match events.next().await {
                    Ok(Some(event)) => {
                        resume.record_event(&event);
                        self.receive_event(&event, &reply, Some(id));
                        if !self.pending.is_pending(id) {
                            self.tasks.spawn(events.drain());
                            return Ok(());
                        }
                    }
                    Ok(None) => {
                        break RequestError::disconnected(true, ConnectErrorKind::Hangup { said: None });
                    }
                    Err(error) => break error,
                }
            };
            if opened_at.elapsed() >= STABLE_CALL_STREAM {
                resume.short = 0;
            }
            // Modern streams cannot be resumed.
            let last = resume.last.clone().filter(|_| self.state().era == Era::Legacy).ok_or(end)?;
            events = self.resume(&mut resume, &last).await?;
        }
    }

    async fn resume(&self, resume: &mut ResumeState, last: &str) -> Result<Box<SseStream>, RequestError> {
        loop {
            resume.attempts += 1;
            tokio::time::sleep(resume.next_wait()).await;
            let send = |access: Option<Access>| {
                let get = self.with_session_headers(self.client.get()).header("Last-Event-ID", last);
                let sending = authorize(get, access.as_ref()).send();
                async {
                    sending.await.map_err(|error| RequestError::disconnected(true, self.client.connect_error(error)))
                }
            };
            let target = self.target(Method::GET, Waiting::Background);
            let error = match self.client.send_authorized(target, send).await {
                Ok(response) if response.status().is_success() => match self.client.body(response).await {
                    Ok(ResponseBody::Events(events)) => return Ok(events),
                    Ok(_) => RequestError::Unreadable("the resumed stream is not an event stream".to_owned()),
                    Err(error) => error,
                },
                Ok(response) => {
                    let rejected = self.client.error_response(response).await;
                    match StreamRefusal::of(&rejected) {
                        // Only the call's timeouts limit it.
                        StreamRefusal::Busy => {
                            resume.attempts = 0;
                            if let Some(wait) = rejected.retry_after {
                                tokio::time::sleep(wait.min(MAX_BUSY_RETRY)).await;
                            }
                            continue;
                        }
                        StreamRefusal::Session if !self.is_session_known().await => {
                            // The next call gets a new session. This one may have been executed.
                            let cause = Arc::new(ConnectErrorKind::SessionExpired);
                            self.retire(&cause);
                            return Err(RequestError::Disconnected { started: true, cause });
                        }
                        _ => return Err(rejected.into_request_error()),
                    }
                }
                // The call itself was started; only its stream could not be resumed.
                Err(RequestError::Disconnected { cause, .. }) => RequestError::Disconnected { started: true, cause },
                Err(error) => error,
            };
            if resume.attempts >= RESUME_ATTEMPTS {
                return Err(error);
            }
        }
    }

    fn receive_event(&self, event: &SseEvent, reply: &ReplySender, owner: Option<u64>) {
        self.pending.receive_event(event, reply, owner, self.client.limit);
    }

    /// Opens a legacy session's standalone stream, for messages outside any request
    /// ([listening](https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#listening-for-messages-from-the-server)).
    pub(crate) async fn open_stream(&self) {
        if self.state().session.is_none() {
            return;
        }
        let (opened, head) = oneshot::channel();
        self.tasks.spawn(Self::stream(self.this.clone(), opened));
        let _ = tokio::time::timeout(STREAM_OPEN_WAIT, head).await;
    }

    /// Keeps the standalone stream open until the server answers that it has none, or the session expires. Must not keep the link
    /// alive, which owns this task.
    async fn stream(this: Weak<Self>, opened: oneshot::Sender<()>) {
        let mut opened = Some(opened);
        let mut resume = ResumeState::new(Duration::from_secs(1), MAX_RETRY);
        let (mut failures, mut was_open) = (0_u32, false);
        loop {
            let before = StreamsBefore { failed: failures > 0, was_open };
            let end = Self::stream_once(&this, &mut resume, &mut opened, before).await;
            was_open |= matches!(end, StreamEnd::Closed { .. });
            failures = if matches!(end, StreamEnd::Closed { .. }) { 0 } else { failures.saturating_add(1) };
            let wait = match end {
                StreamEnd::LinkDropped => return,
                StreamEnd::Closed { lasted } => {
                    if lasted >= STABLE_STREAM {
                        resume.short = 0;
                    }
                    // The delay grows while the server closes the stream at once.
                    resume.next_wait()
                }
                StreamEnd::Failed => with_jitter(resume.next_wait()),
                StreamEnd::Refused(rejected) => {
                    drop(opened.take());
                    match StreamRefusal::of(&rejected) {
                        StreamRefusal::Unsupported => return,
                        StreamRefusal::Busy => {
                            let asked = rejected.retry_after.unwrap_or_default().min(MAX_BUSY_RETRY);
                            asked.max(with_jitter(resume.next_wait()))
                        }
                        // Servers without a route for `GET` answer 404 as well.
                        StreamRefusal::Session if Self::retire_expired(&this).await => return,
                        StreamRefusal::Session | StreamRefusal::Other => {
                            with_jitter(Duration::from_secs(1 << failures.min(16)).min(MAX_REFUSED_RETRY))
                        }
                    }
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Requests the standalone stream and reads it to its end.
    async fn stream_once(
        this: &Weak<Self>,
        resume: &mut ResumeState,
        opened: &mut Option<oneshot::Sender<()>>,
        before: StreamsBefore,
    ) -> StreamEnd {
        let Some(link) = this.upgrade() else { return StreamEnd::LinkDropped };
        let (auth, url, limit) = (link.client.auth.clone(), link.client.url.clone(), link.client.limit);
        let redactor = link.client.redactor();
        let mut get = link.with_session_headers(link.client.get());
        drop(link);
        if let Some(last) = &resume.last {
            get = get.header("Last-Event-ID", last);
        }
        let access = match &auth {
            Some(auth) => match auth.authorize(&Method::GET, &url).await {
                Ok(access) => Some(access),
                Err(_) => return StreamEnd::Failed,
            },
            None => None,
        };
        let Ok(response) = authorize(get, access.as_ref()).send().await else { return StreamEnd::Failed };
        if is_recoverable(auth.as_ref(), access.as_ref(), &response).await {
            return StreamEnd::Failed;
        }
        let Some(link) = this.upgrade() else { return StreamEnd::LinkDropped };
        if !response.status().is_success() {
            return StreamEnd::Refused(Box::new(link.client.error_response(response).await));
        }
        link.set_streaming(true);
        if resume.last.is_none() {
            // Changes without a stream went unnoticed.
            let host = link.pending.host();
            if before.failed {
                host.mark_all_changed();
            }
            if before.failed || before.was_open {
                host.subscriptions.note_gaps().iter().for_each(|uri| host.mark_resource_changed(uri));
            }
        }
        drop(link);
        drop(opened.take());
        let opened_at = Instant::now();
        if let Ok(ResponseBody::Events(mut events)) = ResponseBody::read(response, limit, &redactor).await {
            while let Ok(Some(event)) = events.next().await {
                resume.record_event(&event);
                let Some(link) = this.upgrade() else { return StreamEnd::LinkDropped };
                link.receive_event(&event, &reply_sender(this), None);
            }
        }
        this.upgrade().inspect(|link| link.set_streaming(false));
        StreamEnd::Closed { lasted: opened_at.elapsed() }
    }

    /// Retires the link if its session has expired, so that the supervisor starts another one. Returns `true` if the link is
    /// gone.
    async fn retire_expired(this: &Weak<Self>) -> bool {
        let Some(link) = this.upgrade() else { return true };
        let is_expired = !link.is_session_known().await;
        if is_expired {
            link.retire(&Arc::new(ConnectErrorKind::SessionExpired));
        }
        is_expired
    }

    fn set_streaming(&self, streaming: bool) {
        write(&self.state).streaming = streaming;
    }
}
