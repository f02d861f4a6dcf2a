//! Jobs: one call in a round and its states, from planned to finished.

use std::sync::Arc;

use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::remainder::Remainder;
use ropeway_core::checked::CheckedTool;
use ropeway_core::envelope::Envelope;
use ropeway_core::message::ToolResult;
use ropeway_core::tool::{Arguments, CancelToken};

/// A call that has not started.
pub(super) struct Job {
    /// Its index in the reply.
    pub(super) index: usize,
    pub(super) tool: CheckedTool,
    pub(super) arguments: Arguments,
    /// Whether the host has received [`Step::CallStarted`](crate::Step::CallStarted).
    pub(super) is_reported: bool,
    /// Whether the call is only made if the tool's definition is unchanged.
    pub(super) only_unchanged: bool,
    /// How often the tool changed while its call awaited approval.
    pub(super) changes: usize,
}

/// A call that is running.
pub(super) struct RunningCall {
    pub(super) index: usize,
    pub(super) tool: CheckedTool,
    pub(super) task: AbortHandle,
    /// Also ends the call's work in other tasks.
    pub(super) cancel: CancelToken,
    /// When the call is abandoned.
    pub(super) overdue: Instant,
}

impl RunningCall {
    pub(super) fn abort(&self) {
        self.cancel.cancel();
        self.task.abort();
    }
}

/// The value that a call's task returns.
pub(super) struct FinishedCall {
    pub(super) envelope: Envelope,
    pub(super) result: ToolResult,
    pub(super) remainder: Option<Remainder>,
}

/// A call's whole output, kept until the outputs of all calls are balanced.
pub(super) struct CallOutput {
    pub(super) index: usize,
    pub(super) envelope: Arc<Envelope>,
    pub(super) remainder: Option<Remainder>,
}
