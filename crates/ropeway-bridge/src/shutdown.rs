//! A signal that stops calls when their server is stopped.

use ropeway_core::tool::{Alias, CallError, CancelToken};

/// Stops a server's calls. Cannot be reset.
///
/// A slot owns the signal and shares it with its tools and leases, which may outlive the slot. It is triggered when the slot is
/// stopped or aborted, and stays so; a restart creates a slot with a new signal. It needs no lock: the state is a `watch`
/// channel, and [`guard`](Self::guard) polls it before the work, so that no work proceeds after the trigger.
///
/// Dropping the signal triggers nothing. A slot that hands its process to a successor is dropped while its calls continue.
#[derive(Debug)]
pub(super) struct ShutdownSignal(CancelToken);

/// The server was stopped before the work was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupted {
    BeforeStart,
    WhileRunning,
}

impl Interrupted {
    /// Returns the error for an interrupted call.
    pub(super) fn into_error(self, server: Alias) -> CallError {
        match self {
            Self::BeforeStart => CallError::NotConnected { server },
            Self::WhileRunning => CallError::Stopped { server },
        }
    }
}

impl ShutdownSignal {
    pub(super) fn new() -> Self {
        Self(CancelToken::new())
    }

    pub(super) fn trigger(&self) {
        self.0.cancel();
    }

    /// Returns a token that is cancelled by [`trigger`](Self::trigger).
    pub(super) fn token(&self) -> CancelToken {
        self.0.clone()
    }

    /// Runs a future until it completes or the signal is triggered.
    pub(super) async fn guard<T>(&self, work: impl Future<Output = T>) -> Result<T, Interrupted> {
        if self.0.is_cancelled() {
            return Err(Interrupted::BeforeStart);
        }
        tokio::select! {
            biased;
            () = self.0.cancelled() => Err(Interrupted::WhileRunning),
            done = work => Ok(done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn running_work_is_interrupted_by_the_signal() {
        let signal = ShutdownSignal::new();
        assert_eq!(signal.guard(async { 1 }).await, Ok(1));
        let (result, ()) = tokio::join!(signal.guard(std::future::pending::<()>()), async { signal.trigger() });
        assert_eq!(result, Err(Interrupted::WhileRunning));
        assert_eq!(signal.guard(async { 1 }).await, Err(Interrupted::BeforeStart));
        assert!(signal.token().is_cancelled());
    }
}
