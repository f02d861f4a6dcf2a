//! The host's side of a connection: who answers the server's requests and hears its notifications.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::pace::RateLimit;
use super::questions::QuestionBudget;
use super::transport::stdio::Stderr;
use crate::config::ServerLimits;
use crate::event::{Event, Events};
use crate::json;
use crate::protocol::{self, Era, code, meta};
use crate::secret::Redactor;
use crate::sync::lock;
use crate::tool::{Alias, BoxError, BoxFuture};

/// How many requests of one server may be worked on at once; what comes on top is refused.
const MOST_REQUESTS: usize = 64;

/// How many bytes of parameters may be worked on at once; one request may have more.
const MOST_REQUEST_BYTES: usize = 32 << 20;

/// The longest id of a request that is sent back.
const LONGEST_ID: usize = 4 << 10;

/// How many bytes of a log message are passed on. Listeners that are slow keep a thousand of them.
const MOST_LOG_BYTES: usize = 64 << 10;

/// How many bytes of a URI, or of words about something odd, are passed on.
const MOST_WORDS: usize = 4 << 10;

/// What one server may say unasked at once, and then in a second. All servers of a bridge share one queue of events: a
/// server that fills it would push out what others have to say.
const EVENT_BURST: u32 = 1000;
const EVENTS_PER_SECOND: u32 = 200;

/// Interval between warnings about dropped messages.
const DROPPED_TOLD_EVERY: Duration = Duration::from_secs(30);

/// The way back on the link that a request came on.
pub(crate) trait ReplyPath: Send + Sync {
    /// Returns false while the server leaves too many replies unread.
    fn has_room(&self) -> bool;

    /// Sends a reply, or drops and counts it when there is no room.
    fn send(&self, message: Vec<u8>);
}

pub(crate) type Reply = Arc<dyn ReplyPath>;

type Handler<Q, A> = Arc<dyn Fn(Q) -> BoxFuture<'static, Result<A, BoxError>> + Send + Sync>;

/// A server asks the user for something.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Elicitation {
    /// Our name for the server that asks.
    pub server: Alias,
    /// What it asks for, in words.
    pub message: String,
    /// How it wants the answer.
    pub mode: ElicitationMode,
    /// The request's parameters as they came.
    pub params: Value,
}

/// How a server wants to have its answer.
#[derive(Clone, Debug, PartialEq)]
pub enum ElicitationMode {
    /// Values that fit a flat schema; what is left out gets the schema's defaults.
    Form {
        /// The JSON Schema of the values.
        schema: Value,
    },
    /// A page that the user should open.
    Url {
        /// Where it is.
        url: String,
    },
}

/// What the user did.
#[derive(Clone, Debug, PartialEq)]
pub enum ElicitationAnswer {
    /// Agreed, with these values.
    Accept(Map<String, Value>),
    /// Said no.
    Decline,
    /// Went away.
    Cancel,
}

/// A server asks a model for something.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SamplingRequest {
    /// Our name for the server that asks.
    pub server: Alias,
    /// The parameters of `sampling/createMessage` as they came.
    pub params: Value,
}

impl SamplingRequest {
    /// What a server asks a model for.
    pub fn new(server: impl Into<Alias>, params: Value) -> Self {
        Self { server: server.into(), params }
    }
}

/// A folder that servers may look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClientRoot {
    /// Where it is, as a `file://` URI.
    pub uri: String,
    /// What to call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Who answers what servers ask of the host. What has no handler is not declared to servers.
#[derive(Clone, Default)]
pub struct Handlers {
    elicitation: Option<Handler<Elicitation, ElicitationAnswer>>,
    sampling: Option<Handler<SamplingRequest, Value>>,
    roots: Option<Handler<(), Vec<ClientRoot>>>,
}

impl Handlers {
    /// Nobody answers anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers elicitations.
    #[must_use]
    pub fn on_elicitation<F, R>(mut self, handler: F) -> Self
    where
        F: Fn(Elicitation) -> R + Send + Sync + 'static,
        R: Future<Output = Result<ElicitationAnswer, BoxError>> + Send + 'static,
    {
        self.elicitation = Some(Arc::new(move |request| Box::pin(handler(request))));
        self
    }

    /// Answers sampling requests with the result of `sampling/createMessage`.
    #[must_use]
    pub fn on_sampling<F, R>(mut self, handler: F) -> Self
    where
        F: Fn(SamplingRequest) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Value, BoxError>> + Send + 'static,
    {
        self.sampling = Some(Arc::new(move |request| Box::pin(handler(request))));
        self
    }

