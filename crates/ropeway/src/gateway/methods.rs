//! The methods that clients call, and those that the gateway answers itself.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::calls;
use super::client::{Client, ClientDescription, LogLevel, RunningRequest};
use super::errors::ErrorReply;
use super::exchange::{Dispatch, Exchange, Outcome, Work};
use super::header_view::HeaderView;
use super::limits::{CallClient, CallPermit};
use super::listen;
use super::lists;
use super::reply::{Reply, ResultExtras};
use super::shared::GatewayShared;
use super::subscribe;
use crate::protocol::{ClientParams, Era, LATEST_LEGACY, LEGACY_VERSIONS, MODERN};

/// Maximum size of the capabilities, and of the name and version, of a client. Both are kept as long as its session.
const MAX_DESCRIPTION_BYTES: usize = 16 << 10;

/// A method of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Initialize,
    Ping,
    SetLevel,
    Discover,
    Listen,
    ListTools,
    CallTool,
    ListPrompts,
    GetPrompt,
    ListResources,
    ListTemplates,
    ReadResource,
    Subscribe,
    Unsubscribe,
    Complete,
    GetTask,
    UpdateTask,
    CancelTask,
    ListTasks,
    TaskResult,
}

/// The eras in which a method exists.
enum Eras {
    Legacy,
    Modern,
    Both,
}

impl Method {
    /// Finds a method by its name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "initialize" => Self::Initialize,
            "ping" => Self::Ping,
            "logging/setLevel" => Self::SetLevel,
            "server/discover" => Self::Discover,
            "subscriptions/listen" => Self::Listen,
            "tools/list" => Self::ListTools,
            "tools/call" => Self::CallTool,
            "prompts/list" => Self::ListPrompts,
            "prompts/get" => Self::GetPrompt,
            "resources/list" => Self::ListResources,
            "resources/templates/list" => Self::ListTemplates,
            "resources/read" => Self::ReadResource,
            "resources/subscribe" => Self::Subscribe,
            "resources/unsubscribe" => Self::Unsubscribe,
            "completion/complete" => Self::Complete,
            "tasks/get" => Self::GetTask,
            "tasks/update" => Self::UpdateTask,
            "tasks/cancel" => Self::CancelTask,
            "tasks/list" => Self::ListTasks,
            "tasks/result" => Self::TaskResult,
            _ => return None,
        })
    }

    /// Returns the parameter that names the target, which modern clients repeat in the header `Mcp-Name`.
    pub(crate) fn target(self) -> Option<&'static str> {
        match self {
            Self::CallTool | Self::GetPrompt => Some("name"),
            Self::ReadResource | Self::Subscribe | Self::Unsubscribe => Some("uri"),
            Self::GetTask | Self::UpdateTask | Self::CancelTask | Self::TaskResult => Some("taskId"),
            _ => None,
        }
    }

    fn eras(self) -> Eras {
        match self {
            Self::Initialize
            | Self::Ping
            | Self::SetLevel
            | Self::Subscribe
            | Self::Unsubscribe
            | Self::ListTasks
            | Self::TaskResult => Eras::Legacy,
            Self::Discover | Self::Listen | Self::UpdateTask => Eras::Modern,
            _ => Eras::Both,
        }
    }

    /// Returns `true` if the method exists in an era.
    pub(crate) fn is_in(self, era: Era) -> bool {
        match self.eras() {
            Eras::Both => true,
            Eras::Legacy => era == Era::Legacy,
            Eras::Modern => era == Era::Modern,
        }
    }
}

/// A request and the client that sent it.
pub(crate) struct Requester<'a> {
    pub(crate) client: Arc<Client>,
    /// What the request counts for.
    pub(crate) counted: CallClient,
    pub(crate) headers: Option<&'a HeaderView<'a>>,
    /// The whole message. Parameters are slices of it.
    pub(crate) body: &'a Bytes,
    pub(crate) id: &'a RawValue,
}

