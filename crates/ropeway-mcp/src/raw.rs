//! Raw requests, whose params and results are not parsed.

use std::borrow::Cow;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use memchr::memchr2;
use serde_json::{Map, Value};
use tracing::Instrument as _;

use super::call::{CallReporter, ReportedResult, is_idempotent};
use super::client::Mcp;
use super::connection::Connection;
use super::host::Host;
use super::mcp_tool;
use super::message_handler::LinkKey;
use super::raw_caller::RawCaller;
use super::raw_response::RawObject;
use super::request::Request;
use super::round_trips::Call;
use super::server_info::ServerInfo;
use super::session::Session;
use super::subscriptions::SubscriptionHold;
use super::timeouts::RequestTimeouts;
use super::tools;
use super::trace::{CallTrace, network_transport};
use crate::protocol::{Era, HeaderParams, code};
use ropeway_core::tool::{Arguments, CallContext, CallError, ToolDefinition};

/// A request whose params and result stay text.
#[derive(Clone, Debug)]
pub struct RawRequest {
    /// MCP method, such as `tools/call`.
    pub method: Cow<'static, str>,
    /// The params, with the server's own tool or prompt name: a JSON object's text without `_meta`.
    pub params: Bytes,
    /// The tool, prompt, resource or task that the request is about (`Mcp-Name`).
    pub name: Option<String>,
    /// The forwarded `_meta` entries: a JSON object's text without its braces.
    pub meta: String,
    /// `clientInfo`, `clientCapabilities` and `logLevel` for a modern server, in the same form. A legacy server does not get
    /// them.
    pub modern_meta: Arc<str>,
    /// The tool's arguments, if it may have header params.
    pub arguments: Option<Bytes>,
    /// Whether a legacy server runs the tool only as a task. The task is polled until it ends.
    pub as_task: bool,
}

/// The successful response to a [`RawRequest`].
#[derive(Clone, Debug)]
pub struct RawReply {
    /// The result as received: one JSON object in valid UTF-8.
    pub result: Bytes,
    /// Whether the tool reported an error.
    pub is_error: bool,
    /// Where the result holds the `resultType` value, if present.
    pub result_type: Option<Range<usize>>,
    /// The server that answered.
    pub info: Arc<ServerInfo>,
}

impl RawReply {
    fn new(RawObject { text, is_error, result_type }: RawObject, info: &Arc<ServerInfo>) -> Self {
        Self { result: text, is_error, result_type, info: info.clone() }
    }
}

impl ReportedResult for RawReply {
    fn is_error(&self) -> bool {
        self.is_error
    }

    fn payload(&self, host: &Host) -> Arc<Value> {
        host.redacted_json(&serde_json::from_slice::<Value>(&self.result).unwrap_or_default())
    }
}

