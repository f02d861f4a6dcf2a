//! Limits the elicitations that a server may send during calls.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::watch;
use tokio::time::Instant;

use super::handlers::HandlerError;
use crate::protocol::code;
use ropeway_core::sync::lock;
use ropeway_core::tool::{Alias, CallError};

/// Counts one server's elicitations.
///
/// In the legacy era an elicitation does not name its call, so concurrent calls share their allowances. Without a call in
/// progress, the server has one call's allowance until the next call begins.
#[derive(Debug)]
pub(crate) struct ElicitationBudget {
    per_call: usize,
    state: Mutex<BudgetState>,
    /// Notifies when an elicitation was rejected.
    exceeded: watch::Sender<()>,
}

#[derive(Debug)]
struct BudgetState {
    calls: usize,
    left: usize,
    /// Counts elicitations that wait for the user.
    open: usize,
    /// When the user last answered one.
    answered: Option<Instant>,
}

impl ElicitationBudget {
    pub(crate) fn new(per_call: usize) -> Self {
        Self {
            per_call,
            state: Mutex::new(BudgetState { calls: 0, left: per_call, open: 0, answered: None }),
            exceeded: watch::Sender::new(()),
        }
    }

    /// Returns the maximum elicitations per call.
    pub(super) fn per_call(&self) -> usize {
        self.per_call
    }

    /// Takes one elicitation from the budget. The error goes to the server, and calls in progress fail.
    pub(super) fn take(&self) -> Result<(), HandlerError> {
        let mut state = self.state();
        match state.left.checked_sub(1) {
            Some(left) => {
                state.left = left;
                Ok(())
            }
            None => {
                drop(state);
                self.exceeded.send_replace(());
                Err(self.handler_error())
            }
        }
    }

    /// Marks an elicitation as open until the guard is dropped.
    pub(super) fn open(&self) -> OpenElicitation<'_> {
        self.opened();
        OpenElicitation(self)
    }

    /// Counts an elicitation as open until [`closed`](Self::closed).
    pub(super) fn opened(&self) {
        self.state().open += 1;
    }

    /// Counts an elicitation as answered.
    pub(super) fn closed(&self) {
        let mut state = self.state();
        state.open -= 1;
        state.answered = Some(Instant::now());
    }

    /// Returns the last time the server waited for the user: now while an elicitation is open. A server that waits for an
    /// answer is not idle.
    pub(super) fn waited_until(&self) -> Option<Instant> {
        let state = self.state();
        if state.open > 0 { Some(Instant::now()) } else { state.answered }
    }

    /// Returns the error that a server gets when its budget is used up.
    pub(super) fn handler_error(&self) -> HandlerError {
        let message = format!("too many questions: at most {} per call", self.per_call);
        HandlerError { code: code::INTERNAL, message }
    }

    /// Runs a call to this server with its own allowance. The call fails as soon as an elicitation is rejected.
    pub(super) async fn run_call<T>(
        &self,
        server: &Alias,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let mut exceeded = self.exceeded.subscribe();
        let _share = CallShare::new(self);
        tokio::select! {
            biased;
            _ = exceeded.changed() => Err(self.call_error(server)),
            outcome = call => outcome,
        }
    }

    /// Returns the error for a call whose server sends too many elicitations.
    pub(super) fn call_error(&self, server: &Alias) -> CallError {
        too_many_elicitations(server, self.per_call)
    }

    fn state(&self) -> MutexGuard<'_, BudgetState> {
        lock(&self.state)
    }
}

/// Returns the error for a call whose server sends more elicitations than the limit allows.
pub fn too_many_elicitations(server: &Alias, limit: usize) -> CallError {
    let source = format!("it asked the user more than {limit} questions");
    CallError::Protocol { server: server.clone(), source: source.into() }
}

/// An elicitation that waits for the user. Dropping it closes the elicitation.
pub(super) struct OpenElicitation<'a>(&'a ElicitationBudget);

impl Drop for OpenElicitation<'_> {
    fn drop(&mut self) {
        self.0.closed();
    }
}

/// One call's allowance.
struct CallShare<'a>(&'a ElicitationBudget);

impl<'a> CallShare<'a> {
    fn new(budget: &'a ElicitationBudget) -> Self {
        let mut state = budget.state();
        state.calls += 1;
        state.left = state.left.saturating_add(budget.per_call).min(budget.per_call.saturating_mul(state.calls));
        Self(budget)
    }
}

impl Drop for CallShare<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.calls -= 1;
        state.left = state.left.min(self.0.per_call.saturating_mul(state.calls.max(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(budget: &ElicitationBudget) -> usize {
        std::iter::from_fn(|| budget.take().ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_waits_for_the_user_while_a_question_is_open() {
        let budget = ElicitationBudget::new(3);
        assert_eq!(budget.waited_until(), None);
        let (one, other) = (budget.open(), budget.open());
        tokio::time::advance(std::time::Duration::from_secs(100)).await;
        drop(one);
        assert_eq!(budget.waited_until(), Some(Instant::now()));
        drop(other);
        let answered = Instant::now();
        tokio::time::advance(std::time::Duration::from_secs(100)).await;
        assert_eq!(budget.waited_until(), Some(answered));
    }

    #[test]
    fn each_call_adds_and_removes_its_allowance() {
        let budget = ElicitationBudget::new(3);
        assert_eq!(allowed(&budget), 3);
        let first = CallShare::new(&budget);
        assert_eq!(allowed(&budget), 3);
        let second = CallShare::new(&budget);
        let third = CallShare::new(&budget);
        assert_eq!(allowed(&budget), 6);
        drop((second, third));
        assert_eq!(allowed(&budget), 0);
        drop(first);
        let _fourth = CallShare::new(&budget);
        assert_eq!(allowed(&budget), 3);
    }

    #[tokio::test]
    async fn a_call_fails_at_the_first_question_over_the_limit() {
        let budget = ElicitationBudget::new(1);
        let server = Alias::from("s");
        let call = async {
            budget.take().expect("the first question");
            assert_eq!(budget.take(), Err(budget.handler_error()));
            std::future::pending::<Result<(), CallError>>().await
        };
        let error = budget.run_call(&server, call).await.expect_err("it ends");
        assert_eq!(error.to_string(), "server `s` violated the protocol");
    }
}
