//! Server tasks. Clients know them by sealed ids.

use std::sync::Arc;

use bytes::Bytes;

use crate::client::seal::SealKind;
use crate::method::Method;
use crate::request::errors::ErrorReply;
use crate::request::exchange::{Dispatch, Exchange, Outcome};
use crate::request::relay;
use crate::request::relay::UpstreamRequest;
use crate::request::reply::ResultExtras;
use crate::request::requester::Requester;
use crate::request::server_params::{Forwarded, target, write_params};
use crate::request::task_ids::{TaskRoute, replace_task_ids, seal_task};
use crate::shared::GatewayShared;
use ropeway_mcp::RawReply;
use ropeway_mcp::protocol::{ClientParams, Era, ScanError};

/// Sends a request and seals the task ids in its result.
pub(crate) async fn send(shared: &Arc<GatewayShared>, exchange: &Arc<Exchange>, request: UpstreamRequest) -> Outcome {
    let (server, extras) = (request.server.clone(), request.extras);
    match relay::send(shared, exchange, request).await {
        Ok(reply) if is_task(&reply) => {
            let principal = &exchange.client.principal;
            let sealed = replace_task_ids(&reply.result, |task| seal_task(&shared.keys, principal, &server, task));
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

/// Returns how a request ends whose result has other task ids now. A result with the server's ids is not forwarded.
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
        // There is no common task list for several servers.
        _ => return Err(ErrorReply::method_not_found("tasks/list", requester.client.era)),
    };
    let id = target(params, "taskId")?;
    let payload = shared.keys.open(SealKind::Task, requester.client.principal.id(), id).map_err(|_| unknown())?;
    let TaskRoute { server, task } = serde_json::from_slice(&payload).map_err(|_| unknown())?;
    if !shared.router_of(&requester.client)?.has_server(&server) {
        return Err(unknown());
    }
    let Forwarded { members, meta } = requester.forwarded(params);
    let request = UpstreamRequest {
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
    Ok(started.run(shared, move |exchange| async move {
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
