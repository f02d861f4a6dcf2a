//! Requests that go to one server: tool calls, prompts, resources, completions and tasks.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::errors::ErrorReply;
use super::exchange::{Dispatch, Exchange, Outcome, RequestIdentity};
use super::methods::{Method, Requester, until_cancelled};
use super::parked::Retry;
use super::relay::{self, ServerRequest};
use super::reply::ResultExtras;
use super::router::{CallRoute, Router};
use super::seal::SealKind;
use super::search;
use super::shared::GatewayShared;
use super::uris::UriRoute;
use crate::mcp::RawReply;
use crate::protocol::{ClientParams, Era};
use crate::tool::{Alias, ArgumentMapping, Arguments, CallContext};

/// How long the id of a task is valid.
const TASK_LIFETIME: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// Members of the parameters that only concern the client and the gateway.
const INPUT_MEMBERS: [&str; 2] = ["inputResponses", "requestState"];

/// Handles `tools/call`.
pub(crate) fn call_tool(
    shared: &Arc<GatewayShared>,
    requester: &Requester<'_>,
    params: &ClientParams<'_>,
) -> Result<Dispatch, ErrorReply> {
    let name = target(params, "name")?;
    let router = shared.router(&requester.client.profile)?;
    let arguments = params.arguments.map(|arguments| requester.slice(arguments)).unwrap_or_default();
    if let Some(retried) = retry(shared, requester, params, "tools/call", name, &arguments)? {
        return Ok(retried);
    }
    if router.is_search() && name == search::FIND_TOOLS {
        let started = requester.start(shared, params)?;
        let info = shared.info_text();
        return Ok(started.run(shared, |_| async move {
            match search::find_tools(&router, &arguments) {
                Ok(result) => Outcome::composed(result, ResultExtras::default(), &info),
                Err(error) => Outcome::Error(error),
            }
        }));
    }
    let identity = RequestIdentity { method: "tools/call", target: name.into(), arguments: arguments.clone() };
    let (tool, arguments) = match router.is_search() && name == search::CALL_TOOL {
        true => search::inner_call(&arguments)?,
        false => (name.to_owned(), arguments),
    };
    let found = find_route(shared, &requester.client.profile, &router, &tool);
    let route = match found {
        Ok(route) => {
            check_header_params(requester, &route, &arguments)?;
            Some(route)
        }
        // The server of the tool may still be connecting.
        Err(_) if router.is_pending(&shared.bridge) => None,
        Err(error) => return Err(error),
    };
    let forwarded = Forwarded::of(params);
    let started = requester.start(shared, params)?;
    let _ = started.exchange.request.set(identity);
    let shared_ = shared.clone();
    Ok(started.run(shared, |exchange| async move {
        let route = match route {
            Some(route) => Ok(route),
            None => wait_for_route(&shared_, &exchange.client.profile, &tool).await,
        };
        let called = route.and_then(|route| {
            let request = tool_request(&shared_, &exchange, forwarded, &route, arguments.clone())?;
            Ok((route, request))
        });
        match called {
            Ok((route, _)) if route.mapping == ArgumentMapping::Opaque => {
                call_opaque(&route, &arguments, exchange.client.era).await
            }
            Ok((_, request)) => send(&shared_, &exchange, request).await,
            Err(error) => Outcome::Error(error),
        }
    }))
}

/// Finds the route of a tool. A tool that a server has listed just now is found, too.
fn find_route(
    shared: &GatewayShared,
    profile: &str,
    router: &Router,
    name: &str,
) -> Result<Arc<CallRoute>, ErrorReply> {
    if let Some(route) = router.tool(name) {
        return Ok(route.clone());
    }
    let current = shared.current_router(profile)?;
    let route = current.tool(name).cloned();
    route.ok_or_else(|| ErrorReply::unknown_tool(name, current.nearest_tool(name).as_deref()))
}

/// Waits for servers that are still connecting, and finds the route of a tool.
async fn wait_for_route(shared: &GatewayShared, profile: &str, name: &str) -> Result<Arc<CallRoute>, ErrorReply> {
    shared.wait_for_first_attempts(profile).await;
    find_route(shared, profile, &*shared.router(profile)?, name)
}

