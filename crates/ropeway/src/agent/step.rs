//! A step: something that happens in a turn, told while it happens.

use std::sync::Arc;

use serde::Serialize;

use crate::envelope::Envelope;
use crate::message::CallArguments;
use crate::provider::{StopReason, Usage};
use crate::registry::ServerStatus;
use crate::tool::{CallId, Origin, Progress};

/// Something that happens in a turn.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Step {
    /// How the servers stand; told in the first turn, and when it has changed.
    Servers {
        /// One for each server.
        #[serde(rename = "verdicts")]
        statuses: Vec<ServerStatus>,
    },
    /// More text of the model.
    Text {
        /// The piece.
        text: String,
    },
    /// More of what the model thinks.
    Reasoning {
        /// The piece.
        text: String,
    },
    /// One answer of the model is whole.
    Answered {
        /// Why it stopped.
        stop: StopReason,
        /// What the answer has cost.
        usage: Usage,
    },
    /// A call begins; if somebody must be asked first, it waits for that.
    CallStarted {
        /// The call.
        call: CallId,
        /// The tool, by our own name for it.
        tool: String,
        /// Where the tool comes from.
        origin: Origin,
        /// What it is called with.
        #[serde(flatten)]
        arguments: CallArguments,
        /// The tool's own [summary](crate::tool::Tool::summarize) of the call, safe to show.
        #[serde(skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
    },
    /// A call has come a little further.
    CallProgress {
        /// The call.
        call: CallId,
        /// How far.
        #[serde(flatten)]
        progress: Progress,
    },
    /// A call is over, whatever became of it.
    CallFinished {
        /// The call.
        call: CallId,
        /// All that is known of it.
        #[serde(flatten)]
        envelope: Arc<Envelope>,
    },
    /// Something is odd but was dealt with.
    Warning {
        /// What is odd.
        message: String,
    },
}
