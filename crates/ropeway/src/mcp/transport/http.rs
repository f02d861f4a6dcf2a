//! Streamable HTTP: every request is a POST, its answer a JSON body or an event stream.

use std::sync::{Arc, RwLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::HeaderValue;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Request;
use super::cancel::CancelOnDrop;
use super::errands::Errands;
use super::loss::Loss;
use super::outgoing::{Messenger, Outgoing, mention, reply};
use super::web::{Body, Events, Refused, Web};
use crate::config::HttpServer;
use crate::mcp::answer::Answer;
use crate::mcp::fault::{ConnectErrorKind, Fault};
use crate::mcp::host::{Host, Reply};
use crate::mcp::inbox::{Clocks, Inbox};
use crate::mcp::message_log;
use crate::protocol::{self, Era, MODERN};
use crate::sync::{read, write};
use crate::tool::CallContext;
use crate::web::SseEvent;

const SESSION: &str = "mcp-session-id";

/// The longest session id that is sent back with every request.
const LONGEST_SESSION: usize = 4 << 10;

/// The longest event id that is sent back to take up a stream.
const LONGEST_EVENT_ID: usize = 4 << 10;

/// How often a request is sent again to a server that is busy.
const BUSY_TRIES: u32 = 3;

/// The shortest wait before a request is sent again to a server that is busy.
const BUSY_FLOOR: Duration = Duration::from_millis(100);

/// The longest wait that a busy server can ask for; a longer one might not fit the clock.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// How often a broken event stream is taken up again without hearing anything new.
const RESUME_TRIES: u32 = 5;

/// A standalone stream that stayed open this long was a good one, even if nothing was said on it.
const LONG_STREAM: Duration = Duration::from_secs(10);

/// The stream of a call that stayed open this long was a good one.
const LONG_CALL_STREAM: Duration = Duration::from_secs(1);

/// The shortest wait before a stream is opened again, whatever its server says.
const RETRY_FLOOR: Duration = Duration::from_millis(200);

/// The longest wait that a server can ask for before a stream is opened again.
const RETRY_CAP: Duration = Duration::from_secs(30);

/// How far the wait for the stream of a call grows: its answer may be there already.
const CALL_RETRY_GROWTH: Duration = Duration::from_secs(5);

/// How long the server has to say whether it knows our session.
const SESSION_CHECK: Duration = Duration::from_secs(5);

/// How servers on the official SDKs refuse a session that they do not know with 400 instead of 404. All of them do so
/// before they look at the request.
///
/// TypeScript: `validateSession` of `StreamableHTTPServerTransport`, and the servers of its examples. Python before 1.26:
/// <https://github.com/modelcontextprotocol/python-sdk/issues/1727>.
const UNKNOWN_SESSION: [&str; 5] = [
    "Bad Request: No valid session ID provided",
    "Bad Request: Server not initialized",
    "Bad Request: Mcp-Session-Id header is required",
    "Bad Request: Missing session ID",
    "Session not found",
];

/// The codes that go with those words.
const UNKNOWN_SESSION_CODES: [i64; 3] = [-32000, -32001, -32600];

/// The longest wait for the standalone stream to open before the first request.
const STREAM_HEAD: Duration = Duration::from_secs(1);

/// A link over streamable HTTP.
#[derive(Debug)]
pub(crate) struct Http {
    this: Weak<Self>,
    inbox: Arc<Inbox>,
    web: Web,
    terms: RwLock<Terms>,
    lost: Loss,
    /// The standalone stream, answers to the server, cancellations.
    errands: Errands,
    outgoing: Outgoing,
}

/// Whether a refusal means that the server does not know our session.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Expiry {
    /// It says nothing about the session.
    No,
    /// It may as well be about what the request was for.
    Possible,
    /// It does, and has not looked at the request.
    Certain,
}

/// What the handshake has settled.
#[derive(Clone, Debug)]
struct Terms {
    era: Era,
    version: Option<String>,
    session: Option<HeaderValue>,
    /// A standalone stream is open, on which answers may come too.
    streaming: bool,
}

impl Http {
    pub(crate) fn new(server: &HttpServer, inbox: Arc<Inbox>, limit: usize) -> Result<Arc<Self>, ConnectErrorKind> {
        let web = Web::new(server, limit, inbox.host().mask().clone())?;
        let terms = Terms { era: Era::Modern, version: Some(MODERN.to_owned()), session: None, streaming: false };
        Ok(Arc::new_cyclic(|this| Self {
            this: this.clone(),
            inbox,
            web,
            terms: RwLock::new(terms),
            lost: Loss::default(),
            errands: Errands::default(),
            outgoing: Outgoing::default(),
        }))
    }

