//! Health of a bridge's servers.

use std::time::{Duration, SystemTime};

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use super::slot::ServerSlot;
use crate::registry::ServerState;
use ropeway_config::Transport;
use ropeway_core::duration::format_duration;
use ropeway_core::error_chain::chain;
use ropeway_core::tool::Alias;
use ropeway_mcp::Era;

/// Default ping timeout.
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Health of a bridge's servers, as returned by [`Bridge::health_check`](super::Bridge::health_check).
///
/// In JSON, [`is_healthy`](Self::is_healthy) is `healthy` and [`is_running_healthy`](Self::is_running_healthy) is `running_healthy`;
/// `well` and `running_well` are their former names.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BridgeHealth {
    /// Each server's health, in configuration order.
    pub servers: Vec<ServerHealth>,
}

impl BridgeHealth {
    /// Returns `true` if every configured server responds, is lazy and not started yet, or is disabled.
    pub fn is_healthy(&self) -> bool {
        self.servers.iter().all(ServerHealth::is_healthy)
    }

    /// Returns `true` if every connected server responds. Servers that are down, skipped or not started are ignored, unless no
    /// server is connected: then this is [`is_healthy`](Self::is_healthy).
    pub fn is_running_healthy(&self) -> bool {
        let mut running = self.servers.iter().filter(|server| server.is_running()).peekable();
        if running.peek().is_none() { self.is_healthy() } else { running.all(ServerHealth::is_healthy) }
    }
}

impl Serialize for BridgeHealth {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut record = serializer.serialize_struct("Health", 5)?;
        record.serialize_field("healthy", &self.is_healthy())?;
        record.serialize_field("running_healthy", &self.is_running_healthy())?;
        record.serialize_field("well", &self.is_healthy())?;
        record.serialize_field("running_well", &self.is_running_healthy())?;
        record.serialize_field("servers", &self.servers)?;
        record.end()
    }
}

/// One server's health.
///
/// In JSON, [`state`](Self::state) is `status`; `verdict` is its former name, and `noise` is the former name for `invalid_lines`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerHealth {
    /// Server alias.
    pub server: Alias,
    /// Server state.
    pub state: ServerState,
    /// Transport: `stdio`, `http`, `sse` or `in-process`; `None` if the entry is disabled or invalid.
    pub transport: Option<&'static str>,
    /// Name that the server reports.
    pub name: Option<String>,
    /// Version that the server reports.
    pub version: Option<String>,
    /// The connection's protocol era.
    pub era: Option<Era>,
    /// Negotiated protocol version; `None` if the server is not connected.
    pub protocol_version: Option<String>,
    /// Ping round-trip time; `None` if it failed.
    pub latency: Option<Duration>,
    /// Number of exposed tools.
    pub tools: usize,
    /// Note about the tools, such as a limit that was reached.
    pub note: Option<String>,
    /// Latest failure.
    pub last_error: Option<String>,
    /// Time since the latest failure.
    pub last_error_ago: Option<Duration>,
    /// Last lines of the process's stderr.
    pub stderr: Vec<String>,
    /// How many stdout lines are not JSON-RPC messages.
    pub invalid_lines: u64,
    /// How many entries share the connection, in all bridges with the same [`ProcessPool`](crate::ProcessPool).
    pub users: usize,
}

impl Serialize for ServerHealth {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let milliseconds = |time: Option<Duration>| time.map(|time| time.as_micros() as f64 / 1000.0);
        let mut record = serializer.serialize_struct("ServerHealth", 17)?;
        record.serialize_field("server", &self.server)?;
        record.serialize_field("status", &self.state)?;
        record.serialize_field("verdict", &self.state)?;
        record.serialize_field("transport", &self.transport)?;
        record.serialize_field("name", &self.name)?;
        record.serialize_field("version", &self.version)?;
        record.serialize_field("era", &self.era)?;
        record.serialize_field("protocol_version", &self.protocol_version)?;
        record.serialize_field("latency_ms", &milliseconds(self.latency))?;
        record.serialize_field("tools", &self.tools)?;
        match &self.note {
            Some(note) => record.serialize_field("note", note)?,
            None => record.skip_field("note")?,
        }
        record.serialize_field("last_error", &self.last_error)?;
        record.serialize_field("last_error_ago_ms", &milliseconds(self.last_error_ago))?;
        record.serialize_field("stderr", &self.stderr)?;
        record.serialize_field("invalid_lines", &self.invalid_lines)?;
        record.serialize_field("noise", &self.invalid_lines)?;
        record.serialize_field("users", &self.users)?;
        record.end()
    }
}

impl ServerHealth {
    /// Returns `true` if the server responds, is lazy and not started yet, or is disabled.
    pub fn is_healthy(&self) -> bool {
        match self.state {
            ServerState::Ready { .. } | ServerState::FilteredToZero { .. } | ServerState::Hidden { .. } => {
                self.latency.is_some() || !self.is_running()
            }
            ServerState::Cached { .. } | ServerState::Disabled => true,
            _ => false,
        }
    }

    /// Returns `true` if the server is connected.
    pub fn is_running(&self) -> bool {
        self.protocol_version.is_some()
    }

    /// Pings a server.
    pub(super) async fn of(slot: &ServerSlot, timeout: Duration) -> Self {
        let mcp = slot.mcp();
        let mut last_error = slot.last_error();
        let mut latency = None;
        if let Some(mcp) = mcp.as_ref().filter(|mcp| mcp.is_connected()) {
            match tokio::time::timeout(timeout, mcp.ping()).await {
                Ok(Ok(took)) => latency = Some(took),
                Ok(Err(error)) => last_error = Some(slot.set_last_error(chain(&error))),
                Err(_) => {
                    last_error =
                        Some(slot.set_last_error(format!("no response to ping within {}", format_duration(timeout))));
                }
            }
        }
        let snapshot = slot.snapshot();
        let info = mcp.as_ref().and_then(|mcp| mcp.server_info());
        let info = info.as_deref();
        Self {
            server: slot.alias().clone(),
            state: snapshot.state,
            transport: slot.config().map(|config| transport_name(&config.transport)),
            name: info.map(|info| info.name.clone()).filter(|name| !name.is_empty()),
            version: info.map(|info| info.version.clone()).filter(|version| !version.is_empty()),
            era: info.map(|info| info.server_era),
            protocol_version: info.map(|info| info.protocol_version.clone()),
            latency,
            tools: snapshot.tools,
            note: snapshot.note,
            last_error_ago: last_error.as_ref().and_then(|error| SystemTime::now().duration_since(error.at).ok()),
            last_error: last_error.map(|error| error.message),
            stderr: mcp.as_ref().map(|mcp| mcp.stderr_tail()).unwrap_or_default(),
            invalid_lines: mcp.as_ref().map_or(0, |mcp| mcp.invalid_lines()),
            users: slot.users(),
        }
    }
}

fn transport_name(transport: &Transport) -> &'static str {
    match transport {
        Transport::Stdio(_) => "stdio",
        Transport::Http(_) => "http",
        Transport::Sse(_) => "sse",
        Transport::InProcess(_) => "in-process",
        Transport::Socket(_) => "socket",
    }
}
