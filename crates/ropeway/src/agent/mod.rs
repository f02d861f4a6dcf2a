//! An agent: a model that uses tools.

mod budget;
mod offer;
mod policy;
mod read_more;
mod sampling;
mod server;
mod spill;
mod written;

pub use budget::{Budget, Budgets, Rest, fit, fits};
pub use read_more::ReadMore;
pub use spill::{Kept, Spill};
