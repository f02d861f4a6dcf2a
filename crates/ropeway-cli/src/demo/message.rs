//! The demo server's JSON-RPC messages, for both protocol eras.

use serde_json::{Map, Value, json};

/// Protocol versions with an `initialize` handshake, newest first.
const LEGACY_VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// The stateless protocol version.
const MODERN_VERSION: &str = "2026-07-28";

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER_INFO_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// Cache lifetime for lists, in milliseconds. Lists never change.
const CACHE_TTL: u64 = 3_600_000;

const INSTRUCTIONS: &str = "Tools for trying out a client: a clock, a calculator, charts, statistics, a slow countdown and a tool that always fails.";

/// JSON-RPC error codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorCode {
    Parse = -32700,
    InvalidRequest = -32600,
    MethodNotFound = -32601,
    InvalidParams = -32602,
    UnsupportedVersion = -32022,
}

/// A JSON-RPC error response.
#[derive(Debug, PartialEq)]
pub(super) struct RpcError {
    code: ErrorCode,
    reason: String,
    data: Option<Value>,
}

impl RpcError {
    pub(super) fn new(code: ErrorCode, reason: String) -> Self {
        Self { code, reason, data: None }
    }

    pub(super) fn params(reason: String) -> Self {
        Self::new(ErrorCode::InvalidParams, reason)
    }

    pub(super) fn reply(&self, id: &Value) -> Value {
        let mut reply = error(id, self.code, &self.reason);
        if let Some(data) = &self.data {
            reply["error"]["data"] = data.clone();
        }
        reply
    }
}

/// A valid request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Request {
    pub(super) id: Value,
    pub(super) method: String,
    pub(super) params: Map<String, Value>,
}

impl Request {
    fn meta(&self, key: &str) -> Option<&Value> {
        self.params.get("_meta")?.get(key)
    }

    /// Returns `true` if the request names its protocol version, as in the modern era.
    pub(super) fn is_modern(&self) -> bool {
        self.meta(VERSION_KEY).is_some()
    }

    /// Returns the token for progress notifications.
    pub(super) fn progress_token(&self) -> Option<&Value> {
        self.meta("progressToken").filter(|token| token.is_string() || token.is_number())
    }

    /// Checks that the request follows `initialize`, or has the modern era's `_meta` keys.
    pub(super) fn check_era(&self, initialized: bool) -> Result<(), RpcError> {
        match self.meta(VERSION_KEY) {
            None if initialized || self.method == "ping" => Ok(()),
            None => Err(RpcError::params(format!("send `initialize` first, or `{VERSION_KEY}` in `_meta`"))),
            Some(version) if version != MODERN_VERSION => Err(RpcError {
                code: ErrorCode::UnsupportedVersion,
                reason: format!("unsupported protocol version {version}"),
                data: Some(json!({"supported": [MODERN_VERSION], "requested": version})),
            }),
            Some(_) => match self.meta(CAPABILITIES_KEY) {
                Some(Value::Object(_)) => Ok(()),
                _ => Err(RpcError::params(format!("`_meta` must contain `{CAPABILITIES_KEY}`"))),
            },
        }
    }
}

/// A parsed input line.
#[derive(Debug, PartialEq)]
pub(super) enum Incoming {
    Request(Request),
    /// The client cancelled a request.
    Cancelled {
        id: Value,
    },
    /// Needs no answer.
    Nothing,
    /// Not a valid message.
    Broken {
        id: Value,
        code: ErrorCode,
        reason: String,
    },
}

impl Incoming {
    pub(super) fn read(line: &[u8]) -> Self {
        if line.trim_ascii().is_empty() {
            return Self::Nothing;
        }
        match ropeway_core::json::from_slice(line) {
            Ok(Value::Object(message)) => Self::from_object(message),
            Ok(_) => Self::Broken {
                id: Value::Null,
                code: ErrorCode::InvalidRequest,
                reason: "a message must be a JSON object".to_owned(),
            },
            Err(error) => {
                Self::Broken { id: Value::Null, code: ErrorCode::Parse, reason: format!("not JSON: {error}") }
            }
        }
    }

