//! Encodes a request for Gemini.

use serde::Serialize;
use serde_json::Value;

use super::contents::contents;
use super::model::{GeminiModel, ThinkingConfig, encode_segment};
use crate::body_builder::BodyBuilder;
use crate::encoded_request::EncodedRequest;
use crate::error::ProviderError;
use crate::http_message::stream_headers;
use crate::normalize::normalize;
use crate::request::{ChatRequest, ToolChoice};
use crate::settings::ProviderSettings;
use ropeway_core::lowering::{LoweredTools, lower_output};
use ropeway_core::message::{Dialect, ReasoningEffort};

/// The field that is merged with the same field in `extra`.
const CONFIG: &str = "generationConfig";

pub(crate) fn encode(settings: &ProviderSettings, request: &ChatRequest<'_>) -> Result<EncodedRequest, ProviderError> {
    let model = GeminiModel::new(request.model);
    let config = GenerationConfig::of(request, &model)?;
    let merged = config.merged(request);
    let request = merged.as_ref().unwrap_or(request);

    let mut body = BodyBuilder::new(settings, request);
    let (endpoint, lowered) = (settings.model_endpoint(request.model), body.lowered());
    if let Some(system) = request.conversation.system.as_deref().filter(|system| !system.is_empty()) {
        body.field("systemInstruction", &SystemInstruction { parts: [TextPart { text: system }] });
    }
    let messages = normalize(request.conversation, &endpoint, &lowered, settings.described_media(request));
    let result_parts = settings.quirks.gemini_result_parts.unwrap_or(!model.is_older());
    body.field("contents", &contents(&messages, &model, result_parts));
    if config != GenerationConfig::default() {
        body.field(CONFIG, &config);
    }
    if let (Some(effort), None) = (request.effort, &config.thinking_config)
        && effort != ReasoningEffort::Off
    {
        body.warn(format!("left out the reasoning effort: model `{}` does not support thinking", request.model));
    }
    body.field_if_some(
        "toolConfig",
        FunctionCallingConfig::of(&request.tool_choice, &lowered)?.map(|calling| ToolConfig { calling }),
    );
    if body.has_tools() && request.parallel_calls == Some(false) {
        body.warn("the model may call several tools at once: gemini does not support disabling this");
    }
    let only = tool_beyond_limit(settings, &request.tool_choice, &lowered);
    body.finish(endpoint, url(settings, &model.path()), stream_headers(settings, &[]), only)
}

/// Returns a path's URL, with the API version unless the base URL has one.
pub(crate) fn url(settings: &ProviderSettings, path: &str) -> String {
    let base = settings.base_url.split(['?', '#']).next().unwrap_or_default();
    let folders = base.split_once("://").map_or(base, |(_, rest)| rest).trim_end_matches('/').split_once('/');
    let last = folders.and_then(|(_, folders)| folders.rsplit('/').next());
    let version = settings.quirks.gemini_version.as_deref().unwrap_or("v1beta");
    if last.is_some_and(is_version) || version.is_empty() {
        settings.url(path)
    } else {
        settings.url(&format!("/{}{path}", encode_segment(version)))
    }
}

/// Returns `true` for `v1`, `v1beta`, `v1beta1` and the like.
fn is_version(segment: &str) -> bool {
    segment.strip_prefix('v').is_some_and(|rest| {
        rest.starts_with(|c: char| c.is_ascii_digit()) && rest.chars().all(|c| c.is_ascii_alphanumeric())
    })
}

/// Returns the tool that must be called if it exceeds the maximum number of tools; then it is the only one offered.
fn tool_beyond_limit<'a>(
    settings: &ProviderSettings,
    choice: &'a ToolChoice,
    lowered: &LoweredTools,
) -> Option<&'a str> {
    let ToolChoice::Tool(name) = choice else { return None };
    let index = lowered.tools.iter().position(|tool| tool.name == *name)?;
    (index >= settings.max_tools()).then_some(name)
}

#[derive(Serialize)]
struct SystemInstruction<'a> {
    parts: [TextPart<'a>; 1],
}

#[derive(Serialize)]
struct TextPart<'a> {
    text: &'a str,
}

#[derive(Serialize)]
struct ToolConfig<'a> {
    #[serde(rename = "functionCallingConfig")]
    calling: FunctionCallingConfig<'a>,
}

/// The tool choice.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FunctionCallingConfig<'a> {
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_function_names: Option<[&'a str; 1]>,
}

impl<'a> FunctionCallingConfig<'a> {
    fn of(choice: &ToolChoice, lowered: &'a LoweredTools) -> Result<Option<Self>, ProviderError> {
        let (mode, name) = match choice {
            ToolChoice::Tool(name) => match lowered.get(name) {
                Some(tool) => ("ANY", Some(tool.wire_name.as_str())),
                None => return Err(ProviderError::unknown_tool(Dialect::Gemini, name)),
            },
            _ if lowered.tools.is_empty() => return Ok(None),
            ToolChoice::Auto => return Ok(None),
            ToolChoice::None => ("NONE", None),
            ToolChoice::Required => ("ANY", None),
        };
        Ok(Some(Self { mode, allowed_function_names: name.map(|name| [name]) }))
    }
}

/// A request's `generationConfig`.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop_sequences: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<ThinkingConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_mime_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_json_schema: Option<Value>,
}

impl<'a> GenerationConfig<'a> {
    fn of(request: &'a ChatRequest<'_>, model: &GeminiModel<'_>) -> Result<Self, ProviderError> {
        let schema = output(request)?;
        Ok(Self {
            max_output_tokens: request.max_tokens,
            temperature: request.temperature,
            top_p: request.top_p,
            stop_sequences: &request.stop_sequences,
            thinking_config: request.effort.and_then(|effort| model.thinking(effort)),
            response_mime_type: schema.as_ref().map(|_| "application/json"),
            response_json_schema: schema,
        })
    }

    /// Merges this configuration into the one in `extra`, whose fields take precedence. Returns `None` if `extra` has
    /// none.
    fn merged<'r>(&self, request: &ChatRequest<'r>) -> Option<ChatRequest<'r>> {
        let extra = request.extra.get(CONFIG)?.as_object()?;
        let Ok(Value::Object(mut fields)) = serde_json::to_value(self) else { return None };
        fields.extend(extra.clone());
        let mut request = request.clone();
        request.extra.insert(CONFIG.to_owned(), fields.into());
        Some(request)
    }
}

/// Lowers the output schema, unless `extra` has one.
fn output(request: &ChatRequest<'_>) -> Result<Option<Value>, ProviderError> {
    let extra = request.extra.get(CONFIG);
    let has_schema = extra
        .is_some_and(|config| config.get("responseJsonSchema").is_some() || config.get("responseSchema").is_some());
    let Some(output) = request.output.as_ref().filter(|_| !has_schema) else { return Ok(None) };
    match lower_output(&output.schema, Dialect::Gemini) {
        Ok(lowered) => Ok(Some(lowered.schema)),
        Err(cause) => Err(ProviderError::unusable(Dialect::Gemini, cause.to_string())),
    }
}
