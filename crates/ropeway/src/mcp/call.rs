//! One call, from its arguments to its output: rounds of input, tasks, and the one retry that is allowed.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::answer::FromAnswer;
use super::inbox::Clocks;
use super::session::Session;
use super::shared::Shared;
use super::task::{CancelTask, Task};
use super::tools;
use super::trace::Trace;
use super::transport::Request;
use crate::error_chain::chain;
use crate::event::Event;
use crate::protocol::{Era, code};
use crate::tool::{Arguments, CallContext, CallError, ToolOutput};

/// How many inputs a server may ask for at once.
const MOST_INPUTS: usize = 64;

/// Calls a tool by the server's own name for it, and tells how it went.
pub(crate) async fn call_tool(
    shared: &Arc<Shared>,
    tool: &str,
    arguments: Arguments,
    cx: &CallContext,
) -> Result<ToolOutput, CallError> {
    let cx = &cx.for_call();
    let clocks = shared.clocks(cx);
    let trace = Trace::of_tool(shared, tool, cx);
    let mut told =
        Told { shared, tool, arguments: &arguments, cx, trace: &trace, started: clocks.started, done: false };
    let driving = within_questions(shared, drive_tool(shared, tool, &arguments, cx, clocks, &trace));
    let outcome = if trace.span.is_disabled() {
        // Entering and leaving a disabled span at every poll would cost a twentieth of the call.
        driving.await
    } else {
        Box::pin(driving.instrument(trace.span.clone())).await
    };
    told.tell(Some(&outcome));
    outcome
}

/// Tells how a call went, also when its caller leaves before the end.
struct Told<'a> {
    shared: &'a Shared,
    tool: &'a str,
    arguments: &'a Arguments,
    cx: &'a CallContext,
    trace: &'a Trace,
    started: Instant,
    done: bool,
}

impl Told<'_> {
    fn tell(&mut self, outcome: Option<&Result<ToolOutput, CallError>>) {
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        match outcome {
            Some(Ok(output)) if output.is_error => self.trace.tool_failed(),
            Some(Ok(_)) => {}
            Some(Err(error)) => self.trace.has_failed(error),
            None => self.trace.has_failed(&self.dropped()),
        }
        let host = &self.shared.host;
        if !host.events().heard() && !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let took = self.started.elapsed();
        let (server, tool, call) = (self.shared.alias().clone(), host.hide(self.tool), self.cx.id().clone());
        let payloads = host.events().wants_payloads();
        let arguments = payloads.then(|| host.shown(self.arguments));
        let event = match outcome {
            Some(Ok(output)) => {
                let result = payloads.then(|| host.shown(output));
                Event::ToolCalled { server, tool, call, took, is_error: output.is_error, arguments, result }
            }
            Some(Err(error)) => Event::ToolFailed { server, tool, call, took, cause: chain(error), arguments },
            None => Event::ToolFailed { server, tool, call, took, cause: chain(&self.dropped()), arguments },
        };
        tracing::debug!(server = %self.shared.alias(), "{event}");
        host.events().tell(event);
    }

    /// The error of a call whose future was dropped.
    fn dropped(&self) -> CallError {
        if self.cx.is_stopped() {
            CallError::Stopped { server: self.shared.alias().clone() }
        } else {
            CallError::Cancelled
        }
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.tell(None);
    }
}

/// Ends a call whose server asks the user too many questions.
async fn within_questions<T>(
    shared: &Shared,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    if shared.host.elicits() { Box::pin(shared.host.questions.during(shared.alias(), call)).await } else { call.await }
}

/// Makes the call.
///
/// A future is moved, as large as it may ever get, into the one that awaits it. Rare steps are therefore boxed, here
/// and in everything that a call awaits: a call that is answered at once does not pay for them.
async fn drive_tool(
    shared: &Arc<Shared>,
    tool: &str,
    arguments: &Arguments,
    cx: &CallContext,
    clocks: Clocks,
    trace: &Trace,
) -> Result<ToolOutput, CallError> {
    let session = shared.session(cx, clocks).await?;
    trace.on(&session, &shared.host);
    let params = encode(shared, &ToolParams { name: tool, arguments })?;
    let mut call = Call::new(shared, cx, clocks, trace, "tools/call", Some(tool), params);
    let wants_headers = session.wants_headers();
    if wants_headers || session.info.can(&["tasks", "requests", "tools", "call"]) {
        Box::pin(call.learn(tool, arguments, &session, false)).await?;
    }
    match call.rounds(|output: &ToolOutput| &output.extra, session).await {
        // The schema that the headers were made by is old.
        Err(CallError::Refused { code: code::HEADER_MISMATCH, .. }) if wants_headers => {
            let session = shared.session(cx, clocks).await?;
            Box::pin(call.learn(tool, arguments, &session, true)).await?;
            Box::pin(call.rounds(|output: &ToolOutput| &output.extra, session)).await
        }
        outcome => outcome,
    }
}

#[derive(Serialize)]
struct ToolParams<'a> {
    name: &'a str,
    arguments: &'a Arguments,
}

