//! A server's timeouts, limits and reconnection.

use std::time::Duration;

use super::gateway_auth::Rate;

/// Connection timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerTimeouts {
    /// Maximum time from start to a completed handshake.
    pub connect: Duration,
    /// The same for a package runner such as `npx` or `uvx` that makes progress downloading the server. Has no effect if it is
    /// shorter than `connect`.
    pub download: Duration,
    /// Time to wait for the response to the era probe before `initialize` is sent as well.
    pub probe: Duration,
    /// Maximum time that a call waits without a response or a progress notification.
    pub idle: Duration,
    /// Maximum total time per call.
    pub total: Duration,
    /// Time for a server process to exit before it is killed.
    pub close: Duration,
    /// Maximum time that a call waits for a reconnection.
    pub grace: Duration,
}

impl Default for ServerTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(60),
            download: Duration::from_secs(10 * 60),
            probe: Duration::from_secs(5),
            idle: Duration::from_secs(60),
            total: Duration::from_secs(30 * 60),
            close: Duration::from_secs(3),
            grace: Duration::from_secs(5),
        }
    }
}

impl ServerTimeouts {
    /// Limits every timeout to [`MAX_TIMEOUT`]: an `Instant` cannot represent times far in the future.
    pub fn bounded(self) -> Self {
        let Self { connect, download, probe, idle, total, close, grace } = self;
        Self {
            connect: connect.min(MAX_TIMEOUT),
            download: download.min(MAX_TIMEOUT),
            probe: probe.min(MAX_TIMEOUT),
            idle: idle.min(MAX_TIMEOUT),
            total: total.min(MAX_TIMEOUT),
            close: close.min(MAX_TIMEOUT),
            grace: grace.min(MAX_TIMEOUT),
        }
    }
}

/// One year, which stands for no timeout.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Connection size limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Maximum message size in bytes: a line, an event or a response body.
    pub message_bytes: usize,
    /// Maximum pages per list.
    pub pages: usize,
    /// Maximum entries per list over all pages. Further entries are dropped with a warning.
    pub list_entries: usize,
    /// Maximum bytes per list over all pages. A single entry may take an eighth of them.
    pub list_bytes: usize,
    /// Maximum rounds of `input_required` responses per call.
    pub input_rounds: usize,
    /// Maximum elicitation requests from the server during a call.
    pub questions: usize,
    /// Maximum stderr output, in bytes, that is kept.
    pub stderr_bytes: usize,
    /// Maximum concurrent requests to the server from all of a gateway's clients.
    pub calls: Option<usize>,
    /// Maximum request rate to the server, over all of a gateway's clients.
    pub rate: Option<Rate>,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            message_bytes: 64 << 20,
            pages: 1000,
            list_entries: 10_000,
            list_bytes: 32 << 20,
            input_rounds: 10,
            questions: 10,
            stderr_bytes: 64 << 10,
            calls: None,
            rate: None,
        }
    }
}

/// How a lost connection is reestablished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReconnectPolicy {
    /// Whether to reconnect automatically.
    pub enabled: bool,
    /// The delay before the second attempt, at least 20 ms. It doubles with every attempt.
    pub initial_delay: Duration,
    /// The maximum delay between two attempts.
    pub max_delay: Duration,
}

impl Default for ReconnectPolicy {
    fn default() -> Self {
        Self { enabled: true, initial_delay: Duration::from_millis(250), max_delay: Duration::from_secs(30) }
    }
}
