//! A request: what a model is asked, in no dialect yet.

use std::fmt;

use serde_json::{Map, Value};

use super::{MediaSupport, Reply};
use crate::content::ContentPart;
use crate::json;
use crate::lowering::{Lower, lower_output};
use crate::message::{AssistantPart, Conversation, Message, ModelEndpoint, ReasoningEffort};
use crate::schema::Validator;
use crate::tool::{ArgumentProblem, Schema};

/// What a model is asked.
#[derive(Clone)]
#[non_exhaustive]
pub struct ChatRequest<'a> {
    /// The model.
    pub model: &'a str,
    /// Everything that was said so far.
    pub conversation: &'a Conversation,
    /// The tools that the model may call.
    pub tools: Option<&'a dyn Lower>,
    /// Must the model call a tool?
    pub tool_choice: ToolChoice,
    /// May it call several at once? The provider's own default where nothing is said.
    pub parallel_calls: Option<bool>,
    /// How long the answer may get.
    pub max_tokens: Option<u32>,
    /// How much is left to chance.
    pub temperature: Option<f64>,
    /// How much of the probable is considered.
    pub top_p: Option<f64>,
    /// Texts at which the answer ends.
    pub stop_sequences: Vec<String>,
    /// How hard the model thinks before it answers.
    pub effort: Option<ReasoningEffort>,
    /// The JSON that the answer must be.
    pub output: Option<OutputFormat>,
    /// What is not shown to the model, but told in words; besides what the settings say.
    pub in_words: MediaSupport,
    /// Further fields of the body, as the provider wants them; they win over ours.
    pub extra: Map<String, Value>,
}

/// Must the model call a tool?
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolChoice {
    /// As it likes.
    #[default]
    Auto,
    /// It must not.
    None,
    /// One of them at least.
    Required,
    /// This one.
    Tool(String),
}

/// The JSON that an answer must be.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OutputFormat {
    /// A name for it, of letters, digits, `_` and `-`.
    pub name: String,
    /// Its JSON Schema.
    pub schema: Schema,
}

/// Why an answer is not the JSON that was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// It is no JSON; a model that was cut off or refuses does not write any.
    #[error("the answer is not JSON")]
    NotJson(#[source] serde_json::Error),
    /// It is JSON of another schema.
    #[error("the answer does not fit the schema `{name}`: {}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    OtherSchema {
        /// The name of what was asked for.
        name: String,
        /// Where it does not fit, and why.
        problems: Vec<ArgumentProblem>,
    },
}

impl OutputFormat {
    /// JSON of this schema, under a name of letters, digits, `_` and `-`.
    pub fn new(name: impl Into<String>, schema: impl Into<Schema>) -> Self {
        Self { name: name.into(), schema: schema.into() }
    }

    /// Reads an answer as what was asked for. What the dialect made the model write besides (nulls for what is optional) is gone.
    pub fn read(&self, reply: &Reply) -> Result<Value, OutputError> {
        let text = reply.message.to_text();
        let value: Value = json::from_str(text.trim()).map_err(OutputError::NotJson)?;
        let dialect = reply.message.from.as_ref().map(|from| from.dialect);
        let lowered = dialect.and_then(|dialect| lower_output(&self.schema, dialect).ok());
        let value = match lowered {
            Some(lowered) => lowered.from_wire(value),
            None => value,
        };
        let fits = Validator::compile(&self.schema).validate(&value);
        fits.map_err(|problems| OutputError::OtherSchema { name: self.name.clone(), problems })?;
        Ok(value)
    }
}

