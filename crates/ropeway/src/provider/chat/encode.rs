//! A request as this dialect writes it.

use serde::Serialize;
use serde_json::{Value, json};

use super::messages::messages;
use crate::lowering::{LoweredOutput, lower_output, most_tools, wire_name};
use crate::message::Dialect;
use crate::provider::encoded::{Body, headers};
use crate::provider::history::turns;
use crate::provider::{
    ChatRequest, EncodedRequest, OutputFormat, ProviderError, ProviderErrorKind, ProviderSettings, ReasoningEffort,
    ToolChoice,
};

/// Writes a request.
pub(crate) fn encode(settings: &ProviderSettings, request: &ChatRequest<'_>) -> Result<EncodedRequest, ProviderError> {
    let quirks = &settings.quirks;
    let is_openai = quirks.chat_openai.unwrap_or_else(|| settings.is_openai());
    let speaker = settings.speaker(request.model);
    let mut body = Body::new(settings, request);
    let lowered = body.lowered();

    body.field("model", request.model);
    body.field("stream", &true);
    if !quirks.chat_without_usage {
        // Padding against eavesdroppers who count bytes, which makes every piece of text several times as long.
        let include_obfuscation = settings.is_openai().then_some(false);
        body.field("stream_options", &StreamOptions { include_usage: true, include_obfuscation });
    }
    let turns = turns(request.conversation, &speaker, &lowered, settings.in_words(request));
    let role = if is_openai { "developer" } else { "system" };
    let system = request.conversation.system.as_deref().filter(|system| !system.is_empty());
    body.field("messages", &messages(system.map(|system| (role, system)), &turns));

    let limits = ["max_completion_tokens", "max_tokens"];
    if !limits.iter().any(|name| request.extra.contains_key(*name)) {
        body.field_if_some(limits[usize::from(!is_openai)], request.max_tokens);
    }
    body.field_if_some("temperature", request.temperature);
    body.field_if_some("top_p", request.top_p);
    if !request.stop_sequences.is_empty() {
        body.field("stop", &request.stop_sequences);
    }
    body.field_if_some("reasoning_effort", request.effort.map(|effort| word(effort, is_openai)));
    if let Some(output) = &request.output
        && !request.extra.contains_key("response_format")
    {
        body.field("response_format", &ResponseFormat::new(output)?);
    }

    let mut only = None;
    if body.has_tools() {
        let choice = match &request.tool_choice {
            // What is the default anyway is not said: some servers refuse fields that they do not know.
            ToolChoice::Auto => None,
            ToolChoice::None => Some("none".into()),
            ToolChoice::Required => Some("required".into()),
            ToolChoice::Tool(name) => {
                let place = lowered.tools.iter().position(|tool| tool.name == *name).ok_or_else(|| missing(name))?;
                let most = quirks.most_tools.or(most_tools(Dialect::Chat)).unwrap_or(usize::MAX);
                // llama.cpp takes a choice by name for no choice at all; but nobody can choose what is not there.
                only = (!is_openai || place >= most).then_some(name.as_str());
                Some(match only {
                    Some(_) => "required".into(),
                    None => json!({ "type": "function", "function": { "name": lowered.tools[place].wire_name } }),
                })
            }
        };
        body.field_if_some::<Value>("tool_choice", choice);
        body.field_if_some("parallel_tool_calls", request.parallel_calls);
    } else if let ToolChoice::Tool(name) = &request.tool_choice {
        return Err(missing(name));
    }
    body.finish(speaker, settings.url("/chat/completions"), headers(settings, &[]), only)
}

fn missing(tool: &str) -> ProviderError {
    let message = format!("the tool `{tool}` must be called, but it is not offered");
    ProviderError::new(ProviderErrorKind::Unusable, Dialect::Chat, message)
}

/// The protocol's word for an effort. Only OpenAI itself knows one above `high`.
fn word(effort: ReasoningEffort, is_openai: bool) -> &'static str {
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
            .map_err(|error| ProviderError::new(ProviderErrorKind::Unusable, Dialect::Chat, error.to_string()))?;
        Ok(Self { r#type: "json_schema", json_schema: JsonSchema { name: wire_name(&output.name), strict, schema } })
    }
}
