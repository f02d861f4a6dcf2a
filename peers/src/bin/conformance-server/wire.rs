//! JSON-RPC messages and errors, and the protocol's names.

use serde_json::{Map, Value, json};

/// The modern era's protocol version.
pub const MODERN: &str = "2026-07-28";
/// The legacy era's protocol versions, newest first.
pub const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// The tasks extension's identifier.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

pub const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
pub const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The log levels, least severe first.
pub const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

pub const INVALID_REQUEST: i64 = -32600;
pub const METHOD_NOT_FOUND: i64 = -32601;
pub const INVALID_PARAMS: i64 = -32602;
pub const INTERNAL: i64 = -32603;
pub const HEADER_MISMATCH: i64 = -32020;
pub const MISSING_CAPABILITY: i64 = -32021;
pub const UNSUPPORTED_VERSION: i64 = -32022;

/// One request's era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    Legacy,
    Modern,
}

/// A JSON-RPC error.
#[derive(Clone, Debug)]
pub struct RpcError {
    pub code: i64,
    message: String,
    data: Option<Value>,
}

impl RpcError {
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// Returns the error for a capability that the client did not declare.
    pub fn missing_capability(required: Value) -> Self {
        Self::new(MISSING_CAPABILITY, "the client did not declare a required capability")
            .with_data(json!({ "requiredCapabilities": required }))
    }

    /// Returns the error for a version that the server does not support.
    pub fn unsupported_version(requested: &str) -> Self {
        Self::new(UNSUPPORTED_VERSION, "unsupported protocol version")
            .with_data(json!({ "supported": [MODERN], "requested": requested }))
    }

    /// Returns a response's `error` member.
    pub fn to_value(&self) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        error
    }

    /// Returns the response to the request with this id.
    pub fn response(&self, id: &Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": id, "error": self.to_value() })
    }
}

/// Returns a successful response.
pub fn response(id: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// Returns a notification.
pub fn notification(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

/// A message from a client.
pub enum Incoming {
    Request { id: Value, method: String, params: Map<String, Value> },
    Notification { method: String, params: Map<String, Value> },
    Response { id: Value, message: Value },
}

impl Incoming {
    /// Reads one message.
    pub fn read(text: &[u8]) -> Result<Self, RpcError> {
        let message: Value =
            serde_json::from_slice(text).map_err(|error| RpcError::new(-32700, format!("invalid JSON: {error}")))?;
        let id = message.get("id").filter(|id| id.is_string() || id.is_number()).cloned();
        let params = message["params"].as_object().cloned().unwrap_or_default();
        match (message["method"].as_str().map(str::to_owned), id) {
            (Some(method), Some(id)) => Ok(Self::Request { id, method, params }),
            (Some(method), None) if message.get("id").is_none() => Ok(Self::Notification { method, params }),
            (None, Some(id)) if message.get("result").or(message.get("error")).is_some() => {
                Ok(Self::Response { id, message })
            }
            _ => Err(RpcError::new(INVALID_REQUEST, "not one message of JSON-RPC")),
        }
    }
}

/// Returns `true` for the response to a request.
pub fn is_response(message: &Value) -> bool {
    message.get("method").is_none()
}
