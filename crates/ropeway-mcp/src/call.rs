//! Tool calls and other requests, with tracing and events.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::connection::Connection;
use super::host::Host;
use super::request::Request;
use super::round_trips::Call;
use super::timeouts::RequestTimeouts;
use super::trace::CallTrace;
use crate::protocol::{Era, code};
use ropeway_core::error_chain::chain;
use ropeway_core::event::Event;
use ropeway_core::tool::{Arguments, BoxFuture, CallContext, CallError, ToolOutput};

/// Calls a tool by its name on the server, and emits an event with the outcome.
pub(crate) async fn call_tool(
    connection: &Arc<Connection>,
    tool: &str,
    arguments: Arguments,
    cx: &CallContext,
) -> Result<ToolOutput, CallError> {
    let cx = &cx.for_call();
    let timeouts = connection.timeouts(cx);
    let trace = CallTrace::of_tool(&connection.host, &connection.config.transport, tool, cx);
    let payload = |host: &Host| host.redacted_json(&arguments);
    let mut reporter = CallReporter::new(connection, (tool, &payload), cx, &trace, timeouts.started);
    let call = run_tool_call(connection, tool, &arguments, cx, timeouts, &trace);
    let outcome = match (connection.host.can_elicit(), trace.span.is_disabled()) {
        // Entering and leaving a disabled span at every poll would make the call five percent slower.
        (false, true) => call.await,
        (false, false) => Box::pin(call.instrument(trace.span.clone())).await,
        (true, _) => {
            let call = connection.host.elicitations.run_call(connection.alias(), call);
            Box::pin(call.instrument(trace.span.clone())).await
        }
    };
    reporter.report(Some(&outcome));
    outcome
}

/// A call result, as events describe it.
pub(super) trait ReportedResult {
    /// Returns `true` if the tool reported an error.
    fn is_error(&self) -> bool;

    /// Returns the result as redacted JSON.
    fn payload(&self, host: &Host) -> Arc<Value>;
}

impl ReportedResult for ToolOutput {
    fn is_error(&self) -> bool {
        self.is_error
    }

    fn payload(&self, host: &Host) -> Arc<Value> {
        host.redacted_json(self)
    }
}

/// Returns a call's arguments as redacted JSON, for listeners with payloads enabled.
pub(super) type ArgumentsPayload<'a> = dyn Fn(&Host) -> Arc<Value> + Send + Sync + 'a;

/// Records and emits a call's outcome, also if its future is dropped.
pub(super) struct CallReporter<'a> {
    connection: &'a Connection,
    tool: &'a str,
    arguments: &'a ArgumentsPayload<'a>,
    cx: &'a CallContext,
    trace: &'a CallTrace,
    started: Instant,
    done: bool,
}

impl<'a> CallReporter<'a> {
    /// Creates the reporter for a call to `tool` with `arguments`.
    pub(super) fn new(
        connection: &'a Connection,
        (tool, arguments): (&'a str, &'a ArgumentsPayload<'a>),
        cx: &'a CallContext,
        trace: &'a CallTrace,
        started: Instant,
    ) -> Self {
        Self { connection, tool, arguments, cx, trace, started, done: false }
    }

    pub(super) fn report<T: ReportedResult>(&mut self, outcome: Option<&Result<T, CallError>>) {
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        match outcome {
            Some(Ok(output)) if output.is_error() => self.trace.record_tool_error(),
            Some(Ok(_)) => {}
            Some(Err(error)) => self.trace.record_error(error),
            None => self.trace.record_error(&self.dropped()),
        }
        let host = &self.connection.host;
        if !host.events().has_listeners() && !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let took = self.started.elapsed();
        let (server, tool, call) = (self.connection.alias().clone(), host.redact(self.tool), self.cx.id().clone());
        let payloads = host.events().wants_payloads();
        let arguments = payloads.then(|| (self.arguments)(host));
        let event = match outcome {
            Some(Ok(output)) => {
                let result = payloads.then(|| output.payload(host));
                Event::ToolCalled { server, tool, call, took, is_error: output.is_error(), arguments, result }
            }
            Some(Err(error)) => Event::ToolFailed { server, tool, call, took, cause: chain(error), arguments },
            None => Event::ToolFailed { server, tool, call, took, cause: chain(&self.dropped()), arguments },
        };
        tracing::debug!(server = %self.connection.alias(), "{event}");
        host.events().emit(event);
    }

    /// Returns the error for a call whose future was dropped.
    fn dropped(&self) -> CallError {
        if self.cx.is_stopped() {
            CallError::Stopped { server: self.connection.alias().clone() }
        } else {
            CallError::Cancelled
        }
    }
}

impl Drop for CallReporter<'_> {
    fn drop(&mut self) {
        self.report::<ToolOutput>(None);
    }
}

