//! Requests that may take several round trips: a server's input requests, and tasks.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::connection::Connection;
use super::raw_response::{FromResponse, RawResponse};
use super::request::Request;
use super::session::Session;
use super::task::{CancelTaskOnDrop, RemoteTask};
use super::tools;
use crate::protocol::Era;
use ropeway_core::tool::{Arguments, CallError};

/// Maximum input requests in one round.
const MAX_INPUTS: usize = 64;

/// Adds a field to `params`, a JSON object's text.
fn add_field(params: &mut Vec<u8>, key: &str, value: &Value) {
    params.pop();
    if params.len() > 1 {
        params.push(b',');
    }
    params.extend_from_slice(format!("\"{key}\":{value}}}").as_bytes());
}

/// A request that may take several round trips.
pub(super) struct Call<'a> {
    connection: &'a Arc<Connection>,
    /// The request without its parameters and headers.
    request: Request<'a>,
    /// The parameters: a JSON object's text.
    params: Vec<u8>,
    headers: Vec<(String, String)>,
    as_task: bool,
}

impl<'a> Call<'a> {
    pub(super) fn new(connection: &'a Arc<Connection>, request: Request<'a>, params: Vec<u8>) -> Self {
        Self { connection, request, params, headers: Vec::new(), as_task: false }
    }

    /// Looks up the tool's definition and adds the headers and the `task` field that it requires.
    pub(super) async fn apply_definition(
        &mut self,
        tool: &str,
        arguments: &Arguments,
        session: &Session,
        refetch: bool,
    ) -> Result<(), CallError> {
        let known = self.connection.tools().filter(|list| !refetch && list.get(tool).is_some());
        let list = match known {
            Some(list) => list,
            None => match tools::fetch(self.connection, self.request.cx).await {
                Ok(list) => list,
                // The server may run the tool without headers and without a task; if not, it rejects the call.
                Err(CallError::Refused { .. }) if !refetch => return Ok(()),
                Err(error) => return Err(error),
            },
        };
        let Some(listed) = list.get(tool) else { return Ok(()) };
        if session.wants_headers() {
            self.headers = listed.headers.headers(arguments);
        }
        if session.era() == Era::Legacy && listed.requires_task() && !self.as_task {
            let left = self.request.timeouts.deadline.saturating_duration_since(Instant::now());
            add_field(&mut self.params, "task", &json!({"ttl": left.as_millis() as u64}));
            self.as_task = true;
        }
        Ok(())
    }

    fn request<'b>(&'b self, params: &'b [u8]) -> Request<'b> {
        Request { params, headers: &self.headers, ..self.request }
    }

    /// Decodes a response. This happens in the caller's task, so that a large response does not delay other calls.
    fn read<T: FromResponse>(&self, response: RawResponse) -> Result<T, CallError> {
        response.read(&self.connection.host).map_err(|error| self.connection.decode_error(error))
    }

    /// Sends the request once.
    async fn send<T: FromResponse>(&self) -> Result<T, CallError> {
        let request = self.request(&self.params);
        let (response, _) = self.connection.request(&request, None).await?;
        self.read(response)
    }

    /// Sends the request, answers the server's input requests, and returns the final result.
    pub(super) async fn run<T: FromResponse>(
        &self,
        fields: fn(&T) -> &Map<String, Value>,
        session: Arc<Session>,
    ) -> Result<T, CallError> {
        let mut params = Cow::Borrowed(&self.params);
        let mut session = Some(session);
        let mut rounds = 0;
        loop {
            let request = self.request(&params);
            let (response, used) = self.connection.request(&request, session.take()).await?;
            let (result, era): (T, _) = (self.read(response)?, used.era());
            let fields = fields(&result);
            match fields.get("resultType").and_then(Value::as_str) {
                Some("input_required") if era == Era::Modern => {
                    rounds += 1;
                    if rounds > self.connection.config.limits.input_rounds {
                        return Err(self.protocol_error(format!("the server asked for input {rounds} times")));
                    }
                    let answers = Box::pin(self.answer_inputs(fields.get("inputRequests"))).await?;
                    if answers.is_empty() {
                        // Without input requests, the server only requests a retry.
                        Box::pin(self.sleep(Duration::from_millis(50 << rounds.min(5)))).await?;
                    }
                    let mut next = self.params.clone();
                    add_field(&mut next, "inputResponses", &Value::Object(answers));
                    if let Some(state) = fields.get("requestState") {
                        add_field(&mut next, "requestState", state);
                    }
                    params = Cow::Owned(next);
                }
                Some("task") if era == Era::Modern => {
                    let task = RemoteTask::read(fields, "pollIntervalMs");
                    return Box::pin(self.poll_task(task, Era::Modern)).await;
                }
                None | Some("complete") => {
                    let task = fields.get("task").and_then(Value::as_object);
                    return match task {
                        Some(task) if self.as_task => {
                            Box::pin(self.poll_task(RemoteTask::read(task, "pollInterval"), Era::Legacy)).await
                        }
                        _ => Ok(result),
                    };
                }
                // The legacy era has no result types. There it is an ordinary field.
                Some(_) if era == Era::Legacy => return Ok(result),
                Some(kind) => return Err(self.protocol_error(format!("unknown result type `{kind}`"))),
            }
        }
    }

