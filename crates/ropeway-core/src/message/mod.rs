//! Conversations with models: values that can be saved, loaded and continued with another provider.

mod assistant;
mod dialect;
mod effort;

use serde::{Deserialize, Serialize};

pub use self::assistant::ModelEndpoint;
pub use self::assistant::{AssistantMessage, AssistantPart, AssistantText, CallArguments, ToolCall};
pub use self::dialect::Dialect;
pub use self::effort::ReasoningEffort;
use crate::content::ContentPart;
use crate::conversions::conversions;

/// A system prompt and messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// The system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Messages, oldest first.
    #[serde(default)]
    pub messages: Vec<Message>,
}

/// One message in a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Message {
    /// A user message.
    User {
        /// Text, images, audio and documents. A document is an embedded resource.
        content: Vec<ContentPart>,
    },
    /// A model message.
    Assistant(AssistantMessage),
    /// Tool call results.
    Tool {
        /// One result per call in the message before.
        results: Vec<ToolResult>,
    },
}

/// A tool call's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call's id.
    pub call: String,
    /// The tool's exposed name.
    pub tool: String,
    /// The result's content.
    pub content: Vec<ContentPart>,
    /// Whether the call failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl Conversation {
    /// Creates an empty conversation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the system prompt.
    #[must_use]
    pub fn with_system(mut self, system: impl Into<String>) -> Self {
        self.system = Some(system.into());
        self
    }

    /// Adds a message and returns the conversation.
    #[must_use]
    pub fn with(mut self, message: impl Into<Message>) -> Self {
        self.push(message);
        self
    }

    /// Adds a message.
    pub fn push(&mut self, message: impl Into<Message>) {
        self.messages.push(message.into());
    }
}

impl ToolResult {
    /// Creates a call's result.
    pub fn new(call: &ToolCall, content: Vec<ContentPart>) -> Self {
        Self { call: call.id.clone(), tool: call.name.clone(), content, is_error: false }
    }

    /// Creates a failed call's result.
    pub fn error(call: &ToolCall, text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::new(call, vec![ContentPart::text(text)]) }
    }
}

conversions!(Message {
    text: &str => Self::User { content: vec![ContentPart::text(text)] };
    text: String => Self::User { content: vec![ContentPart::text(text)] };
    content: Vec<ContentPart> => Self::User { content };
    message: AssistantMessage => Self::Assistant(message);
    results: Vec<ToolResult> => Self::Tool { results };
});

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_conversation_round_trips_without_loss() {
        let saved = json!({
            "system": "Be brief.",
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image", "data": "AAAA", "mimeType": "image/png"}]},
                {"role": "assistant", "from": {"dialect": "anthropic", "endpoint": "https://example.com", "model": "m"}, "parts": [
                    {"type": "reasoning", "text": "hm", "extra": {"signature": "s"}},
                    {"type": "private", "json": {"type": "redacted_thinking", "data": "x"}},
                    {"type": "text", "text": "ok"},
                    {"type": "tool_call", "id": "a", "name": "t", "arguments": {"z": 1, "a": 2}},
                    {"type": "tool_call", "id": "b", "name": "t", "broken_arguments": {"text": "{", "problem": "cut"}}
                ], "extra": {"x": 1}},
                {"role": "tool", "results": [
                    {"call": "a", "tool": "t", "content": []},
                    {"call": "b", "tool": "t", "content": [{"type": "text", "text": "no"}], "is_error": true}
                ]}
            ]
        });
        let conversation: Conversation = serde_json::from_value(saved.clone()).expect("a conversation");
        assert_eq!(serde_json::to_value(&conversation).expect("JSON"), saved);
        let Message::Assistant(answer) = &conversation.messages[1] else { panic!("an answer") };
        assert_eq!((answer.to_text().as_str(), answer.calls().count()), ("ok", 2));
    }

    #[test]
    fn arguments_that_are_not_an_object_have_a_problem() {
        assert_eq!(CallArguments::read(" "), CallArguments::Object(serde_json::Map::new()));
        let problem = |text: &str| match CallArguments::read(text) {
            CallArguments::Broken { problem, .. } => problem,
            CallArguments::Object(object) => panic!("{object:?}"),
        };
        assert_eq!(problem("[1]"), "the arguments must be a JSON object, not an array");
        assert_eq!(problem("\"a\""), "the arguments must be a JSON object, not a string");
        assert!(problem("{\"a\": ").starts_with("the arguments are not valid JSON: EOF"));
    }

    #[test]
    fn a_dialect_is_parsed_from_its_name() {
        for dialect in Dialect::ALL {
            assert_eq!(dialect.as_str().parse::<Dialect>().expect("a dialect"), dialect);
            assert_eq!(json!(dialect), dialect.as_str());
        }
        let error = "openai".parse::<Dialect>().expect_err("no dialect");
        assert_eq!(
            error.to_string(),
            "unknown dialect `openai`, expected one of `anthropic`, `responses`, `gemini`, `chat`"
        );
    }
}
