//! The pace of what a server drives: waits that grow while it keeps on, and a rate limit for what it says unasked.

use std::time::Duration;

use tokio::time::Instant;

/// A loop that was quiet this long begins anew with its first wait.
const QUIET: Duration = Duration::from_secs(10);

/// Doubles the wait between the rounds of a loop while the server keeps it going.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    wait: Duration,
    /// When the last round was to begin.
    last: Option<Instant>,
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, wait: first, last: None }
    }

    /// Returns the wait before the next round.
    pub(crate) fn next_wait(&mut self) -> Duration {
        let now = Instant::now();
        let quiet = QUIET.max(self.wait.saturating_mul(2));
        let is_calm = self.last.is_none_or(|last| now.saturating_duration_since(last) > quiet);
        self.wait = if is_calm { self.first } else { self.wait.saturating_mul(2).min(self.longest) };
        self.last = Some(now + self.wait);
        self.wait
    }
}

/// A token bucket: what a server says unasked is passed on up to a burst, and then at a steady rate.
#[derive(Debug)]
pub(crate) struct RateLimit {
    burst: f64,
    per_second: f64,
    tokens: f64,
    at: Instant,
}

impl RateLimit {
    pub(crate) fn new(burst: u32, per_second: u32) -> Self {
        let burst = f64::from(burst);
        Self { burst, per_second: f64::from(per_second), tokens: burst, at: Instant::now() }
    }

    /// Takes a token; false when none is left.
    pub(crate) fn take(&mut self) -> bool {
        let now = Instant::now();
        let new = now.saturating_duration_since(self.at).as_secs_f64() * self.per_second;
        self.at = now;
        self.tokens = (self.tokens + new).min(self.burst);
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_the_longest_and_begin_anew_after_a_quiet_time() {
        let seconds = Duration::from_secs;
        let mut backoff = Backoff::new(seconds(1), seconds(5));
        let mut waits = Vec::new();
        for _ in 0..5 {
            let wait = backoff.next_wait();
            waits.push(wait.as_secs());
            tokio::time::sleep(wait).await;
        }
        assert_eq!(waits, [1, 2, 4, 5, 5]);
        tokio::time::sleep(QUIET + seconds(1)).await;
        assert_eq!(backoff.next_wait(), seconds(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_limit_is_a_burst_and_then_a_steady_rate() {
        let mut limit = RateLimit::new(3, 2);
        let take = |limit: &mut RateLimit| (0..10).filter(|_| limit.take()).count();
        assert_eq!(take(&mut limit), 3);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(take(&mut limit), 2);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(take(&mut limit), 3);
    }
}
