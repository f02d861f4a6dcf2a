//! Error responses to clients, with their HTTP status.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Client;
use crate::client::shares::ShareError;
use ropeway_core::error_chain::chain;
use ropeway_core::tool::{Alias, CallError};
use ropeway_mcp::protocol::{Era, HeaderMismatch, InvalidMessage, MODERN, code, meta};

/// The code for transport errors. The SDKs use it for HTTP requests that they refuse.
const REFUSED: i64 = -32000;

/// The member in an error's data with the time after which a client may try again.
const RETRY_AFTER_MS: &str = "retryAfterMs";

/// Time after which a client may try again if what it or others hold is at a limit.
pub(crate) const BUSY_WAIT: Duration = Duration::from_secs(1);

/// A JSON-RPC error for a client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ErrorReply {
    /// The JSON-RPC error code.
    pub(crate) code: i64,
    /// The message for the client.
    pub(crate) message: String,
    /// Additional data.
    pub(crate) data: Option<Value>,
    /// The HTTP status, if the error is the whole response.
    pub(crate) status: u16,
}

impl ErrorReply {
    fn new(status: u16, code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None, status }
    }

    fn with_data(self, data: Value) -> Self {
        Self { data: Some(data), ..self }
    }

    /// The message is not a valid request.
    pub(crate) fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(400, code::INVALID_REQUEST, message)
    }

    /// The message could not be read.
    pub(crate) fn invalid_message(error: &InvalidMessage<'_>) -> Self {
        Self::new(400, error.code, &*error.message)
    }

    /// A request with the same id is in flight.
    pub(crate) fn duplicate_id() -> Self {
        Self::invalid_request("request id is in use")
    }

    /// A legacy request came before `initialize`.
    pub(crate) fn not_initialized() -> Self {
        Self::invalid_request("`initialize` must come first")
    }

    /// The parameters are invalid.
    pub(crate) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(200, code::INVALID_PARAMS, message)
    }

    /// The retry's state was changed, used before or has expired.
    pub(crate) fn invalid_state() -> Self {
        Self::invalid_params("`requestState` is invalid or has expired")
    }

    /// A required `_meta` member is missing in a modern request. Unlike other invalid parameters, this has the status 400.
    pub(crate) fn missing_meta(key: &str) -> Self {
        Self { status: 400, ..Self::invalid_params(format!("`_meta` has no `{key}`")) }
    }

    /// The method does not exist.
    pub(crate) fn method_not_found(method: &str, client: Era) -> Self {
        let status = status(code::METHOD_NOT_FOUND, client);
        Self::new(status, code::METHOD_NOT_FOUND, format!("method not found: {method}"))
    }

    /// A header contradicts the body.
    pub(crate) fn header_mismatch(mismatch: &HeaderMismatch) -> Self {
        Self::new(400, code::HEADER_MISMATCH, mismatch.to_string())
    }

    /// A modern request has a protocol version that is not supported.
    pub(crate) fn unsupported_version(requested: &str) -> Self {
        Self::new(400, code::UNSUPPORTED_VERSION, "Unsupported protocol version")
            .with_data(json!({"supported": [MODERN], "requested": requested}))
    }

    /// The header `MCP-Protocol-Version` in a legacy request is not supported.
    pub(crate) fn unsupported_legacy_version() -> Self {
        Self::new(400, REFUSED, "Bad Request: Unsupported protocol version")
    }

    /// The request needs the tasks extension, which the client does not declare.
    pub(crate) fn tasks_required() -> Self {
        Self::new(400, code::MISSING_CAPABILITY, "the client does not declare the tasks extension")
            .with_data(json!({"requiredCapabilities": {"extensions": {meta::TASKS_EXTENSION: {}}}}))
    }

    /// A legacy request has no session header.
    pub(crate) fn session_required() -> Self {
        Self::new(400, REFUSED, "Bad Request: Mcp-Session-Id header is required")
    }

    /// The session does not exist, has ended, or belongs to another client.
    pub(crate) fn session_not_found() -> Self {
        Self::new(404, code::TIMEOUT, "Session not found")
    }

    /// A log level is unknown.
    pub(crate) fn unknown_level(name: &str) -> Self {
        Self::invalid_params(format!("`{}` is not a log level", name.escape_debug()))
    }

    /// The gateway is at its limits, or about to stop.
    pub(crate) fn overloaded(message: impl Into<String>) -> Self {
        Self::new(503, REFUSED, message)
    }

    /// A limit on requests is reached. The client may try again after `wait`.
    pub(crate) fn limited(message: impl Into<String>, wait: Duration) -> Self {
        let wait = u64::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
        Self::new(429, REFUSED, message).with_data(json!({RETRY_AFTER_MS: wait}))
    }

    /// The principal or the gateway holds too much. The client may try again when some is given back.
    pub(crate) fn over_share(error: ShareError) -> Self {
        Self { status: error.status(), ..Self::limited(error.to_string(), BUSY_WAIT) }
    }

    /// Returns the seconds after which a client may try again, if the error specifies them.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        let wait = self.data.as_ref()?.get(RETRY_AFTER_MS)?.as_u64()?;
        Some(wait.div_ceil(1000).max(1))
    }

    /// The request would use another account's tokens than the principal's.
    pub(crate) fn not_per_principal(server: &Alias) -> Self {
        let message = format!("not supported for server `{server}`, where each principal has tokens of its own");
        Self::new(200, code::INVALID_REQUEST, message)
    }

    /// The server needs a sign-in; the message names the location.
    pub(crate) fn needs_sign_in(server: &Alias, message: String) -> Self {
        Self::internal(message).with_data(json!({"server": server, "reason": "needs_auth"}))
    }

    /// The result is larger than the client may receive.
    pub(crate) fn result_too_large(size: usize, limit: usize) -> Self {
        let data = json!({"reason": "result_too_large", "size": size, "limit": limit});
        Self::new(200, code::INTERNAL, format!("the result has {size} bytes (limit: {limit})")).with_data(data)
    }

    /// The transport refuses the request with this status.
    pub(crate) fn refused(status: u16, message: impl Into<String>) -> Self {
        Self::new(status, REFUSED, message)
    }

    /// No tool has this name.
    pub(crate) fn unknown_tool(name: &str, nearest: &[&str]) -> Self {
        Self::unknown("tool", name, nearest)
    }

    /// No prompt has this name.
    pub(crate) fn unknown_prompt(name: &str, nearest: &[&str]) -> Self {
        Self::unknown("prompt", name, nearest)
    }

    fn unknown(kind: &str, name: &str, nearest: &[&str]) -> Self {
        // The beginning is the same as in the SDKs.
        let near: Vec<String> = nearest.iter().map(|name| format!("`{name}`")).collect();
        let help = if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) };
        Self::invalid_params(format!("Unknown {kind}: {name}{help}"))
    }

    /// The resource does not exist.
    pub(crate) fn resource_not_found(uri: &str, client: Era) -> Self {
        let code = resource_code(code::RESOURCE_NOT_FOUND, client);
        Self::new(200, code, format!("Resource not found: {uri}")).with_data(json!({"uri": uri}))
    }

    /// An internal error occurred.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(200, code::INTERNAL, message)
    }

    /// Converts the error for a client's call.
    ///
    /// A lost connection's cause may quote the server's standard error, which only operators see.
    pub(crate) fn for_client(error: &CallError, client: &Client) -> Self {
        match error {
            CallError::Unavailable { .. } if !client.principal.is_operator() => {
                Self::internal(error.to_string()).with_data(reason(error))
            }
            _ => Self::from_call(error, client.era),
        }
    }

    /// Converts a call error.
    ///
    /// Server errors keep their code, message and data. They stay protocol errors: a result with `isError` would claim that the
    /// tool failed.
    fn from_call(error: &CallError, client: Era) -> Self {
        match error {
            CallError::Refused { code, message, data, .. } => {
                let code = resource_code(*code, client);
                Self { code, message: message.clone(), data: data.clone(), status: status(code, client) }
            }
            CallError::UnknownTool { tool, nearest } => {
                Self::unknown_tool(tool, &nearest.first().map(String::as_str).into_iter().collect::<Vec<_>>())
            }
            CallError::Hidden { .. } | CallError::InvalidArguments { .. } => Self::invalid_params(chain(error)),
            CallError::Timeout { .. } => Self::new(200, code::TIMEOUT, chain(error)).with_data(reason(error)),
            _ => Self::internal(chain(error)).with_data(reason(error)),
        }
    }
}

