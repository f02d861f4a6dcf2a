//! Tracing spans: a turn, each model request, each local tool call.
//!
//! Names and fields follow the OpenTelemetry conventions for generative AI
//! (<https://opentelemetry.io/docs/specs/semconv/gen-ai/>). MCP tool calls have their own spans.

use tracing::Span;
use tracing::field::Empty;

use super::agent_loop::AgentLoop;
use super::turn::{AgentError, TurnOutcome};
use ropeway_core::message::Dialect;
use ropeway_core::tool::{Origin, ToolDefinition};
use ropeway_providers::{Reply, Usage};

pub(super) fn turn_span(agent_loop: &AgentLoop) -> Span {
    tracing::info_span!(
        "invoke_agent",
        otel.name = "invoke_agent",
        otel.kind = "internal",
        otel.status_code = Empty,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.provider.name = vendor(agent_loop.provider.dialect()),
        gen_ai.request.model = agent_loop.model,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        "error.type" = Empty,
        traceparent = Empty,
    )
}

/// Returns the span for one model request.
pub(super) fn request_span(agent_loop: &AgentLoop) -> Span {
    tracing::info_span!(
        "chat",
        otel.name = %format_args!("chat {}", agent_loop.model),
        otel.kind = "client",
        otel.status_code = Empty,
        gen_ai.operation.name = "chat",
        gen_ai.provider.name = vendor(agent_loop.provider.dialect()),
        gen_ai.request.model = agent_loop.model,
        gen_ai.request.max_tokens = agent_loop.options.max_tokens,
        gen_ai.request.temperature = agent_loop.options.temperature,
        gen_ai.response.id = Empty,
        gen_ai.response.model = Empty,
        gen_ai.response.finish_reasons = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        "error.type" = Empty,
    )
}

/// Returns a call's span; none for MCP tools, which create their own.
pub(super) fn call_span(definition: &ToolDefinition, call: &str) -> Span {
    match definition.origin {
        Origin::Server { .. } => Span::none(),
        Origin::Local => tracing::info_span!(
            "execute_tool",
            otel.name = %format_args!("execute_tool {}", definition.name),
            otel.kind = "internal",
            gen_ai.operation.name = "execute_tool",
            gen_ai.tool.name = definition.name,
            gen_ai.tool.call.id = call,
            gen_ai.tool.type = "function",
        ),
    }
}

pub(super) fn record_outcome(span: &Span, outcome: &Result<TurnOutcome, AgentError>) {
    match outcome {
        Ok(outcome) => record_usage(span, outcome.usage),
        Err(error) => record_error(span, error),
    }
}

pub(super) fn record_reply(span: &Span, reply: &Reply) {
    record_usage(span, reply.usage);
    span.record("gen_ai.response.id", reply.id.as_deref());
    span.record("gen_ai.response.model", reply.model.as_deref());
    span.record("gen_ai.response.finish_reasons", tracing::field::debug(&reply.stop));
}

pub(super) fn record_error(span: &Span, error: &AgentError) {
    let kind = match error {
        AgentError::Provider { source, .. } => format!("{:?}", source.kind),
        _ => "_OTHER".to_owned(),
    };
    span.record("otel.status_code", "ERROR");
    span.record("error.type", kind.as_str());
}

fn record_usage(span: &Span, usage: Usage) {
    span.record("gen_ai.usage.input_tokens", usage.input);
    span.record("gen_ai.usage.output_tokens", usage.output);
}

/// Returns the vendor name for the conventions. Any vendor may offer Chat Completions, so it has
/// none.
fn vendor(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Anthropic => "anthropic",
        Dialect::Responses => "openai",
        Dialect::Gemini => "gcp.gemini",
        Dialect::Chat => "_OTHER",
    }
}
