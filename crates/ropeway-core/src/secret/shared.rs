//! A redactor to which secrets are added while it is in use.

use std::collections::VecDeque;
use std::sync::{Arc, RwLock};

use super::accounts::{AccountId, AccountRedactor};
use super::redactor::Redactor;
use super::value::Secret;
use crate::sync::{read, write};

/// Number of added secrets that are kept. An access token that was replaced this often has expired.
const MAX_LEARNED: usize = 64;

/// Maximum total size of added secrets in bytes, unless those in use are larger. A redactor's matcher takes a few hundred times
/// the space of its secrets, and authorization servers choose token lengths.
const MAX_LEARNED_BYTES: usize = 64 << 10;

/// A [`Redactor`] to which tokens are added when they are obtained.
///
/// One connection owns it, in an `Arc` that its sign-in and its HTTP client share. Writers call [`learn`](Self::learn) with
/// new tokens; readers take a snapshot with [`current`](Self::current), which later tokens do not change. `learn` first adds
/// the secrets to the account redactors, one after the other, and takes its own lock only afterwards: no two locks are held
/// at once. Both methods are synchronous, so the std `RwLock` is never held across `.await`. A new matcher is built under
/// the write lock, and only if a secret is new; otherwise the secrets just move to the end, as the ones in use. Dropping the
/// redactor forgets its secrets; the account redactors keep theirs.
#[derive(Debug)]
pub struct SharedRedactor {
    /// The configuration's secrets.
    configured: Redactor,
    state: RwLock<LearnedSecrets>,
    /// Receive the same secrets, for one account.
    hosts: Vec<Arc<AccountRedactor>>,
    account: AccountId,
}

#[derive(Debug)]
struct LearnedSecrets {
    current: Redactor,
    learned: VecDeque<Secret>,
}

impl SharedRedactor {
    /// Creates a redactor for the configuration's secrets.
    pub fn new(configured: Redactor) -> Self {
        let state = LearnedSecrets { current: configured.clone(), learned: VecDeque::new() };
        Self { configured, state: RwLock::new(state), hosts: Vec::new(), account: AccountId::default() }
    }

    /// Passes all added secrets to these account redactors as well.
    pub fn with_account(self, hosts: Vec<Arc<AccountRedactor>>, account: AccountId) -> Self {
        Self { hosts, account, ..self }
    }

    /// Returns a redactor for all secrets so far.
    pub fn current(&self) -> Redactor {
        read(&self.state).current.clone()
    }

    /// Adds the secrets that are in use from now on. The oldest ones are dropped.
    pub fn learn<'a>(&self, secrets: impl IntoIterator<Item = &'a Secret>) {
        let secrets: Vec<&Secret> = secrets.into_iter().collect();
        for redactor in &self.hosts {
            redactor.learn(&self.account, secrets.iter().copied());
        }
        let mut state = write(&self.state);
        let (mut is_new, mut given) = (false, 0);
        for secret in secrets {
            let known = state.learned.iter().position(|known| known == secret);
            is_new |= known.is_none();
            known.and_then(|at| state.learned.remove(at));
            state.learned.push_back(secret.clone());
            given += 1;
        }
        if !is_new {
            return;
        }
        let mut bytes: usize = state.learned.iter().map(|secret| secret.expose().len()).sum();
        while state.learned.len() > MAX_LEARNED || (bytes > MAX_LEARNED_BYTES && state.learned.len() > given) {
            bytes -= state.learned.pop_front().map_or(0, |secret| secret.expose().len());
        }
        state.current = self.configured.with(&Redactor::new(&state.learned));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learned_secrets_are_redacted_with_the_configured_ones() {
        let redactor = SharedRedactor::new(Redactor::new(&[Secret::new("configured")]));
        assert_eq!(redactor.current().redact("configured learned"), "*** learned");
        redactor.learn(&[Secret::new("learned")]);
        redactor.learn(&[Secret::new("learned")]);
        assert_eq!(redactor.current().redact("configured learned"), "*** ***");
    }

    #[test]
    fn only_the_latest_secrets_are_kept() {
        let redactor = SharedRedactor::new(Redactor::default());
        for number in 0..1000 {
            redactor.learn(&[Secret::new(format!("token-{number:04}"))]);
        }
        assert_eq!(redactor.current().redact("token-0000 token-0999"), "token-0000 ***");
    }

    #[test]
    fn huge_secrets_are_bounded_and_the_latest_ones_are_kept() {
        let redactor = SharedRedactor::new(Redactor::default());
        let token = |number: usize| Secret::new(format!("token-{number:04}{}", "x".repeat(MAX_LEARNED_BYTES)));
        for number in 0..20 {
            redactor.learn(&[token(2 * number), token(2 * number + 1)]);
        }
        assert_eq!(read(&redactor.state).learned, [token(38), token(39)]);
        redactor.learn(&[token(39), Secret::new("a-short-one"), token(38)]);
        assert_eq!(read(&redactor.state).learned, [token(39), Secret::new("a-short-one"), token(38)]);
    }
}
