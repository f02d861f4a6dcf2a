//! Whether a session's servers are ready: connection and health.

use std::path::Path;
use std::time::Duration;

use ropeway_bridge::BridgeHealth;
use ropeway_bridge::registry::{ServerState, ServerStatus};
use ropeway_core::tool::{Alias, CallError};
use ropeway_mcp::ConnectionState;
use serde_json::Value;
use tokio::time::Instant;

use crate::connect::deadline::Deadline;
use crate::connect::fan_out::{Reply, query_servers};
use crate::connect::gateway_client;
use crate::connect::session::Session;
use crate::failure::{Exit, Failure};
use crate::terminal::text::clean_line;

/// Time limit for a health check, and the time reserved for it.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);
const HEALTH_RESERVE: Duration = Duration::from_millis(500);

/// Interval between two checks on what a gateway has measured.
const HEALTH_INTERVAL: Duration = Duration::from_millis(20);

impl Session {
    /// Waits until every server is connected or failed, or the deadline passes.
    pub(crate) async fn wait_for_servers(&self) -> Result<(), Failure> {
        let until = self.deadline.as_ref().map(Deadline::at);
        let answers = query_servers(self, "connecting to", until, async |_| Ok(())).await;
        let (Some(alias), [(status, answer)]) = (self.single(), &answers[..]) else { return Ok(()) };
        match answer {
            Reply::TimedOut => {
                Err(self.timeout_failure(if self.server(alias).is_some_and(|server| server.is_connected()) {
                    "listing the tools of"
                } else {
                    "connecting to"
                }))
            }
            _ => self.check_available(alias, status).await,
        }
    }

    /// Returns a failure if the command's only server is not available.
    async fn check_available(&self, alias: &Alias, status: &ServerStatus) -> Result<(), Failure> {
        match &status.state {
            ServerState::Ready { .. }
            | ServerState::Cached { .. }
            | ServerState::FilteredToZero { .. }
            | ServerState::Hidden { .. } => {
                return Ok(());
            }
            ServerState::Disabled | ServerState::Skipped { .. } | ServerState::Invalid { .. } => {
                let failure = Failure::usage(status.to_string());
                return Err(self.advice.for_status(status).into_iter().fold(failure, Failure::hint));
            }
            _ => {}
        }
        let server = self.server(alias);
        let state = server.as_ref().map(|server| server.state().borrow().clone());
        Err(match (state, server) {
            (Some(ConnectionState::Down { cause, .. }), _) => Failure::connect(alias, cause),
            (Some(ConnectionState::NeedsAuth { challenge }), _) if self.advice.sends_token(alias) => {
                let failure = Failure::new(Exit::NeedsAuth, format!("server `{alias}` rejected the token"));
                let response = challenge.map(|challenge| format!("server response: {}", clean_line(&challenge)));
                response.into_iter().fold(failure, Failure::hint)
            }
            (Some(ConnectionState::NeedsAuth { challenge }), _) => {
                CallError::NeedsAuth { server: alias.clone(), challenge }.into()
            }
            // The server is connected but did not list its tools: listing again returns the full error.
            (Some(ConnectionState::Ready { .. }), Some(server)) => {
                match self.step("listing the tools of", alias, server.refresh_tools()).await? {
                    Ok(_) => return Ok(()),
                    Err(error) => Failure::listing(&error),
                }
            }
            _ => Failure::new(Exit::Unreachable, status.to_string()),
        })
    }

    /// Checks every server's health. Slow servers do not delay the others.
    pub(crate) async fn health(&self) -> BridgeHealth {
        let until = self.deadline.as_ref().map(|deadline| deadline.at() - HEALTH_RESERVE.min(deadline.after() / 4));
        query_servers(self, "connecting to", until, async |_| Ok(())).await;
        let left = self.deadline.as_ref().map(|deadline| deadline.at().saturating_duration_since(Instant::now()));
        let patience = left.map_or(HEALTH_TIMEOUT, |left| left.min(HEALTH_TIMEOUT));
        let label = || "checking connections".to_owned();
        let check = async {
            let mut health = self.bridge.health_check_within(patience).await;
            if let Some(socket) = &self.gateway {
                add_gateway_health(&mut health, socket, patience).await;
            }
            health
        };
        self.status.during_labelled(label, check).await
    }
}

/// Replaces what was measured through a gateway by what the gateway measured.
async fn add_gateway_health(health: &mut BridgeHealth, socket: &Path, patience: Duration) {
    let end = Instant::now() + patience;
    let measured = loop {
        match gateway_client::health(socket, patience).await {
            Ok(Value::Null) if Instant::now() < end => tokio::time::sleep(HEALTH_INTERVAL).await,
            Ok(measured) => break measured,
            Err(_) => return,
        }
    };
    let servers = measured["servers"].as_array().map(Vec::as_slice).unwrap_or_default();
    for server in health.servers.iter_mut().filter(|server| server.transport == Some("socket")) {
        let Some(measured) = servers.iter().find(|measured| measured["server"] == server.server.as_str()) else {
            continue;
        };
        let latency = measured["latency_ms"].as_f64().and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
        server.latency = latency.filter(|_| server.latency.is_some());
        server.transport = ["stdio", "http", "sse"].into_iter().find(|name| measured["transport"] == *name);
        let lines = measured["stderr"].as_array().into_iter().flatten().filter_map(Value::as_str);
        server.stderr = lines.map(str::to_owned).collect();
    }
}
