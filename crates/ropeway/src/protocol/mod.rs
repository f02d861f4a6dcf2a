//! JSON-RPC and MCP messages of both protocol eras, as values and pure functions.
//!
//! See the [MCP specification](https://modelcontextprotocol.io/specification/2025-11-25) and
//! [JSON-RPC 2.0](https://www.jsonrpc.org/specification).

pub(crate) mod field;
mod frame;
mod headers;
mod list;
mod scan;
mod version;

pub use frame::{
    FrameError, Incoming, RpcError, TruncatedMessage, encode_error, encode_notification, encode_result, quick_response,
    read,
};
pub use headers::{HeaderError, HeaderParams, header_value};
pub use list::{Page, tool_definition, wire_definition};
pub use scan::{Member, ScanError, scan_object};
pub use version::{Era, LATEST_LEGACY, LEGACY_VERSIONS, MODERN, is_modern};

/// Error codes of JSON-RPC ([section 5.1](https://www.jsonrpc.org/specification#error_object)) and MCP.
pub mod code {
    /// The method does not exist.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters are invalid.
    pub const INVALID_PARAMS: i64 = -32602;
    /// An internal error occurred.
    pub const INTERNAL: i64 = -32603;
    /// The headers of a request contradict its body (2026-07-28).
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The request needs a capability that the client does not declare (2026-07-28).
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The protocol version is not supported (2026-07-28).
    pub const UNSUPPORTED_VERSION: i64 = -32022;
}

/// Keys of `_meta` in the modern era (2026-07-28).
pub mod meta {
    /// The protocol version of a request.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// Name and version of the client.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// The capabilities of the client.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// Name and version of the server.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// The minimum level of log messages for a request.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// The name of the tasks extension.
    pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
}
