//! Tool call errors.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::definition::Alias;
use crate::conversions::conversions;
use crate::duration::format_duration;
use crate::error_chain::chain;
use crate::setters::setters;

/// A boxed error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// One problem with a call's arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArgumentProblem {
    /// JSON Pointer to the argument; empty for the arguments as a whole.
    pub path: String,
    /// What the problem is.
    pub reason: String,
}

impl fmt::Display for ArgumentProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.reason),
            path => write!(f, "at `{path}`: {}", self.reason),
        }
    }
}

/// A call that did not return a result. A failure that the tool reports itself is a result with `is_error`, not a `CallError`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server is not connected: it was not started, or it was closed.
    #[error("server `{server}` is not connected")]
    NotConnected {
        /// The server's alias.
        server: Alias,
    },
    /// The server cannot be reached, or the connection was lost during the call.
    #[error("server `{server}` is unavailable")]
    Unavailable {
        /// The server's alias.
        server: Alias,
        /// Why the server is unavailable.
        #[source]
        source: BoxError,
    },
    /// The server requires authentication.
    #[error("server `{server}` needs authentication")]
    NeedsAuth {
        /// The server's alias.
        server: Alias,
        /// The `WWW-Authenticate` header, if the server sent one.
        challenge: Option<String>,
    },
    /// A timeout expired. The request was cancelled.
    #[error("server `{server}` timed out after {}", format_duration(*.after))]
    Timeout {
        /// The server's alias.
        server: Alias,
        /// Time that the call waited.
        after: Duration,
        /// Whether the idle timeout expired. Otherwise, the total timeout did.
        idle: bool,
        /// A server message that may explain the timeout, such as an error without a request id.
        #[source]
        hint: Option<BoxError>,
    },
    /// This program closed the connection during the call: `Bridge::stop`, `Mcp::close`, a reload that changed or removed the
    /// server, or dropping the last handle.
    #[error("server `{server}` was stopped while the call was in flight")]
    Stopped {
        /// The server's alias.
        server: Alias,
    },
    /// The caller cancelled the call.
    #[error("the call was cancelled")]
    Cancelled,
    /// No tool has this name.
    #[error("unknown tool `{tool}`")]
    UnknownTool {
        /// The name.
        tool: String,
        /// Similar names, nearest first.
        nearest: Vec<String>,
    },
    /// No tool has this name, and the model calls its tools through another one because they are too many to list.
    #[error("unknown tool `{tool}`")]
    UnlistedTool {
        /// The name.
        tool: String,
        /// Similar names, nearest first.
        nearest: Vec<String>,
        /// The name of the tool that finds tools.
        find_with: String,
        /// The name of the tool that calls tools.
        call_with: String,
    },
    /// The arguments do not match the tool's schema. The tool was not called.
    #[error("invalid arguments for tool `{tool}`: {}", list(.problems))]
    InvalidArguments {
        /// The tool's name.
        tool: String,
        /// All problems that were found.
        problems: Vec<ArgumentProblem>,
    },
    /// The call was not approved. The tool was not called.
    #[error("tool `{tool}` was not called: {reason}")]
    Denied {
        /// The tool's name.
        tool: String,
        /// Why the call was denied.
        reason: String,
    },
    /// The server changed the tool's definition after it was approved. The tool was not called.
    #[error("tool `{tool}` changed after it was approved and was not called")]
    Changed {
        /// The tool's name.
        tool: String,
    },
    /// The tool is hidden until the user accepts it.
    #[error("tool `{tool}` is hidden: {reason}")]
    Hidden {
        /// The tool's name.
        tool: String,
        /// Why the tool is hidden, and how to accept it.
        reason: String,
    },
    /// The server returned a JSON-RPC error.
    #[error("server `{server}` returned error {code}: {message}")]
    Refused {
        /// The server's alias.
        server: Alias,
        /// JSON-RPC error code.
        code: i64,
        /// The error's message.
        message: String,
        /// The error's additional data.
        data: Option<Value>,
    },
    /// The server's response is invalid.
    #[error("server `{server}` violated the protocol")]
    Protocol {
        /// The server's alias.
        server: Alias,
        /// The problem with the response.
        #[source]
        source: BoxError,
    },
    /// The response exceeds the size limit.
    #[error("response of server `{server}` exceeds {limit} bytes")]
    TooLarge {
        /// The server's alias.
        server: Alias,
        /// The limit in bytes.
        limit: usize,
    },
    /// A local tool failed.
    #[error("tool `{tool}` failed")]
    Failed {
        /// The tool's name.
        tool: String,
        /// The tool's error.
        #[source]
        source: BoxError,
    },
}

impl CallError {
    /// Returns the error for arguments that cannot be sent to `tool`.
    pub fn invalid_arguments(tool: &str, problem: ArgumentProblem) -> Self {
        Self::InvalidArguments { tool: tool.to_owned(), problems: vec![problem] }
    }

    /// Replaces the server's alias.
    #[must_use]
    pub fn with_server(mut self, name: &Alias) -> Self {
        match &mut self {
            Self::NotConnected { server }
            | Self::Stopped { server }
            | Self::Unavailable { server, .. }
            | Self::NeedsAuth { server, .. }
            | Self::Timeout { server, .. }
            | Self::Refused { server, .. }
            | Self::Protocol { server, .. }
            | Self::TooLarge { server, .. } => *server = name.clone(),
            Self::Cancelled
            | Self::UnknownTool { .. }
            | Self::UnlistedTool { .. }
            | Self::InvalidArguments { .. }
            | Self::Denied { .. }
            | Self::Changed { .. }
            | Self::Hidden { .. }
            | Self::Failed { .. } => {}
        }
        self
    }

