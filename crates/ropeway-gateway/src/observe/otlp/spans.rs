//! OTLP spans
//! (<https://github.com/open-telemetry/opentelemetry-proto/blob/v1.7.0/opentelemetry/proto/trace/v1/trace.proto>).
//!
//! Names follow the semantic conventions for [MCP](https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/).

use std::time::{Duration, SystemTime};

use super::attributes::{nanos, resource, scope, text};
use super::protobuf::Message;
use crate::method::Method;
use crate::observe::{CallRecord, ErrorType, UpstreamSpan};
use ropeway_core::tool::TraceParent;

/// `SpanKind` values.
const SERVER: u64 = 2;
const CLIENT: u64 = 3;

/// `STATUS_CODE_ERROR`.
const ERROR: u64 = 2;

/// The field for a span's attributes.
const ATTRIBUTES: u32 = 9;

/// Encodes an `ExportTraceServiceRequest` with the records' spans.
pub(super) fn request(
    attributes: &[(String, String)],
    records: impl IntoIterator<Item = impl AsRef<CallRecord>>,
) -> Vec<u8> {
    let mut scope_spans = Message::default();
    scope_spans.message(1, &scope());
    for record in records {
        let record = record.as_ref();
        if let Some(span) = server_span(record) {
            scope_spans.message(2, &span);
        }
        for upstream in &record.upstream {
            scope_spans.message(2, &client_span(record, upstream));
        }
    }
    let mut resource_spans = Message::default();
    resource_spans.message(1, &resource(attributes));
    resource_spans.message(2, &scope_spans);
    let mut request = Message::default();
    request.message(1, &resource_spans);
    request.into_bytes()
}

/// Creates the span for a client's request.
fn server_span(record: &CallRecord) -> Option<Message> {
    let trace = record.trace.filter(|trace| trace.is_own)?;
    let mut span = begin(trace.context, trace.parent, record, SERVER, (record.time, record.duration));
    if let Some(client) = &record.client {
        text(&mut span, ATTRIBUTES, "mcp.protocol.version", &client.protocol_version);
        text(&mut span, ATTRIBUTES, "mcp.session.id", &client.session);
        text(&mut span, ATTRIBUTES, "ropeway.client.name", &client.name);
    }
    text(&mut span, ATTRIBUTES, "jsonrpc.request.id", record.request_id.trim_matches('"'));
    text(&mut span, ATTRIBUTES, "ropeway.call.id", &record.call_id_text());
    text(&mut span, ATTRIBUTES, "ropeway.principal", &record.principal);
    text(&mut span, ATTRIBUTES, "ropeway.profile", record.profile.as_deref().unwrap_or_default());
    text(&mut span, ATTRIBUTES, "ropeway.server", record.server.as_ref().map_or("", |server| server.as_str()));
    if let Some(digest) = record.digest {
        text(&mut span, ATTRIBUTES, "ropeway.tool.digest", &digest.to_string());
    }
    if let Some(code) = record.code {
        text(&mut span, ATTRIBUTES, "rpc.response.status_code", &code.to_string());
    }
    end(&mut span, record.error_type());
    Some(span)
}

/// Creates the span for a request to a server.
fn client_span(record: &CallRecord, upstream: &UpstreamSpan) -> Message {
    let start = record.time + upstream.after;
    let mut span = begin(upstream.context, Some(upstream.parent), record, CLIENT, (start, upstream.duration));
    if let Some(info) = &upstream.info {
        text(&mut span, ATTRIBUTES, "mcp.protocol.version", &info.protocol_version);
    }
    text(&mut span, ATTRIBUTES, "network.transport", upstream.transport);
    text(&mut span, ATTRIBUTES, "ropeway.server", upstream.server.as_str());
    end(&mut span, upstream.error);
    span
}

/// Begins a span with everything that a request's two sides have in common.
fn begin(
    context: TraceParent,
    parent: Option<TraceParent>,
    record: &CallRecord,
    kind: u64,
    (start, duration): (SystemTime, Duration),
) -> Message {
    let (method, target) = (record.method_name(), record.own_name.as_deref().or(record.target.as_deref()));
    let tool = target.filter(|_| record.method == Some(Method::CallTool));
    let prompt = target.filter(|_| record.method == Some(Method::GetPrompt));
    let uri = target.filter(|_| record.target_key() == "uri");
    let mut span = Message::default();
    span.bytes(1, &context.trace_bytes());
    span.bytes(2, &context.span_bytes());
    if let Some(parent) = parent {
        span.bytes(4, &parent.span_bytes());
    }
    // Resource URIs and unknown methods are left out, to keep span names bounded.
    span.text(
        5,
        &match (record.method, tool.or(prompt)) {
            (Some(_), Some(target)) => format!("{method} {target}"),
            (Some(_), None) => method.to_owned(),
            (None, _) => "_OTHER".to_owned(),
        },
    );
    span.number(6, kind);
    span.fixed64(7, nanos(start));
    span.fixed64(8, nanos(start + duration));
    text(&mut span, ATTRIBUTES, "mcp.method.name", method);
    text(&mut span, ATTRIBUTES, "mcp.resource.uri", uri.unwrap_or_default());
    if let Some(tool) = tool {
        text(&mut span, ATTRIBUTES, "gen_ai.operation.name", "execute_tool");
        text(&mut span, ATTRIBUTES, "gen_ai.tool.name", tool);
    }
    text(&mut span, ATTRIBUTES, "gen_ai.prompt.name", prompt.unwrap_or_default());
    span
}

/// Adds the outcome to a span.
fn end(span: &mut Message, error: Option<ErrorType>) {
    if let Some(error) = error {
        text(span, ATTRIBUTES, "error.type", error.as_str());
        let mut status = Message::default();
        status.number(3, ERROR);
        span.message(15, &status);
    }
    // The trace is sampled.
    span.fixed32(16, 1);
}