    /// From here on the link speaks this era; `version` goes into a header once it is agreed on.
    pub(crate) fn speak(&self, era: Era, version: Option<&str>) {
        let mut terms = write(&self.terms);
        terms.era = era;
        terms.version = version.map(str::to_owned);
    }

    fn terms(&self) -> Terms {
        read(&self.terms).clone()
    }

    /// The link cannot be used any more; what is under way on it may still end well.
    fn retire(&self, cause: &Arc<ConnectErrorKind>) {
        self.lost.set(cause.clone());
        self.errands.stop();
    }

    pub(crate) async fn request(
        &self,
        request: &Request<'_>,
        cx: &CallContext,
        clocks: Clocks,
    ) -> Result<Answer, Fault> {
        if let Some(cause) = self.lost.known() {
            return Err(Fault::Lost { started: false, cause });
        }
        let mut waiting = self.inbox.expect(cx, request)?;
        let id = waiting.id();
        let message = Bytes::from(request.encode(id, cx));
        let legacy = self.terms().era == Era::Legacy;
        // A modern server sees the stream close.
        let cancel = CancelOnDrop::new(id, legacy && request.cancellable, |message| mention(&self.this, message));
        let exchange = async {
            match self.exchange(id, request, message, clocks).await {
                // The answer is in the inbox, or will come on another stream.
                Ok(()) => std::future::pending().await,
                Err(fault) => fault,
            }
        };
        let outcome = tokio::select! {
            biased;
            fault = exchange => Err(fault),
            outcome = waiting.answer(cx, clocks) => outcome,
        };
        cancel.settle(&outcome);
        match &outcome {
            Err(Fault::Lost { started: false, cause }) => self.retire(cause),
            Err(Fault::Lost { started: true, cause }) if is_broken(cause) => self.web.forget_connections(),
            _ => {}
        }
        outcome
    }

    /// Sends a request and takes in what comes back, until it is answered.
    async fn exchange(&self, id: u64, request: &Request<'_>, message: Bytes, clocks: Clocks) -> Result<(), Fault> {
        let began = Instant::now();
        let mut tries = 0;
        let mut wait = Duration::from_millis(500);
        loop {
            let response = self.send(request, message.clone()).await?;
            if response.status().is_success() {
                return self.answered(id, request, response).await;
            }
            let refused = self.web.refused(response).await;
            message_log::refused(self.inbox.host(), refused.status.as_u16(), &refused.body);
            let expiry = self.expiry(&refused, Some(id));
            if expiry == Expiry::Certain || (expiry == Expiry::Possible && !self.knows_session().await) {
                let cause = Arc::new(ConnectErrorKind::SessionExpired);
                if request.idempotent || expiry == Expiry::Certain {
                    return Err(Fault::Lost { started: false, cause });
                }
                // The next call gets a new session. This one may have been executed: it is not sent again.
                self.retire(&cause);
                return Err(refused.into_fault());
            }
            tries += 1;
            let again = Instant::now() + refused.retry_after.unwrap_or(wait).clamp(BUSY_FLOOR, FOR_EVER);
            let in_time = again < clocks.deadline.min(began + clocks.idle);
            // Gateways answer 503 also when the server behind them is lost in the middle of a request, `Retry-After` or not.
            let not_started = refused.status == StatusCode::TOO_MANY_REQUESTS;
            let may_repeat = refused.is_busy() && (request.idempotent || not_started);
            if !may_repeat || tries >= BUSY_TRIES || !in_time {
                return Err(refused.into_fault());
            }
            tokio::time::sleep_until(again).await;
            wait *= 2;
        }
    }

    async fn send(&self, request: &Request<'_>, message: Bytes) -> Result<Response, Fault> {
        message_log::sent(self.inbox.host(), &message);
        let build = || {
            let mut post = self.dress(self.web.post(self.web.url.clone(), message.clone()));
            if self.terms().era == Era::Modern {
                post = post.header("Mcp-Method", request.method);
                if let Some(name) = request.name {
                    post = post.header("Mcp-Name", protocol::header_value(name));
                }
                for (name, value) in request.headers {
                    post = post.header(name, value);
                }
            }
            post
        };
        let lost = |started, error| Fault::Lost { started, cause: Arc::new(self.web.broken(error)) };
        match build().send().await {
            Ok(response) => Ok(response),
            Err(error) if error.is_connect() => Err(lost(false, error)),
            Err(error) if error.is_builder() => Err(lost(true, error)),
            // A kept connection may be closed under our hands; what does no harm twice is sent again.
            Err(_) if request.idempotent => match build().send().await {
                Ok(response) => Ok(response),
                Err(error) => Err(lost(!error.is_connect(), error)),
            },
            Err(error) => Err(lost(true, error)),
        }
    }

