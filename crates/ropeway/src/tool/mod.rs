//! The contract: what a tool is, what it is given, what it answers.

mod context;
mod definition;
#[cfg(feature = "bridge")]
mod difference;
#[cfg(feature = "bridge")]
mod digest;
mod error;
mod local;
mod output;
mod schema;
mod summary;
mod trace;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Map, Value};

pub use context::{CallContext, CallId, CancelToken, Progress};
pub use definition::{Alias, Annotations, Origin, Provenance, ToolDefinition, is_same};
#[cfg(feature = "bridge")]
pub use difference::{DefinitionChange, differences};
#[cfg(feature = "bridge")]
pub(crate) use digest::Hasher;
#[cfg(feature = "bridge")]
pub use digest::{Digest, DigestError};
pub(crate) use error::with_causes;
pub use error::{ArgumentProblem, BoxError, CallError, TimeoutKind, ToolCallError};
pub use local::LocalTool;
pub use output::ToolOutput;
pub use schema::Schema;
pub(crate) use summary::summary_line;
pub use trace::{TraceParent, TraceParentError};

/// A future that can be stored and sent between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The arguments of a call: a JSON object.
pub type Arguments = Map<String, Value>;

/// Something that a model can call.
pub trait Tool: Send + Sync + 'static {
    /// The tool's name, description and schemas.
    fn definition(&self) -> &ToolDefinition;

    /// Puts the arguments of a call right before they are checked. Most tools take them as they come.
    fn prepare(&self, _arguments: &mut Arguments) {}

    /// Summarizes a call in one line for people, such as "Delete 3 files in /tmp". Most tools have no summary.
    ///
    /// Approval questions show the summary beside the arguments, never instead of them. The arguments come from a model and are not
    /// validated yet. Control characters and known secrets are removed from the returned text, and long text is truncated; if this
    /// method panics, the call has no summary. Tools of MCP servers have none.
    fn summarize(&self, _arguments: &Arguments) -> Option<String> {
        None
    }

    /// Makes one call. Dropping the future cancels it.
    fn call<'a>(&'a self, arguments: Arguments, cx: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>>;
}

impl<T: Tool + ?Sized> Tool for Arc<T> {
    fn definition(&self) -> &ToolDefinition {
        (**self).definition()
    }

    fn prepare(&self, arguments: &mut Arguments) {
        (**self).prepare(arguments);
    }

    fn summarize(&self, arguments: &Arguments) -> Option<String> {
        (**self).summarize(arguments)
    }

    fn call<'a>(&'a self, arguments: Arguments, cx: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        (**self).call(arguments, cx)
    }
}
