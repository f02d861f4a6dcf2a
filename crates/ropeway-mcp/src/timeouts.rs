//! The timeouts of one request.

use std::time::Duration;

use tokio::time::Instant;

/// The idle timeout and the deadline of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTimeouts {
    /// Maximum time without a response or a progress notification.
    pub(crate) idle: Duration,
    pub(crate) deadline: Instant,
    pub(crate) started: Instant,
}

impl RequestTimeouts {
    /// Returns timeouts of this duration, from now on.
    pub(crate) fn within(limit: Duration) -> Self {
        let started = Instant::now();
        Self { idle: limit, deadline: started + limit, started }
    }
}