fn encode(shared: &Shared, params: &impl Serialize) -> Result<Vec<u8>, CallError> {
    serde_json::to_vec(params).map_err(|error| tools::unreadable(shared, error))
}

/// The parameters with one more field: both are JSON text.
fn add_field(params: &mut Vec<u8>, key: &str, value: &Value) {
    params.pop();
    if params.len() > 1 {
        params.push(b',');
    }
    params.extend_from_slice(format!("\"{key}\":{value}}}").as_bytes());
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
    let clocks = shared.clocks(&cx);
    let trace = Trace::of_request(shared, method, name.as_deref(), &cx);
    let asking = async {
        let session = shared.session(&cx, clocks).await?;
        trace.on(&session, &shared.host);
        let mut call = Call::new(shared, &cx, clocks, &trace, method, name.as_deref(), encode(shared, &params)?);
        call.idempotent = is_idempotent(method);
        call.rounds(|result: &Map<String, Value>| result, session).await.map(Value::Object)
    };
    let outcome = within_questions(shared, asking).instrument(trace.span.clone()).await;
    if let Err(error) = &outcome {
        trace.has_failed(error);
    }
    outcome
}

/// Does the protocol let a request be sent twice? What is not known may do anything.
fn is_idempotent(method: &str) -> bool {
    matches!(
        method,
        "completion/complete"
            | "initialize"
            | "logging/setLevel"
            | "ping"
            | "prompts/get"
            | "prompts/list"
            | "resources/list"
            | "resources/read"
            | "resources/subscribe"
            | "resources/templates/list"
            | "resources/unsubscribe"
            | "server/discover"
            | "tasks/cancel"
            | "tasks/get"
            | "tasks/list"
            | "tasks/result"
            | "tools/list"
    )
}

/// Asks the server something that it can answer at once, and tells how long that took.
pub(crate) async fn ping(shared: &Arc<Shared>) -> Result<Duration, CallError> {
    let cx = CallContext::default();
    let session = shared.session(&cx, shared.clocks(&cx)).await?;
    let method = match session.era() {
        Era::Legacy => "ping",
        // The modern era has no ping of its own.
        Era::Modern => "server/discover",
    };
    let clocks = shared.clocks(&cx);
    let request = Request { idempotent: true, ..Request::new(method, b"{}") };
    match shared.request(&request, &cx, clocks, Some(session)).await {
        // Who refuses is there.
        Ok(_) | Err(CallError::Refused { .. }) => Ok(clocks.started.elapsed()),
        Err(error) => Err(error),
    }
}

/// A request that may take several rounds.
struct Call<'a> {
    shared: &'a Arc<Shared>,
    cx: &'a CallContext,
    clocks: Clocks,
    trace: &'a Trace,
    method: &'a str,
    name: Option<&'a str>,
    /// The parameters, as the text of a JSON object.
    params: Vec<u8>,
    headers: Vec<(String, String)>,
    idempotent: bool,
    as_task: bool,
}

