//! Encodes a request for Chat Completions.

use serde::Serialize;
use serde_json::{Value, json};

use super::messages::wire_messages;
use crate::body_builder::BodyBuilder;
use crate::encoded_request::EncodedRequest;
use crate::error::ProviderError;
use crate::http_message::stream_headers;
use crate::normalize::normalize;
use crate::request::{ChatRequest, OutputFormat, ToolChoice};
use crate::settings::ProviderSettings;
use ropeway_core::lowering::{LoweredOutput, lower_output, wire_name};
use ropeway_core::message::{Dialect, ReasoningEffort};

pub(crate) fn encode(settings: &ProviderSettings, request: &ChatRequest<'_>) -> Result<EncodedRequest, ProviderError> {
    let quirks = &settings.quirks;
    let is_openai = quirks.chat_openai.unwrap_or_else(|| settings.is_openai());
    let endpoint = settings.model_endpoint(request.model);
    let mut body = BodyBuilder::new(settings, request);
    let lowered = body.lowered();

    body.field("model", request.model);
    body.field("stream", &true);
    if !quirks.chat_without_usage {
        // Obfuscation pads every event against traffic analysis, which multiplies their size.
        let include_obfuscation = settings.is_openai().then_some(false);
        body.field("stream_options", &StreamOptions { include_usage: true, include_obfuscation });
    }
    let messages = normalize(request.conversation, &endpoint, &lowered, settings.described_media(request));
    let role = if is_openai { "developer" } else { "system" };
    let system = request.conversation.system.as_deref().filter(|system| !system.is_empty());
    body.field("messages", &wire_messages(system.map(|system| (role, system)), &messages));

    let limits = ["max_completion_tokens", "max_tokens"];
    if !limits.iter().any(|name| request.extra.contains_key(*name)) {
        body.field_if_some(limits[usize::from(!is_openai)], request.max_tokens);
    }
    body.field_if_some("temperature", request.temperature);
    body.field_if_some("top_p", request.top_p);
    if !request.stop_sequences.is_empty() {
        body.field("stop", &request.stop_sequences);
    }
    body.field_if_some("reasoning_effort", request.effort.map(|effort| effort_name(effort, is_openai)));
    if let Some(output) = &request.output
        && !request.extra.contains_key("response_format")
    {
        body.field("response_format", &ResponseFormat::new(output)?);
    }

    let mut only = None;
    if body.has_tools() {
        let choice = match &request.tool_choice {
            // The default is omitted: some servers reject unknown fields.
            ToolChoice::Auto => None,
            ToolChoice::None => Some("none".into()),
            ToolChoice::Required => Some("required".into()),
            ToolChoice::Tool(name) => {
                let index = lowered
                    .tools
                    .iter()
                    .position(|tool| tool.name == *name)
                    .ok_or_else(|| ProviderError::unknown_tool(Dialect::Chat, name))?;
                // llama.cpp ignores a choice by name. Offering only the chosen tool has the same effect.
                only = (!is_openai || index >= settings.max_tools()).then_some(name.as_str());
                Some(match only {
                    Some(_) => "required".into(),
                    None => json!({ "type": "function", "function": { "name": lowered.tools[index].wire_name } }),
                })
            }
        };
        body.field_if_some::<Value>("tool_choice", choice);
        body.field_if_some("parallel_tool_calls", request.parallel_calls);
    } else if let ToolChoice::Tool(name) = &request.tool_choice {
        return Err(ProviderError::unknown_tool(Dialect::Chat, name));
    }
    body.finish(endpoint, settings.url("/chat/completions"), stream_headers(settings, &[]), only)
}

/// Returns the API's name for an effort. Only OpenAI itself supports one above `high`.
fn effort_name(effort: ReasoningEffort, is_openai: bool) -> &'static str {
    match effort {
        ReasoningEffort::Off => "none",
        ReasoningEffort::Minimal => "minimal",
        ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::Max if is_openai => "xhigh",
        ReasoningEffort::High | ReasoningEffort::Max => "high",
    }
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    include_obfuscation: Option<bool>,
}

#[derive(Serialize)]
struct ResponseFormat {
    r#type: &'static str,
    json_schema: JsonSchema,
}

#[derive(Serialize)]
struct JsonSchema {
    name: String,
    strict: bool,
    schema: Value,
}

impl ResponseFormat {
    fn new(output: &OutputFormat) -> Result<Self, ProviderError> {
        let LoweredOutput { schema, strict, .. } = lower_output(&output.schema, Dialect::Chat)
            .map_err(|error| ProviderError::unusable(Dialect::Chat, error.to_string()))?;
        Ok(Self { r#type: "json_schema", json_schema: JsonSchema { name: wire_name(&output.name), strict, schema } })
    }
}
