//! Turn limits.

use std::fmt;
use std::time::Duration;

use ropeway_core::duration::format_duration;
use ropeway_core::setters::setters;

/// Limits for one turn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TurnLimits {
    /// Maximum model requests.
    pub steps: usize,
    /// Maximum turn duration.
    pub time: Option<Duration>,
    /// Maximum tokens, input and output together. The reply that exceeds it is the last one.
    pub tokens: Option<u64>,
    /// Maximum concurrent calls; 1 runs them in order.
    pub parallel_calls: usize,
    /// Maximum calls per reply. Further calls are not made, and the model receives an error for each.
    pub calls_per_step: usize,
    /// Timeout for one call.
    pub call_time: Duration,
    /// Maximum repetitions of the same calls with the same results in a row.
    pub repeats: usize,
    /// How long a turn waits for servers that are connecting. It continues without those that are late, and later turns do not wait
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
    /// Runs calls one after the other, in the reply's order.
    #[must_use]
    pub fn sequential(self) -> Self {
        self.with_parallel_calls(1)
    }
}

setters!(TurnLimits {
    /// Sets the maximum number of model requests.
    with_steps(steps: usize) => steps = steps;
    /// Sets the maximum duration of the turn.
    with_time(time: Duration) => time = Some(time);
    /// Sets the maximum number of tokens. The reply that exceeds it is the last one.
    with_tokens(tokens: u64) => tokens = Some(tokens);
    /// Sets the maximum number of concurrent calls.
    with_parallel_calls(parallel_calls: usize) => parallel_calls = parallel_calls;
    /// Sets the maximum number of calls per reply.
    with_calls_per_step(calls_per_step: usize) => calls_per_step = calls_per_step;
    /// Sets the timeout of one call.
    with_call_time(call_time: Duration) => call_time = call_time;
    /// Sets the maximum repetitions of the same calls with the same results.
    with_repeats(repeats: usize) => repeats = repeats;
    /// Sets how long a turn waits for servers that are connecting.
    with_connect_time(connect_time: Duration) => connect_time = connect_time;
});

/// The limit that ended a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TurnLimit {
    /// Maximum model requests.
    Steps(usize),
    /// Maximum duration.
    Time(Duration),
    /// Maximum tokens.
    Tokens(u64),
    /// Maximum repetitions of the same calls with the same results.
    Repeats(usize),
}

impl TurnLimit {
    /// Returns its name in JSON and its value; durations are in milliseconds.
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
            Self::Steps(1) => f.write_str("reached the limit of 1 step"),
            Self::Steps(steps) => write!(f, "reached the limit of {steps} steps"),
            Self::Time(time) => write!(f, "reached the limit of {}", format_duration(*time)),
            Self::Tokens(tokens) => write!(f, "reached the limit of {tokens} tokens"),
            Self::Repeats(1) => f.write_str("repeated the same calls with the same results"),
            Self::Repeats(times) => write!(f, "repeated the same calls {times} times with the same results"),
        }
    }
}
