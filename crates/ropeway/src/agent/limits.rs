//! Limits: how far a turn may go, and which one it came to.

use std::fmt;
use std::time::Duration;

use crate::duration::format_duration;

/// How far one turn may go.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TurnLimits {
    /// How often the model is asked.
    pub steps: usize,
    /// How long it may take in all.
    pub time: Option<Duration>,
    /// How many tokens it may cost, read and written.
    pub tokens: Option<u64>,
    /// How many calls run at once; one means one after the other.
    pub parallel_calls: usize,
    /// How many calls the model may ask for at once; what comes on top is not made, and it is told so.
    pub calls_per_step: usize,
    /// How long one call may take.
    pub call_time: Duration,
    /// How often in a row the model may make the same calls and get the same results.
    pub repeats: usize,
    /// How long a turn waits for servers that are being connected. It goes on without those that are late, and later turns do not wait
    /// for the same servers again.
    pub connect_time: Duration,
}

impl Default for TurnLimits {
    fn default() -> Self {
        Self {
            steps: 50,
            time: None,
            tokens: None,
            parallel_calls: 32,
            calls_per_step: 128,
            call_time: Duration::from_secs(600),
            repeats: 8,
            connect_time: Duration::from_secs(60),
        }
    }
}

impl TurnLimits {
    /// Asks the model at most so often.
    #[must_use]
    pub fn with_steps(self, steps: usize) -> Self {
        Self { steps, ..self }
    }

    /// Takes at most so long in all.
    #[must_use]
    pub fn with_time(self, time: Duration) -> Self {
        Self { time: Some(time), ..self }
    }

    /// Costs at most about so many tokens: the answer that passes the limit is the last one.
    #[must_use]
    pub fn with_tokens(self, tokens: u64) -> Self {
        Self { tokens: Some(tokens), ..self }
    }

    /// Runs at most so many calls at once.
    #[must_use]
    pub fn with_parallel_calls(self, parallel_calls: usize) -> Self {
        Self { parallel_calls, ..self }
    }

    /// Runs one call after the other, in the order in which the model asked for them.
    #[must_use]
    pub fn sequential(self) -> Self {
        self.with_parallel_calls(1)
    }

    /// Makes at most so many calls of one answer.
    #[must_use]
    pub fn with_calls_per_step(self, calls_per_step: usize) -> Self {
        Self { calls_per_step, ..self }
    }

    /// Gives each call so much time.
    #[must_use]
    pub fn with_call_time(self, call_time: Duration) -> Self {
        Self { call_time, ..self }
    }

    /// Takes the same calls with the same results so often in a row.
    #[must_use]
    pub fn with_repeats(self, repeats: usize) -> Self {
        Self { repeats, ..self }
    }

    /// Waits so long for servers that are being connected.
    #[must_use]
    pub fn with_connect_time(self, connect_time: Duration) -> Self {
        Self { connect_time, ..self }
    }
}

/// The limit that a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TurnLimit {
    /// The model was asked so often.
    Steps(usize),
    /// It took so long.
    Time(Duration),
    /// It may cost so many tokens, and has cost more.
    Tokens(u64),
    /// The model made the same calls and got the same results so often.
    Repeats(usize),
}

impl TurnLimit {
    /// Its name in JSON, and how much there may be; times are in milliseconds.
    pub(super) fn parts(&self) -> (&'static str, u64) {
        match *self {
            Self::Steps(steps) => ("steps", steps as u64),
            Self::Time(time) => ("time_ms", time.as_millis().try_into().unwrap_or(u64::MAX)),
            Self::Tokens(tokens) => ("tokens", tokens),
            Self::Repeats(times) => ("repeats", times as u64),
        }
    }
}

impl fmt::Display for TurnLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps(1) => f.write_str("the limit of 1 step is reached"),
            Self::Steps(steps) => write!(f, "the limit of {steps} steps is reached"),
            Self::Time(time) => write!(f, "the limit of {} is reached", format_duration(*time)),
            Self::Tokens(tokens) => write!(f, "the limit of {tokens} tokens is reached"),
            Self::Repeats(1) => f.write_str("the same calls were made before with the same results"),
            Self::Repeats(times) => write!(f, "the same calls were made {times} times with the same results"),
        }
    }
}
