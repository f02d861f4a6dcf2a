//! The client side of a connection: events, warnings, limits and the server's notifications.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::elicitation_budget::ElicitationBudget;
use super::error::ConnectErrorKind;
use super::forwarding::HandlerState;
use super::handlers::Handlers;
use super::rate_limit::RateLimit;
use super::subscriptions::Subscriptions;
use super::transport::stderr::Stderr;
use crate::oauth::Authorizer;
use crate::protocol::{Era, meta};
use ropeway_config::{ServerLimits, Transport};
use ropeway_core::event::{Event, Events};
use ropeway_core::json;
use ropeway_core::secret::{Redactor, SharedRedactor};
use ropeway_core::sync::lock;
use ropeway_core::tool::Alias;

/// Log messages are truncated to this many bytes. A slow listener buffers a thousand of them.
const MAX_LOG_BYTES: usize = 64 << 10;

/// URIs and warnings are truncated to this many bytes.
const MAX_TEXT_BYTES: usize = 4 << 10;

/// Rate limit for one server's events. A bridge's servers share one event buffer, and a server that fills it would evict the
/// other servers' events.
const EVENT_BURST: u32 = 1000;
const EVENTS_PER_SECOND: u32 = 200;

/// Interval between warnings about dropped messages.
const DROP_WARNING_INTERVAL: Duration = Duration::from_secs(30);

/// Sends replies over the link that a request arrived on.
pub(crate) trait ReplySink: Send + Sync {
    /// Returns `false` while the server leaves too many replies unread.
    fn has_room(&self) -> bool;

    /// Sends a reply, or counts it as dropped if the queue is full.
    fn send(&self, message: Vec<u8>);
}

pub(crate) type ReplySender = Arc<dyn ReplySink>;

/// One connection's client side: handlers, events, limits and the redactor.
///
/// The connection owns it, so it outlives sessions. Links, reply sinks, server request handlers and subscription holds
/// share it. The tasks that read messages pass it server requests and notifications. The supervisor aborts the handlers
/// when a session ends. That also breaks a reference cycle: each handler task in `requests` holds the host.
///
/// All its locks are std mutexes, and none is held across an `.await`. `requests` is the outer one:
/// [`on_request`](Self::on_request) holds it while it counts the open server requests, rejects a request or stores a
/// handler's abort handle, and takes one further lock at a time. Every other mutex is taken alone.
#[derive(Debug)]
pub(crate) struct Host {
    alias: Alias,
    pub(super) handlers: Handlers,
    events: Events,
    redactor: Arc<SharedRedactor>,
    /// Authorizes the requests to an HTTP server.
    authorizer: Option<Arc<Authorizer>>,
    /// Incremented when the tool list changes. A list that was fetched at an earlier count is stale.
    tools_changed: AtomicU64,
    /// Incremented when the prompts change.
    pub(crate) prompts_changed: watch::Sender<u64>,
    /// Wakes the task that refreshes the tool list.
    pub(crate) tools_stale: Notify,
    pub(super) requests: Mutex<JoinSet<()>>,
    /// Running request handlers, by request id in JSON. The server may cancel them.
    pub(super) request_handlers: Mutex<HashMap<String, AbortHandle>>,
    /// Total parameter size, over all requests in progress.
    pub(super) request_bytes: Arc<AtomicUsize>,
    /// Limits the events that the server causes.
    rate_limit: Mutex<RateLimit>,
    dropped_replies: DropCounter,
    dropped_events: DropCounter,
    /// Limits the server requests to the user.
    pub(crate) elicitations: ElicitationBudget,
    pub(super) handler_state: HandlerState,
    pub(crate) subscriptions: Subscriptions,
    /// Counts stdout lines that were not messages.
    invalid_lines: AtomicU64,
    /// The current server process's stderr, kept after its exit.
    stderr: Mutex<Option<Arc<Stderr>>>,
}

