//! The trait that every tool implements.

use std::future::Future;
use std::pin::Pin;

use serde_json::{Map, Value};

use super::context::CallContext;
use super::definition::ToolDefinition;
use super::error::CallError;
use super::output::ToolOutput;

/// A boxed future that is `Send`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Call arguments: a JSON object.
pub type Arguments = Map<String, Value>;

/// A tool that models can call.
///
/// # Examples
///
/// ```
/// use ropeway::tool::{Arguments, BoxFuture, CallContext, CallError, Tool, ToolDefinition, ToolOutput};
///
/// struct Echo(ToolDefinition);
///
/// impl Tool for Echo {
///     fn definition(&self) -> &ToolDefinition {
///         &self.0
///     }
///
///     fn call<'a>(&'a self, arguments: Arguments, _: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
///         Box::pin(async move { Ok(ToolOutput::structured(arguments.into())) })
///     }
/// }
/// ```
pub trait Tool: Send + Sync + 'static {
    /// Returns the tool's name, description and schemas.
    fn definition(&self) -> &ToolDefinition;

    /// Modifies a call's arguments before they are validated. Does nothing by default.
    fn prepare(&self, _arguments: &mut Arguments) {}

    /// Summarizes a call in one line for the user, such as "Delete 3 files in /tmp". Most tools have no summary.
    ///
    /// Approval prompts show the summary next to the arguments, never instead of them. The arguments come from a model and are
    /// not validated yet. Control characters and known secrets are removed from the returned text, and long text is truncated; if
    /// this method panics, the call has no summary. MCP tools have none.
    fn summarize(&self, _arguments: &Arguments) -> Option<String> {
        None
    }

    /// Returns how this tool's arguments become arguments for the server's tool.
    fn argument_mapping(&self) -> ArgumentMapping {
        ArgumentMapping::Opaque
    }

    /// Maps this tool's arguments to arguments for the server's tool, if they are [mapped](ArgumentMapping::Mapped).
    fn map_arguments(&self, _arguments: &mut Arguments) {}

    /// Executes a call. Dropping the future cancels it.
    fn call<'a>(&'a self, arguments: Arguments, cx: &'a CallContext) -> BoxFuture<'a, Result<ToolOutput, CallError>>;
}

/// How a tool's arguments become arguments for the server's tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentMapping {
    /// The server's tool has the same arguments.
    Verbatim,
    /// [`Tool::map_arguments`] maps them.
    Mapped,
    /// Not a server's tool: only [`Tool::call`] calls it.
    Opaque,
}