/// Checks the headers that mirror arguments.
fn check_header_params(requester: &Requester<'_>, route: &CallRoute, arguments: &[u8]) -> Result<(), ErrorReply> {
    let Some(headers) = requester.headers.filter(|_| requester.client.era == Era::Modern) else { return Ok(()) };
    if route.headers.is_empty() {
        return Ok(());
    }
    let checked = route.headers.check(&parse_arguments(arguments)?, |name| (headers.get)(name));
    checked.map_err(|mismatch| ErrorReply::header_mismatch(&mismatch))
}

fn parse_arguments(text: &[u8]) -> Result<Arguments, ErrorReply> {
    if text.is_empty() {
        return Ok(Arguments::new());
    }
    crate::json::from_slice(text)
        .map_err(|error| ErrorReply::invalid_params(format!("`arguments` is invalid: {error}")))
}

/// Makes the request for the server of a tool.
fn tool_request(
    shared: &GatewayShared,
    exchange: &Exchange,
    forwarded: Forwarded,
    route: &CallRoute,
    mut arguments: Bytes,
) -> Result<ServerRequest, ErrorReply> {
    if route.mapping == ArgumentMapping::Mapped {
        let mut mapped = parse_arguments(&arguments)?;
        route.tool.map_arguments(&mut mapped);
        arguments = Value::Object(mapped).to_string().into();
    }
    let is_client_task = forwarded.members.iter().any(|(key, _)| key == "task");
    Ok(ServerRequest {
        params: write_params(shared, &route.server, ("name", &route.own_name), &arguments, &forwarded.members)?,
        server: route.server.clone(),
        method: "tools/call",
        name: Some(route.own_name.to_string()),
        arguments: route.has_header_params.then_some(arguments),
        meta: forwarded.meta,
        as_task: route.needs_task && !is_client_task && !exchange.client.capabilities.tasks,
        extras: ResultExtras::default(),
    })
}

/// Calls a tool that the bridge has made itself.
async fn call_opaque(route: &CallRoute, arguments: &[u8], client: Era) -> Outcome {
    let arguments = match parse_arguments(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return Outcome::Error(error),
    };
    match route.tool.call(arguments, &CallContext::default()).await {
        Ok(output) => {
            let result = serde_json::to_vec(&output).unwrap_or_else(|_| b"{}".to_vec());
            Outcome::Result { result: result.into(), from: Era::Legacy, extras: ResultExtras::default(), server: None }
        }
        Err(error) => Outcome::Error(ErrorReply::from_call(&error, client)),
    }
}

