//! Agents: models that use tools.

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
pub use self::output_store::OutputStore;
pub use self::pattern::ToolPattern;
pub use self::policy::{Approval, ApprovalRequest, Permission, Policy};
pub use self::sampling::SamplingHandler;
pub use self::server::AgentServer;
pub use self::server::ServerSource;
pub use self::step::Step;
pub use self::turn::{AgentError, Turn, TurnControl, TurnEnd, TurnOutcome};
