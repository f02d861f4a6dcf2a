//! Why a round's remaining calls are aborted, and their results.

use crate::turn_context::Interruption;
use ropeway_core::tool::{CallError, ToolDefinition};

/// Why a round's remaining calls are aborted.
#[derive(Clone, Copy)]
pub(super) enum AbortReason {
    Interrupted(Interruption),
    /// Another call in the same reply failed fatally.
    Fatal,
}

impl AbortReason {
    /// Returns the error for a call that was reported as started.
    pub(super) fn error(self, tool: &ToolDefinition, timed_out: &'static str) -> CallError {
        match self {
            Self::Interrupted(Interruption::Cancelled) | Self::Fatal => CallError::Cancelled,
            Self::Interrupted(Interruption::TimedOut) => {
                CallError::Failed { tool: tool.name.clone(), source: timed_out.into() }
            }
        }
    }

    /// Returns the message for a call that was not reported yet.
    pub(super) fn skip_message(self) -> &'static str {
        match self {
            Self::Interrupted(Interruption::Cancelled) => "call not made: the turn was cancelled",
            Self::Interrupted(Interruption::TimedOut) => "call not made: the turn timed out",
            Self::Fatal => "call not made: another call ended the turn",
        }
    }
}
