//! Why a call has no answer from its tool.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::Alias;
use crate::duration::format_duration;

/// A cause from a layer that this one does not know.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// One thing that is wrong with the arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where, as a JSON Pointer; empty for the whole.
    pub path: String,
    /// What is wrong there.
    pub reason: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.reason),
            path => write!(f, "at `{path}`: {}", self.reason),
        }
    }
}

/// Which clock ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
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
        clock: Clock,
        /// What the server said that may explain it, such as an error that named no request.
        #[source]
        hint: Option<BoxError>,
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
        problems: Vec<Problem>,
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
    pub fn of_server(mut self, name: &Alias) -> Self {
        match &mut self {
            Self::NotConnected { server }
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

    /// The same call may work a little later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Timeout { .. })
    }
}

fn list(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.join("; ")
}
