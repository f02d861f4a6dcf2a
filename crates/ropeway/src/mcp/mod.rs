//! One MCP server: connecting, staying connected, calling.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::config::ServerConfig;
use crate::event::{EventStream, Events};
use crate::tool::{Arguments, BoxError, BoxFuture, CallContext, CallError, Tool, ToolDefinition, ToolOutput};

/// The era of the protocol that a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// `initialize`, up to 2025-11-25.
    Legacy,
    /// Stateless, 2026-07-28.
    Modern,
}

/// What a server says about itself.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ServerInfo {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The era.
    pub era: Era,
    /// The agreed protocol version.
    pub protocol_version: String,
    /// Capabilities as sent.
    pub capabilities: Map<String, Value>,
    /// Instructions.
    pub instructions: Option<String>,
}

/// What state the connection is in.
#[derive(Clone, Debug)]
pub enum State {
    /// Being connected.
    Connecting {
        /// Failed tries in a row.
        failures: u32,
    },
    /// Connected.
    Ready {
        /// What the server says about itself.
        server: Arc<ServerInfo>,
    },
    /// Needs auth.
    NeedsAuth {
        /// `WWW-Authenticate`.
        challenge: Option<String>,
    },
    /// Lost.
    Down {
        /// Why.
        cause: Arc<ConnectError>,
        /// When next.
        retry_at: Option<Instant>,
    },
    /// Not connected.
    Closed,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The program could not be started.
    #[error("could not start `{program}`")]
    Spawn {
        /// program
        program: String,
        /// cause
        #[source]
        source: std::io::Error,
    },
    /// Needs auth.
    #[error("the server needs authentication")]
    NeedsAuth {
        /// `WWW-Authenticate`.
        challenge: Option<String>,
    },
    /// Timeout.
    #[error("the server was not ready within {after:?}")]
    Timeout {
        /// how long
        after: std::time::Duration,
    },
    /// Others come.
    #[error("the server could not be reached")]
    Unreachable {
        /// cause
        #[source]
        source: BoxError,
    },
}

/// One server's connection. Cheap to clone; dropping the last clone ends it.
#[derive(Clone)]
pub struct Mcp {}

/// Who answers what the server asks of the host; what is absent is not declared.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Handlers {
    /// Answers `elicitation/create` params with a result (`{"action": ..., "content": ...}`).
    pub elicitation: Option<Arc<dyn Fn(Value) -> BoxFuture<'static, Result<Value, BoxError>> + Send + Sync>>,
    /// Answers `sampling/createMessage` params with a result.
    pub sampling: Option<Arc<dyn Fn(Value) -> BoxFuture<'static, Result<Value, BoxError>> + Send + Sync>>,
    /// Answers `roots/list` with a result.
    pub roots: Option<Arc<dyn Fn() -> BoxFuture<'static, Result<Value, BoxError>> + Send + Sync>>,
}

#[allow(unused_variables, clippy::unused_async, missing_docs)]
impl Mcp {
    /// Synchronous and cheap: nothing is started.
    pub fn new(config: ServerConfig) -> Self {
        todo!()
    }
    pub fn with_handlers(config: ServerConfig, handlers: Handlers, events: Events) -> Self {
        todo!()
    }
    pub async fn connect(&self) -> Result<(), ConnectError> {
        todo!()
    }
    pub async fn close(&self) {
        todo!()
    }
    pub fn is_connected(&self) -> bool {
        todo!()
    }
    pub fn state(&self) -> watch::Receiver<State> {
        todo!()
    }
    pub fn events(&self) -> EventStream {
        todo!()
    }
    /// what the server says about itself, while connected
    pub fn server_info(&self) -> Option<Arc<ServerInfo>> {
        todo!()
    }
    /// The last lines of the child's stderr (stdio only).
    pub fn stderr_tail(&self) -> Vec<String> {
        todo!()
    }
    /// `prefix` is put before each name, joined by `_`; `None` leaves the server's own names.
    pub async fn list_tools(&self, prefix: Option<&str>) -> Result<Vec<Arc<dyn Tool>>, CallError> {
        todo!()
    }
    pub async fn list_tool_definitions(&self, prefix: Option<&str>) -> Result<Vec<ToolDefinition>, CallError> {
        todo!()
    }
    pub async fn refresh_tools(&self) -> Result<(), CallError> {
        todo!()
    }
    /// by the server's own name for the tool
    pub async fn call_tool(&self, tool: &str, arguments: Arguments, cx: &CallContext) -> Result<ToolOutput, CallError> {
        todo!()
    }
    /// Any other request of the protocol, raw: `params` and the result are plain JSON.
    pub async fn request(
        &self,
        method: &str,
        params: Map<String, Value>,
        cx: &CallContext,
    ) -> Result<Value, CallError> {
        todo!()
    }
}
