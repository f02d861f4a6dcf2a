//! Whether and when a failed request is retried.

use std::time::Duration;

use super::error::ProviderError;
use super::settings::RetryPolicy;

impl RetryPolicy {
    /// Returns the backoff before the next attempt, or `None` if the error is final. `jitter` is from 0 to 1.
    pub(super) fn backoff(&self, error: &ProviderError, retries: u32, jitter: f64) -> Option<Duration> {
        if retries >= self.max_retries || !error.is_retryable() {
            return None;
        }
        match error.retry_after {
            Some(requested) => Some(requested).filter(|requested| *requested <= self.max_retry_after),
            None => {
                let doubled = self.initial_backoff.saturating_mul(1_u32.checked_shl(retries).unwrap_or(u32::MAX));
                // Jitter spreads out clients that were rejected at the same time.
                Some(doubled.min(self.max_backoff).mul_f64(1.0 - 0.25 * jitter))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProviderErrorKind;
    use ropeway_core::message::Dialect;

    const POLICY: RetryPolicy = RetryPolicy {
        max_retries: 8,
        initial_backoff: Duration::from_millis(500),
        max_backoff: Duration::from_secs(8),
        max_retry_after: Duration::from_secs(60),
    };

    fn error(kind: ProviderErrorKind, retry_after: Option<Duration>) -> ProviderError {
        let mut error = ProviderError::new(kind, Dialect::Chat, "x");
        error.retry_after = retry_after;
        error
    }

    #[test]
    fn backoff_doubles_up_to_the_maximum_with_jitter() {
        let error = error(ProviderErrorKind::Overloaded, None);
        let pauses = |jitter| (0..8).map(|retries| POLICY.backoff(&error, retries, jitter)).collect::<Vec<_>>();
        let millis = |all: [u64; 8]| all.map(|one| Some(Duration::from_millis(one))).to_vec();
        assert_eq!(pauses(0.0), millis([500, 1000, 2000, 4000, 8000, 8000, 8000, 8000]));
        assert_eq!(pauses(1.0), millis([375, 750, 1500, 3000, 6000, 6000, 6000, 6000]));
        assert_eq!(POLICY.backoff(&error, 8, 0.0), None);
        let endless = RetryPolicy { max_retries: u32::MAX, ..POLICY };
        assert_eq!(endless.backoff(&error, 4_000_000_000, 0.0), Some(POLICY.max_backoff));
    }

    #[test]
    fn a_requested_backoff_is_limited() {
        let requested = |after| POLICY.backoff(&error(ProviderErrorKind::RateLimited, Some(after)), 0, 0.5);
        assert_eq!(requested(Duration::ZERO), Some(Duration::ZERO));
        assert_eq!(requested(Duration::from_secs(60)), Some(Duration::from_secs(60)));
        assert_eq!(requested(Duration::from_millis(60_001)), None);
    }

    #[test]
    fn final_errors_are_not_retried() {
        assert_eq!(POLICY.backoff(&error(ProviderErrorKind::Auth, None), 0, 0.0), None);
        let mut error = error(ProviderErrorKind::Server, None);
        error.should_retry = Some(false);
        assert_eq!(POLICY.backoff(&error, 0, 0.0), None);
    }
}
