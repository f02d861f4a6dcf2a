//! A model's reply, as events and as a whole.

use serde::{Deserialize, Serialize};

use super::cost::Cost;
use ropeway_core::message::{AssistantMessage, ToolCall};

/// One event in a reply.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ReplyEvent {
    /// Text to append.
    Text(String),
    /// Reasoning to append.
    Reasoning(String),
    /// The model starts a tool call.
    ToolCallStarted {
        /// The call's index in this reply.
        index: usize,
        /// The call's id.
        id: String,
        /// The tool's name in the request.
        name: String,
    },
    /// Arguments to append to a call, as JSON text.
    ToolCallDelta {
        /// The call's index in this reply.
        index: usize,
        /// The JSON fragment.
        json: String,
    },
    /// A call is complete.
    ToolCall {
        /// The call's index in this reply.
        index: usize,
        /// The complete call.
        call: ToolCall,
    },
    /// Usage so far.
    Usage(Usage),
    /// A problem that did not fail the request, for the user.
    Warning(String),
    /// The complete reply; always the last event.
    Finished(Box<Reply>),
}

/// A model's complete reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reply {
    /// The model's message.
    pub message: AssistantMessage,
    /// Why the model stopped.
    pub stop: StopReason,
    /// The request's tokens and cost.
    pub usage: Usage,
    /// The provider's reply id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The model that replied, as reported by the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Problems that did not fail the request, for the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Why a model stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model finished its reply.
    EndTurn,
    /// The model waits for its calls' results.
    ToolUse,
    /// The model generated a stop sequence.
    StopSequence,
    /// The reply reached its maximum length.
    MaxTokens,
    /// The conversation filled the context window.
    ContextWindow,
    /// The model refused to answer.
    Refusal,
    /// The provider blocked the reply.
    ContentFilter,
    /// The provider paused the reply. Send the conversation with the reply so far to continue it.
    Pause,
    /// The model generated an invalid tool call.
    MalformedToolCall,
    /// Another reason, as named by the provider.
    Other(String),
}

/// Tokens for a request and its reply, and their cost if the provider reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens, cached or not.
    pub input: u64,
    /// Output tokens, including reasoning.
    pub output: u64,
    /// Input tokens that were read from a cache.
    pub cache_read: u64,
    /// Input tokens that were written to a cache.
    pub cache_write: u64,
    /// Output tokens that were reasoning.
    pub reasoning: u64,
    /// The amount charged, if the provider reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

impl Usage {
    /// Returns the amount charged in US dollars, if the provider reports it. It is never estimated.
    pub fn cost_usd(&self) -> Option<f64> {
        self.cost.map(Cost::as_usd)
    }
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