    fn from_object(mut message: Map<String, Value>) -> Self {
        let id = message.remove("id");
        let usable = id.as_ref().filter(|id| id.is_string() || id.is_number()).cloned();
        let broken = |reason: &str| Self::Broken {
            id: usable.clone().unwrap_or(Value::Null),
            code: ErrorCode::InvalidRequest,
            reason: reason.to_owned(),
        };
        if message.contains_key("result") || message.contains_key("error") {
            // The server sends no requests, so this response is unexpected.
            return Self::Nothing;
        }
        if message.get("jsonrpc") != Some(&json!("2.0")) {
            return broken("`jsonrpc` must be \"2.0\"");
        }
        let Some(Value::String(method)) = message.remove("method") else { return broken("`method` must be a string") };
        let params = match message.remove("params") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(params)) => params,
            Some(_) if id.is_none() => return Self::Nothing,
            Some(_) => return broken("`params` must be an object"),
        };
        match (id, usable) {
            (None, _) if method == "notifications/cancelled" => match params.get("requestId") {
                Some(id) => Self::Cancelled { id: id.clone() },
                None => Self::Nothing,
            },
            (None, _) => Self::Nothing,
            (Some(_), Some(id)) => Self::Request(Request { id, method, params }),
            (Some(_), None) => Self::Broken {
                id: Value::Null,
                code: ErrorCode::InvalidRequest,
                reason: "`id` must be a string or a number".to_owned(),
            },
        }
    }
}

/// Returns an error response.
pub(super) fn error(id: &Value, code: ErrorCode, reason: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code as i32, "message": reason}})
}

/// Returns a result in the request's era.
pub(super) fn result(request: &Request, mut result: Value) -> Value {
    if let Some(fields) = result.as_object_mut() {
        if request.is_modern() {
            fields.insert("resultType".to_owned(), json!("complete"));
            fields.insert("_meta".to_owned(), json!({SERVER_INFO_KEY: server_info()}));
        } else {
            fields.remove("ttlMs");
            fields.remove("cacheScope");
        }
    }
    json!({"jsonrpc": "2.0", "id": request.id, "result": result})
}

/// Returns a tool result with one text.
pub(super) fn text_result(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// Returns a tool result with an error.
pub(super) fn error_result(reason: &str) -> Value {
    let mut result = text_result(reason);
    result["isError"] = json!(true);
    result
}

/// Marks a result as cacheable.
pub(super) fn cached(mut result: Value) -> Value {
    result["ttlMs"] = json!(CACHE_TTL);
    result["cacheScope"] = json!("public");
    result
}

/// Returns a progress notification.
pub(super) fn progress(token: &Value, progress: f64, total: f64, text: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/progress",
        "params": {"progressToken": token, "progress": progress, "total": total, "message": text}})
}

/// Returns the `initialize` result: the requested version if it is supported, otherwise the newest one.
pub(super) fn initialize_result(params: &Map<String, Value>) -> Value {
    let asked = params.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
    let version = LEGACY_VERSIONS.iter().find(|version| **version == asked).unwrap_or(&LEGACY_VERSIONS[0]);
    json!({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server_info(),
        "instructions": INSTRUCTIONS})
}

/// Returns the `server/discover` result.
pub(super) fn discover_result() -> Value {
    cached(json!({"supportedVersions": [MODERN_VERSION], "capabilities": {"tools": {}}, "instructions": INSTRUCTIONS}))
}

fn server_info() -> Value {
    json!({"name": "demo", "title": "Ropeway demo", "version": env!("CARGO_PKG_VERSION")})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(line: &str) -> (Value, ErrorCode) {
        match Incoming::read(line.as_bytes()) {
            Incoming::Broken { id, code, .. } => (id, code),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn invalid_messages_are_refused_with_the_right_code() {
        assert_eq!(broken("{"), (Value::Null, ErrorCode::Parse));
        assert_eq!(broken("\u{feff}x"), (Value::Null, ErrorCode::Parse));
        assert_eq!(broken("[]"), (Value::Null, ErrorCode::InvalidRequest));
        assert_eq!(broken("3"), (Value::Null, ErrorCode::InvalidRequest));
        assert_eq!(broken(r#"{"id":1,"method":"ping"}"#), (json!(1), ErrorCode::InvalidRequest));
        assert_eq!(broken(r#"{"jsonrpc":"2.0","id":"a"}"#), (json!("a"), ErrorCode::InvalidRequest));
        assert_eq!(broken(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#), (Value::Null, ErrorCode::InvalidRequest));
        assert_eq!(
            broken(r#"{"jsonrpc":"2.0","id":1,"method":"a","params":[]}"#),
            (json!(1), ErrorCode::InvalidRequest)
        );
    }

    #[test]
    fn notifications_and_responses_get_no_answer() {
        for line in [
            "",
            "  \r\n",
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}"#,
        ] {
            assert_eq!(Incoming::read(line.as_bytes()), Incoming::Nothing, "{line}");
        }
    }

    #[test]
    fn initialize_accepts_a_known_version_or_offers_the_newest() {
        let version = |asked: Value| {
            let params = json!({"protocolVersion": asked});
            initialize_result(params.as_object().expect("an object"))["protocolVersion"].clone()
        };
        for known in LEGACY_VERSIONS {
            assert_eq!(version(json!(known)), known);
        }
        for unknown in [json!(MODERN_VERSION), json!("1999-01-01"), json!(3)] {
            assert_eq!(version(unknown), "2025-11-25");
        }
    }
}
