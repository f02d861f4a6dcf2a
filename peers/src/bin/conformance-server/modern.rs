//! Modern requests: `_meta` and header checks, and subscriptions.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::call::{Asker, Call, Outgoing};
use crate::server::{Change, Server};
use crate::wire::{
    CAPABILITIES, Era, HEADER_MISMATCH, INVALID_PARAMS, MODERN, RpcError, SUBSCRIPTION, VERSION, notification,
};
use crate::{dispatch, tools};

/// Returns the header with a lower-case name.
pub type Headers<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Creates a call if the `_meta` members are complete.
///
/// `header` returns an HTTP request's headers, which must match the body; a pipe has none.
pub fn accept(
    server: &Arc<Server>,
    (id, method, params): (Value, String, Map<String, Value>),
    header: Option<Headers<'_>>,
    outlet: mpsc::UnboundedSender<Outgoing>,
) -> Result<Call, RpcError> {
    let missing = |name: &str| RpcError::new(INVALID_PARAMS, format!("`_meta` has no `{name}`"));
    let meta = params.get("_meta").cloned().unwrap_or_default();
    let version = meta[VERSION].as_str().ok_or_else(|| missing(VERSION))?;
    let capabilities = meta.get(CAPABILITIES).filter(|value| value.is_object()).ok_or_else(|| missing(CAPABILITIES))?;
    if let Some(header) = header {
        same("MCP-Protocol-Version", header("mcp-protocol-version"), Some(version))?;
    }
    if version != MODERN {
        return Err(RpcError::unsupported_version(version));
    }
    if let Some(header) = header {
        check_headers(&method, &params, header)?;
    }
    Ok(Call {
        server: Arc::clone(server),
        era: Era::Modern,
        id,
        method,
        capabilities: capabilities.clone(),
        params,
        asker: Asker::Rounds(Arc::default()),
        log_level: Arc::new(Mutex::new(0)),
        outlet,
    })
}

fn check_headers(method: &str, params: &Map<String, Value>, header: Headers<'_>) -> Result<(), RpcError> {
    same("Mcp-Method", header("mcp-method"), Some(method))?;
    let name = match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    };
    if let Some(name) = name {
        let given = header("mcp-name").map(|value| decode(&value)).transpose()?;
        same("Mcp-Name", given, params.get(name).and_then(Value::as_str))?;
    }
    if method == "tools/call" && params.get("name") == tools::header_tool().get("name") {
        let given = header("mcp-param-region").map(|value| decode(&value)).transpose()?;
        let region = params.get("arguments").and_then(|arguments| arguments["region"].as_str());
        same("Mcp-Param-Region", given, region)?;
    }
    Ok(())
}

fn same(name: &str, header: Option<String>, body: Option<&str>) -> Result<(), RpcError> {
    if header.as_deref() == body {
        return Ok(());
    }
    Err(RpcError::new(HEADER_MISMATCH, format!("header `{name}` is {header:?}, but the body has {body:?}")))
}

/// Decodes a header value, which may be base64 (<https://modelcontextprotocol.io/seps/2243-http-standardization>).
fn decode(value: &str) -> Result<String, RpcError> {
    let Some(encoded) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Ok(value.to_owned());
    };
    let text = STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or_else(|| RpcError::new(HEADER_MISMATCH, "a header has invalid base64"))
}

/// Runs a call and sends its response; `subscriptions/listen` runs until the client ends it.
pub async fn run(call: Call) {
    if call.method == "subscriptions/listen" {
        listen(&call).await;
    } else {
        call.send(dispatch::respond(&call).await);
    }
}

async fn listen(call: &Call) {
    let mut changes = call.server.changes.subscribe();
    let mut wanted = call.params.get("notifications").cloned().unwrap_or_else(|| json!({}));
    // The resource list never changes.
    if let Some(members) = wanted.as_object_mut() {
        members.shift_remove("resourcesListChanged");
    }
    let tagged = |method: &str, mut params: Value| {
        params["_meta"] = json!({ SUBSCRIPTION: call.id });
        call.send(notification(method, params));
    };
    tagged("notifications/subscriptions/acknowledged", json!({ "notifications": wanted }));
    while let Ok(change) = changes.recv().await {
        match change {
            Change::Tools if wanted["toolsListChanged"] == true => {
                tagged("notifications/tools/list_changed", json!({}))
            }
            Change::Prompts if wanted["promptsListChanged"] == true => {
                tagged("notifications/prompts/list_changed", json!({}));
            }
            Change::Resource(uri) => {
                let uris = wanted["resourceSubscriptions"].as_array();
                if uris.is_some_and(|uris| uris.iter().any(|wanted| *wanted == uri)) {
                    tagged("notifications/resources/updated", json!({ "uri": uri }));
                }
            }
            _ => {}
        }
    }
}