/// Returns the data for an error that is not the server's own: the server, if known, and the reason.
fn reason(error: &CallError) -> Value {
    let reason = match error {
        CallError::NotConnected { .. } => "unavailable",
        error => error.kind(),
    };
    match error {
        CallError::NotConnected { server }
        | CallError::Stopped { server }
        | CallError::Unavailable { server, .. }
        | CallError::NeedsAuth { server, .. }
        | CallError::Timeout { server, .. }
        | CallError::Protocol { server, .. }
        | CallError::TooLarge { server, .. } => json!({"server": server, "reason": reason}),
        _ => json!({"reason": reason}),
    }
}

/// Returns the error code for an unknown resource in the client's era; other codes are the same in both.
fn resource_code(code: i64, client: Era) -> i64 {
    match (code, client) {
        (code::RESOURCE_NOT_FOUND, Era::Modern) => code::INVALID_PARAMS,
        (code, _) => code,
    }
}

fn status(code: i64, client: Era) -> u16 {
    match client {
        Era::Legacy => 200,
        Era::Modern => modern_status(code),
    }
}

/// Returns the HTTP status for an error that is the whole response to a modern request.
pub(crate) fn modern_status(code: i64) -> u16 {
    match code {
        code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION => 400,
        code::METHOD_NOT_FOUND => 404,
        _ => 200,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_mcp::protocol::read_client_message;

    fn refused(code: i64, data: Option<Value>) -> CallError {
        CallError::Refused { server: Alias::new("web"), code, message: "no".into(), data }
    }

    #[test]
    fn an_error_of_a_server_keeps_its_code_message_and_data() {
        let data = json!({"uri": "file:///a"});
        let error = ErrorReply::from_call(&refused(-5, Some(data.clone())), Era::Modern);
        assert_eq!(error, ErrorReply { code: -5, message: "no".into(), data: Some(data), status: 200 });
        assert_eq!(ErrorReply::from_call(&refused(code::METHOD_NOT_FOUND, None), Era::Modern).status, 404);
        assert_eq!(ErrorReply::from_call(&refused(code::METHOD_NOT_FOUND, None), Era::Legacy).status, 200);
    }

    #[test]
    fn an_unknown_resource_has_the_code_of_the_era() {
        let code = |code, client| ErrorReply::from_call(&refused(code, None), client).code;
        assert_eq!(code(-32002, Era::Modern), -32602);
        assert_eq!(code(-32002, Era::Legacy), -32002);
        assert_eq!(code(-32602, Era::Legacy), -32602);
        assert_eq!(ErrorReply::resource_not_found("a:b", Era::Modern).code, -32602);
        let error = ErrorReply::resource_not_found("a:b", Era::Legacy);
        assert_eq!((error.code, error.data), (-32002, Some(json!({"uri": "a:b"}))));
    }

    #[test]
    fn an_error_without_an_answer_of_the_server_has_a_reason() {
        let server = Alias::new("web");
        let from = |error: CallError| {
            let reply = ErrorReply::from_call(&error, Era::Modern);
            (reply.code, reply.message, reply.data.unwrap_or_default())
        };
        let expected = |reason: &str| json!({"server": "web", "reason": reason});
        assert_eq!(
            from(CallError::Unavailable { server: server.clone(), source: "connection refused".into() }),
            (-32603, "server `web` is unavailable: connection refused".into(), expected("unavailable"))
        );
        assert_eq!(from(CallError::NotConnected { server: server.clone() }).2, expected("unavailable"));
        assert_eq!(from(CallError::Stopped { server: server.clone() }).2, expected("stopped"));
        assert_eq!(from(CallError::NeedsAuth { server: server.clone(), challenge: None }).2, expected("needs_auth"));
        assert_eq!(from(CallError::TooLarge { server: server.clone(), limit: 9 }).2, expected("too_large"));
        assert_eq!(from(CallError::Protocol { server: server.clone(), source: "bad".into() }).2, expected("protocol"));
        assert_eq!(from(CallError::Changed { tool: "a".into() }).2, json!({"reason": "changed"}));
        let after = Duration::from_secs(1);
        let timeout = from(CallError::Timeout { server, after, idle: true, hint: None });
        assert_eq!((timeout.0, timeout.2), (-32001, expected("timeout")));
    }

    #[test]
    fn an_unknown_tool_is_answered_with_the_nearest_name() {
        let error = CallError::UnknownTool { tool: "serch".into(), nearest: vec!["search".into(), "find".into()] };
        let reply = ErrorReply::from_call(&error, Era::Legacy);
        assert_eq!((reply.code, reply.message), (-32602, "Unknown tool: serch; did you mean `search`?".into()));
        assert_eq!(ErrorReply::unknown_prompt("x", &[]).message, "Unknown prompt: x");
    }

    #[test]
    fn an_invalid_message_is_answered_with_its_code() {
        let invalid = read_client_message(b"[]").expect_err("a batch");
        let reply = ErrorReply::invalid_message(&invalid);
        assert_eq!((reply.status, reply.code, &*reply.message), (400, -32600, "batches are not supported"));
    }

    #[test]
    fn the_status_of_a_modern_error_follows_from_its_code() {
        let reply = ErrorReply::unsupported_version("2030-01-01");
        assert_eq!(reply.data, Some(json!({"supported": ["2026-07-28"], "requested": "2030-01-01"})));
        for reply in [
            reply,
            ErrorReply::tasks_required(),
            ErrorReply::header_mismatch(&HeaderMismatch::Missing { header: "Mcp-Method".into() }),
            ErrorReply::method_not_found("x", Era::Modern),
            ErrorReply::invalid_params("x"),
        ] {
            assert_eq!(reply.status, modern_status(reply.code), "{reply:?}");
        }
        assert_eq!(ErrorReply::missing_meta("k").status, 400);
        assert_eq!(ErrorReply::method_not_found("x", Era::Legacy).status, 200);
    }
}