impl<'a> ChatRequest<'a> {
    /// A request without tools and with the provider's own defaults.
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
            in_words: MediaSupport::NONE,
            extra: Map::new(),
        }
    }

    /// Is nothing said that a model could answer, because no turn is left of what was said? Whoever writes the messages himself knows what he says.
    pub(super) fn is_silent(&self, speaker: &ModelEndpoint) -> bool {
        let by_hand = ["messages", "input", "contents"].iter().any(|field| self.extra.contains_key(*field));
        let is_empty = |part: &ContentPart| part.as_text().is_some_and(str::is_empty);
        let says_nothing = |message: &Message| match message {
            Message::User(message) => message.content.iter().all(is_empty),
            Message::Assistant(message) => {
                let native = message.from.as_ref().is_some_and(|from| from.accepts_parts_of(speaker));
                message.parts.iter().all(|part| match part {
                    AssistantPart::Text(text) => !native && text.text.is_empty(),
                    AssistantPart::ToolCall(_) => false,
                    AssistantPart::Reasoning(_) | AssistantPart::Opaque(_) => !native,
                })
            }
            Message::Tool(message) => message.results.is_empty(),
        };
        !by_hand && self.conversation.messages.iter().all(says_nothing)
    }

    /// Offers tools.
    #[must_use]
    pub fn with_tools(mut self, tools: &'a dyn Lower) -> Self {
        self.tools = Some(tools);
        self
    }

    /// Says whether a tool must be called.
    #[must_use]
    pub fn with_tool_choice(mut self, choice: ToolChoice) -> Self {
        self.tool_choice = choice;
        self
    }

    /// Bounds the answer.
    #[must_use]
    pub fn with_max_tokens(mut self, tokens: u32) -> Self {
        self.max_tokens = Some(tokens);
        self
    }

    /// Says how much is left to chance.
    #[must_use]
    pub fn with_temperature(mut self, temperature: f64) -> Self {
        self.temperature = Some(temperature);
        self
    }

    /// Says how hard to think.
    #[must_use]
    pub fn with_effort(mut self, effort: ReasoningEffort) -> Self {
        self.effort = Some(effort);
        self
    }

    /// Asks for JSON of a schema.
    #[must_use]
    pub fn with_output(mut self, name: impl Into<String>, schema: impl Into<Schema>) -> Self {
        self.output = Some(OutputFormat::new(name, schema));
        self
    }
}

impl fmt::Debug for ChatRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatRequest").field("model", &self.model).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::{AssistantMessage, Dialect, Reasoning};
    use crate::provider::{ProviderErrorKind, ProviderSettings, StopReason, Usage, encode};

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
    fn a_conversation_of_which_nothing_is_left_cannot_be_answered() {
        let thought = AssistantPart::Reasoning(Reasoning { text: "hm".to_owned(), ..Reasoning::default() });
        for dialect in Dialect::ALL {
            for answer in [AssistantMessage::text(""), AssistantMessage::new(vec![thought.clone()])] {
                let conversation = Conversation::new().with(answer);
                let refused = encode(&ProviderSettings::new(dialect), &ChatRequest::new("m", &conversation));
                assert_eq!(refused.err().map(|error| error.kind), Some(ProviderErrorKind::Unusable), "{dialect}");
            }
        }
    }

    #[test]
    fn an_answer_is_read_as_the_json_that_was_asked_for() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]});
        let format = OutputFormat::new("ab", schema);
        for dialect in Dialect::ALL {
            let read = format.read(&reply(" {\"a\": \"x\", \"b\": 3}\n", dialect)).expect("an answer");
            assert_eq!(read, json!({"a": "x", "b": 3}), "{dialect}");
        }
        // Where everything is required, a model writes null for what it leaves out.
        let strict = format.read(&reply("{\"a\": \"x\", \"b\": null}", Dialect::Responses)).expect("an answer");
        assert_eq!(strict, json!({"a": "x"}));
        let no_json = format.read(&reply("I will not", Dialect::Chat)).expect_err("no JSON");
        assert_eq!(no_json.to_string(), "the answer is not JSON");
        let other = format.read(&reply("{\"b\": \"x\"}", Dialect::Chat)).expect_err("another schema");
        assert!(other.to_string().starts_with("the answer does not fit the schema `ab`: "), "{other}");
    }
}
