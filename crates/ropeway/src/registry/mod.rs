//! Tools of many servers and of the host, under unique names.
//!
//! A [`Registry`] calls tools by name, searches them, and lists them for models. A [`Bridge`](crate::bridge::Bridge) builds one
//! from its servers; [`Registry::register`] adds tools of the host. A host with tools that change implements [`ToolSource`], and
//! a [`Transformer`] renames or rewrites tools.

mod collision;
mod filter;
pub mod naming;
mod schema_arguments;
mod search;
#[cfg(any(feature = "agent", feature = "gateway"))]
pub(crate) mod search_tools;
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
// Hidden from the docs: `BridgeBuilder` and `ServerEntry` set them; the binary applies them to tools without a bridge.
#[doc(hidden)]
pub use self::filter::{ToolFilter, ToolShapeError};
pub use self::selection::SelectedTools;
#[doc(hidden)]
pub use self::shape::ToolShape;
pub use self::source::{ContextItem, ContextSource, ToolSource};
pub use self::status::{ServerState, ServerStatus};
pub use self::tools::Registry;
pub use self::transform::Transformer;
