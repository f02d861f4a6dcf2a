//! The protocol: JSON-RPC and MCP messages of both eras, as values and pure functions.

pub(crate) mod field;
mod frame;
mod headers;
mod list;
mod version;

pub use frame::{
    FrameError, Incoming, RpcError, TruncatedMessage, encode_error, encode_notification, encode_result, quick_response,
    read,
};
pub use headers::{HeaderError, HeaderParams, header_value};
pub use list::{Page, tool_definition, wire_definition};
pub use version::{Era, LATEST_LEGACY, LEGACY_VERSIONS, MODERN, is_modern};

/// JSON-RPC and MCP error codes that mean something to us.
pub mod code {
    /// The method is not known.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters are wrong.
    pub const INVALID_PARAMS: i64 = -32602;
    /// Something went wrong inside.
    pub const INTERNAL: i64 = -32603;
    /// Headers and body of a request do not agree (2026-07-28).
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The client lacks a capability that the request needs (2026-07-28).
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The protocol version is not supported (2026-07-28).
    pub const UNSUPPORTED_VERSION: i64 = -32022;
}

/// Keys of `_meta` in the modern era.
pub mod meta {
    /// The protocol version of a request.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// Who is asking.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// What the asker can do.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// Who answers.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// How much log a request wants.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// The name of the tasks extension.
    pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
}
