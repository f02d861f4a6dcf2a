//! Tools: definitions, calls and results.
//!
//! A [`Tool`] has a [`ToolDefinition`] and returns a [`ToolOutput`] or a [`CallError`]. [`LocalTool`] turns a closure into a
//! tool. [`CallContext`] carries the deadline, cancellation and progress of one call.

mod context;
mod convert;
mod definition;
#[cfg(feature = "bridge")]
mod definition_digest;
#[cfg(feature = "bridge")]
mod difference;
#[cfg(feature = "bridge")]
mod digest;
mod error;
mod interface;
mod invisible;
mod local;
mod output;
mod schema;
mod summary;
mod trace;

pub use self::context::{CallContext, CallId, CancelToken, Progress};
pub use self::convert::{IntoArguments, IntoTool};
// Hidden from the docs: the crate sets it; used by the binary and tests.
#[doc(hidden)]
pub use self::definition::Provenance;
pub use self::definition::{Alias, Annotations, Origin, ToolDefinition, is_same_definition};
#[cfg(feature = "bridge")]
pub use self::difference::differences;
#[cfg(feature = "bridge")]
pub(crate) use self::difference::escape_invisible;
#[cfg(feature = "bridge")]
// Hidden from the docs: compared by `Approvals` and `Lock`; used by the binary.
#[doc(hidden)]
pub use self::digest::Digest;
#[cfg(feature = "bridge")]
pub(crate) use self::digest::Hasher;
pub use self::error::{ArgumentProblem, BoxError, CallError, ToolCallError};
#[doc(hidden)]
pub use self::interface::ArgumentMapping;
pub use self::interface::{Arguments, BoxFuture, Tool};
pub use self::local::LocalTool;
pub use self::output::ToolOutput;
pub use self::schema::Schema;
pub(crate) use self::summary::summary_line;
pub use self::trace::TraceParent;
