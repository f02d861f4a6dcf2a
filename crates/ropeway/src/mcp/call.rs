//! One call, from its arguments to its output: rounds of input, tasks, and the one retry that is allowed.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::inbox::Clocks;
use super::session::Session;
use super::shared::{Shared, chain};
use super::tools;
use super::transport::Request;
use crate::event::Event;
use crate::protocol::{Era, code};
use crate::tool::{Arguments, CallContext, CallError, ToolOutput};

/// How often a task is asked after when the server does not say.
const POLL: Duration = Duration::from_secs(1);

/// Calls a tool by the server's own name for it, and tells how it went.
pub(crate) async fn call_tool(
    shared: &Arc<Shared>,
    tool: &str,
    arguments: Arguments,
    cx: &CallContext,
) -> Result<ToolOutput, CallError> {
    let started = Instant::now();
    let outcome = drive_tool(shared, tool, arguments, cx).await;
    if shared.host.events().heard() {
        let (server, tool, call, took) = (shared.alias().clone(), tool.to_owned(), cx.id().clone(), started.elapsed());
        shared.host.events().tell(match &outcome {
            Ok(output) => Event::ToolCalled { server, tool, call, took, is_error: output.is_error },
            Err(error) => Event::ToolFailed { server, tool, call, took, cause: chain(error) },
        });
    }
    outcome
}

async fn drive_tool(
    shared: &Arc<Shared>,
    tool: &str,
    arguments: Arguments,
    cx: &CallContext,
) -> Result<ToolOutput, CallError> {
    let clocks = shared.clocks(cx);
    let session = shared.session(cx, clocks).await?;
    let mut call = Call {
        shared,
        cx,
        clocks,
        method: "tools/call",
        name: Some(tool),
        params: json!({"name": tool}).as_object().cloned().unwrap_or_default(),
        headers: Vec::new(),
        idempotent: false,
    };
    let needs_list = session.wants_headers() || session.info.can(&["tasks", "requests", "tools", "call"]);
    if needs_list {
        call.learn(tool, &arguments, &session, false).await?;
    }
    call.params.insert("arguments".to_owned(), Value::Object(arguments));
    match call.rounds(|output: &ToolOutput| &output.extra).await {
        // The schema that the headers were made by is old.
        Err(CallError::Refused { code: code::HEADER_MISMATCH, .. }) if session.wants_headers() => {
            let arguments = call.params.get("arguments").and_then(Value::as_object).cloned().unwrap_or_default();
            call.learn(tool, &arguments, &session, true).await?;
            call.rounds(|output: &ToolOutput| &output.extra).await
        }
        outcome => outcome,
    }
}

/// Sends any request of the protocol and follows it to its end.
pub(crate) async fn request(
    shared: &Arc<Shared>,
    method: &str,
    mut params: Map<String, Value>,
    cx: &CallContext,
) -> Result<Value, CallError> {
    // What the caller put into `_meta` joins what we have to put there.
    let mut cx = cx.clone();
    if let Some(Value::Object(meta)) = params.shift_remove("_meta") {
        for (key, value) in meta {
            cx = cx.with_meta(key, value);
        }
    }
    let key = match method {
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" | "tasks/result" => "taskId",
        _ => "name",
    };
    let name = params.get(key).and_then(Value::as_str).map(str::to_owned);
    let idempotent = !matches!(method, "tools/call" | "tasks/update");
    let call = Call {
        shared,
        cx: &cx,
        clocks: shared.clocks(&cx),
        method,
        name: name.as_deref(),
        params,
        headers: Vec::new(),
        idempotent,
    };
    call.rounds(|result: &Map<String, Value>| result).await.map(Value::Object)
}

/// A request that may take several rounds.
struct Call<'a> {
    shared: &'a Arc<Shared>,
    cx: &'a CallContext,
    clocks: Clocks,
    method: &'a str,
    name: Option<&'a str>,
    params: Map<String, Value>,
    headers: Vec<(String, String)>,
    idempotent: bool,
}

