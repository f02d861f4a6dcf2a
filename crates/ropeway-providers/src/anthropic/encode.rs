//! Encodes a request for Anthropic Messages.

use std::collections::HashSet;

use serde::Serialize;
use serde_json::Value;

use super::content_block::ContentBlock;
use crate::body_builder::BodyBuilder;
use crate::encoded_request::EncodedRequest;
use crate::error::ProviderError;
use crate::http_message::stream_headers;
use crate::normalize::{NormalizedMessage, normalize};
use crate::request::{ChatRequest, ToolChoice};
use crate::settings::ProviderSettings;
use ropeway_core::lowering::{LoweredOutput, LoweredTools, lower_output};
use ropeway_core::message::{Dialect, ReasoningEffort};

/// The default API version (<https://docs.anthropic.com/en/api/versioning>).
const VERSION: &str = "2026-10-21";

/// Since this version the API rejects sampling parameters.
const WITHOUT_SAMPLING: &str = "2026-10-21";

/// The API requires a limit; every current model accepts this one.
const MAX_TOKENS: u32 = 32_000;

/// The user message before a conversation that starts with the model: the API rejects such a start.
const BEGINNING: &str = "[the conversation begins here]";

/// Replaces a blank last user message. Without it, the model would continue its own message.
const EMPTY_MESSAGE: &str = "[empty message]";

