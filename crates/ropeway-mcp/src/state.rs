//! Connection states.

use std::sync::Arc;

use super::error::ConnectErrorKind;
use super::server_info::ServerInfo;

/// A connection's state, as [`Mcp::state`](super::Mcp::state) reports it.
#[derive(Clone, Debug)]
pub enum ConnectionState {
    /// A connection is being established.
    Connecting {
        /// Number of consecutive failed attempts.
        failures: u32,
    },
    /// The connection is established, and calls can be made.
    Ready {
        /// The server's self-description.
        server: Arc<ServerInfo>,
    },
    /// The server requires authentication.
    NeedsAuth {
        /// The `WWW-Authenticate` header, if the server sent one.
        challenge: Option<String>,
    },
    /// The connection failed or was lost.
    Down {
        /// The reason.
        cause: Arc<ConnectErrorKind>,
        /// When the next attempt starts; `None` if reconnecting is disabled.
        retry_at: Option<std::time::Instant>,
    },
    /// The connection was closed, or `connect` was never called.
    Closed,
}