/// Sends a request and makes the ids of tasks in its result valid for the client.
async fn send(shared: &Arc<GatewayShared>, exchange: &Arc<Exchange>, request: ServerRequest) -> Outcome {
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

/// Handles `prompts/get`.
pub(crate) fn get_prompt(
    shared: &Arc<GatewayShared>,
    requester: &Requester<'_>,
    params: &ClientParams<'_>,
) -> Result<Dispatch, ErrorReply> {
    let name = target(params, "name")?.to_owned();
    let router = shared.router(&requester.client.profile)?;
    let arguments = params.arguments.map(|arguments| requester.slice(arguments)).unwrap_or_default();
    if let Some(retried) = retry(shared, requester, params, "prompts/get", &name, &arguments)? {
        return Ok(retried);
    }
    let started = requester.start(shared, params)?;
    let identity =
        RequestIdentity { method: "prompts/get", target: name.as_str().into(), arguments: arguments.clone() };
    let _ = started.exchange.request.set(identity);
    let Forwarded { members, meta } = Forwarded::of(params);
    let shared_ = shared.clone();
    Ok(started.run(shared, |exchange| async move {
        let found = shared_.catalog.prompt(&shared_.bridge, &router, &name).await;
        let Some((server, own_name)) = found else {
            return Outcome::Error(ErrorReply::unknown_prompt(&name, None));
        };
        let params = match write_params(&shared_, &server, ("name", &own_name), &arguments, &members) {
            Ok(params) => params,
            Err(error) => return Outcome::Error(error),
        };
        let request = ServerRequest {
            params,
            server,
            method: "prompts/get",
            name: Some(own_name),
            arguments: None,
            meta,
            as_task: false,
            extras: ResultExtras::default(),
        };
        send(&shared_, &exchange, request).await
    }))
}

/// Handles `resources/read`.
pub(crate) fn read_resource(
    shared: &Arc<GatewayShared>,
    requester: &Requester<'_>,
    params: &ClientParams<'_>,
) -> Result<Dispatch, ErrorReply> {
    let uri = target(params, "uri")?.to_owned();
    let router = shared.router(&requester.client.profile)?;
    if let Some(retried) = retry(shared, requester, params, "resources/read", &uri, &Bytes::new())? {
        return Ok(retried);
    }
    let started = requester.start(shared, params)?;
    let identity = RequestIdentity { method: "resources/read", target: uri.as_str().into(), arguments: Bytes::new() };
    let _ = started.exchange.request.set(identity);
    let Forwarded { members, meta } = Forwarded::of(params);
    let shared_ = shared.clone();
    Ok(started.run(shared, |exchange| async move {
        let routes = match shared_.catalog.route_uri(&shared_.bridge, &router, &uri).await {
            UriRoute::One(server, own_uri) => vec![(server, own_uri)],
            UriRoute::Try(servers) => servers.into_iter().map(|server| (server, uri.clone())).collect(),
        };
        let mut outcome = Outcome::Error(ErrorReply::resource_not_found(&uri, exchange.client.era));
        for (server, own_uri) in routes {
            let params = match write_params(&shared_, &server, ("uri", &own_uri), &[], &members) {
                Ok(params) => params,
                Err(error) => return Outcome::Error(error),
            };
            let request = ServerRequest {
                params,
                server,
                method: "resources/read",
                name: Some(own_uri),
                arguments: None,
                meta: meta.clone(),
                as_task: false,
                extras: ResultExtras::cacheable(0),
            };
            outcome = send(&shared_, &exchange, request).await;
            if !is_not_found(&outcome) {
                break;
            }
        }
        outcome
    }))
}

/// Returns `true` if a server does not know a resource, so that another one may.
fn is_not_found(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Error(ErrorReply { code: -32002 | -32602 | -32601, .. }))
}

