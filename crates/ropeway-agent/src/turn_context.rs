//! Turn context: the values that one turn works with.

use tokio::time::Instant;

use super::exposed_tools::ExposedTools;
use super::history::History;
use super::sources::Sources;
use super::turn::{StepSink, TurnControl};
use ropeway_core::sync::sleep_until;
use ropeway_core::tool::TraceParent;

/// The values that one turn works with.
pub(super) struct TurnContext<'a> {
    pub(super) history: &'a History,
    pub(super) tools: &'a ExposedTools,
    /// The tool sources, to look up a tool's current definition.
    pub(super) sources: Option<&'a Sources>,
    pub(super) sink: &'a StepSink,
    pub(super) control: &'a TurnControl,
    pub(super) deadline: Option<Instant>,
    pub(super) traceparent: Option<TraceParent>,
}

/// Why a turn ends within a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interruption {
    Cancelled,
    TimedOut,
}

impl TurnContext<'_> {
    /// Waits until the turn is cancelled or its deadline passes.
    pub(super) async fn interrupted(&self) -> Interruption {
        tokio::select! {
            biased;
            () = self.control.cancel.cancelled() => Interruption::Cancelled,
            () = sleep_until(self.deadline) => Interruption::TimedOut,
        }
    }
}
