//! A task: a call that the server runs in the background while the client polls it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::connection::Connection;
use super::error::{RequestError, redact_error};
use super::request::Request;
use crate::protocol::{RpcError, code};
use ropeway_core::tool::{CallContext, CallError};

/// Poll interval if the server sends none.
const DEFAULT_POLL: Duration = Duration::from_secs(1);

/// Minimum poll interval. It doubles up to [`MAX_MIN_POLL`], even if the server requests a shorter one.
const FIRST_POLL: Duration = Duration::from_millis(20);
const MAX_MIN_POLL: Duration = Duration::from_secs(1);

/// A task as the server describes it.
#[derive(Debug)]
pub(crate) struct RemoteTask {
    pub(crate) id: String,
    pub(crate) status: String,
    pub(crate) poll: Duration,
    pub(crate) result: Option<Value>,
    pub(crate) error: Option<Value>,
    pub(crate) inputs: Option<Map<String, Value>>,
}

impl RemoteTask {
    pub(crate) fn read(fields: &Map<String, Value>, interval: &str) -> Self {
        let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let poll = fields
            .get(interval)
            .and_then(Value::as_f64)
            .map_or(DEFAULT_POLL, |ms| Duration::from_millis(ms.max(0.0) as u64));
        Self {
            id: text("taskId"),
            status: text("status"),
            poll: poll.min(Duration::from_secs(30)),
            result: fields.get("result").cloned(),
            error: fields.get("error").cloned(),
            inputs: fields.get("inputRequests").and_then(Value::as_object).cloned(),
        }
    }

    /// Returns the delay before the next poll, after `polls` polls.
    pub(crate) fn poll_delay(&self, polls: u32) -> Duration {
        self.poll.max(FIRST_POLL.saturating_mul(1 << polls.min(16)).min(MAX_MIN_POLL))
    }

    /// Returns the error for a failed task.
    pub(crate) fn failure(&self, connection: &Connection) -> CallError {
        let error = self.error.as_ref().unwrap_or(&Value::Null);
        let error = RpcError {
            code: error["code"].as_i64().unwrap_or(code::INTERNAL),
            message: error["message"].as_str().unwrap_or("the task failed").to_owned(),
            data: error.get("data").cloned(),
        };
        RequestError::Refused(redact_error(error, &connection.host.redactor())).into_call_error(connection.alias())
    }
}

/// Cancels a task when its caller is dropped.
pub(crate) struct CancelTaskOnDrop<'a> {
    pub(crate) connection: &'a Arc<Connection>,
    /// `None` once the task has ended.
    pub(crate) id: Option<String>,
}

impl Drop for CancelTaskOnDrop<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let (Ok(runtime), Some(session)) = (tokio::runtime::Handle::try_current(), self.connection.current_session())
        else {
            return;
        };
        let connection = self.connection.clone();
        runtime.spawn(async move {
            let params = json!({"taskId": id}).to_string();
            let cx = CallContext::default().with_timeout(Duration::from_secs(5));
            let request = Request::new("tasks/cancel", params.as_bytes(), &cx, connection.timeouts(&cx));
            // On failure, the server drops the task when its TTL expires.
            let _ = session.request(&Request { name: Some(&id), cancellable: false, ..request }).await;
        });
    }
}