impl Mcp {
    /// Sends one request and returns its result unparsed: one round, without input rounds. Dropping the future cancels the
    /// request.
    pub fn forward(
        &self,
        request: RawRequest,
        caller: Arc<dyn RawCaller>,
        cx: CallContext,
    ) -> impl Future<Output = Result<RawReply, CallError>> + Send + 'static + use<> {
        let connection = self.inner.connection.clone();
        async move { RawCall::run(&connection, &request.in_one_line(), &caller, &cx).await }
    }

    /// Sends a notification, if the server is connected.
    pub fn notify(&self, message: Vec<u8>) {
        let Some(session) = self.inner.connection.current_session() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            // The supervisor notices a failed link.
            let _ = session.link.notify(message).await;
        });
    }

    /// Sets the minimum log level for a legacy server, also after a reconnect. Modern requests carry their own level.
    pub fn set_log_level(&self, level: &'static str) {
        self.inner.connection.log_level.send_if_modified(|current| current.replace(level) != Some(level));
    }

    /// Returns a tool from the cached list, and its header params if the server uses them.
    pub fn listed_tool(&self, name: &str) -> Option<(Arc<ToolDefinition>, HeaderParams)> {
        let list = self.inner.connection.tools()?;
        let listed = list.get(name)?;
        Some((listed.definition.clone(), listed.headers.clone()))
    }

    /// Fails if the server's tool definition differs from this one. Fetches the tool list if it is stale.
    pub async fn check_unchanged(&self, definition: &ToolDefinition, cx: &CallContext) -> Result<(), CallError> {
        mcp_tool::check_unchanged(&self.inner.connection, definition, cx).await
    }

    /// Returns the network transport: `pipe`, `tcp` or `unix`.
    pub fn network_transport(&self) -> &'static str {
        network_transport(&self.inner.connection.config.transport)
    }

    /// Reads the stored tokens again, because they have changed. Returns `false` if the connection has none now.
    pub async fn reload_tokens(&self) -> bool {
        let Some(auth) = self.inner.connection.host.authorizer() else { return false };
        if let Err(error) = auth.load().await {
            tracing::debug!(server = %self.alias(), "could not read the stored tokens: {error}");
        }
        auth.has_token()
    }

    /// Returns `true` if the stored tokens have changed since the connection read them.
    pub async fn has_new_tokens(&self) -> bool {
        match self.inner.connection.host.authorizer() {
            Some(auth) => auth.has_new_tokens().await,
            None => false,
        }
    }

    /// Subscribes to changes to a resource until the hold is dropped, also after a reconnect.
    pub fn hold_subscription(&self, uri: &Arc<str>) -> SubscriptionHold {
        SubscriptionHold::new(self.inner.connection.host.clone(), uri.clone())
    }

    /// Returns the connection's key, which server requests and notifications name.
    pub fn link(&self) -> LinkKey {
        self.inner.connection.host.link()
    }
}

impl RawRequest {
    /// Replaces line breaks, which end a message on a pipe. JSON has none within strings.
    fn in_one_line(mut self) -> Self {
        let has_breaks = |text: &[u8]| memchr2(b'\n', b'\r', text).is_some();
        if has_breaks(&self.params) {
            let without = |byte: &u8| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte };
            self.params = self.params.iter().map(without).collect();
        }
        if has_breaks(self.meta.as_bytes()) {
            self.meta = self.meta.replace(['\n', '\r'], " ");
        }
        if has_breaks(self.modern_meta.as_bytes()) {
            self.modern_meta = self.modern_meta.replace(['\n', '\r'], " ").into();
        }
        self
    }

    /// Returns the call's arguments as redacted JSON.
    fn arguments_payload(&self, host: &Host) -> Arc<Value> {
        let mut params: Value = serde_json::from_slice(&self.params).unwrap_or_default();
        host.redacted_json(&params["arguments"].take())
    }

    /// Returns the tool's name, if this is a tool call.
    fn tool(&self) -> Option<&str> {
        self.name.as_deref().filter(|_| self.method == "tools/call")
    }
}

/// A raw request that is being sent.
struct RawCall<'a> {
    connection: &'a Arc<Connection>,
    request: &'a RawRequest,
    caller: &'a Arc<dyn RawCaller>,
    cx: &'a CallContext,
    timeouts: RequestTimeouts,
    trace: &'a CallTrace,
}

