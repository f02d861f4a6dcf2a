//! A request as this dialect writes it. It is stateless: everything goes along each time, and nothing is kept there.

use serde::Serialize;
use serde_json::Value;

use super::input::Input;
use super::model;
use crate::lowering::{LoweredTools, lower_output, most_tools, wire_name};
use crate::message::Dialect;
use crate::provider::encoded::{Body, headers};
use crate::provider::{
    ChatRequest, EncodedRequest, OutputFormat, ProviderError, ProviderErrorKind, ProviderSettings, ReasoningEffort,
    ToolChoice, history,
};

/// Writes a request.
pub(crate) fn encode(settings: &ProviderSettings, request: &ChatRequest<'_>) -> Result<EncodedRequest, ProviderError> {
    let speaker = settings.speaker(request.model);
    let mut body = Body::new(settings, request);
    let lowered = body.lowered();
    let turns = history::turns(request.conversation, &speaker, &lowered, settings.in_words(request));
    body.field("model", request.model);
    body.field_if_some("instructions", request.conversation.system.as_deref().filter(|system| !system.is_empty()));
    body.field("input", &Input::new(&turns, settings.is_openai(), model::reasons(request.model)));
    body.field("stream", &true);
    body.field("store", &false);
    if model::reasons(request.model) {
        body.field("include", &["reasoning.encrypted_content"]);
    }
    body.field_if_some("max_output_tokens", request.max_tokens);
    body.field_if_some("temperature", request.temperature);
    body.field_if_some("top_p", request.top_p);
    body.field_if_some("reasoning", request.effort.map(reasoning));
    if let Some(output) = &request.output {
        body.field("text", &Text { format: format(output)? });
    }
    let (choice, only) = tool_choice(&request.tool_choice, &lowered, settings)?;
    if body.has_tools() {
        body.field_if_some("tool_choice", choice);
        body.field_if_some("parallel_tool_calls", request.parallel_calls);
    }
    if settings.is_openai() {
        // Padding against eavesdroppers who count bytes; it makes every piece of text several times as long.
        body.field("stream_options", &StreamOptions { include_obfuscation: false });
    }
    if !request.stop_sequences.is_empty() {
        body.warn("the stop sequences are left out: responses has none");
    }
    body.finish(speaker, settings.url("/responses"), headers(settings, &[]), only)
}

#[derive(Serialize)]
struct Reasoning {
    effort: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'static str>,
}

#[derive(Serialize)]
struct Text {
    format: Format,
}

#[derive(Serialize)]
struct Format {
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
enum Choice<'a> {
    Mode(&'static str),
    Tool { r#type: &'static str, name: &'a str },
}

fn reasoning(effort: ReasoningEffort) -> Reasoning {
    let effort = match effort {
        ReasoningEffort::Off => return Reasoning { effort: "none", summary: None },
        ReasoningEffort::Minimal => "minimal",
        ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
        ReasoningEffort::Max => "xhigh",
    };
    Reasoning { effort, summary: Some("auto") }
}

fn format(output: &OutputFormat) -> Result<Format, ProviderError> {
    let lowered =
        lower_output(&output.schema.read(), Dialect::Responses).map_err(|error| unusable(error.to_string()))?;
    let name = wire_name(&output.name);
    Ok(Format { r#type: "json_schema", name, schema: lowered.schema, strict: lowered.strict })
}

/// The choice, which is not said where it is the provider's own default, and the one tool that may be seen, if there is such.
fn tool_choice<'a>(
    choice: &'a ToolChoice,
    lowered: &'a LoweredTools,
    settings: &ProviderSettings,
) -> Result<(Option<Choice<'a>>, Option<&'a str>), ProviderError> {
    Ok(match choice {
        ToolChoice::Auto => (None, None),
        ToolChoice::None => (Some(Choice::Mode("none")), None),
        ToolChoice::Required => (Some(Choice::Mode("required")), None),
        ToolChoice::Tool(name) => {
            let place = lowered.tools.iter().position(|tool| tool.name == *name);
            let place =
                place.ok_or_else(|| unusable(format!("the tool `{name}` must be called, but it is not offered")))?;
            let tool = &lowered.tools[place];
            let most = settings.quirks.most_tools.or(most_tools(Dialect::Responses)).unwrap_or(usize::MAX);
            // llama.cpp takes a choice by name for no choice at all; but nobody can choose what is not there.
            match settings.is_openai() && place < most {
                true => (Some(Choice::Tool { r#type: "function", name: &tool.wire_name }), None),
                false => (Some(Choice::Mode("required")), Some(&tool.name)),
            }
        }
    })
}

fn unusable(words: String) -> ProviderError {
    ProviderError::new(ProviderErrorKind::Unusable, Dialect::Responses, words)
}
