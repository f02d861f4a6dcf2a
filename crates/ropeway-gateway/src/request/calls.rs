//! Requests that go to one server: tool calls, prompts, resources and completions.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::catalog::router::{CallRoute, Router};
use crate::catalog::uris::UriRoute;
use crate::client::Client;
use crate::request::errors::ErrorReply;
use crate::request::exchange::{Dispatch, Exchange, Outcome};
use crate::request::relay::UpstreamRequest;
use crate::request::reply::ResultExtras;
use crate::request::request_identity::RequestIdentity;
use crate::request::requester::Requester;
use crate::request::retry::retry;
use crate::request::search;
use crate::request::server_params::{Forwarded, push_members, target, write_params};
use crate::request::sign_in_offer::{sign_in_advice, sign_in_required};
use crate::request::startup::add_starting;
use crate::request::tasks::send;
use crate::shared::GatewayShared;
use ropeway_core::tool::{Alias, ArgumentMapping, Arguments, CallContext, CallError};
use ropeway_mcp::protocol::{ClientParams, Era};

/// The rule in the audit log for a tool that a key does not allow. For the client, the tool does not exist.
const TOOL_RULE: &str = "tools";

/// Handles `tools/call`.
pub(crate) fn call_tool(
    shared: &Arc<GatewayShared>,
    requester: &Requester<'_>,
    params: &ClientParams<'_>,
) -> Result<Dispatch, ErrorReply> {
    let name = target(params, "name")?;
    let router = shared.router_of(&requester.client)?;
    let arguments = params.arguments.map(|arguments| requester.slice(arguments)).unwrap_or_default();
    if let Some(retried) = retry(shared, requester, params, "tools/call", name, &arguments)? {
        return Ok(retried);
    }
    if router.is_search() && name == search::FIND_TOOLS {
        return find_tools(shared, requester, params, arguments);
    }
    let identity = RequestIdentity { method: "tools/call", target: name.into(), arguments: arguments.clone() };
    let is_inner = router.is_search() && name == search::CALL_TOOL;
    let (tool, arguments) = if is_inner { search::inner_call(&arguments)? } else { (name.to_owned(), arguments) };
    let found = find_route(shared, &requester.client, &router, &tool);
    let route = match found {
        Ok(route) => {
            // The client knows the schema for `call_tool`, not for the tool that it calls.
            if !is_inner {
                check_header_params(requester, &route, &arguments)?;
            }
            Some(route)
        }
        // The tool's server may still be starting.
        Err(_) if is_inner || !router.owners(&tool, &shared.starting(&router)).is_empty() => None,
        Err(error) => {
            if shared.is_forbidden_tool(&requester.client, &tool) {
                requester.record.note(|record| record.note_denied(TOOL_RULE));
            }
            return Err(error);
        }
    };
    let forwarded = requester.forwarded(params);
    let started = requester.start(shared, params)?;
    let _ = started.exchange.request.set(identity);
    let shared_ = shared.clone();
    Ok(started.run(shared, move |exchange| async move {
        let route = match route {
            Some(route) => Ok(route),
            None => wait_for_route(&shared_, &exchange.client, &tool).await,
        };
        match route {
            Ok(route) => call_route(&shared_, &exchange, &route, forwarded, arguments).await,
            Err(error) => {
                if shared_.is_forbidden_tool(&exchange.client, &tool) {
                    exchange.note(|record| record.note_denied(TOOL_RULE));
                }
                if is_inner { unknown_inner(&shared_, &exchange, &error) } else { error.into() }
            }
        }
    }))
}

async fn call_route(
    shared: &Arc<GatewayShared>,
    exchange: &Arc<Exchange>,
    route: &CallRoute,
    forwarded: Forwarded,
    arguments: Bytes,
) -> Outcome {
    let request = match tool_request(shared, exchange, forwarded, route, arguments.clone()) {
        Ok(request) => request,
        Err(error) => return error.into(),
    };
    exchange.note(|record| record.note_digest(route.digest()));
    if route.mapping != ArgumentMapping::Opaque {
        return send(shared, exchange, request).await;
    }
    match shared.upstreams.account(&route.server, &exchange.client.principal) {
        // The call would use the shared account's tokens.
        Some(_) => Outcome::Error(ErrorReply::not_per_principal(&route.server)),
        None => call_opaque(shared, route, &arguments, exchange).await,
    }
}

