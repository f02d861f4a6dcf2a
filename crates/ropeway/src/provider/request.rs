//! A request: what a model is asked, in no dialect yet.

use std::fmt;

use serde_json::{Map, Value};

use crate::lowering::Lower;
use crate::message::Conversation;
use crate::tool::Schema;

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
    pub effort: Option<Effort>,
    /// The JSON that the answer must be.
    pub output: Option<OutputFormat>,
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

/// How hard a model thinks before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Effort {
    /// Not at all, where that is possible.
    Off,
    /// Hardly.
    Minimal,
    /// A little.
    Low,
    /// As usual.
    Medium,
    /// A lot.
    High,
    /// As much as it can.
    Max,
}

/// The JSON that an answer must be.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputFormat {
    /// A name for it, of letters, digits, `_` and `-`.
    pub name: String,
    /// Its JSON Schema.
    pub schema: Schema,
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
            extra: Map::new(),
        }
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
    pub fn with_effort(mut self, effort: Effort) -> Self {
        self.effort = Some(effort);
        self
    }

    /// Asks for JSON of a schema.
    #[must_use]
    pub fn with_output(mut self, name: impl Into<String>, schema: impl Into<Schema>) -> Self {
        self.output = Some(OutputFormat { name: name.into(), schema: schema.into() });
        self
    }
}

impl fmt::Debug for ChatRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatRequest").field("model", &self.model).finish_non_exhaustive()
    }
}