    /// The headers that the handshake has settled.
    fn dress(&self, request: RequestBuilder) -> RequestBuilder {
        let terms = self.terms();
        let request = match terms.version {
            Some(version) => request.header("MCP-Protocol-Version", version),
            None => request,
        };
        match terms.session {
            Some(session) => request.header(SESSION, session),
            None => request,
        }
    }

    /// Whether the refusal of a request means that the server does not know our session: 404 by the spec
    /// (<https://modelcontextprotocol.io/specification/2025-06-18/basic/transports#session-management>), 400 by many
    /// servers.
    fn expiry(&self, refused: &Refused, id: Option<u64>) -> Expiry {
        if self.terms().session.is_none() {
            return Expiry::No;
        }
        let said = refused.rpc.as_ref().map_or(refused.body.as_str(), |error| error.message.as_str());
        let words = said.to_ascii_lowercase();
        let is_about_session = ["session", "not initialized"].iter().any(|it| words.contains(it));
        match refused.status {
            // An error that answers this very request in other words.
            StatusCode::NOT_FOUND if refused.answers.is_some() && refused.answers == id && !is_about_session => {
                Expiry::Possible
            }
            // JSON of the application, which may have found something else missing in the middle of the call.
            StatusCode::NOT_FOUND if refused.body.trim_start().starts_with('{') && !is_about_session => {
                Expiry::Possible
            }
            StatusCode::NOT_FOUND => Expiry::Certain,
            StatusCode::BAD_REQUEST if is_unknown_session(refused) => Expiry::Certain,
            StatusCode::BAD_REQUEST if is_about_session => Expiry::Possible,
            _ => Expiry::No,
        }
    }

    /// Asks the server something that it refuses only when it does not know our session. One that does not answer keeps
    /// the session.
    async fn knows_session(&self) -> bool {
        let ping = br#"{"jsonrpc":"2.0","id":"session-check","method":"ping"}"#;
        let ask = async {
            message_log::sent(self.inbox.host(), ping);
            let post = self.dress(self.web.post(self.web.url.clone(), Bytes::from_static(ping)));
            match post.send().await {
                Ok(response) if !response.status().is_success() => {
                    let refused = self.web.refused(response).await;
                    self.expiry(&refused, None) == Expiry::No
                }
                _ => true,
            }
        };
        tokio::time::timeout(SESSION_CHECK, ask).await.unwrap_or(true)
    }

    async fn answered(&self, id: u64, request: &Request<'_>, response: Response) -> Result<(), Fault> {
        if request.method == "initialize" {
            let session = response.headers().get(SESSION).cloned();
            if let Some(length) = session.as_ref().map(HeaderValue::len).filter(|length| *length > LONGEST_SESSION) {
                return Err(Fault::Unreadable(format!("a session id of {length} bytes")));
            }
            write(&self.terms).session = session;
        }
        let status = response.status();
        match self.web.body(response).await? {
            Body::Json(text) => {
                let reply = reply(&self.this);
                self.inbox
                    .receive(&text, &reply, Some(id))
                    .map_err(|malformed| Fault::Unreadable(malformed.to_string()))?;
                self.expect_answered(id, "the body holds no answer")
            }
            Body::Events(events) => self.follow(id, events).await,
            Body::Empty if self.terms().streaming => Ok(()),
            Body::Empty => Err(Fault::Unreadable(format!("HTTP {} without a body", status.as_u16()))),
        }
    }

    fn expect_answered(&self, id: u64, otherwise: &str) -> Result<(), Fault> {
        match self.inbox.is_waiting(id) {
            false => Ok(()),
            true => Err(Fault::Unreadable(otherwise.to_owned())),
        }
    }

    /// Takes in the events of a request's stream, and takes the stream up again when it breaks off.
    async fn follow(&self, id: u64, mut events: Box<Events>) -> Result<(), Fault> {
        let reply = reply(&self.this);
        let mut resume = Resume::new(Duration::from_millis(500), CALL_RETRY_GROWTH);
        loop {
            let began = Instant::now();
            let end = loop {
                match events.next().await {
                    Ok(Some(event)) => {
                        resume.note(&event);
                        self.take_event(&event, &reply, Some(id));
                        if !self.inbox.is_waiting(id) {
                            self.errands.run(events.drain());
                            return Ok(());
                        }
                    }
                    Ok(None) => {
                        break Fault::Lost { started: true, cause: Arc::new(ConnectErrorKind::Hangup { said: None }) };
                    }
                    Err(fault) => break fault,
                }
            };
            if began.elapsed() >= LONG_CALL_STREAM {
                resume.short = 0;
            }
            // The modern era has no way back into a stream.
            let last = resume.last.clone().filter(|_| self.terms().era == Era::Legacy).ok_or(end)?;
            events = self.resume(&mut resume, &last).await?;
        }
    }

