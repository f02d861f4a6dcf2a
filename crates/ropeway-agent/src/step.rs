//! Steps: a turn's events, reported while they happen.

use std::sync::Arc;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use ropeway_bridge::registry::ServerStatus;
use ropeway_core::envelope::Envelope;
use ropeway_core::message::CallArguments;
use ropeway_core::tool::{CallId, Origin, Progress};
use ropeway_providers::{StopReason, Usage};

/// Serializes the server statuses as `statuses`, and under the former name `verdicts`.
fn with_former_name<S: Serializer>(statuses: &[ServerStatus], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(2))?;
    map.serialize_entry("statuses", statuses)?;
    map.serialize_entry("verdicts", statuses)?;
    map.end()
}

/// An event in a turn.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Step {
    /// The server statuses; reported in the first turn and after changes.
    Servers {
        /// One status per server.
        #[serde(flatten, serialize_with = "with_former_name")]
        statuses: Vec<ServerStatus>,
    },
    /// A piece of the model's text.
    Text {
        /// The piece's text.
        text: String,
    },
    /// A piece of the model's reasoning.
    Reasoning {
        /// The piece's text.
        text: String,
    },
    /// A model reply is complete.
    Answered {
        /// Why the model stopped.
        stop: StopReason,
        /// The reply's token usage.
        usage: Usage,
    },
    /// A call starts, or waits for approval.
    CallStarted {
        /// The call's id.
        call: CallId,
        /// The tool's name, as the model sees it.
        tool: String,
        /// The tool's origin.
        origin: Origin,
        /// The call's arguments.
        #[serde(flatten)]
        arguments: CallArguments,
        /// The tool's own call [summary](ropeway_core::tool::Tool::summarize), redacted.
        #[serde(skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
    },
    /// A call reports progress.
    CallProgress {
        /// The call's id.
        call: CallId,
        /// The newest progress.
        #[serde(flatten)]
        progress: Progress,
    },
    /// A call finished, failed or was not made.
    CallFinished {
        /// The call's id.
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
