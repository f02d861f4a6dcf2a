//! Tasks, which outlive the request that starts them.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

/// A task, running or finished.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) id: String,
    pub(super) started: Instant,
    pub(super) takes: Duration,
    pub(super) state: TaskState,
    pub(super) result: Value,
}

/// A task's state, apart from its duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TaskState {
    Running,
    /// Waiting for the client's response.
    Asking,
    Failing,
    Cancelled,
}

const POLL_MS: u64 = 20;
const TTL_MS: u64 = 60_000;
// A fixed time, so that results are the same in every run.
const WHEN: &str = "2026-07-28T00:00:00Z";

impl Task {
    pub(super) fn remaining(&self) -> Duration {
        self.takes.saturating_sub(self.started.elapsed())
    }

    pub(super) fn status(&self) -> &'static str {
        match self.state {
            TaskState::Cancelled => "cancelled",
            TaskState::Asking => "input_required",
            _ if !self.remaining().is_zero() => "working",
            TaskState::Failing => "failed",
            TaskState::Running => "completed",
        }
    }

    /// Returns the task in the 2026-07-28 extension's format.
    pub(super) fn modern(&self) -> Value {
        json!({
            "taskId": self.id, "status": self.status(), "createdAt": WHEN, "lastUpdatedAt": WHEN,
            "ttlMs": TTL_MS, "pollIntervalMs": POLL_MS,
        })
    }

    /// Returns the extension's `tasks/get` result: the task with its status fields.
    pub(super) fn modern_detailed(&self) -> Value {
        let mut task = self.modern();
        match self.status() {
            "completed" => task["result"] = self.result.clone(),
            "failed" => task["error"] = json!({ "code": -32603, "message": "the task failed" }),
            "input_required" => {
                task["inputRequests"] = json!({ "answer": {
                    "method": "elicitation/create",
                    "params": { "mode": "form", "message": "Go on?", "requestedSchema": {
                        "type": "object", "properties": { "answer": { "type": "string" } } } },
                } });
            }
            _ => {}
        }
        task
    }

    /// Returns the task in the 2025-11-25 format.
    pub(super) fn legacy(&self) -> Value {
        json!({
            "taskId": self.id, "status": self.status(), "createdAt": WHEN, "lastUpdatedAt": WHEN,
            "ttl": TTL_MS, "pollInterval": POLL_MS,
        })
    }
}
