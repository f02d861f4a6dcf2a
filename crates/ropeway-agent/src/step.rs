//! Steps: the events of a turn, reported while they happen.

use std::sync::Arc;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use ropeway_bridge::registry::ServerStatus;
use ropeway_core::envelope::Envelope;
use ropeway_core::message::CallArguments;
use ropeway_core::tool::{CallId, Origin, Progress};
use ropeway_providers::{StopReason, Usage};

/// Serializes the status of the servers as `statuses`, and under the former name `verdicts`.
fn with_former_name<S: Serializer>(statuses: &[ServerStatus], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(2))?;
    map.serialize_entry("statuses", statuses)?;
    map.serialize_entry("verdicts", statuses)?;
    map.end()
}

/// An event of a turn.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Step {
    /// The status of the servers; reported in the first turn and after changes.
    Servers {
        /// One status per server.
        #[serde(flatten, serialize_with = "with_former_name")]
        statuses: Vec<ServerStatus>,
    },
    /// A piece of the model's text.
    Text {
        /// The text of the piece.
        text: String,
    },
    /// A piece of the model's reasoning.
    Reasoning {
        /// The text of the piece.
        text: String,
    },
    /// A reply of the model is complete.
    Answered {
        /// Why the model stopped.
        stop: StopReason,
        /// Token usage of the reply.
        usage: Usage,
    },
    /// A call starts, or waits for approval.
    CallStarted {
        /// The id of the call.
        call: CallId,
        /// The name of the tool, as the model sees it.
        tool: String,
        /// The origin of the tool.
        origin: Origin,
        /// The arguments of the call.
        #[serde(flatten)]
        arguments: CallArguments,
        /// The tool's own [summary](ropeway_core::tool::Tool::summarize) of the call, redacted.
        #[serde(skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
    },
    /// A call reports progress.
    CallProgress {
        /// The id of the call.
        call: CallId,
        /// The newest progress.
        #[serde(flatten)]
        progress: Progress,
    },
    /// A call finished, failed or was not made.
    CallFinished {
        /// The id of the call.
        call: CallId,
        /// The result and its metadata.
        #[serde(flatten)]
        envelope: Arc<Envelope>,
    },
    /// A problem that did not end the turn.
    Warning {
        /// Describes the problem.
        message: String,
    },
}
