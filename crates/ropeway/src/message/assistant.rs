//! What a model said: text, reasoning, calls of tools, and parts that only its provider understands.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::dialect::Dialect;
use crate::json;

/// What a model said in one answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AssistantMessage {
    /// Who said it; unknown for what a host has put into its mouth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<ModelEndpoint>,
    /// Its parts, in the order they were said.
    #[serde(default)]
    pub parts: Vec<AssistantPart>,
    /// Fields of the whole message that only the speaker understands; they go back to nobody else.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// Who said something. What is private to a speaker goes back only to the same dialect at the same endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ModelEndpoint {
    /// The dialect that was spoken.
    pub dialect: Dialect,
    /// Where: scheme, host and port of the base URL.
    pub endpoint: String,
    /// The model that was asked.
    pub model: String,
}

impl ModelEndpoint {
    /// Do they understand each other's private parts?
    pub fn shares_secrets_with(&self, other: &Self) -> bool {
        self.dialect == other.dialect && self.endpoint == other.endpoint
    }
}

/// One part of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum AssistantPart {
    /// Text for the person.
    Text(AssistantText),
    /// What the model thought, as far as it is shown.
    Reasoning(Reasoning),
    /// A call that the model wants made.
    ToolCall(ToolCall),
    /// A part that only the speaker understands; it goes back as it came.
    Private(OpaquePart),
}

/// Text for the person.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AssistantText {
    /// The text itself.
    pub text: String,
    /// What else the speaker wants to have back with it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// What the model thought, as far as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reasoning {
    /// The thoughts, or a summary of them; empty where they are hidden.
    pub text: String,
    /// What else the speaker wants to have back with it: signatures, encrypted contents.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// A call that the model wants made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The name of the call, for its result to be told by.
    pub id: String,
    /// The tool, by our own name for it.
    pub name: String,
    /// The arguments, if the model wrote an object.
    #[serde(flatten)]
    pub arguments: CallArguments,
    /// What else the speaker wants to have back with it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// The arguments of a call as the model wrote them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CallArguments {
    /// A JSON object.
    #[serde(rename = "arguments")]
    Object(Map<String, Value>),
    /// Something else: the call must not be made, and the model should hear why.
    #[serde(rename = "broken_arguments")]
    Broken(InvalidArguments),
}

/// Arguments that are no JSON object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvalidArguments {
    /// What the model wrote.
    pub text: String,
    /// What is wrong with it, in words for the model.
    pub problem: String,
}

/// A part that only the speaker understands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpaquePart {
    /// The part as it came.
    pub json: Map<String, Value>,
}

impl AssistantMessage {
    /// Text that a host has put into a model's mouth.
    pub fn text(text: impl Into<String>) -> Self {
        let part = AssistantText { text: text.into(), extra: Map::new() };
        Self { parts: vec![AssistantPart::Text(part)], ..Self::default() }
    }

    /// A message of several parts.
    pub fn new(parts: Vec<AssistantPart>) -> Self {
        Self { parts, ..Self::default() }
    }

    /// All of its text.
    pub fn to_text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            AssistantPart::Text(part) => Some(part.text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// The calls that it wants made, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            AssistantPart::ToolCall(call) => Some(call),
            _ => None,
        })
    }
}

impl ToolCall {
    /// A call with arguments that are an object.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: Map<String, Value>) -> Self {
        Self { id: id.into(), name: name.into(), arguments: CallArguments::Object(arguments), extra: Map::new() }
    }
}

impl CallArguments {
    /// Reads what a model wrote; nothing at all is an empty object.
    pub fn read(text: &str) -> Self {
        if text.trim().is_empty() {
            return Self::Object(Map::new());
        }
        // A number that no value can hold is no text, either: the model is told, and the tool is not called with something else.
        match serde_json::from_str(&json::without_lone_surrogates(text)) {
            Ok(Value::Object(arguments)) => Self::Object(arguments),
            Ok(other) => Self::broken(text, format!("the arguments must be a JSON object, not {}", kind(&other))),
            Err(error) => Self::broken(text, format!("the arguments are not valid JSON: {error}")),
        }
    }

    /// Arguments that cannot be used.
    pub fn broken(text: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Broken(InvalidArguments { text: text.into(), problem: problem.into() })
    }
}

impl fmt::Display for CallArguments {
    /// What the model wrote: an object as JSON, or what is none as it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(arguments) => f.write_str(&serde_json::to_string(arguments).unwrap_or_default()),
            Self::Broken(broken) => f.write_str(&broken.text),
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_read_as_the_model_wrote_them() {
        for written in [r#"{"b":1,"a":"é"}"#, "{}", "[1, 2]", "{ half"] {
            assert_eq!(CallArguments::read(written).to_string(), written);
        }
    }
}
