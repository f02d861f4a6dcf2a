//! Client requests in progress: their frames, server requests and results.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use crate::client::outbound::{Frame, Outbound};
use crate::client::running::RunningRequest;
use crate::client::shares::Hold;
use crate::client::{Client, LogLevel};
use crate::observe::{CallOutcome, PendingRecord};
use crate::request::errors::ErrorReply;
use crate::request::limits::CallPermit;
use crate::request::progress::{ServerProgress, WithheldProgress};
use crate::request::reply::{Reply, ResultExtras, ServerInfoText};
use crate::request::request_identity::RequestIdentity;
use ropeway_core::sync::lock;
use ropeway_mcp::protocol::Era;
use ropeway_mcp::{RawCaller, RequestTag, ServerRequest};

/// How long an input round collects server requests that a server sends at the same time.
const GATHER: Duration = Duration::from_millis(5);

/// A request's work. Dropping it cancels the request on its server.
pub(crate) type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// How a request ends. The id is added later, because a parked call is answered under its retry's id.
pub(crate) enum Outcome {
    /// A server's result, or one that the gateway has composed.
    Result {
        result: Bytes,
        /// The era in which the server made the result.
        from: Era,
        extras: ResultExtras,
        /// The server, if the result comes from one and does not name it.
        server: Option<ServerInfoText>,
    },
    /// A protocol error.
    Error(ErrorReply),
    /// The client has cancelled the request and expects no response.
    Silent,
}

impl Outcome {
    /// Creates the result for a method that the gateway answers itself.
    pub(crate) fn composed(result: impl Into<Bytes>, extras: ResultExtras, server: &ServerInfoText) -> Self {
        Self::Result { result: result.into(), from: Era::Legacy, extras, server: Some(server.clone()) }
    }

    /// Returns the seconds after which the client may try again, if a limit was reached.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        match self {
            Self::Error(error) => error.retry_after(),
            Self::Result { .. } | Self::Silent => None,
        }
    }

    /// Returns the HTTP status and the response, or `None` if the client expects none.
    pub(crate) fn into_reply(self, id: &RawValue, to: Era) -> Option<(u16, Reply)> {
        match self {
            Self::Result { result, from, extras, server } => {
                Some((200, Reply::for_client(id, result, from, to, extras, server.as_ref())))
            }
            Self::Error(error) => Some((error.status, Reply::error(Some(id), &error))),
            Self::Silent => None,
        }
    }
}

impl From<ErrorReply> for Outcome {
    fn from(error: ErrorReply) -> Self {
        Self::Error(error)
    }
}

