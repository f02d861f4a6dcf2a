//! A server's prompts ([prompts](https://modelcontextprotocol.io/specification/2025-11-25/server/prompts)).

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};

use super::call;
use super::connection::Connection;
use super::pages::{self, PagedList};
use crate::protocol::field::{boolean, brief, list as items, object, split_key, string, take};
use ropeway_core::content::ContentPart;
use ropeway_core::message::{AssistantMessage, Message};
use ropeway_core::tool::{Arguments, CallContext, CallError};

/// The role for messages that the user wrote.
const USER: &str = "user";

/// A `prompts/list` entry.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Prompt {
    /// The name for [`Mcp::get_prompt`](super::Mcp::get_prompt).
    pub name: String,
    /// The name to display.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What the prompt is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The arguments that the prompt takes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<PromptArgument>,
    /// The `_meta` field.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
    /// All other fields.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A [`Prompt`] argument.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PromptArgument {
    /// The argument's name.
    pub name: String,
    /// The name to display.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What the argument means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether the argument is required.
    pub required: bool,
    /// All other fields.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The [`Mcp::get_prompt`](super::Mcp::get_prompt) result.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PromptResult {
    /// What the prompt is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The messages, in order.
    pub messages: Vec<PromptMessage>,
    /// The `_meta` field.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
    /// All other fields.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A message in a [`PromptResult`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PromptMessage {
    /// The message's author: `user`, `assistant`, or a role that the protocol does not define.
    pub role: String,
    /// The message's content.
    pub content: ContentPart,
}

/// The role under which a prompt message is sent to a model.
#[derive(Clone, Copy, PartialEq)]
enum PromptSpeaker<'a> {
    User,
    Model,
    /// The user's role, with a line that names the author.
    Quoted(&'a str),
}

/// Lists a server's prompts.
pub(crate) async fn list(connection: &Arc<Connection>) -> Result<Vec<Prompt>, CallError> {
    let list = PagedList { method: "prompts/list", key: "prompts", noun: "prompt" };
    let read = |entry| Prompt::read(entry, |problem| connection.host.warn(problem));
    pages::entries(connection, list, "prompts", read).await
}

/// Gets a prompt with its arguments filled in.
pub(crate) async fn get(
    connection: &Arc<Connection>,
    name: &str,
    arguments: Arguments,
    cx: &CallContext,
) -> Result<PromptResult, CallError> {
    let mut params = Map::from_iter([("name".to_owned(), name.into())]);
    let arguments = to_text_arguments(arguments);
    if !arguments.is_empty() {
        params.insert("arguments".to_owned(), Value::Object(arguments));
    }
    let result = call::request(connection, "prompts/get", params, cx).await?;
    Ok(PromptResult::read(result, |problem| connection.host.warn(&format!("prompt `{name}` contains {problem}"))))
}

/// Converts arguments to strings, as the protocol requires. Drops `null` values.
pub(crate) fn to_text_arguments(arguments: Arguments) -> Arguments {
    let text = |value| match value {
        Value::Null => None,
        text @ Value::String(_) => Some(text),
        other => Some(Value::String(other.to_string())),
    };
    arguments.into_iter().filter_map(|(name, value)| Some((name, text(value)?))).collect()
}

impl Prompt {
    /// Reads a cached prompt. The error describes the problem.
    pub fn remembered(entry: Value) -> Result<Self, String> {
        Self::read(entry, |_| {})
    }

    fn read(entry: Value, warn: impl Fn(&str)) -> Result<Self, String> {
        let (name, mut entry) = split_key(entry, "name", "prompt")?;
        let mut arguments = Vec::new();
        for argument in take(&mut entry, "arguments", items).unwrap_or_default() {
            match PromptArgument::read(argument) {
                Ok(argument) => arguments.push(argument),
                Err(problem) => warn(&format!("prompt `{name}` has {problem}")),
            }
        }
        Ok(Self {
            name,
            title: take(&mut entry, "title", string),
            description: take(&mut entry, "description", string),
            arguments,
            meta: take(&mut entry, "_meta", object),
            extra: entry,
        })
    }
}