    /// Tells servers which folders they may look at.
    #[must_use]
    pub fn on_roots<F, R>(mut self, handler: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<Vec<ClientRoot>, BoxError>> + Send + 'static,
    {
        self.roots = Some(Arc::new(move |()| Box::pin(handler())));
        self
    }
}

#[cfg(feature = "bridge")]
impl Handlers {
    /// Do the same functions answer?
    pub(crate) fn ptr_eq(&self, other: &Self) -> bool {
        fn same<T: ?Sized>(one: &Option<Arc<T>>, other: &Option<Arc<T>>) -> bool {
            match (one, other) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                (one, other) => one.is_none() && other.is_none(),
            }
        }
        same(&self.elicitation, &other.elicitation)
            && same(&self.sampling, &other.sampling)
            && same(&self.roots, &other.roots)
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handlers")
            .field("elicitation", &self.elicitation.is_some())
            .field("sampling", &self.sampling.is_some())
            .field("roots", &self.roots.is_some())
            .finish()
    }
}

/// Why a server's request is refused. A handler of ours may give it as its error, to choose the code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Refusal {
    pub(crate) code: i64,
    pub(crate) message: String,
}

/// The host, as one connection sees it.
#[derive(Debug)]
pub(crate) struct Host {
    alias: Alias,
    handlers: Handlers,
    events: Events,
    mask: Redactor,
    /// Counts the changes of the tool list, so that a list fetched before a change is known to be old.
    tools_changed: AtomicU64,
    /// Counts the changes of the prompts.
    pub(crate) prompts_changed: watch::Sender<u64>,
    /// Wakes whoever keeps the tool list fresh.
    pub(crate) tools_stale: Notify,
    requests: Mutex<JoinSet<()>>,
    /// How many bytes of parameters are worked on.
    request_bytes: Arc<AtomicUsize>,
    /// Limits what the server may say unasked.
    rate_limit: Mutex<RateLimit>,
    dropped_replies: Dropped,
    dropped_events: Dropped,
    /// How much the server may still ask the user.
    pub(crate) questions: QuestionBudget,
    /// Lines on the server's output that were no messages.
    noise: AtomicU64,
    /// What the server's process says beside the protocol, also after its end.
    stderr: Mutex<Option<Arc<Stderr>>>,
}

impl Host {
    pub(crate) fn new(alias: Alias, handlers: Handlers, events: Events, mask: Redactor) -> Self {
        Self {
            alias,
            handlers,
            events,
            mask,
            tools_changed: AtomicU64::new(0),
            prompts_changed: watch::Sender::new(0),
            tools_stale: Notify::new(),
            requests: Mutex::default(),
            request_bytes: Arc::default(),
            rate_limit: Mutex::new(RateLimit::new(EVENT_BURST, EVENTS_PER_SECOND)),
            dropped_replies: Dropped::default(),
            dropped_events: Dropped::default(),
            questions: QuestionBudget::new(ServerLimits::default().questions),
            noise: AtomicU64::new(0),
            stderr: Mutex::default(),
        }
    }

    /// Bounds the questions to the user per call.
    pub(crate) fn with_questions(self, per_call: usize) -> Self {
        Self { questions: QuestionBudget::new(per_call), ..self }
    }

    /// Can the user be asked something?
    pub(crate) fn elicits(&self) -> bool {
        self.handlers.elicitation.is_some()
    }

    pub(crate) fn alias(&self) -> &Alias {
        &self.alias
    }

    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// Hides what must not be seen in logs, events and errors, also when the server says it.
    pub(crate) fn mask(&self) -> &Redactor {
        &self.mask
    }

    /// Text of the server as it may be seen.
    pub(crate) fn hide(&self, text: &str) -> String {
        self.mask.hide(text).into_owned()
    }

    /// A short text of the server as it may be seen; of a long one only the beginning.
    pub(crate) fn hide_brief(&self, text: &str) -> String {
        self.hide_part(text, MOST_WORDS)
    }

    /// A text of the server as it may be seen; of one that is too long its beginning.
    pub(crate) fn hide_part(&self, text: &str, most: usize) -> String {
        self.mask.hide_beginning(text, most)
    }

