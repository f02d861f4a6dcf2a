//! Agents: models that use tools.
//!
//! An [`Agent`] keeps a conversation with a model and runs the tool calls of the model. [`Agent::builder`] takes the provider, the
//! tools of the host and MCP servers; [`Agent::send`] starts a [`Turn`], which reports each [`Step`] and ends in a [`TurnOutcome`].
//! The calls of one reply run concurrently, and a turn can be cancelled at any time. Failures, timeouts and panics of tools are
//! reported to the model and do not end a turn. [`Policy`] decides which calls need the approval of the user, and [`TurnLimits`]
//! bound a turn.
//!
//! [`generate`] and [`stream`] run one turn for a host that keeps the conversation and executes the calls itself.

mod agent_loop;
mod approvals;
mod budget;
mod budgets;
mod builder;
mod context;
mod exposed_tools;
mod generate;
mod handle;
mod history;
mod input;
mod limits;
mod model_options;
mod output_store;
mod page;
mod pattern;
mod policy;
mod read_more;
mod remainder;
mod rendered;
mod round;
mod run_turn;
mod sampling;
mod sampling_params;
mod server;
mod shared;
mod sources;
mod step;
mod step_queue;
mod trace;
mod truncate;
mod turn;
mod turn_context;

// Hidden from the docs: keeps permanent approvals when a host replaces an agent, and restores those of a lock file; used by the binary.
#[doc(hidden)]
pub use self::approvals::Approvals;
pub use self::budget::OutputBudget;
pub use self::builder::AgentBuilder;
pub use self::generate::{
    GenerateError, GenerateOutcome, GenerateRequest, Generation, ToolCallRequest, generate, stream,
};
pub use self::handle::Agent;
pub use self::input::TurnInput;
pub use self::limits::{TurnLimit, TurnLimits};
pub use self::model_options::ModelOptions;
// Hidden from the docs: `AgentBuilder` creates one; used by tests and hosts that replace agents.
#[doc(hidden)]
pub use self::output_store::OutputStore;
// Hidden from the docs: patterns of a `Policy` that the binary checks one by one.
#[doc(hidden)]
pub use self::pattern::ToolPattern;
pub use self::policy::{Approval, ApprovalRequest, Permission, Policy};
pub use self::sampling::SamplingHandler;
pub use self::server::AgentServer;
// Hidden from the docs: an `AgentServer` inside an agent; tests run it alone.
#[doc(hidden)]
pub use self::server::ServerSource;
pub use self::step::Step;
pub use self::turn::{AgentError, Turn, TurnControl, TurnEnd, TurnOutcome};
