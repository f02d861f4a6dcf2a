//! One gateway client: its era, its capabilities and its unanswered server requests.

pub(crate) mod auth;
pub(crate) mod clients;
pub(crate) mod event_stream;
pub(crate) mod journal;
pub(crate) mod notification;
pub(crate) mod outbound;
pub(crate) mod principal;
pub(crate) mod replay;
pub(crate) mod running;
pub(crate) mod seal;
pub(crate) mod session;
pub(crate) mod session_table;
pub(crate) mod shares;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::client::notification::single_line;
use crate::client::outbound::{Frame, FrameKind, Outbound};
pub(crate) use crate::client::principal::Principal;
use crate::client::running::{RunningRequest, RunningRequests};
use crate::observe::ClientLabel;
use ropeway_core::sync::lock;
use ropeway_core::tool::CancelToken;
use ropeway_mcp::ServerRequestMethod;
use ropeway_mcp::protocol::{Era, meta};

/// Maximum number of unanswered server requests per client.
pub(crate) const MAX_SERVER_REQUESTS: usize = 16;

/// The reason that a client receives when a server request is withdrawn.
const CANCEL_REASON: &str = "the request was withdrawn, or not answered in time";

/// The isolation key that a user's commands share. Their isolated connections stay open when a command disconnects, so that the
/// next command continues with the same servers.
pub(crate) const COMMANDS: u64 = 0;

/// How long a client without open streams counts as connected after its last request.
const MAX_PRESENCE: Duration = Duration::from_secs(10);

/// The log levels, least severe first (<https://modelcontextprotocol.io/specification/2025-11-25/server/utilities/logging>).
const LOG_LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// Marks a client that has not requested log messages.
const NO_LOGS: u8 = u8::MAX;

/// A log level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogLevel(u8);

impl LogLevel {
    /// The most severe level.
    pub(crate) const MAX: Self = Self(LOG_LEVELS.len() as u8 - 1);

    /// Finds a level by its name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        LOG_LEVELS.iter().position(|level| *level == name).map(|index| Self(index as u8))
    }

    /// Returns the level's name.
    pub(crate) fn name(self) -> &'static str {
        LOG_LEVELS[usize::from(self.0)]
    }
}

/// Identifies a client within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientId(u64);

impl ClientId {
    /// Returns the number behind the id.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// Returns an id that no other client has.
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The client capabilities that servers can use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ClientCapabilities {
    pub(crate) form: bool,
    pub(crate) url: bool,
    pub(crate) sampling: bool,
    pub(crate) roots: bool,
    pub(crate) tasks: bool,
}

impl ClientCapabilities {
    /// Parses a client's `capabilities`. Malformed capabilities count as absent.
    pub(crate) fn parse(json: &str) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Declared<'a> {
            #[serde(borrow)]
            elicitation: Option<Elicitation<'a>>,
            #[serde(borrow)]
            sampling: Option<&'a RawValue>,
            #[serde(borrow)]
            roots: Option<&'a RawValue>,
            #[serde(borrow)]
            extensions: HashMap<&'a str, &'a RawValue>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Elicitation<'a> {
            #[serde(borrow)]
            form: Option<&'a RawValue>,
            #[serde(borrow)]
            url: Option<&'a RawValue>,
        }
        let declared = serde_json::from_str::<Declared<'_>>(json).unwrap_or_default();
        Self {
            // An empty object means forms only.
            form: declared.elicitation.as_ref().is_some_and(|modes| modes.form.is_some() || modes.url.is_none()),
            url: declared.elicitation.as_ref().is_some_and(|modes| modes.url.is_some()),
            sampling: declared.sampling.is_some(),
            roots: declared.roots.is_some(),
            tasks: declared.extensions.contains_key(meta::TASKS_EXTENSION),
        }
    }

    /// Writes the capabilities without their details.
    pub(crate) fn to_json(self) -> String {
        let mut declared = Map::new();
        let modes = [("form", self.form), ("url", self.url)].into_iter().filter(|(_, can)| *can);
        let modes: Map<String, Value> = modes.map(|(mode, _)| (mode.to_owned(), json!({}))).collect();
        if !modes.is_empty() {
            declared.insert("elicitation".to_owned(), Value::Object(modes));
        }
        for (name, can) in [("sampling", self.sampling), ("roots", self.roots)] {
            if can {
                declared.insert(name.to_owned(), json!({}));
            }
        }
        if self.tasks {
            declared.insert("extensions".to_owned(), json!({meta::TASKS_EXTENSION: {}}));
        }
        Value::Object(declared).to_string()
    }

    /// Returns `true` if the client can answer a server request.
    pub(crate) fn can_answer(self, method: ServerRequestMethod) -> bool {
        match method {
            ServerRequestMethod::Elicit { url: false } => self.form,
            ServerRequestMethod::Elicit { url: true } => self.url,
            ServerRequestMethod::Sample => self.sampling,
            ServerRequestMethod::Roots => self.roots,
        }
    }
}

