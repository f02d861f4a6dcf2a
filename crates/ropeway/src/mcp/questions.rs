//! The budget of questions that a server may ask the user while it works on calls.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::host::Refusal;
use crate::protocol::code;
use crate::tool::{Alias, CallError};

/// Counts the questions of one server. In the legacy era a question does not say which call it belongs to, so calls in flight
/// share their allowances; without a call in flight a server has the allowance of one, until the next call begins.
#[derive(Debug)]
pub(crate) struct QuestionBudget {
    per_call: usize,
    state: Mutex<State>,
    /// Changes whenever a question was refused.
    exceeded: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    calls: usize,
    left: usize,
}

impl QuestionBudget {
    pub(crate) fn new(per_call: usize) -> Self {
        Self { per_call, state: Mutex::new(State { calls: 0, left: per_call }), exceeded: watch::Sender::new(()) }
    }

    /// Takes one question from the budget. The error goes to the server; calls in flight end.
    pub(super) fn take(&self) -> Result<(), Refusal> {
        let mut state = self.state();
        match state.left.checked_sub(1) {
            Some(left) => {
                state.left = left;
                Ok(())
            }
            None => {
                drop(state);
                self.exceeded.send_replace(());
                Err(self.refusal())
            }
        }
    }

    /// What a server is told whose budget is used up.
    pub(super) fn refusal(&self) -> Refusal {
        let message = format!("too many questions: at most {} per call", self.per_call);
        Refusal { code: code::INTERNAL, message }
    }

    /// Runs a call of this server with an allowance of its own. It fails as soon as a question was refused.
    pub(super) async fn during<T>(
        &self,
        server: &Alias,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let mut exceeded = self.exceeded.subscribe();
        let _guard = QuestionGuard::new(self);
        tokio::select! {
            biased;
            _ = exceeded.changed() => Err(self.error(server)),
            outcome = call => outcome,
        }
    }

    /// The error of a call whose server asks too much.
    pub(super) fn error(&self, server: &Alias) -> CallError {
        let source = format!("it asked the user more than {} questions", self.per_call);
        CallError::Protocol { server: server.clone(), source: source.into() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The share of one call in the budget.
struct QuestionGuard<'a>(&'a QuestionBudget);

impl<'a> QuestionGuard<'a> {
    fn new(budget: &'a QuestionBudget) -> Self {
        let mut state = budget.state();
        state.calls += 1;
        state.left = state.left.saturating_add(budget.per_call).min(budget.per_call.saturating_mul(state.calls));
        Self(budget)
    }
}

impl Drop for QuestionGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.calls -= 1;
        state.left = state.left.min(self.0.per_call.saturating_mul(state.calls.max(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(budget: &QuestionBudget) -> usize {
        std::iter::from_fn(|| budget.take().ok()).count()
    }

    #[test]
    fn every_call_brings_an_allowance_and_takes_it_away() {
        let budget = QuestionBudget::new(3);
        assert_eq!(allowed(&budget), 3);
        let first = QuestionGuard::new(&budget);
        assert_eq!(allowed(&budget), 3);
        let second = QuestionGuard::new(&budget);
        let third = QuestionGuard::new(&budget);
        assert_eq!(allowed(&budget), 6);
        drop((second, third));
        assert_eq!(allowed(&budget), 0);
        drop(first);
        let _fourth = QuestionGuard::new(&budget);
        assert_eq!(allowed(&budget), 3);
    }

    #[tokio::test]
    async fn a_call_ends_with_the_first_question_too_many() {
        let budget = QuestionBudget::new(1);
        let server = Alias::from("s");
        let call = async {
            budget.take().expect("the first question");
            assert_eq!(budget.take(), Err(budget.refusal()));
            std::future::pending::<Result<(), CallError>>().await
        };
        let error = budget.during(&server, call).await.expect_err("it ends");
        assert_eq!(error.to_string(), "server `s` broke the protocol");
    }
}
