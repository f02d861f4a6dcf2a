//! Tasks of servers. Their ids are sealed, so that they name the server and belong to one principal.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::errors::ErrorReply;
use super::exchange::{Dispatch, Exchange, Outcome};
use super::method::Method;
use super::relay::{self, ServerRequest};
use super::reply::ResultExtras;
use super::requester::Requester;
use super::seal::SealKind;
use super::server_params::{Forwarded, target, write_params};
use super::shared::GatewayShared;
use crate::mcp::RawReply;
use crate::protocol::{ClientParams, Era};
use crate::tool::Alias;

/// How long the id of a task is valid.
const TASK_LIFETIME: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// Sends a request and makes the ids of tasks in its result valid for the client.
pub(crate) async fn send(shared: &Arc<GatewayShared>, exchange: &Arc<Exchange>, request: ServerRequest) -> Outcome {
    let (server, extras) = (request.server.clone(), request.extras);
    match relay::send(shared, exchange, request).await {
        Ok(reply) if is_task(&reply) => match seal_tasks(shared, exchange, &server, &reply) {
            Some(result) => relay::finish(exchange, RawReply { result, ..reply }, extras),
            None => relay::finish(exchange, reply, extras),
        },
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

/// Replaces the ids of tasks in a result by sealed ones.
fn seal_tasks(shared: &GatewayShared, exchange: &Exchange, server: &Alias, reply: &RawReply) -> Option<Bytes> {
    let mut result: Map<String, Value> = serde_json::from_slice(&reply.result).ok()?;
    let seal = |fields: &mut Map<String, Value>| {
        if let Some(Value::String(task)) = fields.get_mut("taskId") {
            let route = TaskRoute { server: server.clone(), task: std::mem::take(task) };
            let payload = serde_json::to_vec(&route).unwrap_or_default();
            *task = shared.keys.seal(SealKind::Task, &exchange.client.principal, TASK_LIFETIME, &payload);
        }
    };
    seal(&mut result);
    if let Some(Value::Object(task)) = result.get_mut("task") {
        seal(task);
    }
    Some(Value::Object(result).to_string().into())
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
    let payload = shared.keys.open(SealKind::Task, &requester.client.principal, id).map_err(|_| unknown())?;
    let TaskRoute { server, task } = serde_json::from_slice(&payload).map_err(|_| unknown())?;
    if !shared.router(&requester.client.profile)?.has_server(&server) {
        return Err(unknown());
    }
    let Forwarded { members, meta } = Forwarded::of(params);
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
                let result = with_task_id(&reply.result, &id).unwrap_or_else(|| reply.result.clone());
                relay::finish(&exchange, RawReply { result, ..reply }, ResultExtras::default())
            }
            Err(outcome) => outcome,
        }
    }))
}

/// Replaces the id of a task in a result by the one that the client has used.
fn with_task_id(result: &[u8], id: &str) -> Option<Bytes> {
    let mut result: Map<String, Value> = serde_json::from_slice(result).ok()?;
    *result.get_mut("taskId")? = id.into();
    Some(Value::Object(result).to_string().into())
}
