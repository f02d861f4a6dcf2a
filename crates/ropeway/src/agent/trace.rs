//! The spans of a turn: the turn, each question to the model, each call of the host's own tools.
//!
//! The names are those of OpenTelemetry's conventions for generative AI. The calls of servers have spans of their own.

use tracing::Span;
use tracing::field::Empty;

use super::{AgentError, Crew, TurnOutcome};
use crate::message::Dialect;
use crate::provider::{Reply, Usage};
use crate::tool::{Origin, ToolDefinition};

/// The span of a turn.
pub(super) fn of_turn(crew: &Crew) -> Span {
    tracing::info_span!(
        "invoke_agent",
        otel.name = "invoke_agent",
        otel.kind = "internal",
        otel.status_code = Empty,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.provider.name = vendor(crew.provider.dialect()),
        gen_ai.request.model = crew.model,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        "error.type" = Empty,
        traceparent = Empty,
    )
}

/// The span of one question to the model.
pub(super) fn of_question(crew: &Crew) -> Span {
    tracing::info_span!(
        "chat",
        otel.name = %format_args!("chat {}", crew.model),
        otel.kind = "client",
        otel.status_code = Empty,
        gen_ai.operation.name = "chat",
        gen_ai.provider.name = vendor(crew.provider.dialect()),
        gen_ai.request.model = crew.model,
        gen_ai.request.max_tokens = crew.options.max_tokens,
        gen_ai.request.temperature = crew.options.temperature,
        gen_ai.response.id = Empty,
        gen_ai.response.model = Empty,
        gen_ai.response.finish_reasons = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        "error.type" = Empty,
    )
}

/// The span of a call, for a tool that makes none itself.
pub(super) fn of_call(definition: &ToolDefinition, call: &str) -> Span {
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

/// Writes down what a turn came to.
pub(super) fn turn_over(span: &Span, came_to: &Result<TurnOutcome, AgentError>) {
    match came_to {
        Ok(outcome) => spent(span, outcome.usage),
        Err(error) => failed(span, error),
    }
}

/// Writes down what a question came to.
pub(super) fn answered(span: &Span, reply: &Reply) {
    spent(span, reply.usage);
    span.record("gen_ai.response.id", reply.id.as_deref());
    span.record("gen_ai.response.model", reply.model.as_deref());
    span.record("gen_ai.response.finish_reasons", tracing::field::debug(&reply.stop));
}

/// Writes down why there is no answer.
pub(super) fn failed(span: &Span, error: &AgentError) {
    let kind = match error {
        AgentError::Provider { source, .. } => format!("{:?}", source.kind),
        _ => "_OTHER".to_owned(),
    };
    span.record("otel.status_code", "ERROR");
    span.record("error.type", kind.as_str());
}

fn spent(span: &Span, usage: Usage) {
    span.record("gen_ai.usage.input_tokens", usage.input);
    span.record("gen_ai.usage.output_tokens", usage.output);
}

/// The conventions name vendors, not dialects: whoever speaks Chat Completions may be anybody.
fn vendor(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Anthropic => "anthropic",
        Dialect::Responses => "openai",
        Dialect::Gemini => "gcp.gemini",
        Dialect::Chat => "_OTHER",
    }
}