/// A request in progress, and everything that ends with it.
pub(crate) struct Started {
    pub(crate) exchange: Arc<Exchange>,
    /// `None` for modern clients over HTTP, which cancel by closing the request.
    pub(crate) running: Option<RunningRequest>,
    pub(crate) permit: CallPermit,
}

impl Requester<'_> {
    /// Returns the slice of the message that a value was read from.
    pub(crate) fn slice(&self, value: &RawValue) -> Bytes {
        self.body.slice_ref(value.get().as_bytes())
    }

    /// Registers the request, so that the client can cancel it by its id. `None` for modern HTTP clients, which cancel by closing
    /// the request.
    pub(crate) fn register(&self) -> Result<Option<RunningRequest>, ErrorReply> {
        if self.client.is_anonymous {
            return Ok(None);
        }
        self.client.begin(self.id).map(Some).ok_or_else(ErrorReply::duplicate_id)
    }

    /// Begins a request that takes time.
    pub(crate) fn start(&self, shared: &GatewayShared, params: &ClientParams<'_>) -> Result<Started, ErrorReply> {
        if shared.draining.is_cancelled() {
            return Err(ErrorReply::overloaded("the gateway is stopping"));
        }
        let level = match params.meta.log_level.as_deref().filter(|_| self.client.era == Era::Modern) {
            Some(name) => Some(LogLevel::parse(name).ok_or_else(|| unknown_level(name))?),
            None => None,
        };
        let running = self.register()?;
        let permit = shared.limits.call(self.counted);
        let permit = permit.map_err(|error| ErrorReply::refused(error.status(), error.to_string()))?;
        let exchange = Exchange::new(self.client.clone(), self.id, params.meta.progress_token, level);
        Ok(Started { exchange, running, permit })
    }
}

impl Started {
    /// Makes the work of the request: it is cancelled with the request, and holds its place until it ends.
    pub(crate) fn run<F>(self, shared: &Arc<GatewayShared>, work: impl FnOnce(Arc<Exchange>) -> F) -> Dispatch
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let Self { exchange, running, permit } = self;
        let guard = shared.exchanges.enter(&exchange);
        let work = work(exchange.clone());
        let work: Work = Box::pin(async move {
            let _held = (permit, guard);
            until_cancelled(running, work).await
        });
        Dispatch::Running { exchange, work }
    }
}

/// Runs the work of a request until the client cancels it, which needs no response.
pub(crate) async fn until_cancelled(
    running: Option<RunningRequest>,
    work: impl Future<Output = Outcome> + Send,
) -> Outcome {
    let Some(running) = running else { return work.await };
    tokio::select! {
        biased;
        () = running.token().cancelled() => Outcome::Silent,
        outcome = work => outcome,
    }
}

/// Handles a request of a client whose era and version are checked.
pub(crate) fn handle(
    shared: &Arc<GatewayShared>,
    requester: Requester<'_>,
    method: Method,
    params: &ClientParams<'_>,
) -> Result<Dispatch, ErrorReply> {
    match method {
        Method::Initialize => Err(ErrorReply::invalid_request("the client is initialized already")),
        Method::Ping => Ok(pong(shared, requester.id)),
        Method::SetLevel => set_level(shared, &requester, params),
        Method::Discover => Ok(discover(shared, &requester)),
        Method::Listen => listen::listen(shared, &requester, params),
        Method::ListTools | Method::ListPrompts | Method::ListResources | Method::ListTemplates => {
            lists::list(shared, &requester, method, params)
        }
        Method::CallTool => calls::call_tool(shared, &requester, params),
        Method::GetPrompt => calls::get_prompt(shared, &requester, params),
        Method::ReadResource => calls::read_resource(shared, &requester, params),
        Method::Complete => calls::complete(shared, &requester, params),
        Method::Subscribe => subscribe::subscribe(shared, &requester, params),
        Method::Unsubscribe => subscribe::unsubscribe(shared, &requester, params),
        Method::GetTask | Method::UpdateTask | Method::CancelTask | Method::ListTasks | Method::TaskResult => {
            calls::task(shared, &requester, method, params)
        }
    }
}

