//! Tasks, from the extension `io.modelcontextprotocol/tasks`.

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::rounds::Question;
use crate::server::{Server, lock};
use crate::wire::{INTERNAL, RpcError};

/// How long a task's result is kept.
const TTL_MS: u64 = 300_000;

/// A call that goes on after its response.
pub struct Task {
    id: String,
    created: String,
    state: watch::Sender<State>,
    abort: Mutex<Option<AbortHandle>>,
}

#[derive(Clone)]
struct State {
    updated: String,
    status: Status,
    questions: Map<String, Value>,
    answers: Map<String, Value>,
}

#[derive(Clone, PartialEq)]
enum Status {
    Working,
    Completed(Value),
    Failed(Value),
    Cancelled,
}

impl Task {
    /// Creates a task that `tasks/get` finds.
    pub fn create(server: &Server) -> Arc<Self> {
        let state = State { updated: now(), status: Status::Working, questions: Map::new(), answers: Map::new() };
        let task = Arc::new(Self {
            id: server.fresh_id("task"),
            created: now(),
            state: watch::Sender::new(state),
            abort: Mutex::default(),
        });
        lock(&server.tasks).insert(task.id.clone(), Arc::clone(&task));
        task
    }

    /// Sets what [`cancel`](Self::cancel) aborts.
    pub fn set_abort(&self, handle: AbortHandle) {
        *lock(&self.abort) = Some(handle);
    }

    /// Ends the task, unless it has ended.
    pub fn finish(&self, outcome: Result<Value, RpcError>) {
        self.end(match outcome {
            Ok(result) => Status::Completed(result),
            Err(error) => Status::Failed(error.to_value()),
        });
    }

    pub fn cancel(&self) {
        self.end(Status::Cancelled);
        if let Some(handle) = lock(&self.abort).take() {
            handle.abort();
        }
    }

    fn end(&self, status: Status) {
        self.state.send_modify(|state| {
            if state.status == Status::Working {
                *state = State { status, updated: now(), questions: Map::new(), ..state.clone() };
            }
        });
    }

    /// Delivers answers; those to unknown questions are ignored.
    pub fn answer(&self, answers: &Map<String, Value>) {
        self.state.send_modify(|state| {
            for (key, answer) in answers {
                if state.questions.shift_remove(key).is_some() {
                    state.answers.insert(key.clone(), answer.clone());
                    state.updated = now();
                }
            }
        });
    }

    /// Asks questions through `tasks/get` and waits for all answers.
    pub async fn ask_all(&self, questions: &[Question]) -> Result<Map<String, Value>, RpcError> {
        let mut changes = self.state.subscribe();
        self.state.send_modify(|state| {
            let asked = questions.iter().map(|question| (question.key.to_owned(), question.request()));
            state.questions.extend(asked);
            state.updated = now();
        });
        let state = changes.wait_for(|state| state.questions.is_empty()).await;
        let state = state.map_err(|_| RpcError::new(INTERNAL, "the task ended"))?;
        Ok(state.answers.clone())
    }

    /// Returns the members that describe the task, without its outcome.
    pub fn summary(&self) -> Value {
        let state = self.state.borrow();
        let status = match &state.status {
            Status::Working if state.questions.is_empty() => "working",
            Status::Working => "input_required",
            Status::Completed(_) => "completed",
            Status::Failed(_) => "failed",
            Status::Cancelled => "cancelled",
        };
        json!({
            "taskId": self.id, "status": status, "createdAt": self.created, "lastUpdatedAt": state.updated,
            "ttlMs": TTL_MS, "pollIntervalMs": 100,
        })
    }

    /// Returns the `tasks/get` result.
    pub fn details(&self) -> Value {
        let mut details = self.summary();
        let state = self.state.borrow();
        match &state.status {
            Status::Working if state.questions.is_empty() => {}
            Status::Working => details["inputRequests"] = Value::Object(state.questions.clone()),
            Status::Completed(result) => details["result"] = result.clone(),
            Status::Failed(error) => details["error"] = error.clone(),
            Status::Cancelled => {}
        }
        details
    }
}

/// Returns the time as in RFC 3339.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Days to a date, with years that begin in March (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
    let shifted = days + 719_468;
    let (century, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + century * 400 + u64::from(month <= 2);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}.{:03}Z", second % 60, since.subsec_millis())
}
