//! Why a call has no answer from its tool.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::definition::Alias;
use crate::duration::format_duration;
use crate::error_chain::chain;

/// A cause from a layer that this one does not know.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// One thing that is wrong with the arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArgumentProblem {
    /// Where, as a JSON Pointer; empty for the whole.
    pub path: String,
    /// What is wrong there.
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

/// Which clock ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutKind {
    /// Nothing was heard of the call for too long.
    Idle,
    /// The call as a whole took too long.
    Total,
}

/// Why a call has no answer. What a tool itself reports as a failure is an answer, not this.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// `connect` was not called, or `close` was.
    #[error("server `{server}` is not connected")]
    NotConnected {
        /// The server.
        server: Alias,
    },
    /// The server cannot be reached, or was lost while the call was in flight.
    #[error("server `{server}` is unavailable")]
    Unavailable {
        /// The server.
        server: Alias,
        /// What happened.
        #[source]
        source: BoxError,
    },
    /// The server wants to know who is asking.
    #[error("server `{server}` needs authentication")]
    NeedsAuth {
        /// The server.
        server: Alias,
        /// The `WWW-Authenticate` header, when there was one.
        challenge: Option<String>,
    },
    /// A clock ran out; the server was told to stop.
    #[error("server `{server}` gave no answer within {}", format_duration(*.after))]
    Timeout {
        /// The server.
        server: Alias,
        /// How long the call waited.
        after: Duration,
        /// Which clock ran out.
        clock: TimeoutKind,
        /// What the server said that may explain it, such as an error that named no request.
        #[source]
        hint: Option<BoxError>,
    },
    /// The connection was closed by this program while the call was in flight: [`Bridge::stop`](crate::bridge::Bridge::stop),
    /// [`Mcp::close`](crate::mcp::Mcp::close), a reload that changed or removed the server, or the end of the last handle.
    #[error("server `{server}` was stopped while the call was in flight")]
    Stopped {
        /// The server.
        server: Alias,
    },
    /// The caller gave up.
    #[error("the call was cancelled")]
    Cancelled,
    /// Nobody knows a tool of this name.
    #[error("there is no tool `{tool}`")]
    UnknownTool {
        /// The name that was asked for.
        tool: String,
        /// Names that may have been meant, the nearest first.
        nearest: Vec<String>,
    },
    /// The arguments do not fit the tool's schema; the tool was not called.
    #[error("the arguments do not fit tool `{tool}`: {}", list(.problems))]
    InvalidArguments {
        /// The tool.
        tool: String,
        /// What is wrong, path by path.
        problems: Vec<ArgumentProblem>,
    },
    /// Nobody agreed to the call; the tool was not called.
    #[error("tool `{tool}` was not called: {reason}")]
    Denied {
        /// The tool.
        tool: String,
        /// Why not.
        reason: String,
    },
    /// The server changed the definition of the tool after it was approved; the tool was not called.
    #[error("tool `{tool}` changed after it was approved and was not called")]
    Changed {
        /// The tool.
        tool: String,
    },
    /// The tool is hidden from models and callers until a person accepts it.
    #[error("tool `{tool}` is hidden: {reason}")]
    Hidden {
        /// The tool.
        tool: String,
        /// Why, and what makes it visible.
        reason: String,
    },
    /// The server answered with a JSON-RPC error.
    #[error("server `{server}` answered error {code}: {message}")]
    Refused {
        /// The server.
        server: Alias,
        /// The JSON-RPC error code.
        code: i64,
        /// The server's words.
        message: String,
        /// What it added.
        data: Option<Value>,
    },
    /// The server's answer is not one.
    #[error("server `{server}` broke the protocol")]
    Protocol {
        /// The server.
        server: Alias,
        /// What was wrong with the answer.
        #[source]
        source: BoxError,
    },
    /// The answer is larger than the limit allows.
    #[error("server `{server}` sent more than {limit} bytes")]
    TooLarge {
        /// The server.
        server: Alias,
        /// The limit that was passed.
        limit: usize,
    },
    /// A local tool failed.
    #[error("tool `{tool}` failed")]
    Failed {
        /// The tool.
        tool: String,
        /// What happened.
        #[source]
        source: BoxError,
    },
}

