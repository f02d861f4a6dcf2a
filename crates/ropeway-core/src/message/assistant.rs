//! Model messages: text, reasoning, tool calls and opaque parts.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::dialect::Dialect;
use crate::json;

/// A model message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AssistantMessage {
    /// The model and endpoint that sent the message; `None` if the host wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<ModelEndpoint>,
    /// Parts in order.
    #[serde(default)]
    pub parts: Vec<AssistantPart>,
    /// Fields that only the same endpoint understands. They are not sent to others.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// A model at an endpoint. Opaque data is only returned to the same dialect and endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ModelEndpoint {
    /// The request's dialect.
    pub dialect: Dialect,
    /// The base URL's scheme, host and port.
    pub endpoint: String,
    /// The model name.
    pub model: String,
}

impl ModelEndpoint {
    /// Returns `true` if both have the same dialect and endpoint, and so accept each other's opaque parts.
    pub fn accepts_parts_of(&self, other: &Self) -> bool {
        self.dialect == other.dialect && self.endpoint == other.endpoint
    }
}

/// One part of a model message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AssistantPart {
    /// Text for the user.
    Text(AssistantText),
    /// Reasoning; the text is empty if the model hides it.
    Reasoning(AssistantText),
    /// A tool call.
    ToolCall(ToolCall),
    /// A part that only the same endpoint understands. It is sent back unchanged.
    #[serde(rename = "private")]
    Opaque {
        /// The part as received.
        json: Map<String, Value>,
    },
}

/// Model text or reasoning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AssistantText {
    /// The text.
    pub text: String,
    /// Further fields, which are sent back to the same endpoint, such as signatures and encrypted content.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// A model's tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The call's id, which its result refers to.
    pub id: String,
    /// The tool's exposed name.
    pub name: String,
    /// The arguments.
    #[serde(flatten)]
    pub arguments: CallArguments,
    /// Further fields, which are sent back to the same endpoint.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// Call arguments, as the model wrote them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CallArguments {
    /// A JSON object.
    #[serde(rename = "arguments")]
    Object(Map<String, Value>),
    /// Invalid arguments. The tool is not called, and the problem is reported to the model.
    #[serde(rename = "broken_arguments")]
    Broken {
        /// The model's text.
        text: String,
        /// A problem description for the model.
        problem: String,
    },
}

impl AssistantMessage {
    /// Creates a text message that the host wrote.
    pub fn text(text: impl Into<String>) -> Self {
        let part = AssistantText { text: text.into(), extra: Map::new() };
        Self { parts: vec![AssistantPart::Text(part)], ..Self::default() }
    }

    /// Creates a message with several parts.
    pub fn new(parts: Vec<AssistantPart>) -> Self {
        Self { parts, ..Self::default() }
    }

    /// Returns the concatenated text parts.
    pub fn to_text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            AssistantPart::Text(part) => Some(part.text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// Returns the tool calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            AssistantPart::ToolCall(call) => Some(call),
            _ => None,
        })
    }
}

impl ToolCall {
    /// Creates a call with valid arguments.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: Map<String, Value>) -> Self {
        Self { id: id.into(), name: name.into(), arguments: CallArguments::Object(arguments), extra: Map::new() }
    }
}

impl CallArguments {
    /// Parses arguments. Empty text is an empty object.
    pub fn read(text: &str) -> Self {
        if text.trim().is_empty() {
            return Self::Object(Map::new());
        }
        // Out-of-range numbers are not repaired: the tool must not be called with other values.
        match serde_json::from_str(&json::without_lone_surrogates(text)) {
            Ok(Value::Object(arguments)) => Self::Object(arguments),
            Ok(other) => Self::broken(text, format!("the arguments must be a JSON object, not {}", json::kind(&other))),
            Err(error) => Self::broken(text, format!("the arguments are not valid JSON: {error}")),
        }
    }

    /// Creates invalid arguments.
    pub fn broken(text: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Broken { text: text.into(), problem: problem.into() }
    }
}

impl fmt::Display for CallArguments {
    /// Writes an object as JSON, and invalid arguments unchanged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(arguments) => f.write_str(&serde_json::to_string(arguments).unwrap_or_default()),
            Self::Broken { text, .. } => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_display_as_the_model_wrote_them() {
        for written in [r#"{"b":1,"a":"é"}"#, "{}", "[1, 2]", "{ half"] {
            assert_eq!(CallArguments::read(written).to_string(), written);
        }
    }
}
