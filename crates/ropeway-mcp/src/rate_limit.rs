//! A token bucket for events that a server or a client causes.

use std::time::Duration;

use tokio::time::Instant;

/// A token bucket: allows a burst, then a steady rate.
#[derive(Debug)]
pub struct RateLimit {
    burst: f64,
    per_second: f64,
    tokens: f64,
    refilled_at: Instant,
}

impl RateLimit {
    pub(crate) fn new(burst: u32, per_second: u32) -> Self {
        let burst = f64::from(burst);
        Self { burst, per_second: f64::from(per_second), tokens: burst, refilled_at: Instant::now() }
    }

    /// Creates a bucket with `count` tokens per period, which may all be taken at once.
    pub fn per(count: u32, period: Duration) -> Self {
        let burst = f64::from(count);
        Self { burst, per_second: burst / period.as_secs_f64(), tokens: burst, refilled_at: Instant::now() }
    }

    /// Takes a token. Returns `false` if none is left.
    pub fn take(&mut self) -> bool {
        self.try_take().is_ok()
    }

    /// Takes a token. Returns the time until the next one if none is left.
    pub fn try_take(&mut self) -> Result<(), Duration> {
        let now = Instant::now();
        let new = now.saturating_duration_since(self.refilled_at).as_secs_f64() * self.per_second;
        self.refilled_at = now;
        self.tokens = (self.tokens + new).min(self.burst);
        if self.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.tokens) / self.per_second));
        }
        self.tokens -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_rate_limit_allows_a_burst_and_then_a_steady_rate() {
        let mut limit = RateLimit::new(3, 2);
        let take = |limit: &mut RateLimit| (0..10).filter(|_| limit.take()).count();
        assert_eq!(take(&mut limit), 3);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(take(&mut limit), 2);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(take(&mut limit), 3);
    }
}
