//! Tools: definitions, calls and results.

mod context;
mod convert;
mod definition;
mod definition_digest;
mod difference;
mod digest;
mod error;
mod interface;
mod local;
mod output;
mod schema;
mod summary;
mod trace;

pub use self::context::{CallContext, CallId, CancelToken, Progress};
pub use self::convert::{IntoArguments, IntoTool};
pub use self::definition::Provenance;
pub use self::definition::{Alias, Annotations, Origin, ToolDefinition, is_same_definition};
pub use self::difference::differences;
pub use self::difference::escape_invisible;
pub use self::digest::Digest;
pub use self::digest::Hasher;
pub use self::error::{ArgumentProblem, BoxError, CallError, ToolCallError};
pub use self::interface::ArgumentMapping;
pub use self::interface::{Arguments, BoxFuture, Tool};
pub use self::local::LocalTool;
pub use self::output::ToolOutput;
pub use self::schema::Schema;
pub(crate) use self::summary::summary_line;
pub use self::trace::TraceParent;
