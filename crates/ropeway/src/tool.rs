//! Tools: definitions, calls and results.
//!
//! A [`Tool`] has a [`ToolDefinition`] and returns a [`ToolOutput`] or a [`CallError`]. [`LocalTool`] turns a closure into a
//! tool. [`CallContext`] carries one call's deadline, cancellation and progress.

pub use ropeway_core::tool::{
    Alias, Annotations, ArgumentProblem, Arguments, BoxError, BoxFuture, CallContext, CallError, CallId, CancelToken,
    IntoArguments, IntoTool, LocalTool, Origin, Progress, Schema, Tool, ToolCallError, ToolDefinition, ToolOutput,
    TraceParent, differences, is_same_definition,
};
