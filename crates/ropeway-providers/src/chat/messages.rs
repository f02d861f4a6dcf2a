//! A request's messages.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::assistant::Assistant;
use super::part::{ChatContent, ChatPart};
use crate::normalize::{NormalizedMessage, NormalizedResult};
use crate::prompt_part::{PromptPart, join_lines};
use ropeway_core::json;

/// An empty result's content. Some chat templates drop an empty message, and the model then waits for it.
const NO_OUTPUT: &str = "(no output)";

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum ChatMessage<'a> {
    Plain { role: &'static str, content: ChatContent<'a> },
    Assistant(Assistant<'a>),
    Tool { role: &'static str, tool_call_id: &'a str, content: Cow<'a, str> },
}

/// Converts a conversation. `system` is the system message's role and text.
pub(super) fn wire_messages<'a>(
    system: Option<(&'static str, &'a str)>,
    conversation: &'a [NormalizedMessage<'a>],
) -> Vec<ChatMessage<'a>> {
    let mut messages = Vec::with_capacity(conversation.len() + 2);
    if let Some((role, system)) = system {
        messages.push(ChatMessage::Plain { role, content: ChatContent::Text(system.into()) });
    }
    // Media in tool results. Tool messages hold only text and must be adjacent, so media follow in a user message.
    let mut media = Vec::new();
    for message in conversation {
        match message {
            NormalizedMessage::ToolResults(results) => {
                messages.extend(results.iter().map(|result| tool_message(result, &mut media)));
            }
            NormalizedMessage::User(content) => {
                let mut parts = std::mem::take(&mut media);
                parts.extend(content.iter().map(|part| ChatPart::of(PromptPart::of(part))));
                messages.push(user(parts));
            }
            NormalizedMessage::Assistant(reply) => {
                if !media.is_empty() {
                    messages.push(user(std::mem::take(&mut media)));
                }
                messages.push(ChatMessage::Assistant(Assistant::new(reply)));
            }
        }
    }
    if !media.is_empty() {
        messages.push(user(media));
    }
    messages
}

fn user(parts: Vec<ChatPart<'_>>) -> ChatMessage<'_> {
    ChatMessage::Plain { role: "user", content: ChatContent::new(parts) }
}

/// Converts a tool result to text, because many chat templates support nothing else. Its media are added to `media`.
fn tool_message<'a>(result: &'a NormalizedResult<'a>, media: &mut Vec<ChatPart<'a>>) -> ChatMessage<'a> {
    let (tool, call) = (&result.wire_name, &result.id);
    let mut lines = Vec::new();
    let mut kinds: Vec<&str> = Vec::new();
    for part in result.content.iter() {
        let part = ChatPart::of(PromptPart::of(part));
        match (part.kind(), part) {
            (None, ChatPart::Text { text }) if !text.is_empty() => lines.push(text),
            (None, _) => {}
            (Some(kind), part) => {
                kinds.push(kind);
                let number = kinds.iter().filter(|other| **other == kind).count();
                lines.push(format!("[{kind} {number} of `{tool}`, shown below]").into());
                media.push(ChatPart::text(format!("[{kind} {number} of `{tool}`, call `{call}`]")));
                media.push(part);
            }
        }
    }
    let text = match join_lines(lines) {
        text if text.is_empty() => NO_OUTPUT.into(),
        text => text,
    };
    let content = if result.is_error { mark_error(text) } else { text };
    ChatMessage::Tool { role: "tool", tool_call_id: call, content }
}

/// Adds the prefix `error: `, unless the text already reports one. The API has no field for errors.
fn mark_error(text: Cow<'_, str>) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct ErrorObject {
        #[serde(rename = "error")]
        _error: IgnoredAny,
    }
    let start = text.trim_start();
    let has_prefix = start.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("error:"));
    let is_marked = has_prefix || (start.starts_with('{') && json::from_str::<ErrorObject>(&text).is_ok());
    if is_marked { text } else { format!("error: {text}").into() }
}
