//! A conversation as this dialect writes it: a list of messages.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::assistant::Assistant;
use super::part::{Content, Part, joined};
use crate::json;
use crate::provider::history::{Outcome, Turn};
use crate::provider::piece::Piece;

/// What stands for a result without content. Some chat templates leave an empty message out, and the model then waits for it.
const NO_OUTPUT: &str = "(no output)";

/// One message.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Message<'a> {
    Plain { role: &'static str, content: Content<'a> },
    Assistant(Assistant<'a>),
    Tool { role: &'static str, tool_call_id: &'a str, content: Cow<'a, str> },
}

/// The messages of a conversation. Servers differ in what the one is called who says what the model is to be.
pub(super) fn messages<'a>(system: Option<(&'static str, &'a str)>, turns: &'a [Turn<'a>]) -> Vec<Message<'a>> {
    let mut messages = Vec::with_capacity(turns.len() + 2);
    if let Some((role, system)) = system {
        messages.push(Message::Plain { role, content: Content::Text(system.into()) });
    }
    // What tools have shown: it cannot stand in a message of theirs, and nothing may stand between those.
    let mut shown = Vec::new();
    for turn in turns {
        match turn {
            Turn::Results(outcomes) => {
                messages.extend(outcomes.iter().map(|outcome| result(outcome, &mut shown)));
            }
            Turn::User(said) => {
                let mut parts = std::mem::take(&mut shown);
                parts.extend(said.iter().map(|part| Part::of(Piece::of(part))));
                messages.push(user(parts));
            }
            Turn::Assistant(answer) => {
                if !shown.is_empty() {
                    messages.push(user(std::mem::take(&mut shown)));
                }
                messages.push(Message::Assistant(Assistant::new(answer)));
            }
        }
    }
    if !shown.is_empty() {
        messages.push(user(shown));
    }
    messages
}

fn user(parts: Vec<Part<'_>>) -> Message<'_> {
    Message::Plain { role: "user", content: Content::new(parts) }
}

/// A result: always a plain text, because many a chat template takes nothing else. What is no text is put to what is shown.
fn result<'a>(outcome: &'a Outcome<'a>, shown: &mut Vec<Part<'a>>) -> Message<'a> {
    let (tool, call) = (&outcome.wire_name, &outcome.id);
    let mut lines = Vec::new();
    let mut kinds: Vec<&str> = Vec::new();
    for part in outcome.content.iter() {
        let part = Part::of(Piece::of(part));
        match (part.kind(), part) {
            (None, Part::Text { text }) if !text.is_empty() => lines.push(text),
            (None, _) => {}
            (Some(kind), part) => {
                kinds.push(kind);
                let number = kinds.iter().filter(|other| **other == kind).count();
                lines.push(format!("[{kind} {number} of `{tool}`, shown below]").into());
                shown.push(Part::text(format!("[{kind} {number} of `{tool}`, call `{call}`]")));
                shown.push(part);
            }
        }
    }
    let text = match joined(lines) {
        text if text.is_empty() => NO_OUTPUT.into(),
        text => text,
    };
    let content = if outcome.is_error { marked(text) } else { text };
    Message::Tool { role: "tool", tool_call_id: call, content }
}

/// An error as the model sees it. The protocol has no mark for one, so the text itself must say what it is.
fn marked(text: Cow<'_, str>) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct SaysSo {
        #[serde(rename = "error")]
        _error: IgnoredAny,
    }
    let start = text.trim_start();
    let in_words = start.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("error:"));
    let says_so = in_words || (start.starts_with('{') && json::from_str::<SaysSo>(&text).is_ok());
    if says_so { text } else { format!("error: {text}").into() }
}