    /// Something that is written as JSON, as it may be seen.
    pub(crate) fn shown(&self, what: &impl Serialize) -> Arc<Value> {
        // What is no JSON could not have been sent or read.
        let mut value = serde_json::to_value(what).unwrap_or_default();
        self.mask.hide_json(&mut value);
        Arc::new(value)
    }

    /// How often the tool list has changed so far.
    pub(crate) fn tools_changed(&self) -> u64 {
        self.tools_changed.load(Ordering::Acquire)
    }

    /// The tool list is not what it was.
    pub(crate) fn change_tools(&self) {
        self.tools_changed.fetch_add(1, Ordering::AcqRel);
        self.tools_stale.notify_one();
    }

    /// The prompts are not what they were.
    fn change_prompts(&self) {
        self.prompts_changed.send_modify(|count| *count += 1);
        self.events.tell(Event::PromptsChanged { server: self.alias.clone() });
    }

    /// Nothing need be what it was: nobody has listened for a while.
    pub(crate) fn change_all(&self) {
        self.change_tools();
        self.change_prompts();
        self.events.tell(Event::ResourcesChanged { server: self.alias.clone() });
    }

    /// Counts a reply that was dropped, because the server leaves too many unread.
    pub(crate) fn drop_reply(&self) {
        if let Some(count) = self.dropped_replies.add() {
            self.warn(&format!("the server does not read our replies to its requests: {count} dropped so far"));
        }
    }

    /// Tells an event that the server caused, unless there are too many; those are counted.
    pub(crate) fn tell_bounded(&self, event: impl FnOnce() -> Event) {
        if lock(&self.rate_limit).take() {
            return self.events.tell(event());
        }
        if let Some(count) = self.dropped_events.add() {
            self.warn(&format!("the server sends too many notifications: {count} dropped so far"));
        }
    }

    /// Counts a line that is no message.
    pub(crate) fn count_noise(&self) {
        self.noise.fetch_add(1, Ordering::Relaxed);
    }

    /// How many lines were no messages.
    pub(crate) fn noise(&self) -> u64 {
        self.noise.load(Ordering::Relaxed)
    }

    /// Keeps the stderr of the process that is now the server.
    pub(crate) fn hear(&self, stderr: Arc<Stderr>) {
        *lock(&self.stderr) = Some(stderr);
    }

    /// Waits until the server's processes have neither written nor worked for a while; forever if it has none.
    pub(crate) async fn until_idle(&self) {
        let stderr = lock(&self.stderr).clone();
        match stderr {
            Some(stderr) => stderr.until_idle().await,
            None => std::future::pending().await,
        }
    }

    /// Returns the line of the server's stderr that says why it failed.
    pub(crate) async fn stderr_reason(&self) -> Option<String> {
        let stderr = lock(&self.stderr).clone();
        stderr?.reason().await
    }

    /// The last lines of the server's stderr.
    pub(crate) fn stderr_tail(&self) -> Vec<String> {
        let stderr = lock(&self.stderr).clone();
        stderr.map(|stderr| stderr.lines()).unwrap_or_default()
    }

    /// Tells an oddity that was dealt with.
    pub(crate) fn warn(&self, message: &str) {
        // Some end in the beginning of what the server said.
        let message = match message.len() > MOST_WORDS {
            true => self.hide_part(message, MOST_WORDS).into(),
            false => self.mask.hide_cut(message),
        };
        tracing::warn!(server = %self.alias, "{message}");
        self.events.tell(Event::Warning { server: Some(self.alias.clone()), message: message.into_owned() });
    }

    /// Ends the work on all requests of the server: the link that they came on is no more.
    pub(crate) fn hush(&self) {
        lock(&self.requests).abort_all();
    }

    /// What we declare to servers of an era.
    pub(crate) fn capabilities(&self, era: Era) -> Value {
        let mut capabilities = Map::new();
        if self.handlers.elicitation.is_some() {
            capabilities.insert("elicitation".into(), json!({"form": {}, "url": {}}));
        }
        if self.handlers.sampling.is_some() {
            capabilities.insert("sampling".into(), json!({}));
        }
        if self.handlers.roots.is_some() {
            capabilities.insert("roots".into(), json!({}));
        }
        if era == Era::Modern {
            capabilities.insert("extensions".into(), json!({meta::TASKS_EXTENSION: {}}));
        }
        Value::Object(capabilities)
    }