/// Handles a `find_tools` call. Waits for servers that are still starting, as a list does.
fn find_tools(
    shared: &Arc<GatewayShared>,
    requester: &Requester<'_>,
    params: &ClientParams<'_>,
    arguments: Bytes,
) -> Result<Dispatch, ErrorReply> {
    let started = requester.start(shared, params)?;
    let shared_ = shared.clone();
    Ok(started.run(shared, move |exchange| async move {
        shared_.wait_for_list(&exchange.client).await;
        let router = shared_.current_router_of(&exchange.client);
        match router.and_then(|router| search::find_tools(&router, &arguments)) {
            Ok(result) => Outcome::composed(result, ResultExtras::default(), &shared_.info_text()),
            Err(error) => Outcome::Error(error),
        }
    }))
}

/// Answers a call to a tool that `call_tool` does not find: a model sees a result's text, but not a protocol error.
fn unknown_inner(shared: &GatewayShared, exchange: &Exchange, error: &ErrorReply) -> Outcome {
    exchange.note(|record| record.note_tool_error());
    let text = format!("{}. Use `{}` to find tools.", error.message, search::FIND_TOOLS);
    let result = json!({"content": [{"type": "text", "text": text}], "isError": true}).to_string();
    Outcome::composed(result, ResultExtras::default(), &shared.info_text())
}

/// Finds a tool's route. Also finds a tool that a server has just listed.
fn find_route(
    shared: &GatewayShared,
    client: &Client,
    router: &Router,
    name: &str,
) -> Result<Arc<CallRoute>, ErrorReply> {
    if let Some(route) = router.tool(name) {
        return Ok(route.clone());
    }
    let current = shared.current_router_of(client)?;
    let route = current.tool(name).cloned();
    route.ok_or_else(|| {
        let mut error = ErrorReply::unknown_tool(name, &current.nearest_tools(name));
        shared.name_starting(&current, name, &mut error);
        // The tool may belong to a server that lists none before a sign-in.
        if let Some(server) = current.missing_tools().into_iter().find(|server| server.state == "needs_auth") {
            let advice = sign_in_advice(shared, &client.principal, &server.alias);
            error.message.push_str(&format!("; server `{}` needs a sign-in: {advice}", server.alias));
        }
        error
    })
}

/// Waits for servers that are still starting, and finds a tool's route.
async fn wait_for_route(shared: &GatewayShared, client: &Client, name: &str) -> Result<Arc<CallRoute>, ErrorReply> {
    shared.wait_for_name(client, name, |router| router.tool(name).is_some()).await;
    find_route(shared, client, &*shared.router_of(client)?, name)
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
    ropeway_core::json::from_slice(text)
        .map_err(|error| ErrorReply::invalid_params(format!("`arguments` is invalid: {error}")))
}