impl<'a> Call<'a> {
    fn new(
        shared: &'a Arc<Shared>,
        cx: &'a CallContext,
        clocks: Clocks,
        trace: &'a Trace,
        method: &'a str,
        name: Option<&'a str>,
        params: Vec<u8>,
    ) -> Self {
        Self { shared, cx, clocks, trace, method, name, params, headers: Vec::new(), idempotent: false, as_task: false }
    }

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
        if session.era() == Era::Legacy && listed.must_be_task() && !self.as_task {
            let left = self.clocks.deadline.saturating_duration_since(Instant::now());
            add_field(&mut self.params, "task", &json!({"ttl": left.as_millis() as u64}));
            self.as_task = true;
        }
        Ok(())
    }

    async fn send<T: FromAnswer>(
        &self,
        params: &[u8],
        session: Option<Arc<Session>>,
    ) -> Result<(T, Arc<Session>), CallError> {
        let request = Request {
            name: self.name,
            headers: &self.headers,
            idempotent: self.idempotent,
            trace: Some(self.trace),
            ..Request::new(self.method, params)
        };
        let (answer, session) = self.shared.request(&request, self.cx, self.clocks, session).await?;
        // The fields are read in one pass, in the caller's own task: a large answer holds nobody else up.
        let result = answer.read(&self.shared.host).map_err(|error| tools::unreadable(self.shared, error))?;
        Ok((result, session))
    }

    /// Sends the request, answers what the server asks in between, and gives the final result.
    async fn rounds<T: FromAnswer>(
        &self,
        fields: fn(&T) -> &Map<String, Value>,
        session: Arc<Session>,
    ) -> Result<T, CallError> {
        let (mut result, mut session) = self.send::<T>(&self.params, Some(session)).await?;
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
                    let answers = Box::pin(self.answer_inputs(fields.get("inputRequests"))).await?;
                    if answers.is_empty() {
                        // Nothing was asked: the server only wants to be asked again.
                        Box::pin(self.sleep(Duration::from_millis(50 << rounds.min(5)))).await?;
                    }
                    add_field(&mut params, "inputResponses", &Value::Object(answers));
                    if let Some(state) = fields.get("requestState") {
                        add_field(&mut params, "requestState", state);
                    }
                    (result, session) = Box::pin(self.send(&params, None)).await?;
                }
                Some("task") if session.era() == Era::Modern => {
                    let task = Task::read(fields, "pollIntervalMs");
                    return Box::pin(self.finish(task, Era::Modern)).await;
                }
                None | Some("complete") => {
                    let task = fields.get("task").and_then(Value::as_object);
                    return match task {
                        Some(task) if self.as_task => {
                            Box::pin(self.finish(Task::read(task, "pollInterval"), Era::Legacy)).await
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
        CallError::Protocol { server: self.shared.alias().clone(), source: self.shared.host.hide(&what).into() }
    }

    /// Lets the host answer what the server asks for in the modern way.
    async fn answer_inputs(&self, requests: Option<&Value>) -> Result<Map<String, Value>, CallError> {
        let mut answers = Map::new();
        let requests = requests.and_then(Value::as_object);
        if let Some(count) = requests.map(Map::len).filter(|count| *count > MOST_INPUTS) {
            return Err(self.broken(format!("it asked for {count} inputs at once")));
        }
        for (key, request) in requests.into_iter().flatten() {
            let method = request["method"].as_str().unwrap_or_default();
            let params = request.get("params").cloned().unwrap_or_default();
            let answer = tokio::select! {
                answer = self.shared.host.answer(method, params) => answer,
                () = self.cx.cancelled() => return Err(CallError::Cancelled),
                () = tokio::time::sleep_until(self.clocks.deadline) => return Err(self.late()),
            };
            let answer = match answer {
                Ok(answer) => answer,
                Err(refusal) if refusal == self.shared.host.questions.refusal() => {
                    return Err(self.shared.host.questions.error(self.shared.alias()));
                }
                // There is no way to refuse but to leave.
                Err(_) if method == "elicitation/create" => json!({"action": "cancel"}),
                Err(refusal) => {
                    let server = self.shared.alias().clone();
                    let message = format!("`{method}` was not answered: {}", refusal.message);
                    let message = self.shared.host.hide(&message);
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
            clock: crate::tool::TimeoutKind::Total,
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
    async fn finish<T: FromAnswer>(&self, mut task: Task, era: Era) -> Result<T, CallError> {
        let mut guard = CancelTask { shared: self.shared, id: Some(task.id.clone()) };
        let mut answered = std::collections::BTreeSet::new();
        let (mut asked, mut rounds) = (0, 0);
        loop {
            let outcome = match task.status.as_str() {
                "completed" if era == Era::Modern => Some(Ok(task.result.take().unwrap_or_default())),
                // Failures, too, are told by the result (2025-11-25); a task that waits for input asks while we wait.
                "completed" | "failed" | "input_required" if era == Era::Legacy => {
                    let call = self.about("tasks/result", &task.id);
                    Some(Box::pin(call.send::<Value>(&call.params, None)).await.map(|(result, _)| result))
                }
                "failed" => Some(Err(task.failure(self.shared))),
                "cancelled" => Some(Err(self.broken("it cancelled the task by itself".to_owned()))),
                "input_required" => {
                    let asked: Map<String, Value> =
                        task.inputs.iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
                    let new: Map<String, Value> =
                        asked.into_iter().filter(|(key, _)| answered.insert(key.clone())).collect();
                    if !new.is_empty() {
                        rounds += 1;
                        if rounds > self.shared.config.limits.input_rounds {
                            return Err(self.broken(format!("its task asked for input {rounds} times")));
                        }
                        let answers = self.answer_inputs(Some(&Value::Object(new))).await?;
                        let mut call = self.about("tasks/update", &task.id);
                        add_field(&mut call.params, "inputResponses", &Value::Object(answers));
                        Box::pin(call.send::<Value>(&call.params, None)).await?;
                    }
                    None
                }
                _ => None,
            };
            if let Some(outcome) = outcome {
                if let Err(error @ (CallError::Timeout { .. } | CallError::Cancelled)) = outcome {
                    return Err(error);
                }
                guard.id = None;
                return T::from_value(outcome?).map_err(|error| tools::unreadable(self.shared, error));
            }
            self.sleep(task.wait(asked)).await?;
            asked += 1;
            let mut call = self.about("tasks/get", &task.id);
            call.idempotent = true;
            let (fields, _) = Box::pin(call.send::<Map<String, Value>>(&call.params, None)).await?;
            let key = if era == Era::Modern { "pollIntervalMs" } else { "pollInterval" };
            task = Task { id: task.id, ..Task::read(&fields, key) };
        }
    }

    /// A request about a task, on the clocks of this call.
    fn about<'b>(&'b self, method: &'b str, task: &'b str) -> Call<'b> {
        let params = json!({"taskId": task}).to_string().into_bytes();
        Call::new(self.shared, self.cx, self.clocks, self.trace, method, Some(task), params)
    }
}
