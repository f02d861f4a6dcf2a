//! Agents: models that use tools.
//!
//! An [`Agent`] keeps a conversation with a model and runs the model's tool calls. [`Agent::builder`] takes the provider, the
//! host's own tools and MCP servers; [`Agent::send`] starts a [`Turn`], which reports each [`Step`] and ends in a
//! [`TurnOutcome`]. Calls in one reply run concurrently, and a turn can be cancelled at any time. Tool failures, timeouts and
//! panics are reported to the model and do not end a turn. [`Policy`] decides which calls need the user's approval, and
//! [`TurnLimits`] bound a turn.
//!
//! [`generate`] and [`stream`] run one turn for a host that keeps the conversation and executes the calls itself.

pub use ropeway_agent::{
    Agent, AgentBuilder, AgentError, AgentServer, Approval, ApprovalRequest, GenerateError, GenerateOutcome,
    GenerateRequest, Generation, ModelOptions, OutputBudget, Permission, Policy, SamplingHandler, Step,
    ToolCallRequest, Turn, TurnControl, TurnEnd, TurnInput, TurnLimit, TurnLimits, TurnOutcome, generate, stream,
};
