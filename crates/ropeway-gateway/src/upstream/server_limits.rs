//! Limits on the requests to one server, from all clients together.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::request::errors::ErrorReply;
use ropeway_config::{Rate, ServerLimits};
use ropeway_core::sync::lock;
use ropeway_core::tool::Alias;
use ropeway_mcp::RateLimit;

/// Time after which a client may try again if too many requests are in flight.
const BUSY_WAIT: Duration = Duration::from_secs(1);

/// The requests to the servers that have limits.
#[derive(Default)]
pub(crate) struct ServerLimiters(Mutex<HashMap<Alias, Arc<ServerLimiter>>>);

#[derive(Default)]
struct ServerLimiter {
    /// The token bucket, and its rate.
    bucket: Mutex<Option<(Rate, RateLimit)>>,
    running: AtomicUsize,
}

impl ServerLimiters {
    /// Counts a request to a server until the permit is dropped.
    ///
    /// # Errors
    ///
    /// Fails if the server has too many requests.
    pub(crate) fn begin(&self, server: &Alias, limits: &ServerLimits) -> Result<Option<ServerPermit>, ErrorReply> {
        if limits.calls.is_none() && limits.rate.is_none() {
            return Ok(None);
        }
        let limiter = lock(&self.0).entry(server.clone()).or_default().clone();
        let permit = ServerPermit::new(&limiter);
        if let Some(limit) = limits.calls.filter(|limit| permit.before >= *limit) {
            let message = format!("server `{server}` is busy (limit: {limit} calls in flight)");
            return Err(ErrorReply::limited(message, BUSY_WAIT));
        }
        if let Some(rate) = limits.rate {
            limiter.take(rate).map_err(|wait| {
                ErrorReply::limited(format!("too many requests to server `{server}` (limit: {rate})"), wait)
            })?;
        }
        Ok(Some(permit))
    }
}

impl ServerLimiter {
    fn take(&self, rate: Rate) -> Result<(), Duration> {
        let mut bucket = lock(&self.bucket);
        let (_, limit) = match &mut *bucket {
            Some(bucket) if bucket.0 == rate => bucket,
            other => other.insert((rate, RateLimit::per(rate.count(), rate.period()))),
        };
        limit.try_take()
    }
}

/// A request to a server in flight.
pub(crate) struct ServerPermit {
    limiter: Arc<ServerLimiter>,
    /// Number of requests in flight before this one.
    before: usize,
}

impl ServerPermit {
    fn new(limiter: &Arc<ServerLimiter>) -> Self {
        let before = limiter.running.fetch_add(1, Ordering::Relaxed);
        Self { limiter: limiter.clone(), before }
    }
}

impl Drop for ServerPermit {
    fn drop(&mut self) {
        self.limiter.running.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_to_one_server_are_limited() {
        let limiters = ServerLimiters::default();
        let mut limits = ServerLimits::default();
        let (git, web) = (Alias::from("git"), Alias::from("web"));
        assert!(limiters.begin(&git, &limits).is_ok_and(|permit| permit.is_none()));
        limits.calls = Some(1);
        let first = limiters.begin(&git, &limits).expect("a permit");
        let busy = limiters.begin(&git, &limits).map(|_| ()).expect_err("busy");
        assert_eq!((busy.status, busy.retry_after()), (429, Some(1)));
        assert!(limiters.begin(&web, &limits).is_ok());
        drop(first);
        limits.rate = Some("2/m".parse().expect("a rate"));
        for _ in 0..2 {
            limiters.begin(&git, &limits).expect("a permit");
        }
        let limited = limiters.begin(&git, &limits).map(|_| ()).expect_err("limited");
        assert_eq!(limited.message, "too many requests to server `git` (limit: 2/m)");
        assert_eq!(
            (limited.retry_after(), limited.data),
            (Some(30), Some(serde_json::json!({"retryAfterMs": 30_000})))
        );
    }
}
