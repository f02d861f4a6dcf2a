//! `tasks/get`, `tasks/update` and `tasks/cancel`, and calls that become tasks.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::call::{Asker, Call, Interrupt, Outcome};
use crate::server::lock;
use crate::tasks::Task;
use crate::wire::{INTERNAL, INVALID_PARAMS, RpcError, TASKS};

/// Returns a `tasks/` method's result.
pub fn handle(call: &Call) -> Outcome {
    if !call.has_tasks() {
        return Err(missing_extension().into());
    }
    let id = call.text("taskId");
    let task = lock(&call.server.tasks).get(id).cloned();
    let task = task.ok_or_else(|| RpcError::new(INVALID_PARAMS, format!("unknown task `{id}`")))?;
    match call.method.as_str() {
        "tasks/get" => return Ok(task.details()),
        "tasks/update" => {
            let answers = call.params.get("inputResponses").and_then(Value::as_object);
            task.answer(answers.ok_or_else(|| RpcError::new(INVALID_PARAMS, "`inputResponses` is missing"))?);
        }
        _ => task.cancel(),
    }
    Ok(json!({}))
}

pub fn missing_extension() -> RpcError {
    RpcError::missing_capability(json!({ "extensions": { TASKS: {} } }))
}

/// Runs the rest of a call as a task, and returns the result that announces it.
pub fn spawn<F>(call: &Call, run: impl FnOnce(Call) -> F) -> Value
where
    F: Future<Output = Outcome> + Send + 'static,
{
    let task = Task::create(&call.server);
    let running = run(Call { asker: Asker::Task(Arc::clone(&task)), ..call.clone() });
    let mut announced = task.summary();
    announced["resultType"] = json!("task");
    let ended = Arc::clone(&task);
    let handle = tokio::spawn(async move {
        ended.finish(match running.await {
            Ok(result) => Ok(result),
            Err(Interrupt::Error(error)) => Err(error),
            Err(Interrupt::InputRequired(_)) => Err(RpcError::new(INTERNAL, "a task cannot return `input_required`")),
        });
    });
    task.set_abort(handle.abort_handle());
    announced
}
