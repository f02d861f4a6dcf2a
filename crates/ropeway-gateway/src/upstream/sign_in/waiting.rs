//! Calls that wait for a sign-in: one prompts its client, the others share the outcome.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::open::AccountKey;
use ropeway_core::sync::lock;
use ropeway_mcp::oauth::Challenge;

/// The outcome that calls wait for: whether the user signed in, or `None` while the sign-in is in progress.
type Progress = Option<bool>;

/// The accounts whose sign-ins calls wait for.
#[derive(Default)]
pub(crate) struct WaitingCalls(Mutex<HashMap<AccountKey, WaitingAccount>>);

struct WaitingAccount {
    /// Why the server refused the first call.
    challenge: Option<Challenge>,
    progress: Arc<watch::Sender<Progress>>,
}

/// A call that waits. Dropping the first one ends the others' wait.
pub(crate) struct Waiter {
    calls: Arc<WaitingCalls>,
    key: AccountKey,
    progress: Arc<watch::Sender<Progress>>,
    /// Whether the call prompts its client. The others wait for its outcome.
    pub(crate) is_first: bool,
}

impl WaitingCalls {
    /// Adds a call that a server refused because of its authorization.
    pub(crate) fn join(self: &Arc<Self>, key: &AccountKey, challenge: Option<Challenge>) -> Waiter {
        let mut accounts = lock(&self.0);
        let is_first = !accounts.contains_key(key);
        let account = accounts
            .entry(key.clone())
            .or_insert_with(|| WaitingAccount { challenge, progress: Arc::new(watch::Sender::new(None)) });
        Waiter { calls: self.clone(), key: key.clone(), progress: account.progress.clone(), is_first }
    }

    /// Returns `true` if a call waits for an account's sign-in.
    pub(crate) fn has_call(&self, key: &AccountKey) -> bool {
        lock(&self.0).contains_key(key)
    }

    /// Returns why the server refused the call that waits for a sign-in.
    pub(super) fn challenge(&self, key: &AccountKey) -> Option<Challenge> {
        lock(&self.0).get(key).and_then(|account| account.challenge.clone())
    }

    /// Ends the wait for a sign-in.
    pub(crate) fn end(&self, key: &AccountKey, is_signed_in: bool) {
        if let Some(account) = lock(&self.0).get(key) {
            set(&account.progress, is_signed_in);
        }
    }
}

impl Waiter {
    /// Waits until the sign-in ends. Returns `false` if it failed.
    pub(crate) async fn wait(&self) -> bool {
        let mut progress = self.progress.subscribe();
        progress.wait_for(Option::is_some).await.is_ok_and(|progress| *progress == Some(true))
    }

    /// Ends the wait for all calls.
    pub(crate) fn end(&self, is_signed_in: bool) {
        set(&self.progress, is_signed_in);
    }
}

/// Sets the outcome, unless it is set.
fn set(progress: &watch::Sender<Progress>, is_signed_in: bool) {
    progress.send_if_modified(|progress| {
        let is_open = progress.is_none();
        progress.get_or_insert(is_signed_in);
        is_open
    });
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.is_first {
            set(&self.progress, false);
            lock(&self.calls.0).remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_core::tool::Alias;

    #[tokio::test]
    async fn calls_share_one_sign_in_and_its_outcome() {
        let (calls, key) = (Arc::<WaitingCalls>::default(), (Alias::new("web"), None));
        for is_signed_in in [true, false] {
            let (first, second) = (calls.join(&key, None), calls.join(&key, None));
            assert!(first.is_first && !second.is_first && calls.has_call(&key));
            calls.end(&key, is_signed_in);
            calls.end(&key, !is_signed_in);
            assert_eq!((first.wait().await, second.wait().await), (is_signed_in, is_signed_in));
            drop((first, second));
            assert!(!calls.has_call(&key));
        }
    }

    #[tokio::test]
    async fn calls_do_not_wait_longer_than_the_one_that_asks() {
        let (calls, key) = (Arc::<WaitingCalls>::default(), (Alias::new("web"), None));
        let (first, second) = (calls.join(&key, None), calls.join(&key, None));
        drop(first);
        assert!(!second.wait().await);
        assert!(calls.join(&key, None).is_first, "a later call asks again");
    }
}
