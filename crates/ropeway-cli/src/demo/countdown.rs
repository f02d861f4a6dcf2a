//! A slow tool that reports progress.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::message::text_result;

/// Maximum countdown duration.
pub(super) const MAX_SECONDS: f64 = 600.0;
/// Maximum steps in a countdown.
pub(super) const MAX_STEPS: u32 = 1000;

/// A countdown's duration and steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Countdown {
    seconds: f64,
    steps: u32,
}

impl Countdown {
    pub(super) fn new(seconds: f64, steps: f64) -> Result<Self, String> {
        if !(0.0..=MAX_SECONDS).contains(&seconds) {
            return Err(format!("`seconds` must be between 0 and {MAX_SECONDS}"));
        }
        if !(1.0..=f64::from(MAX_STEPS)).contains(&steps) || steps.fract() != 0.0 {
            return Err(format!("`steps` must be a whole number between 1 and {MAX_STEPS}"));
        }
        Ok(Self { seconds, steps: steps as u32 })
    }

    /// Counts down. Returns `None` if it was stopped.
    pub(super) fn run(self, stopped: &Receiver<()>, report: impl Fn(f64, f64, &str)) -> Option<Value> {
        let started = Instant::now();
        for step in 1..=self.steps {
            let due = started + Duration::from_secs_f64(self.seconds * f64::from(step) / f64::from(self.steps));
            let wait = due.saturating_duration_since(Instant::now());
            match stopped.recv_timeout(wait) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return None,
            }
            let left = self.steps - step;
            let message = if left == 0 { "lift-off".to_owned() } else { format!("{left} to go") };
            report(f64::from(step), f64::from(self.steps), &message);
        }
        let plural =
            |count: f64, word: &str| if count == 1.0 { format!("{count} {word}") } else { format!("{count} {word}s") };
        let (seconds, steps) = (plural(self.seconds, "second"), plural(f64::from(self.steps), "step"));
        Some(text_result(&format!("Counted down for {seconds} in {steps}.")))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn every_step_is_reported_in_order() {
        let (_keep, stopped) = mpsc::channel();
        let steps = RefCell::new(Vec::new());
        let countdown = Countdown::new(0.0, 3.0).expect("a countdown");
        let result =
            countdown.run(&stopped, |step, total, text| steps.borrow_mut().push((step, total, text.to_owned())));
        assert_eq!(result, Some(text_result("Counted down for 0 seconds in 3 steps.")));
        let expected = [(1.0, "2 to go"), (2.0, "1 to go"), (3.0, "lift-off")];
        assert_eq!(steps.into_inner(), expected.map(|(step, text)| (step, 3.0, text.to_owned())));
    }

    #[test]
    fn a_stopped_countdown_has_no_result() {
        let (stop, stopped) = mpsc::channel();
        drop(stop);
        assert_eq!(Countdown::new(60.0, 1.0).expect("a countdown").run(&stopped, |_, _, _| {}), None);
    }

    #[test]
    fn invalid_countdowns_are_refused() {
        for (seconds, steps) in [(-1.0, 1.0), (601.0, 1.0), (1.0, 0.0), (1.0, 1.5), (1.0, 1001.0), (f64::NAN, 1.0)] {
            assert!(Countdown::new(seconds, steps).is_err(), "{seconds} {steps}");
        }
    }
}
