//! Event streams of Streamable HTTP: the stream of a request, and the standalone stream of a session.

use std::sync::{Arc, Weak};
use std::time::Duration;

use reqwest::{Method, Response};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::authorized::refusal;
use super::http::{Http, authorize};
use super::http_client::{ResponseBody, SseStream};
use super::outgoing::reply_sender;
use super::resume::{MAX_CALL_RETRY, MAX_RETRY, ResumeState};
use crate::mcp::error::{ConnectErrorKind, RequestError};
use crate::mcp::host::ReplySender;
use crate::oauth::{Access, Authorizer, Waiting};
use crate::protocol::Era;
use crate::sync::write;
use crate::web::SseEvent;

/// Maximum number of attempts to resume a stream without a new event.
const RESUME_ATTEMPTS: u32 = 5;

/// A standalone stream that was open this long resets the backoff, even without an event.
const STABLE_STREAM: Duration = Duration::from_secs(10);

/// The stream of a call that was open this long resets the backoff.
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

impl Http {
    /// Reads the event stream of a request, and resumes it after an interruption.
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
            // Streams of the modern era cannot be resumed.
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
                Ok(response) => return Err(self.client.error_response(response).await.into_request_error()),
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

    /// Opens the standalone stream of a legacy session, for messages outside of requests
    /// ([listening](https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#listening-for-messages-from-the-server)).
    pub(crate) async fn open_stream(&self) {
        if self.state().session.is_none() {
            return;
        }
        let (opened, head) = oneshot::channel();
        self.tasks.spawn(Self::stream(self.this.clone(), opened));
        let _ = tokio::time::timeout(STREAM_OPEN_WAIT, head).await;
    }

    /// Reads the standalone stream. It must not keep the link alive, which owns this task.
    async fn stream(this: Weak<Self>, opened: oneshot::Sender<()>) {
        let mut opened = Some(opened);
        let mut resume = ResumeState::new(Duration::from_secs(1), MAX_RETRY);
        while resume.attempts < RESUME_ATTEMPTS {
            let taken = |link: Arc<Self>| {
                let client = &link.client;
                (link.with_session_headers(client.get()), client.auth.clone(), client.url.clone())
            };
            let Some((mut get, auth, url)) = this.upgrade().map(taken) else { return };
            if let Some(last) = &resume.last {
                get = get.header("Last-Event-ID", last);
            }
            let access = match &auth {
                Some(auth) => match auth.authorize(&Method::GET, &url).await {
                    Ok(access) => Some(access),
                    Err(_) => break,
                },
                None => None,
            };
            let response = authorize(get, access.as_ref()).send().await;
            let taken = |link: Arc<Self>| (link.client.limit, link.client.redactor());
            let Some((limit, redactor)) = this.upgrade().map(taken) else { return };
            let is_recovered = match &response {
                Ok(response) => is_recoverable(auth.as_ref(), access.as_ref(), response).await,
                Err(_) => false,
            };
            match response {
                Ok(_) if is_recovered => {}
                Ok(response) if response.status().is_success() => {
                    this.upgrade().inspect(|link| link.set_streaming(true));
                    drop(opened.take());
                    let opened_at = Instant::now();
                    if let Ok(ResponseBody::Events(mut events)) = ResponseBody::read(response, limit, &redactor).await {
                        while let Ok(Some(event)) = events.next().await {
                            resume.record_event(&event);
                            let Some(link) = this.upgrade() else { return };
                            link.receive_event(&event, &reply_sender(&this), None);
                        }
                    }
                    this.upgrade().inspect(|link| link.set_streaming(false));
                    if opened_at.elapsed() >= STABLE_STREAM {
                        (resume.attempts, resume.short) = (0, 0);
                    }
                }
                // A server without a stream answers 405, or another error.
                Ok(_) => break,
                Err(_) => {}
            }
            resume.attempts += 1;
            // The delay grows while the server closes the stream at once. After several attempts without an event, the loop ends.
            tokio::time::sleep(resume.next_wait()).await;
        }
    }

    fn set_streaming(&self, streaming: bool) {
        write(&self.state).streaming = streaming;
    }
}