impl Host {
    pub(crate) fn new(alias: Alias, handlers: Handlers, events: Events, redactor: Redactor) -> Self {
        let auth = &handlers.auth;
        let account = (alias.to_string(), auth.account.clone());
        let redactor = SharedRedactor::new(redactor).with_account(auth.redactors.clone(), account);
        Self {
            alias,
            handlers,
            events,
            redactor: Arc::new(redactor),
            authorizer: None,
            tools_changed: AtomicU64::new(0),
            prompts_changed: watch::Sender::new(0),
            tools_stale: Notify::new(),
            requests: Mutex::default(),
            request_handlers: Mutex::default(),
            request_bytes: Arc::default(),
            rate_limit: Mutex::new(RateLimit::new(EVENT_BURST, EVENTS_PER_SECOND)),
            dropped_replies: DropCounter::default(),
            dropped_events: DropCounter::default(),
            elicitations: ElicitationBudget::new(ServerLimits::default().questions),
            handler_state: HandlerState::new(),
            subscriptions: Subscriptions::default(),
            invalid_lines: AtomicU64::new(0),
            stderr: Mutex::default(),
        }
    }

    /// Limits the server requests to the user per call.
    pub(crate) fn with_elicitation_limit(self, per_call: usize) -> Self {
        Self { elicitations: ElicitationBudget::new(per_call), ..self }
    }

    /// Adds an HTTP server's authorizer.
    pub(crate) fn with_authorizer(mut self, transport: &Transport) -> Self {
        if let Transport::Http(server) | Transport::Sse(server) = transport {
            self.authorizer = Authorizer::new(&self.alias, server, &self.handlers.auth, &self.events, &self.redactor);
        }
        self
    }

    /// Returns an HTTP server's authorizer, unless its credentials are fixed.
    pub(crate) fn authorizer(&self) -> Option<&Arc<Authorizer>> {
        self.authorizer.as_ref()
    }

    /// Reads an HTTP server's stored tokens, once for each connection attempt.
    pub(crate) async fn load_tokens(&self) -> Result<(), ConnectErrorKind> {
        match &self.authorizer {
            Some(auth) => Box::pin(auth.load()).await.map_err(ConnectErrorKind::Auth),
            None => Ok(()),
        }
    }

    /// Returns the maximum time that a sign-in may take, or zero if the user cannot be prompted.
    pub(crate) fn max_sign_in_time(&self) -> Duration {
        self.authorizer.as_ref().map(|auth| auth.max_sign_in_time()).unwrap_or_default()
    }

    /// Waits for a deadline, which moves during a sign-in.
    pub(crate) async fn expired(&self, deadline: Instant) {
        match &self.authorizer {
            Some(auth) => auth.clock.sleep_until(deadline).await,
            None => tokio::time::sleep_until(deadline).await,
        }
    }

    /// Returns `true` if an elicitation handler or a message handler is set.
    pub(crate) fn can_elicit(&self) -> bool {
        self.handlers.elicitation.is_some() || self.handlers.message_handler.is_some()
    }

    pub(crate) fn alias(&self) -> &Alias {
        &self.alias
    }

    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// Returns the redactor for text that goes to logs, events and errors.
    pub(crate) fn redactor(&self) -> Redactor {
        self.redactor.current()
    }

    /// Returns the shared redactor, to which later tokens are added.
    pub(crate) fn shared_redactor(&self) -> &Arc<SharedRedactor> {
        &self.redactor
    }

    /// Redacts server text.
    pub(crate) fn redact(&self, text: &str) -> String {
        self.redactor().redact(text).into_owned()
    }

    /// Redacts and truncates a short server text.
    pub(crate) fn redact_brief(&self, text: &str) -> String {
        self.redact_truncated(text, MAX_TEXT_BYTES)
    }

    /// Redacts server text and truncates it to `most` bytes.
    pub(crate) fn redact_truncated(&self, text: &str, most: usize) -> String {
        self.redactor().redact_beginning(text, most)
    }

