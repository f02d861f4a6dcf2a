//! The signals that stop a gateway, and the one that reopens its logs.

use std::future::poll_fn;
use std::io::IsTerminal as _;
use std::task::Poll;

use ropeway_config::{GatewaySettings, LogTarget};
use ropeway_gateway::Gateway;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Exit, Failure};

/// Why a gateway stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopSignal {
    /// By a user, or because its client is gone.
    AtOnce,
    /// By SIGTERM, which service managers send.
    Terminate,
}

/// The signals that stop a gateway: the first one lets calls in progress finish, the second one does not wait.
pub(super) struct StopSignals {
    signals: Vec<(StopSignal, Signal)>,
    hangup: Signal,
    on_hangup: OnHangup,
}

/// What SIGHUP does.
enum OnHangup {
    Stop,
    /// A gateway in the background outlives its terminal.
    Ignore,
    /// Log rotation has renamed the log files.
    ReopenLogs(Gateway),
}

impl StopSignals {
    pub(super) fn install(is_background: bool) -> Result<Self, Failure> {
        let install = |kind| {
            signal(kind).map_err(|error| Failure::new(Exit::Unreachable, "could not handle signals").caused_by(&error))
        };
        let signals = vec![
            (StopSignal::Terminate, install(SignalKind::terminate())?),
            (StopSignal::AtOnce, install(SignalKind::interrupt())?),
            (StopSignal::AtOnce, install(SignalKind::quit())?),
        ];
        let on_hangup = if is_background { OnHangup::Ignore } else { OnHangup::Stop };
        Ok(Self { signals, hangup: install(SignalKind::hangup())?, on_hangup })
    }

    /// Makes SIGHUP reopen the logs, if any log is a file. On a terminal, SIGHUP means that the terminal is closed.
    pub(super) fn reopen_logs_of(&mut self, gateway: &Gateway, settings: &GatewaySettings) {
        let is_file = |target: &LogTarget| matches!(target, LogTarget::File(_));
        let logs = settings.audit.iter().map(|audit| &audit.file).chain(&settings.access_log);
        let is_terminal = matches!(self.on_hangup, OnHangup::Stop) && std::io::stdin().is_terminal();
        if logs.into_iter().any(is_file) && !is_terminal {
            self.on_hangup = OnHangup::ReopenLogs(gateway.clone());
        }
    }

    /// Waits for the next signal that stops the gateway.
    pub(super) async fn next(&mut self) -> StopSignal {
        poll_fn(|cx| {
            while let Poll::Ready(Some(())) = self.hangup.poll_recv(cx) {
                match &self.on_hangup {
                    OnHangup::Stop => return Poll::Ready(StopSignal::AtOnce),
                    OnHangup::Ignore => {}
                    OnHangup::ReopenLogs(gateway) => gateway.reopen_logs(),
                }
            }
            let mut is_received = |signal: &mut Signal| matches!(signal.poll_recv(cx), Poll::Ready(Some(())));
            let received = self.signals.iter_mut().find_map(|(kind, signal)| is_received(signal).then_some(*kind));
            received.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}
