//! Requests of clients in progress: their results, and everything that happens before.

use std::collections::HashMap;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::client::{Client, LogLevel};
use super::errors::ErrorReply;
use super::notification::notification;
use super::outbound::{Frame, FrameKind, Outbound};
use super::reply::{Reply, ResultExtras, ServerInfoText};
use crate::mcp::{ExchangeKey, Question, RawCaller};
use crate::protocol::Era;
use crate::sync::lock;

/// How long a round of input collects questions that a server asks at the same time.
const GATHER: Duration = Duration::from_millis(5);

/// The work of a request. Dropping it cancels the request on its server.
pub(crate) type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// How a request ends. The id is added later, because a parked call is answered under the id of its retry.
pub(crate) enum Outcome {
    /// The result of a server, or one that the gateway has composed.
    Result {
        result: Bytes,
        /// The era of the server that made the result.
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
    /// Makes the result of a method that the gateway answers itself.
    pub(crate) fn composed(result: impl Into<Bytes>, extras: ResultExtras, server: &ServerInfoText) -> Self {
        Self::Result { result: result.into(), from: Era::Legacy, extras, server: Some(server.clone()) }
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
fn next_key() -> ExchangeKey {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    ExchangeKey(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A question of a server that waits for the answer of a modern client.
pub(crate) struct OpenQuestion {
    /// The key of the question in `inputRequests`.
    pub(crate) key: Box<str>,
    pub(crate) question: Question,
    /// Alive until the question is answered or withdrawn.
    _open: Arc<()>,
}

/// The parts of a request that its retry must repeat.
#[derive(Clone, Debug)]
pub(crate) struct RequestIdentity {
    pub(crate) method: &'static str,
    /// The name or URI that the client has used.
    pub(crate) target: Box<str>,
    /// The arguments as JSON text; empty if there are none.
    pub(crate) arguments: Bytes,
}

impl RequestIdentity {
    /// Returns `true` if another request has the same method, target and arguments.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let arguments = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).unwrap_or_default();
        self.method == other.method
            && self.target == other.target
            && (self.arguments == other.arguments || arguments(&self.arguments) == arguments(&other.arguments))
    }
}

/// One request of a client in progress.
pub(crate) struct Exchange {
    pub(crate) key: ExchangeKey,
    pub(crate) client: Arc<Client>,
    /// The minimum level of log messages for this request, set by a modern client.
    pub(crate) log_level: Option<LogLevel>,
    /// Frames that belong to the request.
    pub(crate) outbound: Outbound,
    /// Set for requests that may need input of the client.
    pub(crate) request: OnceLock<RequestIdentity>,
    identity: Mutex<Identity>,
    asked: Mutex<Asked>,
    /// Set while a question waits, to keep the fast path free of locks.
    has_asked: AtomicBool,
    is_ended: AtomicBool,
    ended: Notify,
    /// Number of elicitations during the request.
    elicitations: AtomicUsize,
    /// The limit of elicitations, once the server has exceeded it.
    exceeded: OnceLock<usize>,
    exceeding: Notify,
}

/// The id of the request, and the token of its progress notifications.
struct Identity {
    id: Box<RawValue>,
    token: Option<Box<RawValue>>,
}

#[derive(Default)]
struct Asked {
    questions: Vec<OpenQuestion>,
    count: usize,
}

impl Exchange {
    pub(crate) fn new(
        client: Arc<Client>,
        id: &RawValue,
        token: Option<&RawValue>,
        log_level: Option<LogLevel>,
    ) -> Arc<Self> {
        Arc::new(Self {
            key: next_key(),
            client,
            log_level,
            outbound: Outbound::default(),
            request: OnceLock::new(),
            identity: Mutex::new(Identity { id: id.to_owned(), token: token.map(ToOwned::to_owned) }),
            asked: Mutex::default(),
            has_asked: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
            ended: Notify::new(),
            elicitations: AtomicUsize::new(0),
            exceeded: OnceLock::new(),
            exceeding: Notify::new(),
        })
    }

    /// Returns the id under which the client expects the response.
    pub(crate) fn id(&self) -> Box<RawValue> {
        lock(&self.identity).id.clone()
    }

    /// Continues the exchange under the id of a retry.
    pub(crate) fn reattach(&self, id: &RawValue, token: Option<&RawValue>) {
        *lock(&self.identity) = Identity { id: id.to_owned(), token: token.map(ToOwned::to_owned) };
    }

    /// Adds a question for a modern client. The reference is alive until the question is answered or withdrawn.
    pub(crate) fn ask(&self, question: Question) -> Weak<()> {
        let open = Arc::new(());
        let is_open = Arc::downgrade(&open);
        let mut asked = lock(&self.asked);
        asked.count += 1;
        let key = format!("q{}", asked.count).into();
        asked.questions.push(OpenQuestion { key, question, _open: open });
        self.has_asked.store(true, Ordering::Release);
        drop(asked);
        self.outbound.wake();
        is_open
    }

    /// Removes a question that its server has withdrawn. Returns `true` if it was there.
    pub(crate) fn withdraw(&self, is_withdrawn: impl Fn(&Question) -> bool) -> bool {
        let mut asked = lock(&self.asked);
        let before = asked.questions.len();
        asked.questions.retain(|open| !is_withdrawn(&open.question));
        before != asked.questions.len()
    }

    /// Returns `true` if the client wants log messages of this level with the request.
    pub(crate) fn wants_log(&self, level: LogLevel) -> bool {
        match self.client.era {
            Era::Legacy => self.client.wants_log(level),
            Era::Modern => self.log_level.is_some_and(|wanted| wanted <= level),
        }
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

    /// Waits until the server has exceeded the limit of elicitations, and returns the limit.
    pub(crate) async fn exceeded(&self) -> usize {
        loop {
            if let Some(limit) = self.exceeded.get() {
                return *limit;
            }
            self.exceeding.notified().await;
        }
    }

    fn take_questions(&self) -> Vec<OpenQuestion> {
        self.has_asked.store(false, Ordering::Release);
        std::mem::take(&mut lock(&self.asked).questions)
    }
}

impl RawCaller for Exchange {
    fn key(&self) -> ExchangeKey {
        self.key
    }

    fn on_progress(&self, params: &str, token: Range<usize>) {
        let identity = lock(&self.identity);
        let Some(own) = &identity.token else { return };
        let (before, after) = (params.get(..token.start), params.get(token.end..));
        let (Some(before), Some(after)) = (before, after) else { return };
        let message = notification("notifications/progress", &format!("{before}{}{after}", own.get()));
        drop(identity);
        self.outbound.send(Frame::new(FrameKind::Progress, message));
    }
}

/// What becomes of a message.
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

/// What happens next to a request in progress.
pub(crate) enum Next {
    /// The request has ended.
    Outcome(Outcome),
    /// Frames that the client gets before the response.
    Frames(Vec<Frame>),
    /// Questions that end this response: the modern client answers them with a retry.
    Questions(Vec<OpenQuestion>),
}

/// Waits for what happens next. Cancel-safe.
pub(crate) async fn next(exchange: &Exchange, work: &mut Work) -> Next {
    loop {
        tokio::select! {
            biased;
            () = exchange.outbound.ready() => {}
            outcome = work.as_mut() => return Next::Outcome(outcome),
        }
        let frames = exchange.outbound.take();
        if !frames.is_empty() {
            return Next::Frames(frames);
        }
        if exchange.has_asked.load(Ordering::Acquire) {
            // The work must go on: a server may ask for several inputs at once.
            tokio::select! {
                biased;
                outcome = work.as_mut() => return Next::Outcome(outcome),
                () = tokio::time::sleep(GATHER) => {}
            }
            let questions = exchange.take_questions();
            if !questions.is_empty() {
                return Next::Questions(questions);
            }
        }
    }
}

/// All requests in progress, by their keys.
#[derive(Default)]
pub(crate) struct Exchanges(Mutex<HashMap<ExchangeKey, Weak<Exchange>>>);

impl Exchanges {
    /// Registers an exchange until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>, exchange: &Arc<Exchange>) -> ExchangeGuard {
        lock(&self.0).insert(exchange.key, Arc::downgrade(exchange));
        ExchangeGuard { exchanges: self.clone(), exchange: exchange.clone() }
    }

    /// Finds an exchange that is in progress.
    pub(crate) fn get(&self, key: ExchangeKey) -> Option<Arc<Exchange>> {
        lock(&self.0).get(&key)?.upgrade()
    }

    /// Returns the number of exchanges in progress.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}

/// Removes an exchange from the table when dropped.
pub(crate) struct ExchangeGuard {
    exchanges: Arc<Exchanges>,
    exchange: Arc<Exchange>,
}

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        lock(&self.exchanges.0).remove(&self.exchange.key);
        self.exchange.is_ended.store(true, Ordering::Release);
        self.exchange.ended.notify_waiters();
    }
}
