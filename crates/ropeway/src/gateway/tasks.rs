//! Tasks of servers. Their ids are sealed, so that they name the server and belong to one principal.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::errors::ErrorReply;
use super::exchange::{Dispatch, Exchange, Outcome};
use super::method::Method;
use super::relay::{self, ServerRequest};
use super::reply::ResultExtras;
use super::requester::Requester;
use super::seal::SealKind;
use super::server_params::{Forwarded, target, write_params};
use super::shared::GatewayShared;
use crate::json;
use crate::mcp::RawReply;
use crate::protocol::{ClientParams, Era, ScanError, is_key, scan_object};
use crate::tool::Alias;

/// How long the id of a task is valid.
const TASK_LIFETIME: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// Sends a request and seals the ids of tasks in its result.
pub(crate) async fn send(shared: &Arc<GatewayShared>, exchange: &Arc<Exchange>, request: ServerRequest) -> Outcome {
    let (server, extras) = (request.server.clone(), request.extras);
    match relay::send(shared, exchange, request).await {
        Ok(reply) if is_task(&reply) => {
            let sealed = replace_task_ids(&reply.result, |task| seal_task(shared, exchange, &server, task));
            finish(exchange, reply, sealed, extras)
        }
        Ok(reply) => relay::finish(exchange, reply, extras),
        Err(outcome) => outcome,
    }
}

/// Returns `true` if a result describes a task.
fn is_task(reply: &RawReply) -> bool {
    let kind = reply.result_type.clone().and_then(|range| reply.result.get(range));
    kind == Some(br#""task""#)
        || (reply.info.era == Era::Legacy && memchr::memmem::find(&reply.result, br#""taskId""#).is_some())
}

/// The content of a task id.
#[derive(Serialize, Deserialize)]
struct TaskRoute {
    server: Alias,
    task: String,
}

/// Seals the id of a task. Returns `None` if it is not a string.
fn seal_task(shared: &GatewayShared, exchange: &Exchange, server: &Alias, task: &[u8]) -> Option<String> {
    let task = json::from_slice(task).ok()?;
    let payload = serde_json::to_vec(&TaskRoute { server: server.clone(), task }).unwrap_or_default();
    Some(shared.keys.seal(SealKind::Task, exchange.client.principal.id(), TASK_LIFETIME, &payload))
}

/// Replaces the ids of tasks in a result, and copies everything else. An id for which `replace` returns `None` stays.
fn replace_task_ids(result: &[u8], replace: impl Fn(&[u8]) -> Option<String>) -> Result<Bytes, ScanError> {
    let mut ids = Vec::new();
    let mut tasks = Vec::new();
    scan_object(result, |key, member| {
        if is_key(key, "taskId") {
            ids.push(member.value);
        } else if is_key(key, "task") && result[member.value.clone()].starts_with(b"{") {
            tasks.push(member.value);
        }
    })?;
    for task in tasks {
        scan_object(&result[task.clone()], |key, member| {
            if is_key(key, "taskId") {
                ids.push(task.start + member.value.start..task.start + member.value.end);
            }
        })?;
    }
    ids.sort_by_key(|id| id.start);
    let mut replaced = Vec::with_capacity(result.len());
    let mut done = 0;
    for id in ids {
        let Some(own) = replace(&result[id.clone()]) else { continue };
        replaced.extend_from_slice(&result[done..id.start]);
        replaced.extend_from_slice(Value::from(own).to_string().as_bytes());
        done = id.end;
    }
    replaced.extend_from_slice(&result[done..]);
    Ok(replaced.into())
}

/// Returns how a request ends whose result has other task ids now. A result with the ids of the server is not forwarded.
fn finish(exchange: &Exchange, reply: RawReply, result: Result<Bytes, ScanError>, extras: ResultExtras) -> Outcome {
    match result {
        Ok(result) => relay::finish(exchange, RawReply { result, ..reply }, extras),
        Err(_) => Outcome::Error(ErrorReply::internal("the server sent an invalid task")),
    }
}

/// Handles `tasks/get`, `tasks/update`, `tasks/cancel` and `tasks/result`.
pub(crate) fn task(
    shared: &Arc<GatewayShared>,
    requester: &Requester<'_>,
    method: Method,
    params: &ClientParams<'_>,
) -> Result<Dispatch, ErrorReply> {
    let unknown = || ErrorReply::invalid_params("unknown task");
    if requester.client.era == Era::Modern && !requester.client.capabilities.tasks {
        return Err(ErrorReply::tasks_required());
    }
    let method = match method {
        Method::GetTask => "tasks/get",
        Method::UpdateTask => "tasks/update",
        Method::CancelTask => "tasks/cancel",
        Method::TaskResult => "tasks/result",
        // Tasks of several servers have no common list.
        _ => return Err(ErrorReply::method_not_found("tasks/list", requester.client.era)),
    };
    let id = target(params, "taskId")?;
    let payload = shared.keys.open(SealKind::Task, requester.client.principal.id(), id).map_err(|_| unknown())?;
    let TaskRoute { server, task } = serde_json::from_slice(&payload).map_err(|_| unknown())?;
    if !shared.router_of(&requester.client)?.has_server(&server) {
        return Err(unknown());
    }
    let Forwarded { members, meta } = requester.forwarded(params);
    let request = ServerRequest {
        params: write_params(shared, &server, ("taskId", &task), &[], &members)?,
        server,
        method,
        name: Some(task),
        arguments: None,
        meta,
        as_task: false,
        extras: ResultExtras::default(),
    };
    let started = requester.start(shared, params)?;
    let (shared_, id) = (shared.clone(), id.to_owned());
    Ok(started.run(shared, |exchange| async move {
        match relay::send(&shared_, &exchange, request).await {
            Ok(reply) => {
                // The client gets the task id that it has sent.
                let result = replace_task_ids(&reply.result, |_| Some(id.clone()));
                finish(&exchange, reply, result, ResultExtras::default())
            }
            Err(outcome) => outcome,
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_ids_of_tasks_are_replaced_in_a_result() {
        let replaced = |result: &str| {
            let replace = |id: &[u8]| json::from_slice::<String>(id).ok().map(|id| format!("own \"{id}\""));
            let replaced = replace_task_ids(result.as_bytes(), replace).expect("an object");
            String::from_utf8(replaced.to_vec()).expect("text")
        };
        for (result, expected) in [
            (r#"{"taskId":"a"}"#, r#"{"taskId":"own \"a\""}"#),
            (
                r#"{ "task": {"n":1.10, "taskId": "a" }, "x":"\ud800"}"#,
                r#"{ "task": {"n":1.10, "taskId": "own \"a\"" }, "x":"\ud800"}"#,
            ),
            (r#"{"t\u0061skId":"a","taskId":"b"}"#, r#"{"t\u0061skId":"own \"a\"","taskId":"own \"b\""}"#),
            (
                r#"{"task":"a","taskId":7,"content":[{"taskId":"b"}]}"#,
                r#"{"task":"a","taskId":7,"content":[{"taskId":"b"}]}"#,
            ),
        ] {
            assert_eq!(replaced(result), expected);
        }
        assert!(replace_task_ids(b"[]", |_| None).is_err());
    }
}
