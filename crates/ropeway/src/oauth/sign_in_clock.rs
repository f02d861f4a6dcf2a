//! The time that people spend on sign-ins, which does not count as time of a call or of a handshake.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::lock;

/// Measures the time of all sign-ins of a connection.
#[derive(Debug, Default)]
pub(crate) struct SignInClock(Mutex<ClockState>);

#[derive(Debug, Default)]
struct ClockState {
    total: Duration,
    since: Option<Instant>,
}

impl SignInClock {
    /// Starts the clock until the guard is dropped.
    pub(super) fn start(&self) -> RunningClock<'_> {
        lock(&self.0).since = Some(Instant::now());
        RunningClock(self)
    }

    /// Returns `true` while a person signs in.
    pub(crate) fn is_running(&self) -> bool {
        lock(&self.0).since.is_some()
    }

    /// Returns the time of all sign-ins so far.
    pub(crate) fn total(&self) -> Duration {
        let state = lock(&self.0);
        state.total + state.since.map(|since| since.elapsed()).unwrap_or_default()
    }
}

/// A running [`SignInClock`].
pub(super) struct RunningClock<'a>(&'a SignInClock);

impl Drop for RunningClock<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.0);
        if let Some(since) = state.since.take() {
            state.total += since.elapsed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_clock_runs_only_during_sign_ins() {
        let clock = SignInClock::default();
        for total in [1, 2] {
            let running = clock.start();
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(clock.is_running());
            drop(running);
            tokio::time::advance(Duration::from_secs(60)).await;
            assert_eq!(clock.total(), Duration::from_secs(total));
        }
    }
}
