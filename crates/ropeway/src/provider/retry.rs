//! Retries: whether a request is sent again, and when.

use std::time::Duration;

use super::{ProviderError, RetryPolicy};

impl RetryPolicy {
    /// The pause before a request is sent again that failed so; `None` if it is not worth it. `chance` is from 0 to 1.
    pub(super) fn pause(&self, error: &ProviderError, retried: u32, chance: f64) -> Option<Duration> {
        if retried >= self.most || !error.is_retryable() {
            return None;
        }
        match error.retry_after {
            Some(wish) => Some(wish).filter(|wish| *wish <= self.longest_wish),
            None => {
                let doubled = self.first_pause.saturating_mul(1_u32.checked_shl(retried).unwrap_or(u32::MAX));
                // Those who were turned away together must not come back together.
                Some(doubled.min(self.longest_pause).mul_f64(1.0 - 0.25 * chance))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Dialect;
    use crate::provider::ProviderErrorKind;

    const OURS: RetryPolicy = RetryPolicy {
        most: 8,
        first_pause: Duration::from_millis(500),
        longest_pause: Duration::from_secs(8),
        longest_wish: Duration::from_secs(60),
    };

    fn trouble(kind: ProviderErrorKind, wish: Option<Duration>) -> ProviderError {
        let mut error = ProviderError::new(kind, Dialect::Chat, "x");
        error.retry_after = wish;
        error
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_lose_up_to_a_quarter() {
        let error = trouble(ProviderErrorKind::Overloaded, None);
        let pauses = |chance| (0..8).map(|retried| OURS.pause(&error, retried, chance)).collect::<Vec<_>>();
        let millis = |all: [u64; 8]| all.map(|one| Some(Duration::from_millis(one))).to_vec();
        assert_eq!(pauses(0.0), millis([500, 1000, 2000, 4000, 8000, 8000, 8000, 8000]));
        assert_eq!(pauses(1.0), millis([375, 750, 1500, 3000, 6000, 6000, 6000, 6000]));
        assert_eq!(OURS.pause(&error, 8, 0.0), None);
        let endless = RetryPolicy { most: u32::MAX, ..OURS };
        assert_eq!(endless.pause(&error, 4_000_000_000, 0.0), Some(OURS.longest_pause));
    }

    #[test]
    fn a_provider_may_ask_for_a_pause_but_not_for_any() {
        let asked = |wish| OURS.pause(&trouble(ProviderErrorKind::RateLimited, Some(wish)), 0, 0.5);
        assert_eq!(asked(Duration::ZERO), Some(Duration::ZERO));
        assert_eq!(asked(Duration::from_secs(60)), Some(Duration::from_secs(60)));
        assert_eq!(asked(Duration::from_millis(60_001)), None);
    }

    #[test]
    fn what_will_not_get_better_is_not_sent_again() {
        assert_eq!(OURS.pause(&trouble(ProviderErrorKind::Auth, None), 0, 0.0), None);
        let mut error = trouble(ProviderErrorKind::Server, None);
        error.should_retry = Some(false);
        assert_eq!(OURS.pause(&error, 0, 0.0), None);
    }
}
