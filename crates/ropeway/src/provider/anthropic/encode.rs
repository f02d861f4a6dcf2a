//! A request as Anthropic Messages takes it.

use std::collections::HashSet;

use serde::Serialize;
use serde_json::Value;

use super::block::Block;
use crate::lowering::{LoweredOutput, LoweredTools, lower_output};
use crate::message::Dialect;
use crate::provider::encoded::{Body, headers};
use crate::provider::history::{Turn, turns};
use crate::provider::{
    ChatRequest, EncodedRequest, ProviderError, ProviderErrorKind, ProviderSettings, ReasoningEffort, ToolChoice,
};

/// The version of the API that is spoken where nothing else is said.
const VERSION: &str = "2026-10-21";

/// From this version on the API refuses to be told how much is left to chance.
const WITHOUT_SAMPLING: &str = "2026-10-21";

/// The API wants a limit; this is one that every current model takes.
const MAX_TOKENS: u32 = 32_000;

/// What the person is taken to have said when the model has the first word: the API refuses to begin with an answer.
const BEGINNING: &str = "[the conversation begins here]";

/// What stands for the person's last word when it is blank: left out, the model would be asked to go on with its own.
const NOTHING_SAID: &str = "[nothing was said]";

/// Writes a request.
///
/// Thoughts of the newest models are bound to everything before them: when the tools or the system change in mid-conversation,
/// the API refuses them. A host whose tools change says so itself: with `extra.thinking` set to `{"type": "adaptive",
/// "block_binding": {"prefix_mismatch_behavior": "drop_block"}}` and the header `anthropic-beta:
/// thinking-binding-controls-2026-08-01` in the settings. Nothing that is still on trial is sent unasked.
pub(crate) fn encode(settings: &ProviderSettings, request: &ChatRequest<'_>) -> Result<EncodedRequest, ProviderError> {
    let mut body = Body::new(settings, request);
    let speaker = settings.speaker(request.model);
    let lowered = body.lowered();
    let turns = turns(request.conversation, &speaker, &lowered, settings.in_words(request));
    // Anthropic itself takes no thoughts without a signature.
    let messages = messages(&turns, settings.is_anthropic());
    if messages.is_empty() && !request.extra.contains_key("messages") {
        return Err(unusable("there is no message that the model could answer".to_owned()));
    }
    body.field("model", request.model);
    body.field("max_tokens", &request.max_tokens.unwrap_or(MAX_TOKENS));
    body.field("stream", &true);
    body.field_if_some("system", request.conversation.system.as_deref().filter(|system| !system.trim().is_empty()));
    body.field("messages", &messages);
    let mut choice = choice(request, &lowered)?;
    let mut only = None;
    if let Some(forced) = choice.as_mut().filter(|choice| matches!(choice.r#type, "any" | "tool"))
        && is_free_to_call(request.model)
        && !request.extra.contains_key("tool_choice")
    {
        (forced.r#type, forced.name) = ("auto", None);
        if let ToolChoice::Tool(name) = &request.tool_choice {
            only = Some(name.as_str());
        }
        body.warn(format!("`{}` cannot be made to call a tool: it may choose not to", request.model));
    }
    body.field_if_some("tool_choice", choice);
    body.field_if_some("container", container(&turns));
    match request.effort {
        Some(ReasoningEffort::Off) if always_thinks(request.model) => {
            body.warn(format!("`{}` cannot be told not to think", request.model));
        }
        Some(ReasoningEffort::Off) if request.model.contains("sonnet-5-5") => {
            body.field("thinking", &Thinking { r#type: "between_tools" });
        }
        effort => body.field_if_some("thinking", thinking(effort)),
    }
    let output = output(request)?;
    if output.as_ref().is_some_and(|output| !output.strict) {
        body.warn("Anthropic may refuse the schema of the answer: it cannot hold a model to it");
    }
    body.field_if_some("output_config", output_config(request.effort, output.as_ref()));
    if !request.stop_sequences.is_empty() {
        body.field("stop_sequences", &request.stop_sequences);
    }
    let version = version(settings);
    for (name, value) in [("temperature", request.temperature), ("top_p", request.top_p)] {
        if value.is_some() && version >= WITHOUT_SAMPLING {
            body.warn(format!("`{name}` is left out: Anthropic does not take it from version {WITHOUT_SAMPLING} on"));
        } else {
            body.field_if_some(name, value);
        }
    }
    body.finish(speaker, url(settings, "/messages"), headers(settings, &[("anthropic-version", version)]), only)
}

fn unusable(message: String) -> ProviderError {
    ProviderError::new(ProviderErrorKind::Unusable, Dialect::Anthropic, message)
}

/// A path behind the version of the API. People write the base URL with the version and without it.
pub(in crate::provider) fn url(settings: &ProviderSettings, path: &str) -> String {
    let base = settings.base_url.split('?').next().unwrap_or_default().trim_end_matches('/');
    let version = if base.ends_with("/v1") { "" } else { "/v1" };
    settings.url(&format!("{version}{path}"))
}

pub(in crate::provider) fn version(settings: &ProviderSettings) -> &str {
    let header = settings.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("anthropic-version"));
    let said = header.map(|(_, version)| version.expose()).or(settings.quirks.anthropic_version.as_deref());
    said.unwrap_or(VERSION)
}

#[derive(Serialize)]
struct Message<'a> {
    role: Role,
    content: Vec<Block<'a>>,
}

#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Assistant,
}

/// The messages: the person's and the model's by turns, results in front of what the person says after them.
fn messages<'a>(turns: &'a [Turn<'a>], signed_only: bool) -> Vec<Message<'a>> {
    let mut merged: Vec<Message<'a>> = Vec::new();
    for (at, turn) in turns.iter().enumerate() {
        let (role, mut content): (Role, Vec<Block<'a>>) = match turn {
            Turn::User(parts) => (Role::User, parts.iter().filter_map(|part| Block::of(part)).collect()),
            Turn::Results(outcomes) => (Role::User, outcomes.iter().map(Block::of_outcome).collect()),
            Turn::Assistant(answer) => (Role::Assistant, Block::of_answer(answer, signed_only)),
        };
        let goes_on = merged.last().is_some_and(|last| last.role == Role::Assistant);
        if content.is_empty() && role == Role::User && goes_on && at + 1 == turns.len() {
            content.push(Block::text(NOTHING_SAID));
        }
        match merged.last_mut() {
            _ if content.is_empty() => {}
            Some(last) if last.role == role => last.content.extend(content),
            _ => merged.push(Message { role, content }),
        }
    }
    // What may stay of an answer depends on what follows it, so they are looked at from the end on.
    let mut messages: Vec<Message<'a>> = Vec::with_capacity(merged.len() + 1);
    for mut message in merged.into_iter().rev() {
        if message.role == Role::Assistant {
            keep_the_answerable(&mut message.content, &messages);
        }
        match messages.last_mut() {
            _ if message.content.is_empty() => {}
            Some(next) if next.role == message.role => {
                message.content.append(&mut next.content);
                next.content = message.content;
            }
            _ => messages.push(message),
        }
    }
    if messages.last().is_some_and(|first| first.role == Role::Assistant) {
        messages.push(Message { role: Role::User, content: vec![Block::text(BEGINNING)] });
    }
    messages.reverse();
    messages
}

/// Leaves out of an answer what the API refuses there: thoughts at its end, and calls that the provider has not answered itself and
/// never will, because the person has gone on. `after` is what follows, the nearest last.
fn keep_the_answerable<'a>(content: &mut Vec<Block<'a>>, after: &[Message<'a>]) {
    let mut after = after.iter().rev();
    let next = after.next();
    if next.is_some_and(|next| !next.content.iter().all(Block::is_result)) {
        let later = after.next().map_or(&[][..], |message| &message.content);
        let answered: HashSet<&str> = content.iter().chain(later).filter_map(Block::server_result).collect();
        content.retain(|block| block.server_call().is_none_or(|id| answered.contains(id)));
    }
    while content.last().is_some_and(Block::is_thought) {
        content.pop();
    }
}

/// The container that the model's code runs in, as long as the same turn goes on: it waits there for the results of its calls.
fn container<'a>(turns: &'a [Turn<'a>]) -> Option<&'a str> {
    let answer = turns.iter().enumerate().rev().find_map(|(at, turn)| match turn {
        Turn::Assistant(answer) => matches!(turns.get(at + 1), None | Some(Turn::Results(_))).then_some(answer),
        _ => None,
    })?;
    answer.native?.extra.get("container")?.get("id")?.as_str()
}

#[derive(Serialize)]
struct Choice<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    disable_parallel_tool_use: bool,
}

/// Must a tool be called? There is nothing to choose without tools, and the API says so with a 400.
fn choice<'a>(request: &'a ChatRequest<'_>, lowered: &'a LoweredTools) -> Result<Option<Choice<'a>>, ProviderError> {
    let others = request.extra.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let one_at_a_time = request.parallel_calls == Some(false);
    let (kind, name) = match &request.tool_choice {
        ToolChoice::Tool(name) => {
            let is_meant = |tool: &Value| tool.get("name").and_then(Value::as_str) == Some(name);
            let wire_name = match lowered.get(name) {
                Some(tool) => &tool.wire_name,
                None if others.iter().any(is_meant) => name,
                None => return Err(unusable(format!("`{name}` must be called, but there is no such tool on offer"))),
            };
            ("tool", Some(wire_name.as_str()))
        }
        _ if lowered.tools.is_empty() && others.is_empty() => return Ok(None),
        ToolChoice::Auto if one_at_a_time => ("auto", None),
        ToolChoice::Auto => return Ok(None),
        ToolChoice::Required => ("any", None),
        ToolChoice::None => {
            return Ok(Some(Choice { r#type: "none", name: None, disable_parallel_tool_use: false }));
        }
    };
    Ok(Some(Choice { r#type: kind, name, disable_parallel_tool_use: one_at_a_time }))
}

/// Models that refuse to be told not to think.
fn always_thinks(model: &str) -> bool {
    ["fable", "mythos", "opus-5-5"].iter().any(|name| model.contains(name))
}

/// Models that refuse to be told to call a tool.
fn is_free_to_call(model: &str) -> bool {
    ["fable-5-1", "mythos-5-1", "opus-5-5", "sonnet-5-5"].iter().any(|name| model.contains(name))
}

#[derive(Serialize)]
struct Thinking {
    r#type: &'static str,
}

/// Current models think as much as they find good (`adaptive`), and `output_config.effort` is what guides them. A model of before
/// 4.6 wants a budget instead, one that cannot stop thinking refuses `disabled`: only the host knows its model, and says so in
/// `extra.thinking`.
fn thinking(effort: Option<ReasoningEffort>) -> Option<Thinking> {
    let r#type = match effort? {
        ReasoningEffort::Off => "disabled",
        _ => "adaptive",
    };
    Some(Thinking { r#type })
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<Format<'a>>,
}

#[derive(Serialize)]
struct Format<'a> {
    r#type: &'static str,
    schema: &'a Value,
}

/// The schema of the answer, unless the caller writes its place himself.
fn output(request: &ChatRequest<'_>) -> Result<Option<LoweredOutput>, ProviderError> {
    let wanted = request.output.as_ref().filter(|_| !request.extra.contains_key("output_config"));
    let lowered = wanted.map(|output| lower_output(&output.schema, Dialect::Anthropic)).transpose();
    lowered.map_err(|cause| unusable(cause.to_string()))
}

fn output_config(effort: Option<ReasoningEffort>, output: Option<&LoweredOutput>) -> Option<OutputConfig<'_>> {
    let effort = effort.and_then(|effort| match effort {
        ReasoningEffort::Off => None,
        ReasoningEffort::Minimal | ReasoningEffort::Low => Some("low"),
        ReasoningEffort::Medium => Some("medium"),
        ReasoningEffort::High => Some("high"),
        ReasoningEffort::Max => Some("max"),
    });
    let format = output.map(|output| Format { r#type: "json_schema", schema: &output.schema });
    (effort.is_some() || format.is_some()).then_some(OutputConfig { effort, format })
}
