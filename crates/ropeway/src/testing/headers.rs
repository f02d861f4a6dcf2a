//! Consistency of the headers and the body of a modern request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::call::ScriptedError;
use super::http_connection::RecordedHttpRequest;

/// Checks that the headers match the body.
pub(super) fn check(request: &RecordedHttpRequest, message: &Value, tools: &[Value]) -> Result<(), ScriptedError> {
    let version = message.pointer("/params/_meta/io.modelcontextprotocol~1protocolVersion");
    // A notification without `_meta` has nothing to compare.
    if version.is_some() || message.get("id").is_some() {
        same(request, "MCP-Protocol-Version", version.and_then(Value::as_str))?;
    }
    same(request, "Mcp-Method", message["method"].as_str())?;
    let params = &message["params"];
    let method = message["method"].as_str().unwrap_or_default();
    match method {
        "tools/call" | "prompts/get" => same(request, "Mcp-Name", params["name"].as_str())?,
        "resources/read" => same(request, "Mcp-Name", params["uri"].as_str())?,
        _ if method.starts_with("tasks/") => same(request, "Mcp-Name", params["taskId"].as_str())?,
        _ => {}
    }
    if method == "tools/call" {
        let tool = tools.iter().find(|tool| tool["name"] == params["name"]);
        let properties = tool.and_then(|tool| tool["inputSchema"]["properties"].as_object());
        for (key, property) in properties.into_iter().flatten() {
            if let Some(header) = property["x-mcp-header"].as_str() {
                let value = match &params["arguments"][key] {
                    Value::Null => None,
                    Value::String(text) => Some(text.clone()),
                    value => Some(value.to_string()),
                };
                same(request, &format!("Mcp-Param-{header}"), value.as_deref())?;
            }
        }
    }
    Ok(())
}

fn same(request: &RecordedHttpRequest, header: &str, body: Option<&str>) -> Result<(), ScriptedError> {
    let said = request.header(&header.to_ascii_lowercase()).map(decode);
    if said.as_deref() == body {
        return Ok(());
    }
    Err(ScriptedError::new(-32020, format!("header `{header}` says {said:?} where the body says {body:?}")))
}

/// Decodes a header value. Values that are not valid in a header are sent as base64.
fn decode(value: &str) -> String {
    value
        .strip_prefix("=?base64?")
        .and_then(|value| value.strip_suffix("?="))
        .and_then(|value| STANDARD.decode(value).ok())
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .unwrap_or_else(|| value.to_owned())
}
