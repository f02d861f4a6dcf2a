//! A gate: calls pass while it is open, and end when it is shut.

use tokio::sync::watch;

/// Open until it is shut, and never again.
#[derive(Debug)]
pub(super) struct Gate(watch::Sender<bool>);

impl Gate {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(true))
    }

    /// Ends all that is on its way through.
    pub(super) fn shut(&self) {
        self.0.send_replace(false);
    }

    /// Runs to the end, or to the moment when the gate is shut: then there is nothing.
    pub(super) async fn pass<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut open = self.0.subscribe();
        tokio::select! {
            biased;
            // The sender lives as long as `self`.
            _ = open.wait_for(|open| !open) => None,
            done = work => Some(done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_on_its_way_ends_when_the_gate_is_shut() {
        let gate = Gate::new();
        assert_eq!(gate.pass(async { 1 }).await, Some(1));
        let (passed, ()) = tokio::join!(gate.pass(std::future::pending::<()>()), async { gate.shut() });
        assert_eq!(passed, None);
        assert_eq!(gate.pass(async { 1 }).await, None);
    }
}
