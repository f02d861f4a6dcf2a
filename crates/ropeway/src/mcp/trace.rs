//! The trace of one call: its span, and what goes to the server of it.
//!
//! The names are those of OpenTelemetry's conventions for MCP and for generative AI.

use std::fmt;

use tracing::Span;
use tracing::field::Empty;
use tracing::subscriber::NoSubscriber;

use super::host::Host;
use super::session::Session;
use super::shared::Shared;
use crate::config::Transport;
use crate::tool::{CallContext, CallError, TraceParent};

/// The key of `_meta` for it.
const TRACEPARENT: &str = "traceparent";

/// One call as tracing sees it. While nobody traces it is nothing, and costs nothing.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) span: Span,
    /// What the server is told, unless the caller tells it by itself.
    pub(crate) parent: Option<TraceParent>,
}

impl Trace {
    /// A call of a tool.
    pub(crate) fn of_tool(shared: &Shared, tool: &str, cx: &CallContext) -> Self {
        let span = tracing::info_span!(
            "mcp.client",
            otel.name = %format_args!("tools/call {}", shared.host.mask().hide(tool)),
            otel.kind = "client",
            otel.status_code = Empty,
            server = %shared.alias(),
            mcp.method.name = "tools/call",
            mcp.protocol.version = Empty,
            gen_ai.operation.name = "execute_tool",
            gen_ai.tool.name = %shared.host.mask().hide(tool),
            gen_ai.tool.call.id = %cx.id(),
            jsonrpc.request.id = Empty,
            network.transport = network_transport(shared),
            network.protocol.name = network_protocol(shared),
            "error.type" = Empty,
            rpc.response.status_code = Empty,
            traceparent = Empty,
        );
        Self::new(span, cx)
    }

    /// Any other request, about the thing of this name.
    pub(crate) fn of_request(shared: &Shared, method: &str, name: Option<&str>, cx: &CallContext) -> Self {
        let tool = name.filter(|_| method == "tools/call");
        let prompt = name.filter(|_| method == "prompts/get");
        let uri = name.filter(|_| method == "resources/read");
        let span = tracing::info_span!(
            "mcp.client",
            otel.name = %SpanName { method, target: tool.or(prompt).map(|name| shared.host.hide(name)) },
            otel.kind = "client",
            otel.status_code = Empty,
            server = %shared.alias(),
            mcp.method.name = method,
            mcp.protocol.version = Empty,
            mcp.resource.uri = uri.map(|uri| shared.host.hide(uri)),
            gen_ai.operation.name = tool.map(|_| "execute_tool"),
            gen_ai.tool.name = tool.map(|name| shared.host.hide(name)),
            gen_ai.prompt.name = prompt.map(|name| shared.host.hide(name)),
            jsonrpc.request.id = Empty,
            network.transport = network_transport(shared),
            network.protocol.name = network_protocol(shared),
            "error.type" = Empty,
            rpc.response.status_code = Empty,
            traceparent = Empty,
        );
        Self::new(span, cx)
    }

    fn new(span: Span, cx: &CallContext) -> Self {
        let parent = match cx.traceparent() {
            _ if cx.meta().contains_key(TRACEPARENT) => None,
            Some(parent) => Some(parent.child()),
            None if is_seen(&span) => Some(TraceParent::random()),
            None => None,
        };
        if let Some(parent) = parent.filter(|_| is_seen(&span)) {
            span.record(TRACEPARENT, tracing::field::display(parent));
        }
        Self { span, parent }
    }

    /// The call is made on this session.
    pub(crate) fn on(&self, session: &Session, host: &Host) {
        if !self.span.is_disabled() {
            self.span.record("mcp.protocol.version", host.hide(&session.info.protocol_version));
        }
    }

    /// The tool says that it failed.
    pub(crate) fn tool_failed(&self) {
        self.failed("tool_error");
    }

    /// The call has no answer.
    pub(crate) fn has_failed(&self, error: &CallError) {
        if self.span.is_disabled() {
            return;
        }
        let kind = match error {
            CallError::Refused { code, .. } => {
                let code = code.to_string();
                self.span.record("rpc.response.status_code", code.as_str());
                return self.failed(&code);
            }
            CallError::UnknownTool { .. }
            | CallError::InvalidArguments { .. }
            | CallError::Denied { .. }
            | CallError::Changed { .. }
            | CallError::Hidden { .. }
            | CallError::Failed { .. } => "_OTHER",
            error => error.kind(),
        };
        self.failed(kind);
    }

    fn failed(&self, kind: &str) {
        self.span.record("error.type", kind);
        self.span.record("otel.status_code", "ERROR");
    }
}

/// What a span is called: the method, and the tool or prompt. A URI would make as many names as there are resources.
struct SpanName<'a> {
    method: &'a str,
    target: Option<String>,
}

impl fmt::Display for SpanName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Some(target) => write!(f, "{} {target}", self.method),
            None => f.write_str(self.method),
        }
    }
}

/// Does anybody see the span? One that is seen on other threads only is not disabled here either.
pub(crate) fn is_seen(span: &Span) -> bool {
    !span.is_disabled() && tracing::dispatcher::get_default(|dispatch| !dispatch.is::<NoSubscriber>())
}

fn network_transport(shared: &Shared) -> &'static str {
    match shared.config.transport {
        Transport::Stdio(_) | Transport::InProcess(_) => "pipe",
        Transport::Http(_) | Transport::Sse(_) => "tcp",
    }
}

fn network_protocol(shared: &Shared) -> Option<&'static str> {
    matches!(shared.config.transport, Transport::Http(_) | Transport::Sse(_)).then_some("http")
}
