//! The rate limit for restarts that operators request.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use ropeway_core::sync::lock;
use ropeway_core::tool::Alias;

/// Minimum time between two restarts of a server.
const MIN_INTERVAL: Duration = Duration::from_secs(3);

/// Remembers the latest restarts.
#[derive(Default)]
pub(crate) struct RestartLimit(Mutex<HashMap<Alias, Instant>>);

impl RestartLimit {
    /// Counts a server restart. Fails with the remaining time if the previous one is too recent.
    pub(crate) fn take(&self, server: &Alias) -> Result<(), Duration> {
        let mut latest = lock(&self.0);
        latest.retain(|_, at| at.elapsed() < MIN_INTERVAL);
        if let Some(at) = latest.get(server) {
            return Err(MIN_INTERVAL.saturating_sub(at.elapsed()));
        }
        latest.insert(server.clone(), Instant::now());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_is_restarted_once_per_interval() {
        let (limit, one, two) = (RestartLimit::default(), Alias::new("one"), Alias::new("two"));
        assert_eq!((limit.take(&one), limit.take(&two)), (Ok(()), Ok(())));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(limit.take(&one), Err(Duration::from_secs(2)));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(limit.take(&one), Ok(()));
        assert_eq!(lock(&limit.0).len(), 1, "old restarts are forgotten");
    }
}