    /// Serializes and redacts a value.
    pub(crate) fn redacted_json(&self, value: &impl Serialize) -> Arc<Value> {
        // The value was sent or received as JSON, so this cannot fail.
        let mut value = serde_json::to_value(value).unwrap_or_default();
        self.redactor().redact_json(&mut value);
        Arc::new(value)
    }

    /// Returns how often the tool list has changed.
    pub(crate) fn tools_changed(&self) -> u64 {
        self.tools_changed.load(Ordering::Acquire)
    }

    /// Marks the tool list as changed.
    pub(crate) fn mark_tools_changed(&self) {
        self.tools_changed.fetch_add(1, Ordering::AcqRel);
        self.tools_stale.notify_one();
    }

    /// Marks the prompts as changed.
    fn mark_prompts_changed(&self) {
        self.prompts_changed.send_modify(|count| *count += 1);
        self.events.emit(Event::PromptsChanged { server: self.alias.clone() });
    }

    /// Marks everything as changed, after a period without notifications.
    pub(crate) fn mark_all_changed(&self) {
        self.mark_tools_changed();
        self.mark_prompts_changed();
        self.events.emit(Event::ResourcesChanged { server: self.alias.clone() });
        self.report_all_changed();
    }

    /// Reports a change to a subscribed resource, after a period without notifications about it.
    pub(crate) fn mark_resource_changed(&self, uri: &str) {
        self.events.emit(Event::ResourceUpdated { server: self.alias.clone(), uri: self.redact_brief(uri) });
        self.report_resource_changed(uri);
    }

    /// Counts a dropped reply and warns about it at intervals.
    pub(crate) fn count_dropped_reply(&self) {
        if let Some(count) = self.dropped_replies.add() {
            self.warn(&format!("the server does not read replies to its requests: {count} dropped so far"));
        }
    }

    /// Emits an event that the server caused, or counts it as dropped above the rate limit.
    pub(crate) fn emit_limited(&self, event: impl FnOnce() -> Event) {
        if lock(&self.rate_limit).take() {
            return self.events.emit(event());
        }
        self.count_dropped_event();
    }

    /// Counts a dropped notification and warns about it at intervals.
    pub(super) fn count_dropped_event(&self) {
        if let Some(count) = self.dropped_events.add() {
            self.warn(&format!("the server sends too many notifications: {count} dropped so far"));
        }
    }