impl Call<'_> {
    /// Looks up what the tool's definition asks of its calls: headers, or to be run as a task.
    async fn learn(
        &mut self,
        tool: &str,
        arguments: &Arguments,
        session: &Session,
        anew: bool,
    ) -> Result<(), CallError> {
        let known = self.shared.tools().filter(|list| !anew && list.get(tool).is_some());
        let list = match known {
            Some(list) => list,
            None => tools::fetch(self.shared, self.cx).await?,
        };
        let Some(listed) = list.get(tool) else { return Ok(()) };
        if session.wants_headers() {
            self.headers = listed.headers.headers(arguments);
        }
        self.idempotent = listed.definition.annotations.idempotent();
        if session.era() == Era::Legacy && listed.must_be_task() {
            let left = self.clocks.deadline.saturating_duration_since(Instant::now());
            self.params.insert("task".to_owned(), json!({"ttl": left.as_millis() as u64}));
        }
        Ok(())
    }

    async fn send<T: DeserializeOwned>(&self, params: &Map<String, Value>) -> Result<(T, Arc<Session>), CallError> {
        let params = serde_json::to_vec(params).map_err(|error| tools::unreadable(self.shared, error))?;
        let request = Request {
            name: self.name,
            headers: &self.headers,
            idempotent: self.idempotent,
            ..Request::new(self.method, &params)
        };
        let (answer, session) = self.shared.request(&request, self.cx, self.clocks).await?;
        // The fields are read in one pass, in the caller's own task: a large answer holds nobody else up.
        let result = serde_json::from_slice(&answer).map_err(|error| tools::unreadable(self.shared, error))?;
        Ok((result, session))
    }

    /// Sends the request, answers what the server asks in between, and gives the final result.
    async fn rounds<T: DeserializeOwned>(&self, fields: fn(&T) -> &Map<String, Value>) -> Result<T, CallError> {
        let (mut result, mut session) = self.send::<T>(&self.params).await?;
        let mut rounds = 0;
        loop {
            let fields = fields(&result);
            match fields.get("resultType").and_then(Value::as_str) {
                Some("input_required") if session.era() == Era::Modern => {
                    rounds += 1;
                    if rounds > self.shared.config.limits.input_rounds {
                        return Err(self.broken(format!("it asked for input {rounds} times")));
                    }
                    let mut params = self.params.clone();
                    let answers = self.answer_inputs(fields.get("inputRequests")).await?;
                    if answers.is_empty() {
                        // Nothing was asked: the server only wants to be asked again.
                        self.sleep(Duration::from_millis(50 << rounds.min(5))).await?;
                    }
                    params.insert("inputResponses".to_owned(), Value::Object(answers));
                    params.extend(fields.get("requestState").map(|state| ("requestState".to_owned(), state.clone())));
                    (result, session) = self.send(&params).await?;
                }
                Some("task") if session.era() == Era::Modern => {
                    let task = Task::read(fields, "pollIntervalMs");
                    return self.finish(task, Era::Modern).await;
                }
                None | Some("complete") => {
                    let task = fields.get("task").and_then(Value::as_object);
                    return match task {
                        Some(task) if self.params.contains_key("task") => {
                            self.finish(Task::read(task, "pollInterval"), Era::Legacy).await
                        }
                        _ => Ok(result),
                    };
                }
                // The legacy era has no kinds of results: there it is a field like any other.
                Some(_) if session.era() == Era::Legacy => return Ok(result),
                Some(kind) => return Err(self.broken(format!("it gave a result of the unknown kind `{kind}`"))),
            }
        }
    }

    fn broken(&self, what: String) -> CallError {
        CallError::Protocol { server: self.shared.alias().clone(), source: what.into() }
    }

    /// Lets the host answer what the server asks for in the modern way.
    async fn answer_inputs(&self, requests: Option<&Value>) -> Result<Map<String, Value>, CallError> {
        let mut answers = Map::new();
        for (key, request) in requests.and_then(Value::as_object).into_iter().flatten() {
            let method = request["method"].as_str().unwrap_or_default();
            let params = request.get("params").cloned().unwrap_or_default();
            let answer = tokio::select! {
                answer = self.shared.host.answer(method, params) => answer,
                () = self.cx.cancelled() => return Err(CallError::Cancelled),
                () = tokio::time::sleep_until(self.clocks.deadline) => return Err(self.late()),
            };
            let answer = match answer {
                Ok(answer) => answer,
                // There is no way to refuse but to leave.
                Err(_) if method == "elicitation/create" => json!({"action": "cancel"}),
                Err(refusal) => {
                    let server = self.shared.alias().clone();
                    let message = format!("`{method}` was not answered: {}", refusal.message);
                    return Err(CallError::Refused { server, code: refusal.code, message, data: None });
                }
            };
            answers.insert(key.clone(), answer);
        }
        Ok(answers)
    }

    fn late(&self) -> CallError {
        CallError::Timeout {
            server: self.shared.alias().clone(),
            after: self.clocks.started.elapsed(),
            clock: crate::tool::Clock::Total,
            hint: None,
        }
    }

    async fn sleep(&self, pause: Duration) -> Result<(), CallError> {
        tokio::select! {
            () = tokio::time::sleep(pause) => Ok(()),
            () = self.cx.cancelled() => Err(CallError::Cancelled),
            () = tokio::time::sleep_until(self.clocks.deadline) => Err(self.late()),
        }
    }

    /// Polls a task to its end and gives its result. If the caller leaves before, the task is cancelled.
    async fn finish<T: DeserializeOwned>(&self, mut task: Task, era: Era) -> Result<T, CallError> {
        let mut guard = CancelTask { shared: self.shared, id: Some(task.id.clone()) };
        let mut answered = std::collections::BTreeSet::new();
        loop {
            let outcome = match task.status.as_str() {
                "completed" if era == Era::Modern => Some(Ok(task.result.take().unwrap_or_default())),
                // Failures, too, are told by the result (2025-11-25); a task that waits for input asks while we wait.
                "completed" | "failed" | "input_required" if era == Era::Legacy => {
                    let call = self.about("tasks/result", &task.id);
                    Some(Box::pin(call.send::<Value>(&call.params)).await.map(|(result, _)| result))
                }
                "failed" => Some(Err(task.failure(self.shared))),
                "cancelled" => Some(Err(self.broken("it cancelled the task by itself".to_owned()))),
                "input_required" => {
                    let asked: Map<String, Value> =
                        task.inputs.iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
                    let new: Map<String, Value> =
                        asked.into_iter().filter(|(key, _)| answered.insert(key.clone())).collect();
                    if !new.is_empty() {
                        let answers = self.answer_inputs(Some(&Value::Object(new))).await?;
                        let mut call = self.about("tasks/update", &task.id);
                        call.params.insert("inputResponses".to_owned(), Value::Object(answers));
                        Box::pin(call.send::<Value>(&call.params)).await?;
                    }
                    None
                }
                _ => None,
            };
            if let Some(outcome) = outcome {
                guard.id = None;
                return serde_json::from_value(outcome?).map_err(|error| tools::unreadable(self.shared, error));
            }
            self.sleep(task.poll).await?;
            let mut call = self.about("tasks/get", &task.id);
            call.idempotent = true;
            let (fields, _) = Box::pin(call.send::<Map<String, Value>>(&call.params)).await?;
            let key = if era == Era::Modern { "pollIntervalMs" } else { "pollInterval" };
            task = Task { id: task.id, ..Task::read(&fields, key) };
        }
    }

    /// A request about a task, on the clocks of this call.
    fn about<'b>(&'b self, method: &'b str, task: &'b str) -> Call<'b> {
        let params = Map::from_iter([("taskId".to_owned(), Value::from(task))]);
        Call {
            shared: self.shared,
            cx: self.cx,
            clocks: self.clocks,
            method,
            name: Some(task),
            params,
            headers: Vec::new(),
            idempotent: false,
        }
    }
}