    /// Returns the variant's stable identifier, as in an envelope's JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotConnected { .. } => "not_connected",
            Self::Unavailable { .. } => "unavailable",
            Self::NeedsAuth { .. } => "needs_auth",
            Self::Timeout { .. } => "timeout",
            Self::Stopped { .. } => "stopped",
            Self::Cancelled => "cancelled",
            Self::UnknownTool { .. } | Self::UnlistedTool { .. } => "unknown_tool",
            Self::InvalidArguments { .. } => "invalid_arguments",
            Self::Denied { .. } => "denied",
            Self::Changed { .. } => "changed",
            Self::Hidden { .. } => "hidden",
            Self::Refused { .. } => "refused",
            Self::Protocol { .. } => "protocol",
            Self::TooLarge { .. } => "too_large",
            Self::Failed { .. } => "failed",
        }
    }

    /// Returns `true` if the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Timeout { .. } => true,
            Self::Failed { .. } => self.as_tool_call_error().is_some_and(|error| error.retryable),
            _ => false,
        }
    }

    /// Returns the [`ToolCallError`] from a local tool or an `on_tool_call` callback.
    pub fn as_tool_call_error(&self) -> Option<&ToolCallError> {
        match self {
            Self::Failed { source, .. } => source.downcast_ref(),
            _ => None,
        }
    }
}

/// An error from a local tool or an `on_tool_call` callback. Unless it is fatal, its message is reported to the model.
///
/// `agent::generate` and `agent::stream` callbacks return it, and a [`LocalTool`](super::LocalTool) may. `&str`, `String`,
/// [`BoxError`], [`CallError`], [`std::io::Error`] and [`serde_json::Error`] convert into a non-fatal error. The JSON form is
/// `{"type": "execution", "message": "…", "fatal": false, "retryable": false}`.
#[derive(Clone, Debug, Serialize, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct ToolCallError {
    /// The error's kind, chosen by the host; `execution` by default.
    #[serde(rename = "type")]
    pub kind: String,
    /// Message for the model.
    pub message: String,
    /// Whether the error ends the turn instead of being reported to the model.
    pub fatal: bool,
    /// Whether the same call may succeed later. The model is informed.
    pub retryable: bool,
    #[serde(skip)]
    source: Option<Cause>,
}

/// A [`ToolCallError`]'s source.
#[derive(Clone, Debug, thiserror::Error)]
enum Cause {
    #[error(transparent)]
    Call(Arc<CallError>),
    #[error(transparent)]
    Other(Arc<dyn std::error::Error + Send + Sync>),
}

impl ToolCallError {
    /// Default kind.
    const EXECUTION: &str = "execution";

    /// Creates an error that is reported to the model.
    pub fn new(message: impl Into<String>) -> Self {
        Self { kind: Self::EXECUTION.to_owned(), message: message.into(), fatal: false, retryable: false, source: None }
    }

    /// Creates an error that ends the turn.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self { fatal: true, ..Self::new(message) }
    }

    /// Makes the error end the turn.
    #[must_use]
    pub fn into_fatal(self) -> Self {
        Self { fatal: true, ..self }
    }

    /// Marks the error as one after which the same call may succeed.
    #[must_use]
    pub fn into_retryable(self) -> Self {
        Self { retryable: true, ..self }
    }

    /// Converts the error into the error for a call to `tool`. A wrapped [`CallError`] is returned itself, unless the kind was
    /// changed or the error is fatal.
    pub fn into_call_error(self, tool: &str) -> CallError {
        match self {
            Self { source: Some(Cause::Call(error)), fatal: false, kind, .. } if kind == Self::EXECUTION => {
                Arc::try_unwrap(error)
                    .unwrap_or_else(|error| CallError::Failed { tool: tool.to_owned(), source: Box::new(error) })
            }
            error => CallError::Failed { tool: tool.to_owned(), source: Box::new(error) },
        }
    }
}

setters!(ToolCallError {
    /// Sets the kind, such as `rate_limit`.
    with_kind(kind: impl Into<String>) => kind = kind.into();
    /// Sets the source, which is not part of the message for the model.
    with_source(source: impl Into<BoxError>) => source = Some(Cause::Other(source.into().into()));
});

impl From<CallError> for ToolCallError {
    fn from(error: CallError) -> Self {
        if let Some(own) = error.as_tool_call_error() {
            return own.clone();
        }
        let retryable = error.is_transient();
        let message = chain(&error);
        Self { retryable, source: Some(Cause::Call(Arc::new(error))), ..Self::new(message) }
    }
}

conversions!(ToolCallError {
    message: &str => Self::new(message);
    message: String => Self::new(message);
    error: std::io::Error => Self::from(BoxError::from(error));
    error: serde_json::Error => Self::from(BoxError::from(error));
});

impl From<BoxError> for ToolCallError {
    fn from(error: BoxError) -> Self {
        match error.downcast::<Self>() {
            Ok(error) => *error,
            Err(error) => Self::new(chain(&*error)).with_source(error),
        }
    }
}

fn list(problems: &[ArgumentProblem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.join("; ")
}