impl PromptArgument {
    fn read(entry: Value) -> Result<Self, String> {
        let (name, mut entry) = split_key(entry, "name", "prompt argument")?;
        let required = take(&mut entry, "required", boolean);
        // An invalid value must not remain in `extra`.
        entry.shift_remove("required");
        Ok(Self {
            name,
            title: take(&mut entry, "title", string),
            description: take(&mut entry, "description", string),
            required: required.unwrap_or_default(),
            extra: entry,
        })
    }
}

impl PromptResult {
    /// Converts the prompt to the first messages of a conversation.
    ///
    /// Assistant messages can only contain text. Other assistant content, and messages with other roles, become part of a
    /// user message, after a line that names the author. Nothing is dropped.
    pub fn to_messages(&self) -> Vec<Message> {
        let mut said: Vec<(PromptSpeaker<'_>, Vec<&ContentPart>)> = Vec::new();
        for PromptMessage { role, content } in &self.messages {
            let speaker = match role.as_str() {
                USER => PromptSpeaker::User,
                "assistant" if content.as_text().is_some() => PromptSpeaker::Model,
                other => PromptSpeaker::Quoted(other),
            };
            match said.last_mut() {
                Some((last, parts)) if *last == speaker => parts.push(content),
                _ => said.push((speaker, vec![content])),
            }
        }
        let mut messages: Vec<Message> = Vec::new();
        let mut quoted = false;
        for (speaker, parts) in said {
            let name = match speaker {
                PromptSpeaker::Model => {
                    let texts: Vec<&str> = parts.iter().filter_map(|part| part.as_text()).collect();
                    messages.push(AssistantMessage::text(texts.join("\n\n")).into());
                    quoted = false;
                    continue;
                }
                PromptSpeaker::Quoted(name) => Some(name),
                // After quoted content, the user's own content needs a line as well.
                PromptSpeaker::User => quoted.then_some(USER),
            };
            quoted = matches!(speaker, PromptSpeaker::Quoted(_));
            let line = name.map(|name| ContentPart::text(format!("[message from `{name}`]")));
            let content = line.into_iter().chain(parts.into_iter().cloned());
            match messages.last_mut() {
                Some(Message::User { content: last }) => last.extend(content),
                _ => messages.push(Message::User { content: content.collect() }),
            }
        }
        messages
    }

    fn read(result: Value, warn: impl Fn(&str)) -> Self {
        let Value::Object(mut fields) = result else { return Self::default() };
        let mut messages = Vec::new();
        for message in take(&mut fields, "messages", items).unwrap_or_default() {
            match message {
                Value::Object(mut message) if message.contains_key("content") => {
                    // A message without a role is attributed to the user, who chose the prompt.
                    let role =
                        message.get("role").and_then(Value::as_str).filter(|role| !role.is_empty()).unwrap_or(USER);
                    let role = role.to_owned();
                    let parts = match message.shift_remove("content").unwrap_or_default() {
                        // The protocol allows one part per message. Some servers send several.
                        Value::Array(parts) => parts,
                        part => vec![part],
                    };
                    let parts = parts.into_iter().map(ContentPart::from_block);
                    messages.extend(parts.map(|content| PromptMessage { role: role.clone(), content }));
                }
                invalid => warn(&format!("a message without content: {}", brief(&invalid))),
            }
        }
        fields.shift_remove("messages");
        // Only marks the result as final.
        fields.shift_remove("resultType");
        Self {
            description: take(&mut fields, "description", string),
            messages,
            meta: take(&mut fields, "_meta", object),
            extra: fields,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_prompt_is_serialized_as_it_was_received() {
        let full = json!({"name": "p", "title": "P", "description": "d", "_meta": {"m": 1}, "icons": [],
            "arguments": [{"name": "a", "title": "A", "description": "d", "required": true, "x": 1}]});
        let read = Prompt::read(full.clone(), |problem| panic!("{problem}")).expect("a prompt");
        assert_eq!(json!(read), full);
    }

    #[test]
    fn an_invalid_argument_is_skipped() {
        let warnings = RefCell::new(Vec::new());
        let invalid = json!({"name": "p", "arguments": [3, {"name": "a", "required": "yes"}, {"name": ""}]});
        let read = Prompt::read(invalid, |problem| warnings.borrow_mut().push(problem.to_owned())).expect("a prompt");
        assert_eq!(json!(read), json!({"name": "p", "arguments": [{"name": "a", "required": false}]}));
        let expected = [
            "prompt `p` has a prompt argument that is not an object: 3",
            "prompt `p` has a prompt argument without a name: \"\"",
        ];
        assert_eq!(*warnings.borrow(), expected);
        let odder = json!({"name": "p", "arguments": {"a": 1}});
        assert_eq!(json!(Prompt::read(odder.clone(), |_| ()).expect("a prompt")), odder);
    }

    #[test]
    fn messages_are_read_with_any_form_of_content() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let result = json!({"description": 3, "messages": [
            {"role": "user", "content": text("a")},
            {"role": "assistant", "content": [text("b"), text("c")]},
            {"role": "narrator", "content": "d"},
            {"content": {"type": "hologram"}},
            {"role": "user"},
            null,
        ]});
        let warnings = RefCell::new(Vec::new());
        let read = PromptResult::read(result, |problem| warnings.borrow_mut().push(problem.to_owned()));
        let expected = json!({"description": 3, "messages": [
            {"role": "user", "content": text("a")},
            {"role": "assistant", "content": text("b")},
            {"role": "assistant", "content": text("c")},
            {"role": "narrator", "content": text("d")},
            {"role": "user", "content": text(r#"{"type":"hologram"}"#)},
        ]});
        assert_eq!(json!(read), expected);
        assert_eq!(warnings.borrow().len(), 2);
        assert_eq!(PromptResult::read(json!({"messages": "none"}), |_| ()), PromptResult::default());
    }

    #[test]
    fn a_prompt_becomes_messages_without_loss() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let image = || json!({"type": "image", "data": "AAAA", "mimeType": "image/png"});
        let resource = || json!({"type": "resource", "resource": {"uri": "file:///a", "text": "A"}});
        let prompt = json!({"messages": [
            {"role": "user", "content": text("a")},
            {"role": "user", "content": resource()},
            {"role": "assistant", "content": text("b")},
            {"role": "assistant", "content": text("c")},
            {"role": "assistant", "content": image()},
            {"role": "narrator", "content": text("d")},
            {"role": "narrator", "content": text("e")},
            {"role": "user", "content": text("f")},
            {"role": "assistant", "content": text("g")},
        ]});
        let messages = PromptResult::read(prompt, |problem| panic!("{problem}")).to_messages();
        let expected = json!([
            {"role": "user", "content": [text("a"), resource()]},
            {"role": "assistant", "parts": [text("b\n\nc")]},
            {"role": "user", "content": [
                text("[message from `assistant`]"), image(), text("[message from `narrator`]"), text("d"), text("e"),
                text("[message from `user`]"), text("f"),
            ]},
            {"role": "assistant", "parts": [text("g")]},
        ]);
        assert_eq!(json!(messages), expected);
        assert_eq!(PromptResult::default().to_messages(), []);
    }

    #[test]
    fn arguments_are_sent_as_text() {
        let arguments = json!({"a": "x", "b": 3, "c": null, "d": [1]});
        let Value::Object(arguments) = arguments else { panic!("an object") };
        assert_eq!(Value::Object(to_text_arguments(arguments)), json!({"a": "x", "b": "3", "d": "[1]"}));
    }
}