/// The description that a client sends.
#[derive(Clone, Debug)]
pub(crate) struct ClientDescription {
    /// The negotiated protocol version.
    pub(crate) version: Box<str>,
    /// The `capabilities` as JSON.
    pub(crate) capabilities: Box<str>,
    /// The `clientInfo` as JSON.
    pub(crate) info: Box<str>,
}

/// One client.
///
/// A legacy client lives as long as its session in memory or its pipe; a modern one is shared by requests with the same
/// description. The session table, the pipe or [`ModernClients`](clients::ModernClients) owns it, and running requests hold
/// clones of the `Arc`. [`Clients`](clients::Clients) refers to it weakly.
///
/// Each mutex guards one field for a few lines. No two are held at the same time, so they need no order, and none is held across
/// an `.await`. Any request may write the counters and flags, which are atomics.
///
/// Dropping a client sends nothing. [`close`](Self::close) drops the pending server requests, cancels the running requests and
/// closes `outbound`, for good: a session that is revived later gets a new client.
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) era: Era,
    pub(crate) description: ClientDescription,
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) principal: Principal,
    /// The client's profile, by name.
    pub(crate) profile: Arc<str>,
    /// Clients with equal keys share their isolated connections.
    pub(crate) isolation_key: u64,
    /// Clients with equal keys count as one on a connection that clients share. A modern client keeps it when its capabilities
    /// change.
    pub(crate) user_key: u64,
    /// Whether other clients may be indistinguishable: modern HTTP clients have neither a session nor their own connection.
    pub(crate) is_anonymous: bool,
    /// `clientInfo` and `clientCapabilities` for a modern server: JSON object members without the braces.
    pub(crate) modern_meta: Arc<str>,
    /// Identifies the session, even after a gateway restart. Empty for clients without a session.
    pub(crate) session: Box<str>,
    /// The client's description in request records, created on first use.
    label: OnceLock<Arc<ClientLabel>>,
    /// Frames that belong to no request.
    pub(crate) outbound: Outbound,
    /// Number of open streams.
    streams: AtomicUsize,
    /// When the client began its last request.
    active_at: Mutex<Instant>,
    /// The level's index in [`LOG_LEVELS`], or [`NO_LOGS`].
    log_level: AtomicU8,
    server_requests: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
    next_server_request: AtomicU64,
    /// Cancelled when the gateway stops and does not wait for answers.
    refuses_server_requests: CancelToken,
    /// The requests in progress. All clients on a pipe share them.
    pub(crate) requests: Arc<RunningRequests>,
}

/// A client's answer to a server request: the result or the error, as JSON.
pub(crate) type Answer = Result<Box<RawValue>, Box<RawValue>>;

/// Why a client did not answer a server request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Too many server requests wait for the client.
    TooMany,
    /// The client has disconnected.
    Gone,
    /// The gateway stops.
    Stopping,
}