/// Runs a tool call.
///
/// A future is as large as its largest branch, and is moved into the future that awaits it. Rare steps are therefore boxed,
/// here and in everything that a call awaits, so that an ordinary call does not pay for them.
async fn run_tool_call(
    connection: &Arc<Connection>,
    tool: &str,
    arguments: &Arguments,
    cx: &CallContext,
    timeouts: RequestTimeouts,
    trace: &CallTrace,
) -> Result<ToolOutput, CallError> {
    let session = connection.session(cx, timeouts).await?;
    trace.record_protocol_version(&session.info.protocol_version, &connection.host);
    let params = encode(connection, &ToolParams { name: tool, arguments })?;
    let request = Request { name: Some(tool), trace: Some(trace), ..Request::new("tools/call", b"", cx, timeouts) };
    let mut call = Call::new(connection, request, params);
    let era = session.era();
    let wants_headers = session.wants_headers();
    if wants_headers || session.info.has_capability(&["tasks", "requests", "tools", "call"]) {
        Box::pin(call.apply_definition(tool, arguments, &session, false)).await?;
    }
    let mut outcome = call.run(|output: &ToolOutput| &output.extra, session).await;
    // The headers were built from an outdated schema.
    if let Err(CallError::Refused { code: code::HEADER_MISMATCH, .. }) = outcome
        && wants_headers
    {
        let session = connection.session(cx, timeouts).await?;
        Box::pin(call.apply_definition(tool, arguments, &session, true)).await?;
        outcome = Box::pin(call.run(|output: &ToolOutput| &output.extra, session)).await;
    }
    // Only a modern server can return `null`
    // (https://modelcontextprotocol.io/specification/2025-11-25/schema#calltoolresult). Legacy servers send it for a result
    // without structured content.
    if let Ok(output) = &mut outcome
        && era == Era::Legacy
    {
        output.structured = output.structured.take().filter(|value| !value.is_null());
    }
    outcome
}

#[derive(Serialize)]
struct ToolParams<'a> {
    name: &'a str,
    arguments: &'a Arguments,
}

fn encode(connection: &Connection, params: &impl Serialize) -> Result<Vec<u8>, CallError> {
    serde_json::to_vec(params).map_err(|error| connection.decode_error(error))
}

/// Sends any MCP request and returns its final result.
///
/// Boxed, so that it is compiled here and not again in every crate that awaits it.
pub(crate) fn request<'a>(
    connection: &'a Arc<Connection>,
    method: &'a str,
    params: Map<String, Value>,
    cx: &'a CallContext,
) -> BoxFuture<'a, Result<Value, CallError>> {
    Box::pin(run_request(connection, method, params, cx))
}

async fn run_request(
    connection: &Arc<Connection>,
    method: &str,
    mut params: Map<String, Value>,
    cx: &CallContext,
) -> Result<Value, CallError> {
    // The caller's `_meta` is merged with the protocol's own `_meta`.
    let mut cx = cx.clone();
    if let Some(Value::Object(meta)) = params.shift_remove("_meta") {
        for (key, value) in meta {
            cx = cx.with_meta(key, value);
        }
    }
    let key = match method {
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" | "tasks/result" => "taskId",
        _ => "name",
    };
    let name = params.get(key).and_then(Value::as_str).map(str::to_owned);
    let timeouts = connection.timeouts(&cx);
    let trace = CallTrace::of_request(&connection.host, &connection.config.transport, method, name.as_deref(), &cx);
    let call = async {
        let session = connection.session(&cx, timeouts).await?;
        trace.record_protocol_version(&session.info.protocol_version, &connection.host);
        let (name, trace) = (name.as_deref(), Some(&trace));
        let request = Request::new(method, b"", &cx, timeouts);
        let request = Request { name, trace, idempotent: is_idempotent(method), ..request };
        let call = Call::new(connection, request, encode(connection, &params)?);
        call.run(|result: &Map<String, Value>| result, session).await.map(Value::Object)
    };
    let outcome = if connection.host.can_elicit() {
        let call = connection.host.elicitations.run_call(connection.alias(), call);
        Box::pin(call.instrument(trace.span.clone())).await
    } else {
        call.instrument(trace.span.clone()).await
    };
    if let Err(error) = &outcome {
        trace.record_error(error);
    }
    outcome
}

/// Returns `true` if a request may be sent twice. Unknown methods may have any effect.
pub(super) fn is_idempotent(method: &str) -> bool {
    matches!(
        method,
        "completion/complete"
            | "initialize"
            | "logging/setLevel"
            | "ping"
            | "prompts/get"
            | "prompts/list"
            | "resources/list"
            | "resources/read"
            | "resources/subscribe"
            | "resources/templates/list"
            | "resources/unsubscribe"
            | "server/discover"
            | "tasks/cancel"
            | "tasks/get"
            | "tasks/list"
            | "tasks/result"
            | "tools/list"
    )
}

/// Measures the round-trip time with a request that has no side effects.
pub(crate) async fn ping(connection: &Arc<Connection>) -> Result<Duration, CallError> {
    let cx = CallContext::default();
    let session = connection.session(&cx, connection.timeouts(&cx)).await?;
    let method = match session.era() {
        Era::Legacy => "ping",
        // The modern era has no `ping`.
        Era::Modern => "server/discover",
    };
    let timeouts = connection.timeouts(&cx);
    let request = Request::new(method, b"{}", &cx, timeouts);
    match connection.request(&Request { idempotent: true, ..request }, Some(session)).await {
        // A server that rejects the request is alive.
        Ok(_) | Err(CallError::Refused { .. }) => Ok(timeouts.started.elapsed()),
        Err(error) => Err(error),
    }
}
