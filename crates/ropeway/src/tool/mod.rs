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
mod trace;

use std::future::Future;
use std::pin::Pin;

use serde_json::{Map, Value};

pub use context::{CallContext, CallId, Cancel, Progress};
pub use definition::{Alias, Annotations, Origin, Provenance, ToolDefinition, is_same};
#[cfg(feature = "bridge")]
pub use difference::{Change, differences};
#[cfg(feature = "bridge")]
pub(crate) use digest::Hasher;
#[cfg(feature = "bridge")]
pub use digest::{Digest, InvalidDigest};
pub use error::{BoxError, CallError, Clock, Problem};
pub use local::LocalTool;
pub use output::ToolOutput;
pub use schema::Schema;
pub use trace::{NotTraceParent, TraceParent};

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

    /// Makes one call. Dropping the future cancels it.
    fn call<'a>(&'a self, arguments: Arguments, cx: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>>;
}
