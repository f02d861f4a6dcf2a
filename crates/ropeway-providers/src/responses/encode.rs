//! Encodes a request for Responses.

use serde::Serialize;
use serde_json::Value;

use super::input::ResponsesInput;
use super::model::supports_reasoning;
use crate::body_builder::BodyBuilder;
use crate::encoded_request::EncodedRequest;
use crate::error::ProviderError;
use crate::http_message::stream_headers;
use crate::normalize::normalize;
use crate::request::{ChatRequest, OutputFormat, ToolChoice};
use crate::settings::ProviderSettings;
use ropeway_core::lowering::{LoweredTools, lower_output, wire_name};
use ropeway_core::message::{Dialect, ReasoningEffort};

/// Encodes a request. It is stateless: it contains the whole conversation, and `store` is false.
pub(crate) fn encode(settings: &ProviderSettings, request: &ChatRequest<'_>) -> Result<EncodedRequest, ProviderError> {
    let endpoint = settings.model_endpoint(request.model);
    let mut body = BodyBuilder::new(settings, request);
    let lowered = body.lowered();
    let messages = normalize(request.conversation, &endpoint, &lowered, settings.described_media(request));
    body.field("model", request.model);
    body.field_if_some("instructions", request.conversation.system.as_deref().filter(|system| !system.is_empty()));
    body.field("input", &ResponsesInput::new(&messages, settings.is_openai(), supports_reasoning(request.model)));
    body.field("stream", &true);
    body.field("store", &false);
    if supports_reasoning(request.model) {
        body.field("include", &["reasoning.encrypted_content"]);
    }
    body.field_if_some("max_output_tokens", request.max_tokens);
    body.field_if_some("temperature", request.temperature);
    body.field_if_some("top_p", request.top_p);
    body.field_if_some("reasoning", request.effort.map(reasoning));
    if let Some(output) = &request.output {
        body.field("text", &TextConfig { format: format(output)? });
    }
    let (choice, only) = tool_choice(&request.tool_choice, &lowered, settings)?;
    if body.has_tools() {
        body.field_if_some("tool_choice", choice);
        body.field_if_some("parallel_tool_calls", request.parallel_calls);
    }
    if settings.is_openai() {
        // Obfuscation pads every event against traffic analysis, which multiplies their size.
        body.field("stream_options", &StreamOptions { include_obfuscation: false });
    }
    if !request.stop_sequences.is_empty() {
        body.warn("left out the stop sequences: responses does not support them");
    }
    body.finish(endpoint, settings.url("/responses"), stream_headers(settings, &[]), only)
}

#[derive(Serialize)]
struct ReasoningConfig {
    effort: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'static str>,
}

#[derive(Serialize)]
struct TextConfig {
    format: TextFormat,
}

#[derive(Serialize)]
struct TextFormat {
    r#type: &'static str,
    name: String,
    schema: Value,
    strict: bool,
}

#[derive(Serialize)]
struct StreamOptions {
    include_obfuscation: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ResponsesToolChoice<'a> {
    Mode(&'static str),
    Tool { r#type: &'static str, name: &'a str },
}

fn reasoning(effort: ReasoningEffort) -> ReasoningConfig {
    let effort = match effort {
        ReasoningEffort::Off => return ReasoningConfig { effort: "none", summary: None },
        ReasoningEffort::Minimal => "minimal",
        ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
        ReasoningEffort::Max => "xhigh",
    };
    ReasoningConfig { effort, summary: Some("auto") }
}

fn format(output: &OutputFormat) -> Result<TextFormat, ProviderError> {
    let lowered = lower_output(&output.schema.read(), Dialect::Responses)
        .map_err(|error| ProviderError::unusable(Dialect::Responses, error.to_string()))?;
    let name = wire_name(&output.name);
    Ok(TextFormat { r#type: "json_schema", name, schema: lowered.schema, strict: lowered.strict })
}

/// Returns the tool choice, unless it is the default, and the only tool to offer, if any.
fn tool_choice<'a>(
    choice: &'a ToolChoice,
    lowered: &'a LoweredTools,
    settings: &ProviderSettings,
) -> Result<(Option<ResponsesToolChoice<'a>>, Option<&'a str>), ProviderError> {
    Ok(match choice {
        ToolChoice::Auto => (None, None),
        ToolChoice::None => (Some(ResponsesToolChoice::Mode("none")), None),
        ToolChoice::Required => (Some(ResponsesToolChoice::Mode("required")), None),
        ToolChoice::Tool(name) => {
            let index = lowered.tools.iter().position(|tool| tool.name == *name);
            let index = index.ok_or_else(|| ProviderError::unknown_tool(Dialect::Responses, name))?;
            let tool = &lowered.tools[index];
            // llama.cpp ignores a choice by name. Offering only the chosen tool has the same effect.
            if settings.is_openai() && index < settings.max_tools() {
                (Some(ResponsesToolChoice::Tool { r#type: "function", name: &tool.wire_name }), None)
            } else {
                (Some(ResponsesToolChoice::Mode("required")), Some(&tool.name))
            }
        }
    })
}
