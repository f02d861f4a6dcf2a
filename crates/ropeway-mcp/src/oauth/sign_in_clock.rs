//! Time spent on sign-ins, which does not count towards a call's or a handshake's time.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use ropeway_core::sync::lock;

/// Minimum interval between clock checks.
const MIN_SLEEP: Duration = Duration::from_millis(10);

/// Measures the time that a connection's sign-ins take.
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

    /// Returns `true` during a sign-in.
    pub(crate) fn is_running(&self) -> bool {
        lock(&self.0).since.is_some()
    }

    /// Returns the total sign-in time so far.
    pub(crate) fn total(&self) -> Duration {
        let state = lock(&self.0);
        state.total + state.since.map(|since| since.elapsed()).unwrap_or_default()
    }
}

impl SignInClock {
    /// Waits for a deadline, which moves while the clock runs.
    pub(crate) async fn sleep_until(&self, deadline: Instant) {
        let before = self.total();
        loop {
            let (now, end) = (Instant::now(), deadline + (self.total() - before));
            if now >= end {
                return;
            }
            tokio::time::sleep_until(end.max(now + MIN_SLEEP)).await;
        }
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
    async fn a_deadline_moves_while_the_clock_runs() {
        let (clock, started) = (SignInClock::default(), Instant::now());
        let sign_in = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let _running = clock.start();
            tokio::time::sleep(Duration::from_secs(100)).await;
        };
        tokio::join!(clock.sleep_until(started + Duration::from_secs(5)), sign_in);
        assert!((105..107).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    }

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