impl Client {
    pub(crate) fn new(
        era: Era,
        description: ClientDescription,
        principal: Principal,
        profile: Arc<str>,
        isolation_key: Option<u64>,
    ) -> Self {
        let id = ClientId::next();
        let capabilities = ClientCapabilities::parse(&description.capabilities);
        let modern_meta = format!(
            r#""{}":{},"{}":{}"#,
            meta::CLIENT_INFO,
            description.info,
            meta::CLIENT_CAPABILITIES,
            description.capabilities
        );
        Self {
            id,
            era,
            capabilities,
            principal,
            profile,
            isolation_key: isolation_key.unwrap_or(id.0),
            user_key: isolation_key.unwrap_or(id.0),
            is_anonymous: false,
            modern_meta: modern_meta.into(),
            session: Box::default(),
            label: OnceLock::new(),
            outbound: Outbound::default(),
            streams: AtomicUsize::new(0),
            active_at: Mutex::new(Instant::now()),
            log_level: AtomicU8::new(NO_LOGS),
            server_requests: Mutex::default(),
            next_server_request: AtomicU64::new(1),
            refuses_server_requests: CancelToken::new(),
            requests: Arc::default(),
            description,
        }
    }

    /// Returns the description's size in bytes. It is stored twice: in its original form, and in the form for modern servers.
    pub(crate) fn description_bytes(&self) -> usize {
        let ClientDescription { info, capabilities, .. } = &self.description;
        info.len() + capabilities.len() + self.modern_meta.len()
    }

    /// Returns the client's description in request records.
    pub(crate) fn label(&self) -> Arc<ClientLabel> {
        let ClientDescription { info, version, .. } = &self.description;
        self.label.get_or_init(|| Arc::new(ClientLabel::read(info, self.era, version, &self.session))).clone()
    }

    /// Returns the client's minimum log level, or `None` if it has not requested log messages.
    ///
    /// The specification lets a server choose what it sends before `logging/setLevel`
    /// (<https://modelcontextprotocol.io/specification/2025-11-25/server/utilities/logging>). The gateway sends nothing, because
    /// a shared server's messages may concern other clients.
    pub(crate) fn log_level(&self) -> Option<LogLevel> {
        Some(self.log_level.load(Ordering::Relaxed)).filter(|level| *level != NO_LOGS).map(LogLevel)
    }

    /// Returns `true` if the client has requested log messages at this level with `logging/setLevel`.
    pub(crate) fn wants_log(&self, level: LogLevel) -> bool {
        self.log_level().is_some_and(|wanted| wanted <= level)
    }

    /// Sets the client's minimum log level.
    pub(crate) fn set_log_level(&self, level: LogLevel) {
        self.log_level.store(level.0, Ordering::Relaxed);
    }

    /// Registers a running request. Returns `None` if its id is in use.
    pub(crate) fn begin(&self, id: &RawValue) -> Option<RunningRequest> {
        *lock(&self.active_at) = Instant::now();
        self.requests.begin(id)
    }

    /// Returns the number of running requests.
    pub(crate) fn running(&self) -> usize {
        self.requests.len()
    }

