//! A request as Gemini takes it.

use serde::Serialize;
use serde_json::Value;

use super::content::contents;
use super::model::{Model, Thinking, segment};
use crate::lowering::{LoweredTools, lower_output, most_tools};
use crate::message::Dialect;
use crate::provider::encoded::{Body, headers};
use crate::provider::history::turns;
use crate::provider::{
    ChatRequest, EncodedRequest, ProviderError, ProviderErrorKind, ProviderSettings, ReasoningEffort, ToolChoice,
};

/// The field whose own fields are merged with the caller's.
const CONFIG: &str = "generationConfig";

/// Writes a request.
pub(crate) fn encode(settings: &ProviderSettings, request: &ChatRequest<'_>) -> Result<EncodedRequest, ProviderError> {
    let model = Model::new(request.model);
    let config = Config::of(request, &model)?;
    let merged = config.merged(request);
    let request = merged.as_ref().unwrap_or(request);

    let mut body = Body::new(settings, request);
    let (speaker, lowered) = (settings.speaker(request.model), body.lowered());
    if let Some(system) = request.conversation.system.as_deref().filter(|system| !system.is_empty()) {
        body.field("systemInstruction", &Instruction { parts: [Line { text: system }] });
    }
    let turns = turns(request.conversation, &speaker, &lowered, settings.in_words(request));
    let result_parts = settings.quirks.gemini_result_parts.unwrap_or(!model.is_older());
    body.field("contents", &contents(&turns, &model, result_parts));
    if config != Config::default() {
        body.field(CONFIG, &config);
    }
    if let (Some(effort), None) = (request.effort, &config.thinking_config)
        && effort != ReasoningEffort::Off
    {
        body.warn(format!("the effort is not said: `{}` does not think", request.model));
    }
    body.field_if_some(
        "toolConfig",
        Calling::of(&request.tool_choice, &lowered)?.map(|calling| ToolConfig { calling }),
    );
    if body.has_tools() && request.parallel_calls == Some(false) {
        body.warn("the model may call several tools at once: gemini cannot be told otherwise");
    }
    let only = beyond_the_limit(settings, &request.tool_choice, &lowered);
    body.finish(speaker, url(settings, &model.path()), headers(settings, &[]), only)
}

/// A path behind the version of the API, unless the base URL has one.
pub(in crate::provider) fn url(settings: &ProviderSettings, path: &str) -> String {
    let base = settings.base_url.split(['?', '#']).next().unwrap_or_default();
    let folders = base.split_once("://").map_or(base, |(_, rest)| rest).trim_end_matches('/').split_once('/');
    let last = folders.and_then(|(_, folders)| folders.rsplit('/').next());
    let version = settings.quirks.gemini_version.as_deref().unwrap_or("v1beta");
    match last.is_some_and(is_version) || version.is_empty() {
        true => settings.url(path),
        false => settings.url(&format!("/{}{path}", segment(version))),
    }
}

/// `v1`, `v1beta`, `v1beta1` and the like.
fn is_version(segment: &str) -> bool {
    segment.strip_prefix('v').is_some_and(|rest| {
        rest.starts_with(|c: char| c.is_ascii_digit()) && rest.chars().all(|c| c.is_ascii_alphanumeric())
    })
}

/// The tool that must be called, if it is one of those that are too many: without the others it is not.
fn beyond_the_limit<'a>(
    settings: &ProviderSettings,
    choice: &'a ToolChoice,
    lowered: &LoweredTools,
) -> Option<&'a str> {
    let ToolChoice::Tool(name) = choice else { return None };
    let most = settings.quirks.most_tools.or(most_tools(Dialect::Gemini)).unwrap_or(usize::MAX);
    let place = lowered.tools.iter().position(|tool| tool.name == *name)?;
    (place >= most).then_some(name)
}

#[derive(Serialize)]
struct Instruction<'a> {
    parts: [Line<'a>; 1],
}

#[derive(Serialize)]
struct Line<'a> {
    text: &'a str,
}

#[derive(Serialize)]
struct ToolConfig<'a> {
    #[serde(rename = "functionCallingConfig")]
    calling: Calling<'a>,
}

/// Must a tool be called?
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Calling<'a> {
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_function_names: Option<[&'a str; 1]>,
}

impl<'a> Calling<'a> {
    fn of(choice: &ToolChoice, lowered: &'a LoweredTools) -> Result<Option<Self>, ProviderError> {
        let (mode, name) = match choice {
            ToolChoice::Tool(name) => match lowered.get(name) {
                Some(tool) => ("ANY", Some(tool.wire_name.as_str())),
                None => return Err(unusable(format!("the tool `{name}` must be called, but it is not offered"))),
            },
            _ if lowered.tools.is_empty() => return Ok(None),
            ToolChoice::Auto => return Ok(None),
            ToolChoice::None => ("NONE", None),
            ToolChoice::Required => ("ANY", None),
        };
        Ok(Some(Self { mode, allowed_function_names: name.map(|name| [name]) }))
    }
}

/// How the answer is made.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Config<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop_sequences: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<Thinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_mime_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_json_schema: Option<Value>,
}

impl<'a> Config<'a> {
    fn of(request: &'a ChatRequest<'_>, model: &Model<'_>) -> Result<Self, ProviderError> {
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

    /// The same request with ours put beside what the caller has of it, where he has something: his fields win.
    fn merged<'r>(&self, request: &ChatRequest<'r>) -> Option<ChatRequest<'r>> {
        let his = request.extra.get(CONFIG)?.as_object()?;
        let Ok(Value::Object(mut fields)) = serde_json::to_value(self) else { return None };
        fields.extend(his.clone());
        let mut request = request.clone();
        request.extra.insert(CONFIG.to_owned(), fields.into());
        Some(request)
    }
}

/// The schema of the answer, unless the caller writes it in his own words.
fn output(request: &ChatRequest<'_>) -> Result<Option<Value>, ProviderError> {
    let his = request.extra.get(CONFIG);
    let is_his = his.is_some_and(|his| his.get("responseJsonSchema").is_some() || his.get("responseSchema").is_some());
    let Some(output) = request.output.as_ref().filter(|_| !is_his) else { return Ok(None) };
    match lower_output(&output.schema, Dialect::Gemini) {
        Ok(lowered) => Ok(Some(lowered.schema)),
        Err(cause) => Err(unusable(cause.to_string())),
    }
}

fn unusable(words: String) -> ProviderError {
    ProviderError::new(ProviderErrorKind::Unusable, Dialect::Gemini, words)
}
