//! An agent: a model that uses tools.

mod budget;
mod context;
mod offer;
mod policy;
mod sampling;
mod server;
mod spill;
mod wish;

pub use self::context::Context;
pub use self::sampling::Sampling;
pub use self::server::{AgentServer, ServerSource};
