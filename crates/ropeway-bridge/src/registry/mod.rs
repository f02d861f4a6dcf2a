//! Tools from many servers and from the host, under unique names.

mod collision;
mod filter;
pub mod naming;
mod schema_arguments;
mod search;
pub mod search_tools;
mod selection;
mod shape;
mod source;
mod status;
#[cfg(test)]
mod tests;
mod tools;
mod transform;

pub use self::collision::Collision;
pub(crate) use self::filter::Predicate;
pub use self::filter::{ToolFilter, ToolShapeError};
pub use self::selection::SelectedTools;
pub use self::shape::ToolShape;
pub use self::source::{ContextItem, ContextSource, ToolSource};
pub use self::status::{ServerState, ServerStatus};
pub use self::tools::Registry;
pub use self::transform::Transformer;
