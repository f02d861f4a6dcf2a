//! A reply: what a model answers, piece by piece and whole.

use serde::{Deserialize, Serialize};

use super::Cost;
use crate::message::{AssistantMessage, ToolCall};

/// One piece of an answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ReplyEvent {
    /// More text.
    Text(String),
    /// More of what the model thinks.
    Reasoning(String),
    /// The model begins to write a call.
    ToolCallStarted {
        /// Which one of this answer's.
        index: usize,
        /// The name of the call.
        id: String,
        /// The tool, by our own name for it.
        name: String,
    },
    /// More of a call's arguments, as JSON text.
    ToolCallDelta {
        /// Which one of this answer's.
        index: usize,
        /// The piece.
        json: String,
    },
    /// A call, whole.
    ToolCall {
        /// Which one of this answer's.
        index: usize,
        /// The call.
        call: ToolCall,
    },
    /// What it has cost so far.
    Usage(Usage),
    /// Something that a person should know.
    Warning(String),
    /// The whole answer. Nothing comes after it.
    Finished(Box<Reply>),
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reply {
    /// What the model said.
    pub message: AssistantMessage,
    /// Why it stopped.
    pub stop: StopReason,
    /// What it has cost.
    pub usage: Usage,
    /// The provider's name for the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The model that answered, as the provider calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What a person should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Why a model stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// It has said what it wanted to say.
    EndTurn,
    /// It waits for the results of its calls.
    ToolUse,
    /// It came to one of the texts at which the answer ends.
    StopSequence,
    /// The answer has become as long as it may.
    MaxTokens,
    /// The conversation fills the model's window.
    ContextWindow,
    /// It does not want to answer.
    Refusal,
    /// The provider does not let it answer.
    ContentFilter,
    /// The provider wants to be asked again, with what was said so far.
    Pause,
    /// It tried to call a tool and failed.
    MalformedToolCall,
    /// Another reason, in the provider's own word.
    Other(String),
}

/// What an answer has cost, in tokens and, where the provider says so, in money.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Usage {
    /// What was read, cached or not.
    pub input: u64,
    /// What was written, reasoning included.
    pub output: u64,
    /// What of the input came out of a cache.
    pub cache_read: u64,
    /// What of the input was put into a cache.
    pub cache_write: u64,
    /// What of the output was reasoning.
    pub reasoning: u64,
    /// The amount that the provider says it charged; `None` if it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input += other.input;
        self.output += other.output;
        self.cache_read += other.cache_read;
        self.cache_write += other.cache_write;
        self.reasoning += other.reasoning;
        self.cost = match (self.cost, other.cost) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
    }
}