/// A task as the server describes it.
#[derive(Debug)]
struct Task {
    id: String,
    status: String,
    poll: Duration,
    result: Option<Value>,
    error: Option<Value>,
    inputs: Option<Map<String, Value>>,
}

impl Task {
    fn read(fields: &Map<String, Value>, interval: &str) -> Self {
        let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let poll =
            fields.get(interval).and_then(Value::as_f64).map_or(POLL, |ms| Duration::from_millis(ms.max(0.0) as u64));
        Self {
            id: text("taskId"),
            status: text("status"),
            poll: poll.clamp(Duration::from_millis(20), Duration::from_secs(30)),
            result: fields.get("result").cloned(),
            error: fields.get("error").cloned(),
            inputs: fields.get("inputRequests").and_then(Value::as_object).cloned(),
        }
    }

    fn failure(&self, shared: &Shared) -> CallError {
        let error = self.error.as_ref().unwrap_or(&Value::Null);
        CallError::Refused {
            server: shared.alias().clone(),
            code: error["code"].as_i64().unwrap_or(code::INTERNAL),
            message: error["message"].as_str().unwrap_or("the task failed").to_owned(),
            data: error.get("data").cloned(),
        }
    }
}

/// Cancels a task whose caller has left.
struct CancelTask<'a> {
    shared: &'a Arc<Shared>,
    id: Option<String>,
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