/// Answers `ping`.
pub(crate) fn pong(shared: &GatewayShared, id: &RawValue) -> Dispatch {
    done(shared, id, Era::Legacy, &json!({}), ResultExtras::default())
}

/// Responds with a result of the gateway.
fn done(shared: &GatewayShared, id: &RawValue, era: Era, result: &Value, extras: ResultExtras) -> Dispatch {
    let info = shared.info_text();
    let reply = Reply::for_client(id, result.to_string().into(), Era::Legacy, era, extras, Some(&info));
    Dispatch::Done { status: 200, reply }
}

/// Reads what a legacy client says about itself in `initialize`.
pub(crate) fn describe_client(params: &ClientParams<'_>) -> Result<ClientDescription, ErrorReply> {
    let requested =
        params.get("protocolVersion").and_then(|version| serde_json::from_str::<String>(version.get()).ok());
    let requested = requested.ok_or_else(|| ErrorReply::invalid_params("`protocolVersion` is missing"))?;
    let version = LEGACY_VERSIONS.iter().find(|version| **version == requested).unwrap_or(&LATEST_LEGACY);
    let object = |key: &str| params.get(key).map(RawValue::get).filter(|text| text.starts_with('{'));
    for key in ["capabilities", "clientInfo"] {
        if object(key).is_some_and(|text| text.len() > MAX_DESCRIPTION_BYTES) {
            return Err(ErrorReply::invalid_params(format!("`{key}` is longer than {MAX_DESCRIPTION_BYTES} bytes")));
        }
    }
    Ok(ClientDescription {
        version: (*version).into(),
        capabilities: object("capabilities").unwrap_or("{}").into(),
        info: object("clientInfo").unwrap_or(r#"{"name":"unknown","version":"0"}"#).into(),
    })
}

/// Answers `initialize`.
pub(crate) fn initialized(shared: &GatewayShared, id: &RawValue, profile: &str, client: &ClientDescription) -> Reply {
    let description = shared.describe(profile, Era::Legacy);
    let mut result = json!({
        "protocolVersion": client.version,
        "capabilities": description.capabilities,
        "serverInfo": description.info,
    });
    if let Some(instructions) = description.instructions {
        result["instructions"] = instructions.into();
    }
    Reply::result(id, result.to_string().into())
}

/// Answers `server/discover`.
fn discover(shared: &GatewayShared, requester: &Requester<'_>) -> Dispatch {
    let description = shared.describe(&requester.client.profile, Era::Modern);
    let mut result = json!({"supportedVersions": [MODERN], "capabilities": description.capabilities});
    if let Some(instructions) = description.instructions {
        result["instructions"] = instructions.into();
    }
    let meta = Map::from_iter([(crate::protocol::meta::SERVER_INFO.to_owned(), description.info)]);
    result["_meta"] = Value::Object(meta);
    done(shared, requester.id, Era::Modern, &result, ResultExtras::cacheable(0))
}

/// Sets the level of log messages of a legacy client.
fn set_level(
    shared: &Arc<GatewayShared>,
    requester: &Requester<'_>,
    params: &ClientParams<'_>,
) -> Result<Dispatch, ErrorReply> {
    let name = params.get("level").and_then(|level| serde_json::from_str::<String>(level.get()).ok());
    let name = name.ok_or_else(|| ErrorReply::invalid_params("`level` is missing"))?;
    let level = LogLevel::parse(&name).ok_or_else(|| unknown_level(&name))?;
    requester.client.set_log_level(level);
    shared.sessions.note(&requester.client, |notes| notes.log_level = Some(level.name().to_owned()));
    shared.update_log_levels();
    Ok(done(shared, requester.id, Era::Legacy, &json!({}), ResultExtras::default()))
}

fn unknown_level(name: &str) -> ErrorReply {
    ErrorReply::invalid_params(format!("`{}` is not a log level", name.escape_debug()))
}