/// Returns a key that no other exchange has.
fn next_key() -> RequestTag {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    RequestTag(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A server request that waits for a modern client's answer.
pub(crate) struct OpenServerRequest {
    /// The server request's key in `inputRequests`.
    pub(crate) key: Box<str>,
    pub(crate) server_request: ServerRequest,
    /// Alive until the server request is answered or withdrawn. Set once the gateway has answered in place of the client.
    is_withdrawn: Arc<AtomicBool>,
}

impl OpenServerRequest {
    /// Returns `true` if the gateway has answered in place of the client, because the server request delayed other calls.
    pub(crate) fn is_withdrawn_by_gateway(&self) -> bool {
        self.is_withdrawn.load(Ordering::Acquire)
    }
}

/// One client request in progress.
///
/// The listener that sends the response shares it with its [`Work`], or with the parked call while a modern client is asked for
/// input. [`Exchanges`](crate::request::exchanges::Exchanges) only has a weak reference. Dropping the work drops the
/// [`ExchangeGuard`](crate::request::exchanges::ExchangeGuard), which [ends](Self::end) the exchange. Its permits and frames are
/// dropped with the last reference.
///
/// Servers write through `on_progress`, [`ask`](Self::ask) and `outbound`; only [`next`] takes frames and server requests out.
/// Each retry replaces `attached`. That lock is taken before those in `withheld` and `outbound`, so that withheld progress
/// precedes later progress. `record` and `asked` are locked on their own. No lock is held across `.await`.
pub(crate) struct Exchange {
    pub(crate) key: RequestTag,
    pub(crate) client: Arc<Client>,
    /// Frames that belong to the request.
    pub(crate) outbound: Outbound,
    /// Set for requests that may need client input.
    pub(crate) request: OnceLock<RequestIdentity>,
    attached: Mutex<AttachedRequest>,
    /// Progress that waits for a parked call's retry.
    withheld: WithheldProgress,
    /// The attached request's record, until it is answered.
    record: Mutex<Option<PendingRecord>>,
    asked: Mutex<Asked>,
    /// Set while a server request waits, so that the fast path takes no lock.
    has_asked: AtomicBool,
    is_ended: AtomicBool,
    ended: Notify,
    /// Number of elicitations during the request.
    elicitations: AtomicUsize,
    /// The elicitation limit, once the server has exceeded it.
    exceeded: OnceLock<usize>,
    exceeding: Notify,
    /// The permits of a call whose work has ended. It counts until its response is sent, because the response takes memory until
    /// then.
    permits: OnceLock<CallPermits>,
}

/// The permits that a call in flight holds.
#[derive(Debug)]
pub(crate) struct CallPermits {
    pub(crate) _share: Hold,
    pub(crate) _client: CallPermit,
}

/// The request that gets the exchange's response: the first one, or its latest retry.
pub(crate) struct AttachedRequest {
    pub(crate) id: Box<RawValue>,
    /// The token for progress notifications.
    pub(crate) token: Option<Box<RawValue>>,
    /// The minimum log level, set by a modern client.
    pub(crate) log_level: Option<LogLevel>,
    /// The request's registration until it is answered. `None` for modern clients over HTTP, which cancel by closing the request.
    pub(crate) running: Option<RunningRequest>,
}

#[derive(Default)]
struct Asked {
    server_requests: Vec<OpenServerRequest>,
    count: usize,
}

impl Exchange {
    pub(crate) fn new(client: Arc<Client>, attached: AttachedRequest) -> Arc<Self> {
        Arc::new(Self {
            key: next_key(),
            client,
            outbound: Outbound::default(),
            request: OnceLock::new(),
            attached: Mutex::new(attached),
            withheld: WithheldProgress::default(),
            record: Mutex::default(),
            asked: Mutex::default(),
            has_asked: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
            ended: Notify::new(),
            elicitations: AtomicUsize::new(0),
            exceeded: OnceLock::new(),
            exceeding: Notify::new(),
            permits: OnceLock::new(),
        })
    }

    /// Counts the call until the exchange is dropped, although its work has ended.
    pub(crate) fn keep(&self, permits: CallPermits) {
        // Work ends once.
        let _ = self.permits.set(permits);
    }

    /// Returns the id under which the client expects the response.
    pub(crate) fn id(&self) -> Box<RawValue> {
        lock(&self.attached).id.clone()
    }

    /// Returns the minimum log level that a modern client has set for the request.
    pub(crate) fn log_level(&self) -> Option<LogLevel> {
        lock(&self.attached).log_level
    }

    /// Sets the attached request's record.
    pub(crate) fn set_record(&self, record: Option<PendingRecord>) {
        let before = std::mem::replace(&mut *lock(&self.record), record);
        drop(before);
    }

    /// Changes the attached request's record, unless it is answered.
    pub(crate) fn note<T>(&self, change: impl FnOnce(&mut PendingRecord) -> T) -> Option<T> {
        lock(&self.record).as_mut().map(change)
    }

    /// Ends the attached request's record, because the request is answered.
    fn finish_record(&self, next: &Next) {
        let Some(record) = lock(&self.record).take() else { return };
        match next {
            Next::Outcome(Outcome::Result { result, .. }) => record.finish(CallOutcome::Ok, None, result.len()),
            Next::Outcome(Outcome::Error(error)) => {
                record.finish(CallOutcome::Error, Some(error.code), error.message.len());
            }
            Next::ServerRequests(_) => record.finish(CallOutcome::InputRequired, None, 0),
            // Dropping the record records the cancellation.
            Next::Outcome(Outcome::Silent) | Next::Frames(_) => drop(record),
        }
    }

    /// Continues the exchange with a retry.
    pub(crate) fn reattach(&self, retry: AttachedRequest) {
        let answered = std::mem::replace(&mut *lock(&self.attached), retry);
        drop(answered);
    }

    /// Keeps progress for the request's retry: the request is about to be answered with server requests.
    pub(crate) fn withhold_progress(&self) {
        self.withheld.hold();
    }

    /// Sends the progress that was withheld to the attached request, if it has a token.
    pub(crate) fn release_progress(&self) {
        // Locked until the end, so that later progress follows.
        let attached = lock(&self.attached);
        let released = self.withheld.release();
        let Some(token) = &attached.token else { return };
        for progress in released {
            self.outbound.send(progress.frame(token));
        }
    }

    /// Ends the request's registration, because it is answered. A later cancellation has no effect.
    pub(crate) fn detach(&self) {
        let running = lock(&self.attached).running.take();
        drop(running);
    }

    /// Waits until the client cancels the request.
    async fn cancelled(&self) {
        let token = lock(&self.attached).running.as_ref().map(|running| running.token().clone());
        match token {
            Some(token) => token.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Adds a server request for a modern client. The reference is alive until the server request is answered or withdrawn; setting the flag
    /// marks it as withdrawn by the gateway.
    pub(crate) fn ask(&self, server_request: ServerRequest) -> Weak<AtomicBool> {
        let is_withdrawn = Arc::new(AtomicBool::new(false));
        let is_open = Arc::downgrade(&is_withdrawn);
        let mut asked = lock(&self.asked);
        asked.count += 1;
        let key = format!("q{}", asked.count).into();
        asked.server_requests.push(OpenServerRequest { key, server_request, is_withdrawn });
        self.has_asked.store(true, Ordering::Release);
        drop(asked);
        self.outbound.wake();
        is_open
    }

    /// Removes a server request that its server has withdrawn. Returns `true` if it existed.
    pub(crate) fn withdraw(&self, is_withdrawn: impl Fn(&ServerRequest) -> bool) -> bool {
        let mut asked = lock(&self.asked);
        let before = asked.server_requests.len();
        asked.server_requests.retain(|open| !is_withdrawn(&open.server_request));
        before != asked.server_requests.len()
    }

    /// Returns the minimum log level that the client has requested, with the request or for its session.
    pub(crate) fn requested_log_level(&self) -> Option<LogLevel> {
        match self.client.era {
            Era::Legacy => self.client.log_level(),
            Era::Modern => self.log_level(),
        }
    }

    /// Returns `true` if the client has requested log messages at this level.
    pub(crate) fn wants_log(&self, level: LogLevel) -> bool {
        self.requested_log_level().is_some_and(|wanted| wanted <= level)
    }

    /// Ends the exchange, because its request has ended.
    pub(crate) fn end(&self) {
        self.detach();
        self.is_ended.store(true, Ordering::Release);
        self.ended.notify_waiters();
    }

    /// Waits until the request has a result or was dropped.
    pub(crate) async fn ended(&self) {
        let notified = self.ended.notified();
        if !self.has_ended() {
            notified.await;
        }
    }

    /// Returns `true` if the request has a result or was dropped.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    /// Counts an elicitation. Returns `false` above the limit, which ends the request.
    pub(crate) fn take_elicitation(&self, limit: usize) -> bool {
        let is_allowed = self.elicitations.fetch_add(1, Ordering::Relaxed) < limit;
        if !is_allowed && self.exceeded.set(limit).is_ok() {
            self.exceeding.notify_one();
        }
        is_allowed
    }

    /// Waits until the server has exceeded the elicitation limit, and returns the limit.
    pub(crate) async fn exceeded(&self) -> usize {
        loop {
            if let Some(limit) = self.exceeded.get() {
                return *limit;
            }
            self.exceeding.notified().await;
        }
    }

    fn take_server_requests(&self) -> Vec<OpenServerRequest> {
        self.has_asked.store(false, Ordering::Release);
        std::mem::take(&mut lock(&self.asked).server_requests)
    }
}

impl RawCaller for Exchange {
    fn key(&self) -> RequestTag {
        self.key
    }

    fn on_progress(&self, params: &str, token: Range<usize>) {
        let attached = lock(&self.attached);
        let progress = ServerProgress::new(params, token).and_then(|progress| self.withheld.keep(progress));
        if let (Some(progress), Some(token)) = (progress, &attached.token) {
            self.outbound.send(progress.frame(token));
        }
    }
}

/// The outcome of dispatching a message.
pub(crate) enum Dispatch {
    /// The response is complete.
    Done { status: u16, reply: Reply },
    /// The response is complete, and a session has begun.
    Opened { session: Arc<str>, reply: Reply },
    /// The message has no response.
    Accepted,
    /// The request is in progress.
    Running { exchange: Arc<Exchange>, work: Work },
}

/// The next event of a request in progress.
pub(crate) enum Next {
    /// The request has ended.
    Outcome(Outcome),
    /// Frames that the client gets before the response.
    Frames(Vec<Frame>),
    /// Server requests that end this response: the modern client answers them with a retry.
    ServerRequests(Vec<OpenServerRequest>),
}

/// Waits for the next event, until the client cancels the request. Cancel-safe.
pub(crate) async fn next(exchange: &Exchange, work: &mut Work) -> Next {
    let next = tokio::select! {
        biased;
        () = exchange.cancelled() => Next::Outcome(Outcome::Silent),
        next = next_of(exchange, work) => next,
    };
    if matches!(next, Next::Outcome(_)) {
        // The server requests were withdrawn.
        exchange.release_progress();
    }
    if !matches!(next, Next::Frames(_)) {
        exchange.detach();
        exchange.finish_record(&next);
    }
    next
}

async fn next_of(exchange: &Exchange, work: &mut Work) -> Next {
    loop {
        // A caller may have dropped the future while server requests were collected, after the queue had reported them.
        if !exchange.has_asked.load(Ordering::Acquire) {
            tokio::select! {
                biased;
                () = exchange.outbound.ready() => {}
                outcome = work.as_mut() => return Next::Outcome(outcome),
            }
        }
        let frames = exchange.outbound.take();
        if !frames.is_empty() {
            return Next::Frames(frames);
        }
        if exchange.has_asked.load(Ordering::Acquire) {
            // The response with the server requests ends this request, and its retry may have another token.
            exchange.withhold_progress();
            // The work must continue: a server may request several inputs at once.
            tokio::select! {
                biased;
                outcome = work.as_mut() => return Next::Outcome(outcome),
                () = tokio::time::sleep(GATHER) => {}
            }
            let server_requests = exchange.take_server_requests();
            if !server_requests.is_empty() {
                return Next::ServerRequests(server_requests);
            }
            exchange.release_progress();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{ClientDescription, Principal};
    use ropeway_mcp::protocol::RpcError;
    use ropeway_mcp::{AnswerSink, Callers, LinkKey, ServerRequestMethod};

    struct NoAnswer;

    impl AnswerSink for NoAnswer {
        fn send(&self, _: Result<&RawValue, RpcError>) {}

        fn is_awaited(&self) -> bool {
            true
        }
    }

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).expect("JSON")
    }

    #[tokio::test(start_paused = true)]
    async fn questions_are_not_lost_if_a_timeout_interrupts_their_collection() {
        let description =
            ClientDescription { version: "2026-07-28".into(), capabilities: "{}".into(), info: "{}".into() };
        let client = Client::new(Era::Modern, description, Principal::from(""), "default".into(), None);
        let attached = AttachedRequest { id: raw("1"), token: None, log_level: None, running: None };
        let exchange = Exchange::new(Arc::new(client), attached);
        let (asked, answer) = ((Callers::default(), 10), Arc::new(NoAnswer));
        let server_request =
            ServerRequest::new((LinkKey(1), raw("1")), ServerRequestMethod::Sample, raw("{}"), asked, answer);
        let _is_open = exchange.ask(server_request);
        let mut work: Work = Box::pin(std::future::pending());
        assert!(tokio::time::timeout(GATHER / 2, next(&exchange, &mut work)).await.is_err());
        let in_time = tokio::time::timeout(2 * GATHER, next(&exchange, &mut work)).await;
        assert!(matches!(in_time, Ok(Next::ServerRequests(server_requests)) if server_requests.len() == 1));
    }
}
