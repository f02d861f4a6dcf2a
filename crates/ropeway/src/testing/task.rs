//! Work that outlives the request that started it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

/// A task, in the making or done.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) id: String,
    pub(super) started: Instant,
    pub(super) takes: Duration,
    pub(super) state: TaskState,
    pub(super) result: Value,
}

/// What there is to know of a task besides the time that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TaskState {
    Running,
    /// It waits for an answer of the client's.
    Asking,
    Failing,
    Cancelled,
}

const POLL_MS: u64 = 20;
const TTL_MS: u64 = 60_000;
// A clock would make answers differ from run to run and tell nobody anything.
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

    /// The task as the extension of 2026 writes it.
    pub(super) fn modern(&self) -> Value {
        json!({
            "taskId": self.id, "status": self.status(), "createdAt": WHEN, "lastUpdatedAt": WHEN,
            "ttlMs": TTL_MS, "pollIntervalMs": POLL_MS,
        })
    }

    /// The answer to `tasks/get` of the extension: the task with what its status brings.
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

    /// The task as the core of 2025-11-25 writes it.
    pub(super) fn legacy(&self) -> Value {
        json!({
            "taskId": self.id, "status": self.status(), "createdAt": WHEN, "lastUpdatedAt": WHEN,
            "ttl": TTL_MS, "pollInterval": POLL_MS,
        })
    }
}