    /// The server tells something.
    pub(crate) fn told(&self, method: &str, params: Option<&RawValue>) {
        let server = || self.alias.clone();
        let size = params.map_or(0, |raw| raw.get().len());
        let params = || params.and_then(|raw| json::from_str::<Value>(raw.get()).ok()).unwrap_or_default();
        match method {
            "notifications/tools/list_changed" => self.change_tools(),
            "notifications/prompts/list_changed" => self.change_prompts(),
            "notifications/resources/list_changed" => self.events.tell(Event::ResourcesChanged { server: server() }),
            "notifications/resources/updated" => self.tell_bounded(|| {
                let uri = self.hide_brief(params()["uri"].as_str().unwrap_or_default());
                Event::ResourceUpdated { server: server(), uri }
            }),
            // A flood of them costs nothing without a listener.
            "notifications/message" if !self.events.heard() && !tracing::enabled!(tracing::Level::DEBUG) => {}
            "notifications/message" => self.tell_bounded(|| {
                let mut params = params();
                let mut data = params["data"].take();
                if size > MOST_LOG_BYTES {
                    let text = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
                    data = self.hide_part(&text, MOST_LOG_BYTES).into();
                } else {
                    self.mask.hide_json(&mut data);
                }
                let event = Event::Log {
                    server: server(),
                    level: self.hide_brief(params["level"].as_str().unwrap_or("info")),
                    logger: params["logger"].as_str().map(|logger| self.hide_brief(logger)),
                    data,
                };
                tracing::debug!(server = %self.alias, "log: {event}");
                event
            }),
            _ => {
                tracing::debug!(server = %self.alias, "ignored an unknown notification `{}`", self.hide_brief(method));
            }
        }
    }

    /// The server asks for something: the answer goes out when it is there, and holds nothing up.
    ///
    /// A server that does not read the answers is not worked for.
    pub(crate) fn asked(self: &Arc<Self>, id: &RawValue, method: &str, params: Option<&RawValue>, reply: &Reply) {
        if id.get().len() > LONGEST_ID || !reply.has_room() {
            return self.drop_reply();
        }
        if method == "ping" {
            return reply.send(protocol::encode_answer(id, &json!({})));
        }
        let size = params.map_or(0, |raw| raw.get().len());
        let mut requests = lock(&self.requests);
        while requests.try_join_next().is_some() {}
        let bytes = self.request_bytes.load(Ordering::Acquire);
        if requests.len() >= MOST_REQUESTS || (bytes > 0 && bytes + size > MOST_REQUEST_BYTES) {
            return reply.send(protocol::encode_refusal(id, code::INTERNAL, "too many requests at once"));
        }
        let params = params.and_then(|raw| json::from_str(raw.get()).ok()).unwrap_or(Value::Null);
        let held = Held::new(&self.request_bytes, size);
        let (host, id, method, reply) = (self.clone(), id.to_owned(), method.to_owned(), reply.clone());
        requests.spawn(async move {
            let _held = held;
            reply.send(match host.answer(&method, params).await {
                Ok(result) => protocol::encode_answer(&id, &result),
                Err(refusal) => protocol::encode_refusal(&id, refusal.code, &refusal.message),
            });
        });
    }

