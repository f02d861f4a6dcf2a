//! Exit codes.

use std::error::Error;

use ropeway_core::tool::CallError;
use ropeway_mcp::ConnectErrorKind;
use ropeway_mcp::oauth::OAuthError;

use super::chain::connect_errors;

/// A command's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success.
    Done = 0,
    /// The tool failed or the server refused the call.
    ToolError = 1,
    /// Invalid usage, configuration or arguments.
    Usage = 2,
    /// Server unreachable or protocol error.
    Unreachable = 3,
    /// Server needs authentication.
    NeedsAuth = 4,
    /// Timeout.
    Timeout = 5,
    /// Interrupted with Ctrl-C: 128 + SIGINT, as shells report it.
    Interrupted = 130,
}

/// The exit codes, for `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    tool error: the tool failed or the server refused the call
  2    invalid usage, configuration or arguments, or an unknown server, tool, prompt or resource
  3    server unreachable or protocol error
  4    server needs authentication
  5    timeout
  130  interrupted with Ctrl-C";

pub(super) fn exit_of(error: &CallError) -> Exit {
    match error {
        CallError::Timeout { .. } => Exit::Timeout,
        CallError::NeedsAuth { .. } => Exit::NeedsAuth,
        CallError::UnknownTool { .. }
        | CallError::UnlistedTool { .. }
        | CallError::InvalidArguments { .. }
        | CallError::Hidden { .. } => Exit::Usage,
        CallError::NotConnected { .. } | CallError::Stopped { .. } | CallError::Protocol { .. } => Exit::Unreachable,
        CallError::Unavailable { source, .. } => exit_of_cause(source.as_ref()),
        _ => Exit::ToolError,
    }
}

/// Returns the exit code for an error caused by a connection.
pub(super) fn exit_of_cause(cause: &(dyn Error + 'static)) -> Exit {
    connect_errors(cause).next().map_or(Exit::Unreachable, exit_of_connect)
}

/// Returns a connection error's exit code.
pub(crate) fn exit_of_connect(error: &ConnectErrorKind) -> Exit {
    match error {
        ConnectErrorKind::NeedsAuth { .. } | ConnectErrorKind::Status { status: 401 | 403 | 407, .. } => {
            Exit::NeedsAuth
        }
        ConnectErrorKind::Auth(error) => exit_of_oauth(error),
        ConnectErrorKind::Timeout { .. } => Exit::Timeout,
        ConnectErrorKind::Address { .. } => Exit::Usage,
        _ => Exit::Unreachable,
    }
}

/// Returns an OAuth error's exit code.
pub(crate) fn exit_of_oauth(error: &OAuthError) -> Exit {
    match error {
        OAuthError::Timeout { .. } => Exit::Timeout,
        OAuthError::Refused { .. }
        | OAuthError::Denied { .. }
        | OAuthError::Rejected { .. }
        | OAuthError::SignInRequired { .. }
        | OAuthError::Expired
        | OAuthError::NotInProgress => Exit::NeedsAuth,
        OAuthError::Store(_) | OAuthError::Command { .. } | OAuthError::Key { .. } | OAuthError::Settings { .. } => {
            Exit::Usage
        }
        _ => Exit::Unreachable,
    }
}

/// Returns the most severe exit code. A timeout ranks highest, because it may hide any error.
pub(crate) fn worst_exit(exits: impl IntoIterator<Item = Exit>) -> Exit {
    let rank = |exit: &Exit| match exit {
        Exit::Timeout => 4,
        Exit::Unreachable => 3,
        Exit::NeedsAuth => 2,
        Exit::Usage | Exit::ToolError | Exit::Interrupted => 1,
        Exit::Done => 0,
    };
    exits.into_iter().max_by_key(rank).unwrap_or(Exit::Done)
}