    async fn resume(&self, resume: &mut Resume, last: &str) -> Result<Box<Events>, Fault> {
        loop {
            resume.tries += 1;
            tokio::time::sleep(resume.next_wait()).await;
            let response = self.dress(self.web.get()).header("Last-Event-ID", last).send().await;
            let fault = match response {
                Ok(response) if response.status().is_success() => match self.web.body(response).await {
                    Ok(Body::Events(events)) => return Ok(events),
                    Ok(_) => Fault::Unreadable("no event stream to go on with".to_owned()),
                    Err(fault) => fault,
                },
                Ok(response) => return Err(self.web.refused(response).await.into_fault()),
                Err(error) => Fault::Lost { started: true, cause: Arc::new(self.web.broken(error)) },
            };
            if resume.tries >= RESUME_TRIES {
                return Err(fault);
            }
        }
    }

    fn take_event(&self, event: &SseEvent, reply: &Reply, owner: Option<u64>) {
        self.inbox.receive_event(event, reply, owner, self.web.limit);
    }

    /// Opens the standalone stream of a legacy session, on which the server speaks unasked.
    pub(crate) async fn open_stream(&self) {
        if self.terms().session.is_none() {
            return;
        }
        let (opened, head) = oneshot::channel();
        self.errands.run(Self::stream(self.this.clone(), opened));
        let _ = tokio::time::timeout(STREAM_HEAD, head).await;
    }

    /// Follows the standalone stream. It must not keep the link alive, which is what ends it.
    async fn stream(this: Weak<Self>, opened: oneshot::Sender<()>) {
        let mut opened = Some(opened);
        let mut resume = Resume::new(Duration::from_secs(1), RETRY_CAP);
        while resume.tries < RESUME_TRIES {
            let Some(mut get) = this.upgrade().map(|link| link.dress(link.web.get())) else { return };
            if let Some(last) = &resume.last {
                get = get.header("Last-Event-ID", last);
            }
            let response = get.send().await;
            let taken = |link: Arc<Self>| (link.web.limit, link.web.mask.clone());
            let Some((limit, mask)) = this.upgrade().map(taken) else { return };
            match response {
                Ok(response) if response.status().is_success() => {
                    this.upgrade().inspect(|link| link.set_streaming(true));
                    drop(opened.take());
                    let began = Instant::now();
                    if let Ok(Body::Events(mut events)) = Body::read(response, limit, &mask).await {
                        while let Ok(Some(event)) = events.next().await {
                            resume.note(&event);
                            let Some(link) = this.upgrade() else { return };
                            link.take_event(&event, &reply(&this), None);
                        }
                    }
                    this.upgrade().inspect(|link| link.set_streaming(false));
                    if began.elapsed() >= LONG_STREAM {
                        (resume.tries, resume.short) = (0, 0);
                    }
                }
                // Most servers that offer no stream say 405; none of them is asked twice.
                Ok(_) => break,
                Err(_) => {}
            }
            resume.tries += 1;
            // A server that closes the stream at once is asked ever more rarely, and one that says nothing on it no more.
            tokio::time::sleep(resume.next_wait()).await;
        }
    }

    fn set_streaming(&self, streaming: bool) {
        write(&self.terms).streaming = streaming;
    }

    pub(crate) async fn lost(&self) -> Arc<ConnectErrorKind> {
        self.lost.wait().await
    }

    pub(crate) async fn close(&self, patience: Duration) {
        let cause = Arc::new(ConnectErrorKind::Closed);
        self.retire(&cause);
        self.inbox.lose(&cause);
        if self.terms().era == Era::Legacy && self.terms().session.is_some() {
            let delete = self.dress(self.web.request(Method::DELETE, self.web.url.clone())).send();
            // The server forgets the session by itself, sooner or later.
            let _ = tokio::time::timeout(patience, delete).await;
        }
    }
}

impl Messenger for Http {
    fn errands(&self) -> &Errands {
        &self.errands
    }

    fn outgoing(&self) -> &Outgoing {
        &self.outgoing
    }