    /// Counts a line on stdout that is not a message.
    pub(crate) fn count_noise(&self) {
        self.invalid_lines.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of stdout lines that were not messages.
    pub(crate) fn invalid_lines(&self) -> u64 {
        self.invalid_lines.load(Ordering::Relaxed)
    }

    /// Sets the current server process's stderr.
    pub(crate) fn set_stderr(&self, stderr: Arc<Stderr>) {
        *lock(&self.stderr) = Some(stderr);
    }

    /// Waits until the server's processes have been idle for a while; forever if it has none.
    pub(crate) async fn until_idle(&self) {
        let stderr = lock(&self.stderr).clone();
        match stderr {
            Some(stderr) => stderr.until_idle().await,
            None => std::future::pending().await,
        }
    }

    /// Returns the stderr line that explains the server's failure.
    pub(crate) async fn stderr_reason(&self) -> Option<String> {
        let stderr = lock(&self.stderr).clone();
        stderr?.reason().await
    }

    /// Returns the last lines of the server's stderr.
    pub(crate) fn stderr_tail(&self) -> Vec<String> {
        let stderr = lock(&self.stderr).clone();
        stderr.map(|stderr| stderr.lines()).unwrap_or_default()
    }

    /// Logs a warning and emits it as an event.
    pub(crate) fn warn(&self, message: &str) {
        // Some warnings end in truncated server text.
        let message = if message.len() > MAX_TEXT_BYTES {
            self.redact_truncated(message, MAX_TEXT_BYTES).into()
        } else {
            self.redactor().redact_truncated(message)
        };
        tracing::warn!(server = %self.alias, "{message}");
        self.events.emit(Event::Warning { server: Some(self.alias.clone()), message: message.into_owned() });
    }

    /// Returns `true` if a handshake result comes from the program that this connection belongs to.
    pub(super) fn is_own_gateway(&self, result: &Map<String, Value>) -> bool {
        let id = result.get("_meta").and_then(|meta| meta.get(meta::GATEWAY_ID)).and_then(Value::as_str);
        id.is_some_and(|id| self.handlers.message_handler.as_ref().is_some_and(|handler| handler.own_id() == id))
    }

    /// Aborts all server request handlers, because their link is closed.
    pub(crate) fn abort_requests(&self) {
        lock(&self.requests).abort_all();
        self.withdraw_server_requests();
    }

    /// Returns the client capabilities that servers in an era get.
    pub(crate) fn capabilities(&self, era: Era) -> Value {
        if let Some(handler) = &self.handlers.message_handler {
            return handler.capabilities(era);
        }
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

    /// Handles a server notification.
    pub(crate) fn on_notification(&self, method: &str, params: Option<&RawValue>) {
        let server = || self.alias.clone();
        let size = params.map_or(0, |raw| raw.get().len());
        let raw_params = params;
        let params = || params.and_then(|raw| json::from_str::<Value>(raw.get()).ok()).unwrap_or_default();
        match method {
            "notifications/tools/list_changed" => self.mark_tools_changed(),
            "notifications/prompts/list_changed" => self.mark_prompts_changed(),
            "notifications/cancelled" => self.cancel_request(raw_params),
            "notifications/resources/list_changed" => self.events.emit(Event::ResourcesChanged { server: server() }),
            "notifications/resources/updated" => self.emit_limited(|| {
                let uri = self.redact_brief(params()["uri"].as_str().unwrap_or_default());
                Event::ResourceUpdated { server: server(), uri }
            }),
            "notifications/subscriptions/acknowledged" => {
                self.subscriptions.acknowledge(&params()).iter().for_each(|uri| self.mark_resource_changed(uri));
            }
            // Without a listener, a flood of log messages costs nothing.
            "notifications/message" if !self.events.has_listeners() && !tracing::enabled!(tracing::Level::DEBUG) => {}
            "notifications/message" => self.emit_limited(|| {
                let mut params = params();
                // `params` may be anything; only objects can be indexed mutably.
                let mut data = params.get_mut("data").map(Value::take).unwrap_or_default();
                if size > MAX_LOG_BYTES {
                    let text = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
                    data = self.redact_truncated(&text, MAX_LOG_BYTES).into();
                } else {
                    self.redactor().redact_json(&mut data);
                }
                let event = Event::Log {
                    server: server(),
                    level: self.redact_brief(params["level"].as_str().unwrap_or("info")),
                    logger: params["logger"].as_str().map(|logger| self.redact_brief(logger)),
                    data,
                };
                tracing::debug!(server = %self.alias, "log: {event}");
                event
            }),
            _ => {
                tracing::debug!(server = %self.alias, "ignored an unknown notification `{}`", self.redact_brief(method));
            }
        }
    }
}

/// Counts dropped messages and limits how often a warning reports them.
#[derive(Debug, Default)]
struct DropCounter {
    count: AtomicU64,
    warned_at: Mutex<Option<Instant>>,
}

impl DropCounter {
    /// Counts a dropped message. Returns the count if a warning is due.
    fn add(&self) -> Option<u64> {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut warned_at = lock(&self.warned_at);
        if warned_at.is_some_and(|at| at.elapsed() < DROP_WARNING_INTERVAL) {
            return None;
        }
        *warned_at = Some(Instant::now());
        Some(count)
    }
}
