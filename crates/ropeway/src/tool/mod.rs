//! Tools: definitions, calls and results.

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
mod local;
mod output;
mod schema;
mod summary;
mod trace;

pub use self::context::{CallContext, CallId, CancelToken, Progress};
pub use self::convert::{IntoArguments, IntoTool};
pub use self::definition::{Alias, Annotations, Origin, Provenance, ToolDefinition, is_same_definition};
#[cfg(feature = "bridge")]
pub use self::difference::{DefinitionChange, differences};
#[cfg(feature = "bridge")]
pub(crate) use self::digest::Hasher;
#[cfg(feature = "bridge")]
pub use self::digest::{Digest, DigestError};
pub use self::error::{ArgumentProblem, BoxError, CallError, TimeoutKind, ToolCallError};
#[doc(hidden)]
pub use self::interface::ArgumentMapping;
pub use self::interface::{Arguments, BoxFuture, Tool};
pub use self::local::LocalTool;
pub use self::output::ToolOutput;
pub use self::schema::Schema;
pub(crate) use self::summary::summary_line;
pub use self::trace::{TraceParent, TraceParentError};