    fn host(&self) -> &Arc<Host> {
        self.inbox.host()
    }

    async fn notify(&self, message: Vec<u8>) -> Result<(), Fault> {
        message_log::sent(self.inbox.host(), &message);
        let post = self.dress(self.web.post(self.web.url.clone(), message.into()));
        let lost = |error| Fault::Lost { started: false, cause: Arc::new(self.web.broken(error)) };
        let response = post.send().await.map_err(lost)?;
        if response.status().is_success() {
            return Ok(());
        }
        let refused = self.web.refused(response).await;
        message_log::refused(self.inbox.host(), refused.status.as_u16(), &refused.body);
        if self.expiry(&refused, None) == Expiry::Certain {
            let cause = Arc::new(ConnectErrorKind::SessionExpired);
            self.retire(&cause);
            return Err(Fault::Lost { started: false, cause });
        }
        Err(refused.into_fault())
    }
}

/// The connection itself ended, and not only what was said on it.
fn is_broken(cause: &ConnectErrorKind) -> bool {
    matches!(cause, ConnectErrorKind::Broken(_) | ConnectErrorKind::Hangup { .. })
}

/// The words in which servers on the official SDKs refuse a session that they do not know, and no others.
fn is_unknown_session(refused: &Refused) -> bool {
    match &refused.rpc {
        Some(error) => UNKNOWN_SESSION_CODES.contains(&error.code) && UNKNOWN_SESSION.contains(&error.message.trim()),
        None => UNKNOWN_SESSION.contains(&refused.body.trim()),
    }
}

/// Where to go on in a stream that broke off, and when.
#[derive(Debug)]
struct Resume {
    last: Option<String>,
    /// What the server asks for.
    retry: Duration,
    /// How far the wait may grow.
    growth: Duration,
    /// How often in a row nothing was heard.
    tries: u32,
    /// How many streams in a row ended too soon.
    short: u32,
}

impl Resume {
    fn new(retry: Duration, growth: Duration) -> Self {
        Self { last: None, retry, growth, tries: 0, short: 0 }
    }

    fn note(&mut self, event: &SseEvent) {
        // The spec lets a server close a stream and be polled: an id that is new is news.
        let is_news = !event.data.is_empty() || event.id.as_ref().is_some_and(|id| Some(id) != self.last.as_ref());
        if let Some(id) = &event.id {
            // An id that is not a valid header value cannot resume the stream.
            let fits = id.len() <= LONGEST_EVENT_ID && HeaderValue::from_str(id).is_ok();
            self.last = Some(id.clone()).filter(|id| fits && !id.is_empty());
        }
        if let Some(retry) = event.retry {
            self.retry = retry;
        }
        if is_news {
            self.tries = 0;
        }
    }

    /// The wait before the stream is opened again: what the server asks for, within bounds, and twice as long after each
    /// stream that ended too soon.
    fn next_wait(&mut self) -> Duration {
        let asked = self.retry.clamp(RETRY_FLOOR, RETRY_CAP);
        let wait = asked.saturating_mul(1 << self.short.min(16)).min(asked.max(self.growth));
        self.short = self.short.saturating_add(1);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry(retry: Duration) -> SseEvent {
        SseEvent { retry: Some(retry), ..SseEvent::default() }
    }

    #[test]
    fn the_wait_for_a_stream_keeps_to_its_bounds_and_grows() {
        let mut resume = Resume::new(Duration::from_secs(1), CALL_RETRY_GROWTH);
        resume.note(&retry(Duration::ZERO));
        let waits: Vec<u128> = (0..7).map(|_| resume.next_wait().as_millis()).collect();
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 5000, 5000]);
        resume.note(&retry(Duration::MAX));
        assert_eq!(resume.next_wait(), RETRY_CAP);
        let mut polite = Resume::new(Duration::from_secs(1), CALL_RETRY_GROWTH);
        polite.note(&retry(Duration::from_secs(8)));
        assert_eq!([polite.next_wait(), polite.next_wait()], [Duration::from_secs(8); 2]);
    }

    #[test]
    fn an_event_id_that_cannot_be_sent_back_is_no_place_to_go_on_from() {
        let mut resume = Resume::new(Duration::from_secs(1), CALL_RETRY_GROWTH);
        for (id, kept) in [("7", true), ("a\rb: c", false), (&"x".repeat(10 << 20), false), ("", false)] {
            resume.note(&SseEvent { id: Some(id.to_owned()), ..SseEvent::default() });
            assert_eq!(resume.last.is_some(), kept, "{} bytes", id.len());
        }
    }
}