/// Encodes a request.
///
/// The newest models' thinking blocks are bound to everything before them: if the tools or the system prompt change within a
/// conversation, the API rejects the blocks. A host whose tools change can set `extra.thinking` to `{"type": "adaptive",
/// "block_binding": {"prefix_mismatch_behavior": "drop_block"}}` and add the header `anthropic-beta:
/// thinking-binding-controls-2026-08-01` to the settings. Beta features are not used by default.
pub(crate) fn encode(settings: &ProviderSettings, request: &ChatRequest<'_>) -> Result<EncodedRequest, ProviderError> {
    let mut body = BodyBuilder::new(settings, request);
    let endpoint = settings.model_endpoint(request.model);
    let lowered = body.lowered();
    let messages = normalize(request.conversation, &endpoint, &lowered, settings.described_media(request));
    // Anthropic's own API rejects thinking without a signature.
    let wire_messages = wire_messages(&messages, settings.is_anthropic());
    if wire_messages.is_empty() && !request.extra.contains_key("messages") {
        return Err(ProviderError::unusable(Dialect::Anthropic, "the conversation has no message to answer"));
    }
    body.field("model", request.model);
    body.field("max_tokens", &request.max_tokens.unwrap_or(MAX_TOKENS));
    body.field("stream", &true);
    body.field_if_some("system", request.conversation.system.as_deref().filter(|system| !system.trim().is_empty()));
    body.field("messages", &wire_messages);
    let mut choice = tool_choice(request, &lowered)?;
    let mut only = None;
    if let Some(forced) = choice.as_mut().filter(|choice| matches!(choice.r#type, "any" | "tool"))
        && rejects_forced_calls(request.model)
        && !request.extra.contains_key("tool_choice")
    {
        (forced.r#type, forced.name) = ("auto", None);
        if let ToolChoice::Tool(name) = &request.tool_choice {
            only = Some(name.as_str());
        }
        body.warn(format!("model `{}` does not support forced tool calls: it may skip the tool", request.model));
    }
    body.field_if_some("tool_choice", choice);
    body.field_if_some("container", container(&messages));
    match request.effort {
        Some(ReasoningEffort::Off) if always_thinks(request.model) => {
            body.warn(format!("model `{}` does not support disabling thinking", request.model));
        }
        Some(ReasoningEffort::Off) if request.model.contains("sonnet-5-5") => {
            body.field("thinking", &ThinkingMode { r#type: "between_tools" });
        }
        effort => body.field_if_some("thinking", thinking(effort)),
    }
    let output = output(request)?;
    if output.as_ref().is_some_and(|output| !output.strict) {
        body.warn("anthropic may reject the output schema: it cannot be enforced strictly");
    }
    body.field_if_some("output_config", output_config(request.effort, output.as_ref()));
    if !request.stop_sequences.is_empty() {
        body.field("stop_sequences", &request.stop_sequences);
    }
    let version = version(settings);
    for (name, value) in [("temperature", request.temperature), ("top_p", request.top_p)] {
        if value.is_some() && version >= WITHOUT_SAMPLING {
            body.warn(format!("left out `{name}`: anthropic does not support it since version {WITHOUT_SAMPLING}"));
        } else {
            body.field_if_some(name, value);
        }
    }
    body.finish(endpoint, url(settings, "/messages"), stream_headers(settings, &[("anthropic-version", version)]), only)
}

/// Returns a path's URL. The base URL may end with the API version or not.
pub(crate) fn url(settings: &ProviderSettings, path: &str) -> String {
    let base = settings.base_url.split('?').next().unwrap_or_default().trim_end_matches('/');
    let version = if base.ends_with("/v1") { "" } else { "/v1" };
    settings.url(&format!("{version}{path}"))
}

pub(crate) fn version(settings: &ProviderSettings) -> &str {
    let header = settings.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("anthropic-version"));
    let version = header.map(|(_, version)| version.expose()).or(settings.quirks.anthropic_version.as_deref());
    version.unwrap_or(VERSION)
}

#[derive(Serialize)]
struct AnthropicMessage<'a> {
    role: MessageRole,
    content: Vec<ContentBlock<'a>>,
}

#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum MessageRole {
    User,
    Assistant,
}

/// Converts messages so that roles alternate and results precede the user's next text.
fn wire_messages<'a>(messages: &'a [NormalizedMessage<'a>], signed_only: bool) -> Vec<AnthropicMessage<'a>> {
    let mut merged: Vec<AnthropicMessage<'a>> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let (role, mut content): (MessageRole, Vec<ContentBlock<'a>>) = match message {
            NormalizedMessage::User(parts) => {
                (MessageRole::User, parts.iter().filter_map(|part| ContentBlock::of(part)).collect())
            }
            NormalizedMessage::ToolResults(results) => {
                (MessageRole::User, results.iter().map(ContentBlock::of_result).collect())
            }
            NormalizedMessage::Assistant(reply) => (MessageRole::Assistant, ContentBlock::of_reply(reply, signed_only)),
        };
        let continues = merged.last().is_some_and(|last| last.role == MessageRole::Assistant);
        if content.is_empty() && role == MessageRole::User && continues && at + 1 == messages.len() {
            content.push(ContentBlock::text(EMPTY_MESSAGE));
        }
        match merged.last_mut() {
            _ if content.is_empty() => {}
            Some(last) if last.role == role => last.content.extend(content),
            _ => merged.push(AnthropicMessage { role, content }),
        }
    }
    // Which blocks in a reply are valid depends on what follows it, so messages are processed from the end.
    let mut messages: Vec<AnthropicMessage<'a>> = Vec::with_capacity(merged.len() + 1);
    for mut message in merged.into_iter().rev() {
        if message.role == MessageRole::Assistant {
            remove_invalid_blocks(&mut message.content, &messages);
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
    if messages.last().is_some_and(|first| first.role == MessageRole::Assistant) {
        messages.push(AnthropicMessage { role: MessageRole::User, content: vec![ContentBlock::text(BEGINNING)] });
    }
    messages.reverse();
    messages
}

/// Removes blocks that the API rejects: thinking at the end of a reply, and server tool calls that will never have a result,
/// because the user has continued. `after` holds the messages that follow, the nearest last.
fn remove_invalid_blocks<'a>(content: &mut Vec<ContentBlock<'a>>, after: &[AnthropicMessage<'a>]) {
    let mut after = after.iter().rev();
    let next = after.next();
    if next.is_some_and(|next| !next.content.iter().all(ContentBlock::is_result)) {
        let later = after.next().map_or(&[][..], |message| &message.content);
        let answered: HashSet<&str> = content.iter().chain(later).filter_map(ContentBlock::server_result).collect();
        content.retain(|block| block.server_call().is_none_or(|id| answered.contains(id)));
    }
    while content.last().is_some_and(ContentBlock::is_thinking) {
        content.pop();
    }
}

/// Returns the last reply's code execution container, if its calls are waiting for results.
fn container<'a>(messages: &'a [NormalizedMessage<'a>]) -> Option<&'a str> {
    let reply = messages.iter().enumerate().rev().find_map(|(at, message)| match message {
        NormalizedMessage::Assistant(reply) => {
            matches!(messages.get(at + 1), None | Some(NormalizedMessage::ToolResults(_))).then_some(reply)
        }
        _ => None,
    })?;
    reply.native?.extra.get("container")?.get("id")?.as_str()
}

#[derive(Serialize)]
struct AnthropicToolChoice<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    disable_parallel_tool_use: bool,
}

/// Converts the tool choice. The API rejects a choice without tools.
fn tool_choice<'a>(
    request: &'a ChatRequest<'_>,
    lowered: &'a LoweredTools,
) -> Result<Option<AnthropicToolChoice<'a>>, ProviderError> {
    let others = request.extra.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let one_at_a_time = request.parallel_calls == Some(false);
    let (kind, name) = match &request.tool_choice {
        ToolChoice::Tool(name) => {
            let is_named = |tool: &Value| tool.get("name").and_then(Value::as_str) == Some(name);
            let wire_name = match lowered.get(name) {
                Some(tool) => &tool.wire_name,
                None if others.iter().any(is_named) => name,
                None => return Err(ProviderError::unknown_tool(Dialect::Anthropic, name)),
            };
            ("tool", Some(wire_name.as_str()))
        }
        _ if lowered.tools.is_empty() && others.is_empty() => return Ok(None),
        ToolChoice::Auto if one_at_a_time => ("auto", None),
        ToolChoice::Auto => return Ok(None),
        ToolChoice::Required => ("any", None),
        ToolChoice::None => {
            return Ok(Some(AnthropicToolChoice { r#type: "none", name: None, disable_parallel_tool_use: false }));
        }
    };
    Ok(Some(AnthropicToolChoice { r#type: kind, name, disable_parallel_tool_use: one_at_a_time }))
}

/// Returns `true` for models that reject disabled thinking.
fn always_thinks(model: &str) -> bool {
    ["fable", "mythos", "opus-5-5"].iter().any(|name| model.contains(name))
}

/// Returns `true` for models that reject a forced tool call.
fn rejects_forced_calls(model: &str) -> bool {
    ["fable-5-1", "mythos-5-1", "opus-5-5", "sonnet-5-5"].iter().any(|name| model.contains(name))
}

#[derive(Serialize)]
struct ThinkingMode {
    r#type: &'static str,
}

/// Current models decide how much to think (`adaptive`), guided by `output_config.effort`. For models before 4.6, which need a
/// budget, set `extra.thinking`. See <https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking>.
fn thinking(effort: Option<ReasoningEffort>) -> Option<ThinkingMode> {
    let r#type = match effort? {
        ReasoningEffort::Off => "disabled",
        _ => "adaptive",
    };
    Some(ThinkingMode { r#type })
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<OutputSchema<'a>>,
}

#[derive(Serialize)]
struct OutputSchema<'a> {
    r#type: &'static str,
    schema: &'a Value,
}

/// Lowers the output schema, unless `extra` has its field.
fn output(request: &ChatRequest<'_>) -> Result<Option<LoweredOutput>, ProviderError> {
    let wanted = request.output.as_ref().filter(|_| !request.extra.contains_key("output_config"));
    let lowered = wanted.map(|output| lower_output(&output.schema, Dialect::Anthropic)).transpose();
    lowered.map_err(|cause| ProviderError::unusable(Dialect::Anthropic, cause.to_string()))
}

fn output_config(effort: Option<ReasoningEffort>, output: Option<&LoweredOutput>) -> Option<OutputConfig<'_>> {
    let effort = effort.and_then(|effort| match effort {
        ReasoningEffort::Off => None,
        ReasoningEffort::Minimal | ReasoningEffort::Low => Some("low"),
        ReasoningEffort::Medium => Some("medium"),
        ReasoningEffort::High => Some("high"),
        ReasoningEffort::Max => Some("max"),
    });
    let format = output.map(|output| OutputSchema { r#type: "json_schema", schema: &output.schema });
    (effort.is_some() || format.is_some()).then_some(OutputConfig { effort, format })
}