impl RawCall<'_> {
    /// Sends a request, with tracing and, if it is a tool call, an event with its outcome.
    async fn run(
        connection: &Arc<Connection>,
        request: &RawRequest,
        caller: &Arc<dyn RawCaller>,
        cx: &CallContext,
    ) -> Result<RawReply, CallError> {
        let cx = &cx.for_call();
        let timeouts = connection.timeouts(cx);
        let (host, transport) = (&*connection.host, &connection.config.transport);
        let trace = &match request.tool() {
            Some(tool) => CallTrace::of_tool(host, transport, tool, cx),
            None => CallTrace::of_request(host, transport, &request.method, request.name.as_deref(), cx),
        };
        let payload = |host: &Host| request.arguments_payload(host);
        let mut reporter =
            request.tool().map(|tool| CallReporter::new(connection, (tool, &payload), cx, trace, timeouts.started));
        let raw = RawCall { connection, request, caller, cx, timeouts, trace };
        let call = raw.send();
        let outcome =
            if trace.span.is_disabled() { call.await } else { Box::pin(call.instrument(trace.span.clone())).await };
        match &mut reporter {
            Some(reporter) => reporter.report(Some(&outcome)),
            None => outcome.as_ref().err().into_iter().for_each(|error| trace.record_error(error)),
        }
        outcome
    }

    async fn send(&self) -> Result<RawReply, CallError> {
        let session = self.connection.session(self.cx, self.timeouts).await?;
        self.trace.record_protocol_version(&session.info.protocol_version, &self.connection.host);
        if self.request.as_task && session.era() == Era::Legacy {
            return Box::pin(self.run_task(session)).await;
        }
        let Some(arguments) = self.request.arguments.as_ref().filter(|_| session.wants_headers()) else {
            return self.send_once(session, &[]).await;
        };
        let headers = Box::pin(self.header_params(arguments, false)).await?;
        match self.send_once(session, &headers).await {
            // The headers were built from an outdated schema.
            Err(CallError::Refused { code: code::HEADER_MISMATCH, .. }) => {
                let headers = Box::pin(self.header_params(arguments, true)).await?;
                let session = self.connection.session(self.cx, self.timeouts).await?;
                Box::pin(self.send_once(session, &headers)).await
            }
            outcome => outcome,
        }
    }

    async fn send_once(&self, session: Arc<Session>, headers: &[(String, String)]) -> Result<RawReply, CallError> {
        let RawRequest { method, params, name, meta, modern_meta, .. } = self.request;
        let request = Request {
            name: name.as_deref(),
            client_meta: meta,
            modern_meta: Some(modern_meta),
            headers,
            idempotent: is_idempotent(method),
            trace: Some(self.trace),
            caller: Some(self.caller),
            ..Request::new(method, params, self.cx, self.timeouts)
        };
        let (response, session) = self.connection.request(&request, Some(session)).await?;
        let object = response.into_raw(&self.connection.host).map_err(|error| self.connection.decode_error(error))?;
        Ok(RawReply::new(object, &session.info))
    }

    /// Returns the headers for the arguments, by the tool's definition.
    async fn header_params(&self, arguments: &Bytes, refetch: bool) -> Result<Vec<(String, String)>, CallError> {
        let Some(tool) = self.request.tool() else { return Ok(Vec::new()) };
        let list = match self.connection.tools().filter(|list| !refetch && list.get(tool).is_some()) {
            Some(list) => list,
            None => tools::fetch(self.connection, self.cx).await?,
        };
        let arguments: Arguments = serde_json::from_slice(arguments).unwrap_or_default();
        Ok(list.get(tool).map(|listed| listed.headers.headers(&arguments)).unwrap_or_default())
    }

    /// Runs a tool call as a task on a legacy server.
    async fn run_task(&self, session: Arc<Session>) -> Result<RawReply, CallError> {
        let RawRequest { method, params, name, meta, .. } = self.request;
        let info = session.info.clone();
        let (connection, name) = (self.connection, name.as_deref());
        let request = Request {
            name,
            client_meta: meta,
            trace: Some(self.trace),
            caller: Some(self.caller),
            ..Request::new(method, b"", self.cx, self.timeouts)
        };
        let mut call = Call::new(connection, request, params.to_vec());
        call.apply_definition(name.unwrap_or_default(), &Arguments::new(), &session, false).await?;
        let result = call.run(|result: &Map<String, Value>| result, session).await?;
        let result = Bytes::from(Value::Object(result).to_string());
        let object = RawObject::of(&result)
            .ok_or_else(|| connection.decode_error(serde::de::Error::custom("the result is not an object")))?;
        Ok(RawReply::new(object, &info))
    }
}

#[cfg(test)]
mod tests;
