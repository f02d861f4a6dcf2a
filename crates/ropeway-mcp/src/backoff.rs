//! Exponential backoff for loops that a server drives.

use std::time::Duration;

use tokio::time::Instant;

/// Idle time after which the backoff starts over.
const RESET_AFTER: Duration = Duration::from_secs(10);

/// Doubles the delay between a loop's rounds while the server keeps it busy.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    wait: Duration,
    /// When the last round was due.
    last: Option<Instant>,
}

impl Backoff {
    /// Creates a backoff that doubles from the first wait to the longest one.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, wait: first, last: None }
    }

    /// Returns the delay before the next round.
    pub fn next_wait(&mut self) -> Duration {
        let now = Instant::now();
        let reset_after = RESET_AFTER.max(self.wait.saturating_mul(2));
        let is_idle = self.last.is_none_or(|last| now.saturating_duration_since(last) > reset_after);
        self.wait = if is_idle { self.first } else { self.wait.saturating_mul(2).min(self.longest) };
        self.last = Some(now + self.wait);
        self.wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn delays_double_up_to_the_maximum_and_reset_when_idle() {
        let seconds = Duration::from_secs;
        let mut backoff = Backoff::new(seconds(1), seconds(5));
        let mut waits = Vec::new();
        for _ in 0..5 {
            let wait = backoff.next_wait();
            waits.push(wait.as_secs());
            tokio::time::sleep(wait).await;
        }
        assert_eq!(waits, [1, 2, 4, 5, 5]);
        tokio::time::sleep(RESET_AFTER + seconds(1)).await;
        assert_eq!(backoff.next_wait(), seconds(1));
    }
}