    /// Answers a request of the server, by whichever era's way it came; also when the handler panics.
    pub(crate) async fn answer(&self, method: &str, params: Value) -> Result<Value, Refusal> {
        let mut answer = std::pin::pin!(self.handle(method, params));
        poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(cx))) {
            Ok(answer) => answer,
            Err(_) => {
                let message = format!("the handler of `{method}` panicked");
                Poll::Ready(Err(Refusal { code: code::INTERNAL, message }))
            }
        })
        .await
    }

    async fn handle(&self, method: &str, params: Value) -> Result<Value, Refusal> {
        let failed = |error: BoxError| match error.downcast::<Refusal>() {
            Ok(refusal) => *refusal,
            Err(error) => Refusal { code: code::INTERNAL, message: error.to_string() },
        };
        match (method, &self.handlers) {
            ("elicitation/create", Handlers { elicitation: Some(handler), .. }) => {
                let request = self.elicitation(params)?;
                self.questions.take()?;
                let schema = match &request.mode {
                    ElicitationMode::Form { schema } => Some(schema.clone()),
                    ElicitationMode::Url { .. } => None,
                };
                let open = self.questions.ask();
                let answer = handler(request).await;
                drop(open);
                Ok(match (answer.map_err(failed)?, schema) {
                    (ElicitationAnswer::Accept(content), Some(schema)) => {
                        json!({"action": "accept", "content": with_defaults(content, &schema)})
                    }
                    (ElicitationAnswer::Accept(_), None) => json!({"action": "accept"}),
                    (ElicitationAnswer::Decline, _) => json!({"action": "decline"}),
                    (ElicitationAnswer::Cancel, _) => json!({"action": "cancel"}),
                })
            }
            ("sampling/createMessage", Handlers { sampling: Some(handler), .. }) => {
                handler(SamplingRequest::new(self.alias.clone(), params)).await.map_err(failed)
            }
            ("roots/list", Handlers { roots: Some(handler), .. }) => {
                let roots = handler(()).await.map_err(failed)?;
                Ok(json!({"roots": roots}))
            }
            _ => Err(Refusal { code: code::METHOD_NOT_FOUND, message: format!("`{method}` is not supported") }),
        }
    }

    fn elicitation(&self, params: Value) -> Result<Elicitation, Refusal> {
        let missing = |what: &str| Refusal { code: code::INVALID_PARAMS, message: format!("`{what}` is missing") };
        let mode = match params["mode"].as_str() {
            None | Some("form") => ElicitationMode::Form { schema: params["requestedSchema"].clone() },
            Some("url") => {
                ElicitationMode::Url { url: params["url"].as_str().ok_or_else(|| missing("url"))?.to_owned() }
            }
            Some(other) => {
                return Err(Refusal {
                    code: code::INVALID_PARAMS,
                    message: format!("mode `{other}` is not supported"),
                });
            }
        };
        let message = params["message"].as_str().unwrap_or_default().to_owned();
        Ok(Elicitation { server: self.alias.clone(), message, mode, params })
    }
}

/// Counts dropped messages, and limits how often a warning reports them.
#[derive(Debug, Default)]
struct Dropped {
    count: AtomicU64,
    told: Mutex<Option<Instant>>,
}

impl Dropped {
    /// Counts one more; returns the count when it is time to tell it.
    fn add(&self) -> Option<u64> {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut told = lock(&self.told);
        if told.is_some_and(|told| told.elapsed() < DROPPED_TOLD_EVERY) {
            return None;
        }
        *told = Some(Instant::now());
        Some(count)
    }
}

/// Bytes that are held while a request is worked on.
struct Held {
    bytes: Arc<AtomicUsize>,
    size: usize,
}

impl Held {
    fn new(bytes: &Arc<AtomicUsize>, size: usize) -> Self {
        bytes.fetch_add(size, Ordering::AcqRel);
        Self { bytes: bytes.clone(), size }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.bytes.fetch_sub(self.size, Ordering::AcqRel);
    }
}

/// The values, with the schema's defaults for those that are left out.
fn with_defaults(mut content: Map<String, Value>, schema: &Value) -> Map<String, Value> {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(default) = property.get("default")
            && !content.contains_key(name)
        {
            content.insert(name.clone(), default.clone());
        }
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(handlers: Handlers) -> Host {
        Host::new("s".into(), handlers, Events::default(), Redactor::default())
    }

    #[tokio::test]
    async fn an_accepted_form_gets_the_defaults_of_what_was_left_out() {
        let handlers = Handlers::new()
            .on_elicitation(|_| async { Ok(ElicitationAnswer::Accept(Map::from_iter([("a".to_owned(), json!(1))]))) });
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer", "default": 7}, "b": {"type": "string", "default": "x"}, "c": {"type": "string"}}});
        let answer =
            host(handlers).answer("elicitation/create", json!({"message": "m", "requestedSchema": schema})).await;
        assert_eq!(answer.expect("an answer"), json!({"action": "accept", "content": {"a": 1, "b": "x"}}));
    }

    #[tokio::test]
    async fn a_handler_may_choose_the_code_of_its_refusal() {
        let refusal = || Refusal { code: code::INVALID_PARAMS, message: "no".into() };
        let handlers = Handlers::new().on_sampling(move |_| async move { Err(refusal().into()) });
        assert_eq!(host(handlers).answer("sampling/createMessage", json!({})).await, Err(refusal()));
    }

    #[tokio::test]
    async fn what_has_no_handler_is_neither_declared_nor_answered() {
        let host = host(Handlers::new());
        assert_eq!(host.capabilities(Era::Legacy), json!({}));
        assert_eq!(
            host.answer("sampling/createMessage", json!({})).await.expect_err("no handler").code,
            code::METHOD_NOT_FOUND
        );
    }
}
