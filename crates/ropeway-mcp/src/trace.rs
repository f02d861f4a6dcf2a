//! One call's tracing span, and the `traceparent` that is sent to the server.
//!
//! Names follow the OpenTelemetry semantic conventions for
//! [MCP](https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/) and
//! [generative AI](https://opentelemetry.io/docs/specs/semconv/gen-ai/).

use std::fmt;

use tracing::Span;
use tracing::field::Empty;
use tracing::subscriber::NoSubscriber;

use super::host::Host;
use ropeway_config::Transport;
use ropeway_core::tool::{CallContext, CallError, TraceParent};

/// The key in `_meta` ([W3C Trace Context](https://www.w3.org/TR/trace-context/#traceparent-header)).
const TRACEPARENT: &str = "traceparent";

/// One call's span. Without a subscriber it is disabled and costs nothing.
#[derive(Debug)]
pub(crate) struct CallTrace {
    pub(crate) span: Span,
    /// The `traceparent` to send, unless the caller sets one in `_meta`.
    pub(crate) parent: Option<TraceParent>,
}

impl CallTrace {
    /// Creates the span for a tool call.
    pub(crate) fn of_tool(host: &Host, transport: &Transport, tool: &str, cx: &CallContext) -> Self {
        let span = tracing::info_span!(
            "mcp.client",
            otel.name = %format_args!("tools/call {}", host.redactor().redact(tool)),
            otel.kind = "client",
            otel.status_code = Empty,
            server = %host.alias(),
            mcp.method.name = "tools/call",
            mcp.protocol.version = Empty,
            gen_ai.operation.name = "execute_tool",
            gen_ai.tool.name = %host.redactor().redact(tool),
            gen_ai.tool.call.id = %cx.id(),
            jsonrpc.request.id = Empty,
            network.transport = network_transport(transport),
            network.protocol.name = network_protocol(transport),
            "error.type" = Empty,
            rpc.response.status_code = Empty,
            traceparent = Empty,
        );
        Self::new(span, cx)
    }

    /// Creates the span for any other request. `name` is the tool, prompt or resource that it is about.
    pub(crate) fn of_request(
        host: &Host,
        transport: &Transport,
        method: &str,
        name: Option<&str>,
        cx: &CallContext,
    ) -> Self {
        let tool = name.filter(|_| method == "tools/call");
        let prompt = name.filter(|_| method == "prompts/get");
        let uri = name.filter(|_| method == "resources/read");
        let span = tracing::info_span!(
            "mcp.client",
            otel.name = %SpanName { method, target: tool.or(prompt).map(|name| host.redact(name)) },
            otel.kind = "client",
            otel.status_code = Empty,
            server = %host.alias(),
            mcp.method.name = method,
            mcp.protocol.version = Empty,
            mcp.resource.uri = uri.map(|uri| host.redact(uri)),
            gen_ai.operation.name = tool.map(|_| "execute_tool"),
            gen_ai.tool.name = tool.map(|name| host.redact(name)),
            gen_ai.prompt.name = prompt.map(|name| host.redact(name)),
            jsonrpc.request.id = Empty,
            network.transport = network_transport(transport),
            network.protocol.name = network_protocol(transport),
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
            None if is_recorded(&span) => Some(TraceParent::random()),
            None => None,
        };
        if let Some(parent) = parent.filter(|_| is_recorded(&span)) {
            span.record(TRACEPARENT, tracing::field::display(parent));
        }
        Self { span, parent }
    }

    /// Records the protocol version that the call's session uses.
    pub(crate) fn record_protocol_version(&self, version: &str, host: &Host) {
        if !self.span.is_disabled() {
            self.span.record("mcp.protocol.version", host.redact(version));
        }
    }

    /// Records that the tool reported an error.
    pub(crate) fn record_tool_error(&self) {
        self.record_failure("tool_error");
    }

    /// Records that the call failed.
    pub(crate) fn record_error(&self, error: &CallError) {
        if self.span.is_disabled() {
            return;
        }
        let kind = match error {
            CallError::Refused { code, .. } => {
                let code = code.to_string();
                self.span.record("rpc.response.status_code", code.as_str());
                return self.record_failure(&code);
            }
            CallError::UnknownTool { .. }
            | CallError::UnlistedTool { .. }
            | CallError::InvalidArguments { .. }
            | CallError::Denied { .. }
            | CallError::Changed { .. }
            | CallError::Hidden { .. }
            | CallError::Failed { .. } => "_OTHER",
            error => error.kind(),
        };
        self.record_failure(kind);
    }

    fn record_failure(&self, kind: &str) {
        self.span.record("error.type", kind);
        self.span.record("otel.status_code", "ERROR");
    }
}

/// A span's name: the method and the tool or prompt. Resource URIs are left out, to limit the number of names.
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

/// Returns `true` if a subscriber on this thread records the span. A span that is recorded only on other threads is not
/// disabled here either.
pub fn is_recorded(span: &Span) -> bool {
    !span.is_disabled() && tracing::dispatcher::get_default(|dispatch| !dispatch.is::<NoSubscriber>())
}

/// Returns the `network.transport` value.
pub(crate) fn network_transport(transport: &Transport) -> &'static str {
    match transport {
        Transport::Stdio(_) | Transport::InProcess(_) => "pipe",
        Transport::Http(_) | Transport::Sse(_) => "tcp",
        Transport::Socket(_) => "unix",
    }
}

fn network_protocol(transport: &Transport) -> Option<&'static str> {
    matches!(transport, Transport::Http(_) | Transport::Sse(_)).then_some("http")
}
