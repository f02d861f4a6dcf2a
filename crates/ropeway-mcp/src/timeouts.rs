//! One request's timeouts.

use std::time::Duration;

use tokio::time::Instant;

/// One request's idle timeout and deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTimeouts {
    /// Maximum time without a response or a progress notification.
    pub(crate) idle: Duration,
    pub(crate) deadline: Instant,
    pub(crate) started: Instant,
}

impl RequestTimeouts {
    /// Returns timeouts that both last this long, from now on.
    pub(crate) fn within(limit: Duration) -> Self {
        let started = Instant::now();
        Self { idle: limit, deadline: started + limit, started }
    }
}