/// Creates the request for a tool's server.
fn tool_request(
    shared: &GatewayShared,
    exchange: &Exchange,
    forwarded: Forwarded,
    route: &CallRoute,
    mut arguments: Bytes,
) -> Result<UpstreamRequest, ErrorReply> {
    if route.mapping == ArgumentMapping::Mapped {
        let mut mapped = parse_arguments(&arguments)?;
        route.tool.map_arguments(&mut mapped);
        arguments = Value::Object(mapped).to_string().into();
    }
    let is_client_task = forwarded.members.iter().any(|(key, _)| key == "task");
    Ok(UpstreamRequest {
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

/// Calls a tool that the bridge generates.
async fn call_opaque(shared: &GatewayShared, route: &CallRoute, arguments: &[u8], exchange: &Exchange) -> Outcome {
    exchange.note(|record| record.note_server(&route.server, Some(&route.own_name)));
    let arguments = match parse_arguments(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return Outcome::Error(error),
    };
    match route.tool.call(arguments, &CallContext::default()).await {
        Ok(output) => {
            if output.is_error {
                exchange.note(|record| record.note_tool_error());
            }
            let result = serde_json::to_vec(&output).unwrap_or_else(|_| b"{}".to_vec());
            Outcome::Result { result: result.into(), from: Era::Legacy, extras: ResultExtras::default(), server: None }
        }
        Err(CallError::NeedsAuth { .. }) => Outcome::Error(sign_in_required(shared, exchange, &route.server, "")),
        Err(error) => Outcome::Error(ErrorReply::for_client(&error, &exchange.client)),
    }
}

/// Handles `prompts/get`.
pub(crate) fn get_prompt(
    shared: &Arc<GatewayShared>,
    requester: &Requester<'_>,
    params: &ClientParams<'_>,
) -> Result<Dispatch, ErrorReply> {
    let name = target(params, "name")?.to_owned();
    let router = shared.router_of(&requester.client)?;
    let arguments = params.arguments.map(|arguments| requester.slice(arguments)).unwrap_or_default();
    if let Some(retried) = retry(shared, requester, params, "prompts/get", &name, &arguments)? {
        return Ok(retried);
    }
    let started = requester.start(shared, params)?;
    let identity =
        RequestIdentity { method: "prompts/get", target: name.as_str().into(), arguments: arguments.clone() };
    let _ = started.exchange.request.set(identity);
    let Forwarded { members, meta } = requester.forwarded(params);
    let shared_ = shared.clone();
    Ok(started.run(shared, move |exchange| async move {
        let (server, own_name) = match find_prompt(&shared_, &exchange.client, router, &name).await {
            Ok(found) => found,
            Err(error) => return Outcome::Error(error),
        };
        let params = match write_params(&shared_, &server, ("name", &own_name), &arguments, &members) {
            Ok(params) => params,
            Err(error) => return Outcome::Error(error),
        };
        let request = UpstreamRequest {
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

/// Finds a prompt's server, and the server's own name for it. Waits for servers that are still starting.
async fn find_prompt(
    shared: &GatewayShared,
    client: &Client,
    router: Arc<Router>,
    name: &str,
) -> Result<(Alias, String), ErrorReply> {
    if let Some(found) = shared.catalog.prompt(&shared.bridge, &router, name).await {
        return Ok(found);
    }
    let mut router = router;
    if !router.owners(name, &shared.starting(&router)).is_empty() {
        shared.wait_for_name(client, name, |_| false).await;
        router = shared.router_of(client)?;
        if let Some(found) = shared.catalog.prompt(&shared.bridge, &router, name).await {
            return Ok(found);
        }
    }
    let mut error = ErrorReply::unknown_prompt(name, &[]);
    shared.name_starting(&router, name, &mut error);
    Err(error)
}

/// Handles `resources/read`.
pub(crate) fn read_resource(
    shared: &Arc<GatewayShared>,
    requester: &Requester<'_>,
    params: &ClientParams<'_>,
) -> Result<Dispatch, ErrorReply> {
    let uri = target(params, "uri")?.to_owned();
    let router = shared.router_of(&requester.client)?;
    if let Some(retried) = retry(shared, requester, params, "resources/read", &uri, &Bytes::new())? {
        return Ok(retried);
    }
    let started = requester.start(shared, params)?;
    let identity = RequestIdentity { method: "resources/read", target: uri.as_str().into(), arguments: Bytes::new() };
    let _ = started.exchange.request.set(identity);
    let Forwarded { members, meta } = requester.forwarded(params);
    let shared_ = shared.clone();
    Ok(started.run(shared, move |exchange| async move {
        let begun = Instant::now();
        let (routes, starting) = match shared_.catalog.route_uri(&shared_.bridge, &router, &uri).await {
            UriRoute::One(server, own_uri) => (vec![(server, own_uri)], Vec::new()),
            UriRoute::Try(servers) => {
                let starting = shared_.starting(&router);
                let mut routes: Vec<_> = servers.into_iter().map(|server| (server, uri.clone())).collect();
                // A server that takes long to start must not delay the others' resources.
                routes.sort_by_key(|(server, _)| starting.contains(server));
                (routes, starting)
            }
        };
        let mut missing = Vec::new();
        let mut outcome = Outcome::Error(ErrorReply::resource_not_found(&uri, exchange.client.era));
        for (server, own_uri) in routes {
            if starting.contains(&server) && !shared_.wait_for_server(&router, &server, begun).await {
                missing.push(server);
                continue;
            }
            let params = match write_params(&shared_, &server, ("uri", &own_uri), &[], &members) {
                Ok(params) => params,
                Err(error) => return Outcome::Error(error),
            };
            let request = UpstreamRequest {
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
                return outcome;
            }
        }
        if let Outcome::Error(error) = &mut outcome {
            add_starting(error, missing.iter());
        }
        outcome
    }))
}

/// Returns `true` if a server does not have a resource, so that the next one is tried.
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
    let router = shared.router_of(&requester.client)?;
    let started = requester.start(shared, params)?;
    let Forwarded { mut members, meta } = requester.forwarded(params);
    members.retain(|(key, _)| key != "ref");
    let shared_ = shared.clone();
    Ok(started.run(shared, move |exchange| async move {
        let (server, key, own) = match reference["type"].as_str() {
            Some("ref/prompt") => {
                let name = reference["name"].as_str().unwrap_or_default().to_owned();
                match find_prompt(&shared_, &exchange.client, router, &name).await {
                    Ok((server, own)) => (server, "name", own),
                    Err(error) => return Outcome::Error(error),
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
        let request = UpstreamRequest {
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