impl CallError {
    /// The same about a server that goes by another name here.
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
            | Self::InvalidArguments { .. }
            | Self::Denied { .. }
            | Self::Changed { .. }
            | Self::Hidden { .. }
            | Self::Failed { .. } => {}
        }
        self
    }

    /// Returns a stable word for the kind of failure, as it stands in the JSON of an envelope.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotConnected { .. } => "not_connected",
            Self::Unavailable { .. } => "unavailable",
            Self::NeedsAuth { .. } => "needs_auth",
            Self::Timeout { .. } => "timeout",
            Self::Stopped { .. } => "stopped",
            Self::Cancelled => "cancelled",
            Self::UnknownTool { .. } => "unknown_tool",
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

    /// The same call may work a little later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Timeout { .. } => true,
            Self::Failed { .. } => self.as_tool_call_error().is_some_and(|error| error.retryable),
            _ => false,
        }
    }

    /// Returns the error that a tool of the host or an `on_tool_call` callback gave as a [`ToolCallError`].
    pub fn as_tool_call_error(&self) -> Option<&ToolCallError> {
        match self {
            Self::Failed { source, .. } => source.downcast_ref(),
            _ => None,
        }
    }
}

/// An error of the host's own code for a tool call. The model is told the message, unless the error is fatal.
///
/// Callbacks of [`agent::generate`](crate::agent::generate) and [`agent::stream`](crate::agent::stream) return it, and a
/// [`LocalTool`](super::LocalTool) may. `&str`, `String`, [`BoxError`], [`CallError`], [`std::io::Error`] and [`serde_json::Error`]
/// convert into one that is not fatal. As JSON, `{"type": "execution", "message": "…", "fatal": false, "retryable": false}`.
#[derive(Clone, Debug, Serialize, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct ToolCallError {
    /// What kind of error it is, in the host's own words; `execution` by default.
    #[serde(rename = "type")]
    pub kind: String,
    /// The message for the model.
    pub message: String,
    /// The error ends the turn instead of being reported to the model.
    pub fatal: bool,
    /// The same call may succeed later; the model is told so.
    pub retryable: bool,
    #[serde(skip)]
    source: Option<Cause>,
}

/// The cause of a [`ToolCallError`].
#[derive(Clone, Debug, thiserror::Error)]
enum Cause {
    #[error(transparent)]
    Call(Arc<CallError>),
    #[error(transparent)]
    Other(Arc<dyn std::error::Error + Send + Sync>),
}

impl ToolCallError {
    /// The kind of an error for which the host names no other.
    const EXECUTION: &str = "execution";

    /// Creates an error that is reported to the model.
    pub fn new(message: impl Into<String>) -> Self {
        Self { kind: Self::EXECUTION.to_owned(), message: message.into(), fatal: false, retryable: false, source: None }
    }

    /// Creates an error that ends the turn.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self { fatal: true, ..Self::new(message) }
    }

    /// Sets the kind, such as `rate_limit`.
    #[must_use]
    pub fn with_kind(self, kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), ..self }
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

    /// Adds the cause. It is not part of the message for the model.
    #[must_use]
    pub fn with_source(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(Cause::Other(source.into().into())), ..self }
    }

    /// Returns the error of a call of `tool`. A [`CallError`] that was only passed on stays what it was.
    #[cfg(feature = "agent")]
    pub(crate) fn into_call_error(self, tool: &str) -> CallError {
        match self {
            Self { source: Some(Cause::Call(error)), fatal: false, kind, .. } if kind == Self::EXECUTION => {
                Arc::try_unwrap(error)
                    .unwrap_or_else(|error| CallError::Failed { tool: tool.to_owned(), source: Box::new(error) })
            }
            error => CallError::Failed { tool: tool.to_owned(), source: Box::new(error) },
        }
    }
}

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

impl From<&str> for ToolCallError {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

impl From<String> for ToolCallError {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<BoxError> for ToolCallError {
    fn from(error: BoxError) -> Self {
        match error.downcast::<Self>() {
            Ok(error) => *error,
            Err(error) => Self::new(chain(&*error)).with_source(error),
        }
    }
}

impl From<std::io::Error> for ToolCallError {
    fn from(error: std::io::Error) -> Self {
        Self::from(BoxError::from(error))
    }
}

impl From<serde_json::Error> for ToolCallError {
    fn from(error: serde_json::Error) -> Self {
        Self::from(BoxError::from(error))
    }
}

fn list(problems: &[ArgumentProblem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.join("; ")
}
