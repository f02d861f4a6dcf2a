//! A gateway's counts for `ropeway top`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::latency::LatencyHistogram;
use super::metrics::MetricsTable;
use ropeway_bridge::registry::ServerStatus;

/// A gateway's counts since its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GatewayStats {
    /// Time since the start in milliseconds.
    pub uptime_ms: u64,
    /// Open client connections.
    pub connections: usize,
    /// Legacy clients' sessions in memory.
    pub sessions: usize,
    /// Requests in progress.
    pub requests: usize,
    /// Audit log lines that were not written.
    pub dropped_lines: u64,
    /// Spans that were not exported.
    pub dropped_spans: u64,
    /// The servers, in configuration order.
    pub servers: Vec<ServerStatus>,
    /// The client requests, by server, method and tool.
    pub operations: Vec<OperationStats>,
}

/// One method's requests for one tool or prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OperationStats {
    /// The server; empty for requests that the gateway answers itself.
    pub server: String,
    /// The method; empty for methods that do not exist.
    pub method: String,
    /// The server's own name for the tool or prompt; empty for other methods.
    pub name: String,
    /// Number of failed requests.
    pub errors: u64,
    /// All requests' latencies.
    pub latency: LatencyHistogram,
}

impl GatewayStats {
    /// Creates the request counts. Everything else is zero.
    pub(crate) fn new(table: &MetricsTable, uptime: Duration) -> Self {
        let operation = |(server, method, name, operation): (&str, Option<_>, &str, &super::metrics::Operation)| {
            let method = method.map_or("", crate::method::Method::as_str).to_owned();
            let (errors, latency) = (operation.series.failures(), operation.latency.clone());
            OperationStats { server: server.to_owned(), method, name: name.to_owned(), errors, latency }
        };
        Self {
            uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
            connections: 0,
            sessions: 0,
            requests: 0,
            dropped_lines: 0,
            dropped_spans: 0,
            servers: Vec::new(),
            operations: table.operations().into_iter().map(operation).collect(),
        }
    }
}
