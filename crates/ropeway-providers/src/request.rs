//! A model request, independent of the dialect.

use std::fmt;

use serde_json::{Map, Value};

use super::media_kinds::MediaKinds;
use super::reply::Reply;
use ropeway_core::content::ContentPart;
use ropeway_core::json;
use ropeway_core::lowering::{Toolset, lower_output};
use ropeway_core::message::{AssistantPart, Conversation, Message, ModelEndpoint, ReasoningEffort};
use ropeway_core::parse_error::ParseError;
use ropeway_core::schema::Validator;
use ropeway_core::setters::setters;
use ropeway_core::tool::Schema;

/// A request to a model.
///
/// # Examples
///
/// ```
/// use ropeway::message::Conversation;
/// use ropeway::provider::ChatRequest;
/// # use ropeway::message::Dialect;
/// # use ropeway::provider::ProviderSettings;
///
/// # fn main() -> Result<(), ropeway::provider::ProviderError> {
/// let conversation = Conversation::new().with("Hello!");
/// let request = ChatRequest::new("gpt-6-sol", &conversation).with_max_tokens(1000);
/// # let encoded = ropeway_providers::encode(&ProviderSettings::new(Dialect::Responses), &request)?;
/// # assert_eq!(encoded.request.url, "https://api.openai.com/v1/responses");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct ChatRequest<'a> {
    /// The provider's name for the model.
    pub model: &'a str,
    /// The system prompt and all messages so far.
    pub conversation: &'a Conversation,
    /// The tools that the model may call.
    pub tools: Option<Toolset>,
    /// Whether the model must call a tool.
    pub tool_choice: ToolChoice,
    /// Whether the model may call several tools at once; `None` for the provider's default.
    pub parallel_calls: Option<bool>,
    /// Maximum reply tokens.
    pub max_tokens: Option<u32>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling (top-p).
    pub top_p: Option<f64>,
    /// Texts that end the reply when the model generates them.
    pub stop_sequences: Vec<String>,
    /// The model's reasoning effort.
    pub effort: Option<ReasoningEffort>,
    /// The JSON format that the reply must have.
    pub output: Option<OutputFormat>,
    /// Media that are sent as text descriptions, in addition to those in [`Quirks`](super::Quirks).
    pub described_media: MediaKinds,
    /// Additional fields in the request body. They replace generated fields with the same name.
    pub extra: Map<String, Value>,
}

/// Whether the model must call a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// No tool may be called.
    None,
    /// At least one tool must be called.
    Required,
    /// The tool with this name must be called.
    Tool(String),
}

/// The JSON format that a reply must have.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OutputFormat {
    /// The format's name: letters, digits, `_` and `-`.
    pub name: String,
    /// The reply's JSON Schema.
    pub schema: Schema,
}

impl OutputFormat {
    /// Creates a format with this schema. The name may contain letters, digits, `_` and `-`.
    pub fn new(name: impl Into<String>, schema: impl Into<Schema>) -> Self {
        Self { name: name.into(), schema: schema.into() }
    }

    /// Parses and validates a reply.
    ///
    /// Nulls that a strict dialect requires for optional properties are removed.
    ///
    /// # Errors
    ///
    /// Fails if the reply's text is not JSON, or does not match the schema.
    pub fn read(&self, reply: &Reply) -> Result<Value, ParseError> {
        let text = reply.message.to_text();
        let value: Value =
            json::from_str(text.trim()).map_err(|error| ParseError::new("the reply is not JSON").with_source(error))?;
        let dialect = reply.message.from.as_ref().map(|from| from.dialect);
        let lowered = dialect.and_then(|dialect| lower_output(&self.schema, dialect).ok());
        let value = match lowered {
            Some(lowered) => lowered.from_wire(value),
            None => value,
        };
        match Validator::compile(&self.schema).validate(&value) {
            Ok(()) => Ok(value),
            Err(problems) => {
                let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
                let message = format!("the reply does not match schema `{}`: {}", self.name, problems.join("; "));
                Err(ParseError::new(message))
            }
        }
    }
}

impl<'a> ChatRequest<'a> {
    /// Creates a request without tools and with the provider's defaults.
    pub fn new(model: &'a str, conversation: &'a Conversation) -> Self {
        Self {
            model,
            conversation,
            tools: None,
            tool_choice: ToolChoice::Auto,
            parallel_calls: None,
            max_tokens: None,
            temperature: None,
            top_p: None,
            stop_sequences: Vec::new(),
            effort: None,
            output: None,
            described_media: MediaKinds::NONE,
            extra: Map::new(),
        }
    }

