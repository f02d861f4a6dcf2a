//! How often sign-ins can be started: by one principal, and by all together.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use ropeway_mcp::RateLimit;

/// How many sign-ins one principal can start in a minute. Each sends requests to an authorization server.
const PER_PRINCIPAL: u32 = 30;

/// Number of sign-ins that all principals can start in a minute.
const PER_GATEWAY: u32 = 300;

const MINUTE: Duration = Duration::from_secs(60);

/// The limits. Without authentication, all clients are one principal.
pub(super) struct StartLimits {
    all: RateLimit,
    /// Each principal's limit, and when it has started a sign-in last. The gateway's limit bounds their number, because only
    /// those within the last minute are kept.
    principals: HashMap<Arc<str>, (RateLimit, Instant)>,
}

impl Default for StartLimits {
    fn default() -> Self {
        Self { all: RateLimit::per(PER_GATEWAY, MINUTE), principals: HashMap::new() }
    }
}

impl StartLimits {
    /// Counts a started sign-in. Returns `false` if there were too many.
    pub(super) fn take(&mut self, principal: &Arc<str>) -> bool {
        let now = Instant::now();
        // After a minute, the bucket is full again.
        self.principals.retain(|_, (_, used_at)| now.saturating_duration_since(*used_at) < MINUTE);
        let own = self.principals.get_mut(principal);
        // A principal at its limit does not use up the others' limit.
        if let Some((limit, used_at)) = own {
            let is_allowed = limit.take() && self.all.take();
            if is_allowed {
                *used_at = now;
            }
            return is_allowed;
        }
        if !self.all.take() {
            return false;
        }
        let mut limit = RateLimit::per(PER_PRINCIPAL, MINUTE);
        limit.take();
        self.principals.insert(principal.clone(), (limit, now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(limits: &mut StartLimits, principal: &str, times: usize) -> usize {
        let principal = Arc::from(principal);
        (0..times).filter(|_| limits.take(&principal)).count()
    }

    #[tokio::test(start_paused = true)]
    async fn one_principal_cannot_use_up_the_starts_of_the_others() {
        let mut limits = StartLimits::default();
        assert_eq!(take(&mut limits, "key:ann", 1000), PER_PRINCIPAL as usize);
        assert_eq!(take(&mut limits, "key:bob", 10), 10);
        tokio::time::advance(MINUTE).await;
        assert_eq!(take(&mut limits, "key:ann", 1000), PER_PRINCIPAL as usize);
    }

    #[tokio::test(start_paused = true)]
    async fn the_starts_of_all_principals_are_limited() {
        let mut limits = StartLimits::default();
        let started: usize = (0..10_000).map(|number| take(&mut limits, &format!("jwt:{number}"), 1)).sum();
        assert_eq!((started, limits.principals.len()), (PER_GATEWAY as usize, PER_GATEWAY as usize));
        tokio::time::advance(MINUTE).await;
        assert_eq!(take(&mut limits, "jwt:later", 1), 1);
        assert_eq!(limits.principals.len(), 1);
    }
}
