//! The budget of questions that a server may ask the user while it works on calls.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::watch;
use tokio::time::Instant;

use super::host::Refusal;
use crate::protocol::code;
use crate::sync::lock;
use crate::tool::{Alias, CallError};

/// Counts the questions of one server. In the legacy era a question does not say which call it belongs to, so calls in flight
/// share their allowances; without a call in flight a server has the allowance of one, until the next call begins.
#[derive(Debug)]
pub(crate) struct QuestionBudget {
    per_call: usize,
    state: Mutex<ConnectionState>,
    /// Changes whenever a question was refused.
    exceeded: watch::Sender<()>,
}

#[derive(Debug)]
struct ConnectionState {
    calls: usize,
    left: usize,
    /// Questions that the user is thinking about.
    open: usize,
    /// When the last question was answered.
    answered: Option<Instant>,
}

impl QuestionBudget {
    pub(crate) fn new(per_call: usize) -> Self {
        Self {
            per_call,
            state: Mutex::new(ConnectionState { calls: 0, left: per_call, open: 0, answered: None }),
            exceeded: watch::Sender::new(()),
        }
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

    /// Marks a question as open until the guard is dropped.
    pub(super) fn ask(&self) -> OpenQuestion<'_> {
        self.state().open += 1;
        OpenQuestion(self)
    }

    /// Returns until when the server waited for the user: now while a question is open. A server that waits for an answer is not
    /// idle.
    pub(super) fn waited_until(&self) -> Option<Instant> {
        let state = self.state();
        if state.open > 0 { Some(Instant::now()) } else { state.answered }
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

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        lock(&self.state)
    }
}

/// A question that the user is thinking about.
pub(super) struct OpenQuestion<'a>(&'a QuestionBudget);

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.open -= 1;
        state.answered = Some(Instant::now());
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

    #[tokio::test(start_paused = true)]
    async fn a_server_waits_for_the_user_while_a_question_is_open() {
        let budget = QuestionBudget::new(3);
        assert_eq!(budget.waited_until(), None);
        let (one, other) = (budget.ask(), budget.ask());
        tokio::time::advance(std::time::Duration::from_secs(100)).await;
        drop(one);
        assert_eq!(budget.waited_until(), Some(Instant::now()));
        drop(other);
        let answered = Instant::now();
        tokio::time::advance(std::time::Duration::from_secs(100)).await;
        assert_eq!(budget.waited_until(), Some(answered));
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
        assert_eq!(error.to_string(), "server `s` violated the protocol");
    }
}
