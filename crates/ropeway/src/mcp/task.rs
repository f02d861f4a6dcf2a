//! A task: a call that the server works on while we ask after it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::fault::{Fault, hidden};
use super::shared::Shared;
use super::transport::Request;
use crate::protocol::{RpcError, code};
use crate::tool::{CallContext, CallError};

/// How often a task is asked after when the server does not say.
const POLL: Duration = Duration::from_secs(1);

/// The shortest waits between two questions after a task: they double from the first to the longest, however often the
/// server wants to be asked.
const FIRST_POLL: Duration = Duration::from_millis(20);
const LONGEST_POLL_FLOOR: Duration = Duration::from_secs(1);

/// A task as the server describes it.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) status: String,
    pub(crate) poll: Duration,
    pub(crate) result: Option<Value>,
    pub(crate) error: Option<Value>,
    pub(crate) inputs: Option<Map<String, Value>>,
}

impl Task {
    pub(crate) fn read(fields: &Map<String, Value>, interval: &str) -> Self {
        let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let poll =
            fields.get(interval).and_then(Value::as_f64).map_or(POLL, |ms| Duration::from_millis(ms.max(0.0) as u64));
        Self {
            id: text("taskId"),
            status: text("status"),
            poll: poll.min(Duration::from_secs(30)),
            result: fields.get("result").cloned(),
            error: fields.get("error").cloned(),
            inputs: fields.get("inputRequests").and_then(Value::as_object).cloned(),
        }
    }

    /// The wait before the task is asked after again, `asked` times so far.
    pub(crate) fn wait(&self, asked: u32) -> Duration {
        self.poll.max(FIRST_POLL.saturating_mul(1 << asked.min(16)).min(LONGEST_POLL_FLOOR))
    }

    /// Why the task failed, as the server says.
    pub(crate) fn failure(&self, shared: &Shared) -> CallError {
        let error = self.error.as_ref().unwrap_or(&Value::Null);
        let error = RpcError {
            code: error["code"].as_i64().unwrap_or(code::INTERNAL),
            message: error["message"].as_str().unwrap_or("the task failed").to_owned(),
            data: error.get("data").cloned(),
        };
        Fault::Refused(hidden(error, shared.host.mask())).into_call_error(shared.alias())
    }
}

/// Cancels a task whose caller has left.
pub(crate) struct CancelTask<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    /// `None` once the task is over.
    pub(crate) id: Option<String>,
}

impl Drop for CancelTask<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let (Ok(runtime), Some(session)) = (tokio::runtime::Handle::try_current(), self.shared.current()) else {
            return;
        };
        let shared = self.shared.clone();
        runtime.spawn(async move {
            let params = json!({"taskId": id}).to_string();
            let request =
                Request { name: Some(&id), cancellable: false, ..Request::new("tasks/cancel", params.as_bytes()) };
            let cx = CallContext::default().with_timeout(Duration::from_secs(5));
            // The server forgets the task by itself, sooner or later.
            let _ = session.request(&request, &cx, shared.clocks(&cx)).await;
        });
    }
}
