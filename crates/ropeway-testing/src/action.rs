//! A scripted server's actions.

use std::time::Duration;

use serde_json::Value;

/// An action and its delay after the previous one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TimedAction {
    pub(super) after: Duration,
    pub(super) action: Action,
}

/// A server action.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Send a message; `to` is the request that it belongs to, if any.
    Send { text: String, to: Option<Value>, answer: bool },
    /// Write bytes that are not a message.
    Raw { bytes: Vec<u8>, to: Option<Value> },
    /// Nothing more will be sent for this request.
    Done { to: Value },
    /// Cancel all pending actions for this request.
    Cancel { to: Value },
    /// Write this many bytes to stderr.
    Stderr { bytes: usize },
    /// Write this line to stderr.
    StderrLine(String),
    /// Close the output and keep running.
    CloseOutput,
    /// Exit.
    Exit(i32),
}

pub(super) fn immediate(action: Action) -> TimedAction {
    TimedAction { after: Duration::ZERO, action }
}

pub(super) fn send(message: &Value, to: Option<&Value>, answer: bool) -> TimedAction {
    immediate(Action::Send { text: message.to_string(), to: to.cloned(), answer })
}
