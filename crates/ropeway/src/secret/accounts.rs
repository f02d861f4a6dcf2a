//! A redactor for the tokens of many accounts, of which it knows the latest ones.

use std::collections::VecDeque;
use std::sync::RwLock;

use super::redactor::Redactor;
use super::value::Secret;
use crate::sync::{read, write};

/// Number of secrets of one account that are kept: its tokens, its client secret and its key, and the tokens before those.
const MAX_PER_ACCOUNT: usize = 6;

/// Maximum bytes of the secrets of all accounts. Searching for them takes about 200 times as much memory.
const MAX_BYTES: usize = 128 << 10;

/// Maximum bytes of a secret, so that one account cannot displace all others. Servers accept no longer headers.
const MAX_SECRET_BYTES: usize = 8 << 10;

/// Identifies an account: a server, and the name of the account if it is not the shared one.
pub(crate) type AccountId = (String, Option<String>);

/// A [`Redactor`] for the secrets of the configuration, and for the tokens of all accounts. Replaced tokens are forgotten.
#[derive(Debug, Default)]
pub(crate) struct AccountRedactor(RwLock<AccountSecrets>);

#[derive(Debug, Default)]
struct AccountSecrets {
    configured: Redactor,
    /// The account whose tokens were obtained last is the last one.
    accounts: VecDeque<(AccountId, VecDeque<Secret>)>,
    current: Redactor,
}

#[allow(dead_code, reason = "used by the gateway")]
impl AccountRedactor {
    /// Returns a redactor for all secrets known so far.
    pub(crate) fn current(&self) -> Redactor {
        read(&self.0).current.clone()
    }

    /// Replaces the secrets of the configuration.
    pub(crate) fn set_configured(&self, configured: Redactor) {
        let mut state = write(&self.0);
        if state.configured != configured {
            state.configured = configured;
            state.update();
        }
    }

    /// Adds secrets of an account, which replace its oldest ones.
    pub(crate) fn learn<'a>(&self, account: &AccountId, secrets: impl IntoIterator<Item = &'a Secret>) {
        let mut state = write(&self.0);
        let known = state.accounts.iter().position(|(own, _)| own == account);
        let known = known.and_then(|index| state.accounts.remove(index));
        let (id, mut own) = known.unwrap_or_else(|| (account.clone(), VecDeque::new()));
        let mut is_new = false;
        for secret in secrets.into_iter().filter(|secret| secret.expose().len() <= MAX_SECRET_BYTES) {
            match own.iter().position(|known| known == secret) {
                Some(index) => drop(own.remove(index)),
                None => is_new = true,
            }
            own.push_back(secret.clone());
        }
        while own.len() > MAX_PER_ACCOUNT {
            own.pop_front();
        }
        state.accounts.push_back((id, own));
        if is_new {
            state.forget_oldest();
            state.update();
        }
    }
}

impl AccountSecrets {
    /// Forgets the accounts that were not used for the longest time, if their secrets are too long.
    fn forget_oldest(&mut self) {
        let length = |secrets: &VecDeque<Secret>| secrets.iter().map(|secret| secret.expose().len()).sum::<usize>();
        let mut bytes: usize = self.accounts.iter().map(|(_, secrets)| length(secrets)).sum();
        while bytes > MAX_BYTES
            && let Some((_, secrets)) = self.accounts.pop_front()
        {
            bytes -= length(&secrets);
        }
    }

    fn update(&mut self) {
        let learned = Redactor::new(self.accounts.iter().flat_map(|(_, secrets)| secrets));
        self.current = self.configured.with(&learned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(name: &str) -> AccountId {
        ("web".to_owned(), Some(name.to_owned()))
    }

    #[test]
    fn tokens_of_all_accounts_are_redacted_with_the_configured_secrets() {
        let redactor = AccountRedactor::default();
        redactor.learn(&account("ann"), &[Secret::new("t0ken-of-ann")]);
        redactor.set_configured(Redactor::new(&[Secret::new("configured")]));
        redactor.learn(&account("bob"), &[Secret::new("t0ken-of-bob")]);
        assert_eq!(redactor.current().redact("configured t0ken-of-ann t0ken-of-bob"), "*** *** ***");
        redactor.set_configured(Redactor::default());
        assert_eq!(redactor.current().redact("configured t0ken-of-ann t0ken-of-bob"), "configured *** ***");
    }

    #[test]
    fn replaced_tokens_are_forgotten_and_those_of_other_accounts_are_not() {
        let redactor = AccountRedactor::default();
        let kept = Secret::new("cl1ent-secret");
        redactor.learn(&account("ann"), &[Secret::new("t0ken-of-ann")]);
        for number in 0..1000 {
            let access = Secret::new(format!("access-{number:04}"));
            redactor.learn(&account("bob"), [&access, &kept]);
        }
        let current = redactor.current();
        assert_eq!(current.redact("t0ken-of-ann cl1ent-secret access-0999 access-0998"), "*** *** *** ***");
        assert_eq!(current.redact("access-0000 access-0900"), "access-0000 access-0900");
    }

    #[test]
    fn the_size_of_all_secrets_is_bounded() {
        let redactor = AccountRedactor::default();
        for number in 0..100 {
            let long = Secret::new(format!("t0ken-{number:04}-{}", "x".repeat(8000)));
            redactor.learn(&account(&number.to_string()), &[long]);
        }
        assert!(read(&redactor.0).accounts.len() <= 16);
        redactor.learn(&account("long"), &[Secret::new("x".repeat(MAX_BYTES + 1))]);
        assert!(redactor.current().redact(&format!("t0ken-0099-{}", "x".repeat(8000))).len() < 10);
    }
}