    fn protocol_error(&self, message: String) -> CallError {
        CallError::Protocol {
            server: self.connection.alias().clone(),
            source: self.connection.host.redact(&message).into(),
        }
    }

    /// Passes a modern server's input requests to the handlers.
    async fn answer_inputs(&self, requests: Option<&Value>) -> Result<Map<String, Value>, CallError> {
        let mut answers = Map::new();
        let requests = requests.and_then(Value::as_object);
        if let Some(count) = requests.map(Map::len).filter(|count| *count > MAX_INPUTS) {
            return Err(self.protocol_error(format!("the server asked for {count} inputs at once")));
        }
        for (key, request) in requests.into_iter().flatten() {
            let method = request["method"].as_str().unwrap_or_default();
            let params = request.get("params").cloned().unwrap_or_default();
            let answer = tokio::select! {
                answer = self.connection.host.answer_request(method, params) => answer,
                () = self.request.cx.cancelled() => return Err(CallError::Cancelled),
                () = tokio::time::sleep_until(self.request.timeouts.deadline) => return Err(self.timed_out()),
            };
            let answer = match answer {
                Ok(answer) => answer,
                Err(error) if error == self.connection.host.elicitations.handler_error() => {
                    return Err(self.connection.host.elicitations.call_error(self.connection.alias()));
                }
                // An elicitation has no error response, only `cancel`.
                Err(_) if method == "elicitation/create" => json!({"action": "cancel"}),
                Err(error) => {
                    let server = self.connection.alias().clone();
                    let message = format!("`{method}` was not answered: {}", error.message);
                    let message = self.connection.host.redact(&message);
                    return Err(CallError::Refused { server, code: error.code, message, data: None });
                }
            };
            answers.insert(key.clone(), answer);
        }
        Ok(answers)
    }

    fn timed_out(&self) -> CallError {
        CallError::Timeout {
            server: self.connection.alias().clone(),
            after: self.request.timeouts.started.elapsed(),
            idle: false,
            hint: None,
        }
    }

    async fn sleep(&self, pause: Duration) -> Result<(), CallError> {
        tokio::select! {
            () = tokio::time::sleep(pause) => Ok(()),
            () = self.request.cx.cancelled() => Err(CallError::Cancelled),
            () = tokio::time::sleep_until(self.request.timeouts.deadline) => Err(self.timed_out()),
        }
    }

    /// Polls a task until it ends and returns its result. Cancels the task if the caller gives up.
    ///
    /// See [2025-11-25](https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks).
    async fn poll_task<T: FromResponse>(&self, mut task: RemoteTask, era: Era) -> Result<T, CallError> {
        let mut guard = CancelTaskOnDrop { connection: self.connection, id: Some(task.id.clone()) };
        let mut answered = std::collections::BTreeSet::new();
        let (mut polls, mut rounds) = (0, 0);
        loop {
            let outcome = match task.status.as_str() {
                "completed" if era == Era::Modern => Some(Ok(task.result.take().unwrap_or_default())),
                // `tasks/result` also reports failures, and blocks while the server sends its input requests.
                "completed" | "failed" | "input_required" if era == Era::Legacy => {
                    let call = self.task_request("tasks/result", &task.id);
                    Some(Box::pin(call.send::<Value>()).await)
                }
                "failed" => Some(Err(task.failure(self.connection))),
                "cancelled" => Some(Err(self.protocol_error("the server cancelled the task".to_owned()))),
                "input_required" => {
                    let inputs = task.inputs.take().into_iter().flatten();
                    let new: Map<String, Value> = inputs.filter(|(key, _)| answered.insert(key.clone())).collect();
                    if !new.is_empty() {
                        rounds += 1;
                        if rounds > self.connection.config.limits.input_rounds {
                            return Err(self.protocol_error(format!("the task asked for input {rounds} times")));
                        }
                        let answers = self.answer_inputs(Some(&Value::Object(new))).await?;
                        let mut call = self.task_request("tasks/update", &task.id);
                        add_field(&mut call.params, "inputResponses", &Value::Object(answers));
                        Box::pin(call.send::<Value>()).await?;
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
                return T::from_value(outcome?).map_err(|error| self.connection.decode_error(error));
            }
            self.sleep(task.poll_delay(polls)).await?;
            polls += 1;
            let mut call = self.task_request("tasks/get", &task.id);
            call.request.idempotent = true;
            let fields = Box::pin(call.send::<Map<String, Value>>()).await?;
            let key = if era == Era::Modern { "pollIntervalMs" } else { "pollInterval" };
            task = RemoteTask { id: task.id, ..RemoteTask::read(&fields, key) };
        }
    }

    /// Creates a request about a task, with this call's timeouts.
    fn task_request<'b>(&'b self, method: &'b str, task: &'b str) -> Call<'b> {
        let params = json!({"taskId": task}).to_string().into_bytes();
        let request = Request { method, name: Some(task), idempotent: false, ..self.request };
        Call::new(self.connection, request, params)
    }
}