    /// Returns `true` if no message would be sent to the model. Messages in `extra` are not checked.
    pub(super) fn is_empty(&self, endpoint: &ModelEndpoint) -> bool {
        let has_own = ["messages", "input", "contents"].iter().any(|field| self.extra.contains_key(*field));
        let is_empty_text = |part: &ContentPart| part.as_text().is_some_and(str::is_empty);
        let is_dropped = |message: &Message| match message {
            Message::User { content } => content.iter().all(is_empty_text),
            Message::Assistant(message) => {
                let native = message.from.as_ref().is_some_and(|from| from.accepts_parts_of(endpoint));
                message.parts.iter().all(|part| match part {
                    AssistantPart::Text(text) => !native && text.text.is_empty(),
                    AssistantPart::ToolCall(_) => false,
                    AssistantPart::Reasoning(_) | AssistantPart::Opaque { .. } => !native,
                })
            }
            Message::Tool { results } => results.is_empty(),
        };
        !has_own && self.conversation.messages.iter().all(is_dropped)
    }
}

setters!(<'a> ChatRequest<'a> {
    /// Offers these tools to the model.
    with_tools(tools: impl Into<Toolset>) => tools = Some(tools.into());
    /// Sets whether a tool must be called.
    with_tool_choice(choice: ToolChoice) => tool_choice = choice;
    /// Sets the maximum tokens of the reply.
    with_max_tokens(tokens: u32) => max_tokens = Some(tokens);
    /// Sets the sampling temperature.
    with_temperature(temperature: f64) => temperature = Some(temperature);
    /// Sets the reasoning effort.
    with_effort(effort: ReasoningEffort) => effort = Some(effort);
    /// Requests a reply in JSON of this schema.
    with_output(name: impl Into<String>, schema: impl Into<Schema>) => output = Some(OutputFormat::new(name, schema));
});

impl fmt::Debug for ChatRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatRequest").field("model", &self.model).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{ProviderErrorKind, ProviderSettings, StopReason, Usage, encode};
    use ropeway_core::message::{AssistantMessage, AssistantText, Dialect};

    fn reply(text: &str, dialect: Dialect) -> Reply {
        let mut message = AssistantMessage::text(text);
        message.from = Some(ModelEndpoint { dialect, endpoint: String::new(), model: String::new() });
        Reply {
            message,
            stop: StopReason::EndTurn,
            usage: Usage::default(),
            id: None,
            model: None,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn a_conversation_without_content_is_an_error() {
        let reasoning = AssistantPart::Reasoning(AssistantText { text: "hm".to_owned(), ..AssistantText::default() });
        for dialect in Dialect::ALL {
            for answer in [AssistantMessage::text(""), AssistantMessage::new(vec![reasoning.clone()])] {
                let conversation = Conversation::new().with(answer);
                let refused = encode(&ProviderSettings::new(dialect), &ChatRequest::new("m", &conversation));
                assert_eq!(refused.err().map(|error| error.kind), Some(ProviderErrorKind::Unusable), "{dialect}");
            }
        }
    }

    #[test]
    fn a_reply_is_parsed_in_the_requested_format() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]});
        let format = OutputFormat::new("ab", schema);
        for dialect in Dialect::ALL {
            let read = format.read(&reply(" {\"a\": \"x\", \"b\": 3}\n", dialect)).expect("a reply");
            assert_eq!(read, json!({"a": "x", "b": 3}), "{dialect}");
        }
        // A strict dialect requires all properties, so the model writes null for optional ones.
        let strict = format.read(&reply("{\"a\": \"x\", \"b\": null}", Dialect::Responses)).expect("a reply");
        assert_eq!(strict, json!({"a": "x"}));
        let no_json = format.read(&reply("I will not", Dialect::Chat)).expect_err("no JSON");
        assert_eq!(no_json.to_string(), "the reply is not JSON");
        let other = format.read(&reply("{\"b\": \"x\"}", Dialect::Chat)).expect_err("another schema");
        assert!(other.to_string().starts_with("the reply does not match schema `ab`: "), "{other}");
    }
}
