//! Health: how every server of a bridge does.

use std::time::{Duration, SystemTime};

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use super::slot::Slot;
use crate::config::Transport;
use crate::duration::format_duration;
use crate::mcp::Era;
use crate::registry::ServerState;
use crate::tool::Alias;

/// How long a server may take to say that it is alive, where nothing else is said.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How every server of a bridge does.
///
/// [`is_well`](Self::is_well) asks for every configured server, [`is_running_well`](Self::is_running_well) only for those that run.
///
/// In JSON they are `well` and `running_well`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BridgeHealth {
    /// One record for each server, in the order of the configuration.
    pub servers: Vec<ServerHealth>,
}

impl BridgeHealth {
    /// Returns whether every server of the configuration is well: it answers, sleeps until it is needed, or is disabled.
    pub fn is_well(&self) -> bool {
        self.servers.iter().all(ServerHealth::is_well)
    }

    /// Returns whether every server that runs answers. Servers that are down, skipped or not started do not count, so a bridge
    /// whose remaining servers work is well in this sense.
    pub fn is_running_well(&self) -> bool {
        self.servers.iter().filter(|server| server.is_running()).all(ServerHealth::is_well)
    }
}

impl Serialize for BridgeHealth {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut record = serializer.serialize_struct("Health", 3)?;
        record.serialize_field("well", &self.is_well())?;
        record.serialize_field("running_well", &self.is_running_well())?;
        record.serialize_field("servers", &self.servers)?;
        record.end()
    }
}

/// How one server does.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ServerHealth {
    /// The server.
    pub server: Alias,
    /// What it has to offer right now.
    #[serde(rename = "verdict")]
    pub outcome: ServerState,
    /// How it is reached: `stdio`, `http`, `sse` or `in-process`; absent when that is not known.
    pub transport: Option<&'static str>,
    /// What it calls itself.
    pub name: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// The era that it speaks.
    pub era: Option<Era>,
    /// The protocol version that was agreed on.
    pub protocol_version: Option<String>,
    /// How long it took to answer just now; absent when it did not.
    #[serde(rename = "latency_ms", serialize_with = "milliseconds")]
    pub latency: Option<Duration>,
    /// How many of its tools are handed out.
    pub tools: usize,
    /// What else is to be known of them, such as that the list has reached a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// How long ago that was.
    #[serde(rename = "last_error_ago_ms", serialize_with = "milliseconds")]
    pub last_error_ago: Option<Duration>,
    /// The last lines that its process wrote to stderr.
    pub stderr: Vec<String>,
    /// Lines on its standard output that were no messages.
    pub noise: u64,
    /// How many entries share its connection, in this bridge and in others.
    pub users: usize,
}

impl ServerHealth {
    /// It answers, or need not.
    pub fn is_well(&self) -> bool {
        match self.outcome {
            ServerState::Ready { .. } | ServerState::FilteredToZero { .. } | ServerState::Hidden { .. } => {
                self.latency.is_some() || !self.is_running()
            }
            ServerState::Cached { .. } | ServerState::Disabled => true,
            _ => false,
        }
    }

    /// Returns whether the server is connected.
    pub fn is_running(&self) -> bool {
        self.protocol_version.is_some()
    }

    /// Looks at a server, and asks it whether it is alive.
    pub(super) async fn of(slot: &Slot, patience: Duration) -> Self {
        let mcp = slot.mcp();
        let mut last_error = slot.last_error();
        let mut latency = None;
        if let Some(mcp) = mcp.as_ref().filter(|mcp| mcp.is_connected()) {
            match tokio::time::timeout(patience, mcp.ping()).await {
                Ok(Ok(took)) => latency = Some(took),
                Ok(Err(error)) => last_error = Some(slot.failed(crate::mcp::chain(&error))),
                Err(_) => {
                    last_error =
                        Some(slot.failed(format!("it gave no sign of life within {}", format_duration(patience))))
                }
            }
        }
        let view = slot.view();
        let info = mcp.as_ref().and_then(|mcp| mcp.server_info());
        let info = info.as_deref();
        Self {
            server: slot.alias().clone(),
            outcome: view.outcome,
            transport: slot.config().map(|config| transport(&config.transport)),
            name: info.map(|info| info.name.clone()).filter(|name| !name.is_empty()),
            version: info.map(|info| info.version.clone()).filter(|version| !version.is_empty()),
            era: info.map(|info| info.era),
            protocol_version: info.map(|info| info.protocol_version.clone()),
            latency,
            tools: view.tools,
            note: view.note,
            last_error_ago: last_error.as_ref().and_then(|error| SystemTime::now().duration_since(error.at).ok()),
            last_error: last_error.map(|error| error.message),
            stderr: mcp.as_ref().map(|mcp| mcp.stderr_tail()).unwrap_or_default(),
            noise: mcp.as_ref().map_or(0, |mcp| mcp.noise()),
            users: slot.users(),
        }
    }
}

fn transport(transport: &Transport) -> &'static str {
    match transport {
        Transport::Stdio(_) => "stdio",
        Transport::Http(_) => "http",
        Transport::Sse(_) => "sse",
        Transport::InProcess(_) => "in-process",
    }
}

fn milliseconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_micros() as f64 / 1000.0).serialize(serializer)
}
