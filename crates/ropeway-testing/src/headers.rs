//! Consistency between a modern request's headers and its body.

use serde_json::Value;

use super::call::ScriptedError;
use super::http_connection::RecordedHttpRequest;
use ropeway_mcp::protocol::{HeaderMismatch, HeaderParams, check_header, code};

/// Checks that the headers match the body.
pub(super) fn check(request: &RecordedHttpRequest, message: &Value, tools: &[Value]) -> Result<(), ScriptedError> {
    compare(request, message, tools).map_err(|mismatch| ScriptedError::new(code::HEADER_MISMATCH, mismatch.to_string()))
}

fn compare(request: &RecordedHttpRequest, message: &Value, tools: &[Value]) -> Result<(), HeaderMismatch> {
    let sent = |header: &str| request.header(&header.to_ascii_lowercase()).map(str::to_owned);
    let same = |header: &str, body: Option<&str>| check_header(header, sent(header).as_deref(), body);
    let version = message.pointer("/params/_meta/io.modelcontextprotocol~1protocolVersion");
    // A notification without `_meta` has nothing to compare.
    if version.is_some() || message.get("id").is_some() {
        same("MCP-Protocol-Version", version.and_then(Value::as_str))?;
    }
    same("Mcp-Method", message["method"].as_str())?;
    let params = &message["params"];
    let method = message["method"].as_str().unwrap_or_default();
    match method {
        "tools/call" | "prompts/get" => same("Mcp-Name", params["name"].as_str())?,
        "resources/read" => same("Mcp-Name", params["uri"].as_str())?,
        _ if method.starts_with("tasks/") => same("Mcp-Name", params["taskId"].as_str())?,
        _ => {}
    }
    if method == "tools/call"
        && let Some(tool) = tools.iter().find(|tool| tool["name"] == params["name"])
        && let Ok(header_params) = HeaderParams::read(&tool["inputSchema"])
    {
        let arguments = params["arguments"].as_object().cloned().unwrap_or_default();
        header_params.check(&arguments, sent)?;
    }
    Ok(())
}
