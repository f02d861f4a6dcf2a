//! A client request, and its outcome.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::fault::Fault;
use ropeway_mcp::protocol::Era;

pub(super) const MODERN: &str = "2026-07-28";
pub(super) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// A client request.
#[derive(Clone, Debug)]
pub(super) struct ClientCall {
    pub(super) id: Value,
    pub(super) method: String,
    pub(super) params: Map<String, Value>,
    pub(super) era: Era,
    pub(super) version: String,
    pub(super) capabilities: Value,
    pub(super) faults: Vec<Fault>,
}

impl ClientCall {
    pub(super) fn meta(&self, key: &str) -> Option<&Value> {
        self.params.get("_meta")?.get(key)
    }

    pub(super) fn progress_token(&self) -> Option<&Value> {
        self.meta("progressToken")
    }

    pub(super) fn text(&self, key: &str) -> &str {
        self.params.get(key).and_then(Value::as_str).unwrap_or_default()
    }
}

/// A request's outcome.
pub(super) enum CallOutcome {
    /// This result.
    Answer(Value),
    /// This result, with nothing added to it.
    Raw(Value),
    /// This error.
    Error(ScriptedError),
    /// Delays and notifications, followed by this result.
    Steps { before: Vec<(Duration, Option<Value>)>, answer: Value },
    /// A request to the client, before the response.
    ClientRequest(ClientRequest),
    /// No response.
    Silence,
    /// The server exits.
    Exit(i32),
}

/// A JSON-RPC error.
pub(super) struct ScriptedError {
    code: i64,
    message: String,
    data: Option<Value>,
}

impl ScriptedError {
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(super) fn with(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    pub(super) fn message(&self, id: &Value) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        json!({ "jsonrpc": "2.0", "id": id, "error": error })
    }
}

impl From<ScriptedError> for CallOutcome {
    fn from(error: ScriptedError) -> Self {
        Self::Error(error)
    }
}

/// A tool's request to the client.
#[derive(Clone, Debug)]
pub(super) struct ClientRequest {
    pub(super) capability: &'static str,
    pub(super) method: &'static str,
    pub(super) params: Value,
    pub(super) rounds: u64,
}
