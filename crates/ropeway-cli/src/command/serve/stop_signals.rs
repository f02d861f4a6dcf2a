//! The signals that end a gateway.

use std::future::poll_fn;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Exit, Failure};

/// The signals that end a gateway: the first one after the calls in progress, the second one at once.
pub(super) struct StopSignals {
    signals: Vec<Signal>,
    /// Handled, but ignored: a gateway in the background outlives its terminal.
    _ignored: Option<Signal>,
}

impl StopSignals {
    pub(super) fn install(is_background: bool) -> Result<Self, Failure> {
        let install = |kind| {
            signal(kind).map_err(|error| Failure::new(Exit::Unreachable, "could not handle signals").caused_by(&error))
        };
        let mut signals = vec![install(SignalKind::interrupt())?, install(SignalKind::terminate())?];
        signals.push(install(SignalKind::quit())?);
        let hangup = install(SignalKind::hangup())?;
        if is_background {
            return Ok(Self { signals, _ignored: Some(hangup) });
        }
        signals.push(hangup);
        Ok(Self { signals, _ignored: None })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) {
        poll_fn(|cx| {
            let is_received = |signal: &mut Signal| matches!(signal.poll_recv(cx), Poll::Ready(Some(())));
            if self.signals.iter_mut().any(is_received) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