/// Handles `completion/complete`.
pub(crate) fn complete(
    shared: &Arc<GatewayShared>,
    requester: &Requester<'_>,
    params: &ClientParams<'_>,
) -> Result<Dispatch, ErrorReply> {
    let missing = || ErrorReply::invalid_params("`ref` is missing");
    let reference = params.get("ref").ok_or_else(missing)?;
    let mut reference: Value = serde_json::from_str(reference.get()).map_err(|_| missing())?;
    let router = shared.router(&requester.client.profile)?;
    let started = requester.start(shared, params)?;
    let Forwarded { mut members, meta } = Forwarded::of(params);
    members.retain(|(key, _)| key != "ref");
    let shared_ = shared.clone();
    Ok(started.run(shared, |exchange| async move {
        let (server, key, own) = match reference["type"].as_str() {
            Some("ref/prompt") => {
                let name = reference["name"].as_str().unwrap_or_default().to_owned();
                match shared_.catalog.prompt(&shared_.bridge, &router, &name).await {
                    Some((server, own)) => (server, "name", own),
                    None => return Outcome::Error(ErrorReply::unknown_prompt(&name, None)),
                }
            }
            Some("ref/resource") => {
                let uri = reference["uri"].as_str().unwrap_or_default().to_owned();
                match shared_.catalog.route_template(&shared_.bridge, &router, &uri).await {
                    Some((server, own)) => (server, "uri", own),
                    None => return Outcome::Error(ErrorReply::resource_not_found(&uri, exchange.client.era)),
                }
            }
            _ => return Outcome::Error(ErrorReply::invalid_params("`ref.type` must be ref/prompt or ref/resource")),
        };
        reference[key] = own.into();
        let mut params = format!(r#"{{"ref":{reference}"#);
        push_members(&mut params, &members);
        params.push('}');
        let request = ServerRequest {
            server,
            method: "completion/complete",
            name: None,
            params: params.into(),
            arguments: None,
            meta,
            as_task: false,
            extras: ResultExtras::default(),
        };
        send(&shared_, &exchange, request).await
    }))
}

/// Continues a call that waits for input, if the request is the retry of one.
fn retry(
    shared: &Arc<GatewayShared>,
    requester: &Requester<'_>,
    params: &ClientParams<'_>,
    method: &'static str,
    target: &str,
    arguments: &Bytes,
) -> Result<Option<Dispatch>, ErrorReply> {
    if requester.client.era != Era::Modern {
        return Ok(None);
    }
    let Some(state) = params.get("requestState").and_then(|state| serde_json::from_str::<String>(state.get()).ok())
    else {
        return Ok(None);
    };
    if !shared.parked.is_own(&requester.client, &state) {
        // The state may be that of a modern server, which checks it.
        return Ok(None);
    }
    let answers = params.get("inputResponses").map(|answers| serde_json::from_str::<Map<String, Value>>(answers.get()));
    let answers = match answers {
        None => Map::new(),
        Some(Ok(answers)) => answers,
        Some(Err(_)) => return Err(ErrorReply::invalid_params("`inputResponses` is not an object")),
    };
    let request = RequestIdentity { method, target: target.into(), arguments: arguments.clone() };
    let id = (requester.id, params.meta.progress_token);
    let running = requester.register()?;
    Ok(Some(match shared.parked.retry(&requester.client, &state, &request, id, &answers)? {
        Retry::Continued { exchange, work } => {
            Dispatch::Running { exchange, work: Box::pin(until_cancelled(running, work)) }
        }
        Retry::Incomplete(reply) => Dispatch::Done { status: 200, reply },
    }))
}

fn target<'a>(params: &'a ClientParams<'_>, key: &str) -> Result<&'a str, ErrorReply> {
    let target = params.target.as_ref().map(|(_, target)| &**target);
    target.ok_or_else(|| ErrorReply::invalid_params(format!("`{key}` is missing")))
}

/// The parts of a request that are forwarded as they are.
struct Forwarded {
    /// Members of the parameters, with their JSON text.
    members: Vec<(String, String)>,
    /// Entries of `_meta`: the text of a JSON object without its braces.
    meta: String,
}

impl Forwarded {
    fn of(params: &ClientParams<'_>) -> Self {
        let member = |(key, value): &(Cow<'_, str>, &RawValue)| (key.to_string(), value.get().to_owned());
        let mut meta = String::new();
        for (key, value) in &params.meta.others {
            if !meta.is_empty() {
                meta.push(',');
            }
            meta.push_str(&format!("{}:{}", Value::from(&**key), value.get()));
        }
        Self { members: params.rest.iter().map(member).collect(), meta }
    }
}

fn push_members(text: &mut String, members: &[(String, String)]) {
    for (key, value) in members {
        text.push_str(&format!(",{}:{value}", Value::from(key.as_str())));
    }
}

/// Writes the parameters for a server: the target under its own name, the arguments, and all other members.
fn write_params(
    shared: &GatewayShared,
    server: &Alias,
    (key, own_name): (&str, &str),
    arguments: &[u8],
    rest: &[(String, String)],
) -> Result<Bytes, ErrorReply> {
    let is_legacy = !rest.is_empty() && shared.upstreams.era(server) == Some(Era::Legacy);
    if is_legacy && rest.iter().any(|(key, _)| key == "requestState") {
        // Legacy servers have no states, and the gateway does not know this one. The call must not be executed again.
        return Err(ErrorReply::invalid_state());
    }
    let mut text = Vec::with_capacity(arguments.len() + own_name.len() + 64);
    text.extend_from_slice(b"{\"");
    text.extend_from_slice(key.as_bytes());
    text.extend_from_slice(b"\":");
    // Writing to a vector cannot fail.
    let _ = serde_json::to_writer(&mut text, own_name);
    if !arguments.is_empty() {
        text.extend_from_slice(b",\"arguments\":");
        text.extend_from_slice(arguments);
    }
    // A legacy server does not know the members of input rounds.
    for (key, value) in rest.iter().filter(|(key, _)| !(is_legacy && INPUT_MEMBERS.contains(&key.as_str()))) {
        text.push(b',');
        let _ = serde_json::to_writer(&mut text, key);
        text.push(b':');
        text.extend_from_slice(value.as_bytes());
    }
    text.push(b'}');
    Ok(text.into())
}
