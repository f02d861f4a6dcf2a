//! A gate: calls pass while it is open, and end when it is shut.

use crate::tool::CancelToken;

/// Open until it is shut, and never again.
#[derive(Debug)]
pub(super) struct Gate(CancelToken);

/// Why work did not run to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shut {
    /// The gate was shut before the work began.
    Before,
    /// The gate was shut while the work was under way.
    During,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self(CancelToken::new())
    }

    /// Ends all that is on its way through.
    pub(super) fn shut(&self) {
        self.0.cancel();
    }

    /// Returns a switch that is pressed when the gate is shut.
    pub(super) fn closing(&self) -> CancelToken {
        self.0.clone()
    }

    /// Runs to the end, or to the moment when the gate is shut.
    pub(super) async fn pass<T>(&self, work: impl Future<Output = T>) -> Result<T, Shut> {
        if self.0.is_cancelled() {
            return Err(Shut::Before);
        }
        tokio::select! {
            biased;
            () = self.0.cancelled() => Err(Shut::During),
            done = work => Ok(done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_under_way_ends_when_the_gate_is_shut() {
        let gate = Gate::new();
        assert_eq!(gate.pass(async { 1 }).await, Ok(1));
        let (passed, ()) = tokio::join!(gate.pass(std::future::pending::<()>()), async { gate.shut() });
        assert_eq!(passed, Err(Shut::During));
        assert_eq!(gate.pass(async { 1 }).await, Err(Shut::Before));
        assert!(gate.closing().is_cancelled());
    }
}
