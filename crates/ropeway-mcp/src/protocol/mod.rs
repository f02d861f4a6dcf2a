//! JSON-RPC and MCP messages in both protocol eras, as values and pure functions.
//!
//! See the [MCP specification](https://modelcontextprotocol.io/specification/2025-11-25) and
//! [JSON-RPC 2.0](https://www.jsonrpc.org/specification).

mod client_params;
pub(crate) mod field;
mod frame;
mod headers;
mod inbound;
mod list;
mod scan;
mod version;

pub use client_params::{ClientMeta, ClientParams};
pub use frame::{
    FrameError, Incoming, RpcError, TruncatedMessage, encode_error, encode_error_with, encode_notification,
    encode_result, quick_response, read,
};
pub use headers::{HeaderError, HeaderMismatch, HeaderParams, check_header, decode_header_value, header_value};
pub use inbound::{ClientMessage, InvalidMessage, read_client_message};
pub use list::one_line;
pub use list::{Page, tool_definition, wire_definition, wire_definition_text};
pub use scan::{Member, ScanError, is_deeper_than, is_key, scan_object};
pub use version::{Era, LATEST_LEGACY, LEGACY_VERSIONS, MODERN, is_modern};

/// JSON-RPC ([section 5.1](https://www.jsonrpc.org/specification#error_object)) and MCP error codes.
pub mod code {
    /// The message is not JSON.
    pub const PARSE: i64 = -32700;
    /// The message is not a valid request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// The method does not exist.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters are invalid.
    pub const INVALID_PARAMS: i64 = -32602;
    /// An internal error occurred.
    pub const INTERNAL: i64 = -32603;
    /// A request timed out. The SDKs also use it for unknown sessions.
    pub const TIMEOUT: i64 = -32001;
    /// The resource does not exist (up to 2025-11-25; later versions use [`INVALID_PARAMS`]).
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// The request's headers contradict its body (2026-07-28).
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The request needs a capability that the client does not declare (2026-07-28).
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The protocol version is not supported (2026-07-28).
    pub const UNSUPPORTED_VERSION: i64 = -32022;
}

/// Modern `_meta` keys (2026-07-28).
pub mod meta {
    /// A request's protocol version.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// The client's name and version.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// The client's capabilities.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// The server's name and version.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// A request's minimum log level.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// The id of the `subscriptions/listen` request that a notification belongs to.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
    /// The tasks extension's name.
    pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
    /// A gateway's id, in its handshake. A gateway does not connect to itself.
    pub const GATEWAY_ID: &str = "dev.ropeway/gatewayId";
    /// The era and version of the server behind a gateway, in the gateway's handshake with the same user's command.
    pub const SERVER_PROTOCOL: &str = "dev.ropeway/serverProtocol";
}