    /// Sends a server request to a legacy client and waits for the answer. Dropping the future withdraws the server request.
    pub(crate) async fn ask(&self, stream: &Outbound, method: &str, params: &RawValue) -> Result<Answer, Unanswered> {
        if self.refuses_server_requests.is_cancelled() {
            return Err(Unanswered::Stopping);
        }
        let number = self.next_server_request.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        {
            let mut server_requests = lock(&self.server_requests);
            if server_requests.len() >= MAX_SERVER_REQUESTS {
                return Err(Unanswered::TooMany);
            }
            server_requests.insert(number, sender);
        }
        let mut open = OpenServerRequest { client: self, stream, number, is_answered: false };
        let params = params.get();
        let message =
            single_line(format!(r#"{{"jsonrpc":"2.0","id":"rw-{number}","method":"{method}","params":{params}}}"#));
        if !stream.send(Frame::new(FrameKind::ServerRequest, message)) {
            return Err(Unanswered::Gone);
        }
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            () = self.refuses_server_requests.cancelled() => return Err(Unanswered::Stopping),
        };
        open.is_answered = answer.is_ok();
        answer.map_err(|_| Unanswered::Gone)
    }

    /// Withdraws all server requests, and refuses later ones, because the gateway stops.
    pub(crate) fn refuse_server_requests(&self) {
        self.refuses_server_requests.cancel();
    }

    /// Delivers the answer to a server request. Returns `false` if the server request is unknown or already answered.
    pub(crate) fn answer(&self, id: &RawValue, answer: Answer) -> bool {
        let text = serde_json::from_str::<&str>(id.get()).unwrap_or_default();
        let number = text.strip_prefix("rw-").and_then(|number| number.parse().ok());
        let sender = number.and_then(|number: u64| lock(&self.server_requests).remove(&number));
        sender.is_some_and(|sender| sender.send(answer).is_ok())
    }

    /// Counts an open stream to the client until the guard is dropped.
    pub(crate) fn open_stream(self: &Arc<Self>) -> OpenStream {
        self.streams.fetch_add(1, Ordering::Relaxed);
        OpenStream(self.clone())
    }

    /// Returns `true` if the client has neither running requests nor open streams.
    pub(crate) fn is_idle(&self) -> bool {
        self.running() == 0 && self.streams.load(Ordering::Relaxed) == 0
    }

    /// Returns `true` if messages reach the client without a request: on its pipe, or on a stream that it has opened.
    pub(crate) fn has_stream(&self) -> bool {
        self.session.is_empty() || self.streams.load(Ordering::Relaxed) > 0
    }

    /// Returns `true` if the client is connected: a session lasts longer than its client.
    pub(crate) fn is_present(&self) -> bool {
        let is_active = || !self.is_idle() || lock(&self.active_at).elapsed() < MAX_PRESENCE;
        !self.outbound.is_closed() && (self.session.is_empty() || is_active())
    }

    /// Ends everything that waits for the client, because it has disconnected.
    pub(crate) fn close(&self) {
        lock(&self.server_requests).clear();
        self.requests.cancel_all();
        self.outbound.close();
    }
}

/// An unanswered server request. Dropping it notifies the client that the request was withdrawn.
struct OpenServerRequest<'a> {
    client: &'a Client,
    stream: &'a Outbound,
    number: u64,
    is_answered: bool,
}

impl Drop for OpenServerRequest<'_> {
    fn drop(&mut self) {
        if self.is_answered || lock(&self.client.server_requests).remove(&self.number).is_none() {
            return;
        }
        let message = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":"rw-{}","reason":"{CANCEL_REASON}"}}}}"#,
            self.number
        );
        self.stream.send(Frame::new(FrameKind::ServerRequest, message));
    }
}

/// An open stream to a client.
pub(crate) struct OpenStream(Arc<Client>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capabilities(json: &str) -> ClientCapabilities {
        ClientCapabilities::parse(json)
    }

    #[test]
    fn an_empty_elicitation_capability_means_forms_only() {
        let forms = ClientCapabilities { form: true, ..ClientCapabilities::default() };
        assert_eq!(capabilities(r#"{"elicitation":{}}"#), forms);
        assert_eq!(capabilities(r#"{"elicitation":{"form":{}}}"#), forms);
        let urls = ClientCapabilities { url: true, ..ClientCapabilities::default() };
        assert_eq!(capabilities(r#"{"elicitation":{"url":{}}}"#), urls);
        let all = r#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{"listChanged":true},
            "extensions":{"io.modelcontextprotocol/tasks":{}},"experimental":{"x":1}}"#;
        let expected = ClientCapabilities { form: true, url: true, sampling: true, roots: true, tasks: true };
        assert_eq!(capabilities(all), expected);
        assert_eq!(capabilities(&expected.to_json()), expected);
        assert_eq!(capabilities(&forms.to_json()), forms);
        assert_eq!(ClientCapabilities::default().to_json(), "{}");
    }

    #[test]
    fn malformed_capabilities_count_as_absent() {
        for malformed in ["null", "[]", r#"{"elicitation":7}"#, r#"{"extensions":[]}"#] {
            assert_eq!(capabilities(malformed), ClientCapabilities::default(), "{malformed}");
        }
    }

    #[test]
    fn log_levels_are_ordered_by_severity() {
        let level = |name| LogLevel::parse(name).expect("a level");
        assert!(level("debug") < level("info") && level("error") < level("emergency"));
        assert_eq!(level("warning").name(), "warning");
        assert_eq!(LogLevel::parse("verbose"), None);
    }
}
