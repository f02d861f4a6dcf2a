//! A redactor for the latest tokens of many accounts.

use std::collections::VecDeque;
use std::fmt;
use std::sync::RwLock;

use super::redactor::Redactor;
use super::value::Secret;
use crate::sync::{read, write};

/// Number of secrets kept per account: its tokens, its client secret and its key, and the tokens before those.
const MAX_PER_ACCOUNT: usize = 6;

/// Maximum total size of all secrets in bytes. Searching for them takes about 200 times as much memory.
const MAX_BYTES: usize = 128 << 10;

/// Maximum secret size in bytes, so that one account cannot displace all others. Servers reject longer headers.
const MAX_SECRET_BYTES: usize = 8 << 10;

/// Identifies an account: a server, and the account's name if it is not the shared one.
pub(crate) type AccountId = (String, Option<String>);

/// A [`Redactor`] for configured secrets, and for every account's tokens on the connections that use it.
///
/// Connections redact their tokens in events, errors and logs. A host redacts its own output, such as tool results, with
/// [`current`](Self::current), which includes all tokens obtained or refreshed so far. Only each account's latest tokens are
/// kept. Tokens shorter than 16 bytes are not redacted: servers choose them, and an ordinary word must not be hidden everywhere.
///
/// The host shares it with its connections in an `Arc`. Connections write through their `SharedRedactor`, and the host may
/// replace the configured secrets; readers take a snapshot with `current`. One std `RwLock` guards everything and is the
/// innermost lock: no other lock is taken under it, and no method awaits. The matcher is rebuilt under the write lock, and
/// only if a secret is new or the configured ones differ. Closing a connection removes nothing: secrets leave when newer
/// ones displace them, or with the redactor.
#[derive(Default)]
pub struct AccountRedactor(RwLock<AccountSecrets>);

impl fmt::Debug for AccountRedactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountRedactor").field("accounts", &read(&self.0).accounts.len()).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct AccountSecrets {
    configured: Redactor,
    /// The account whose tokens were obtained last is the last one.
    accounts: VecDeque<(AccountId, VecDeque<Secret>)>,
    current: Redactor,
}

impl AccountRedactor {
    /// Creates a redactor without secrets.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a redactor for all secrets so far.
    pub fn current(&self) -> Redactor {
        read(&self.0).current.clone()
    }

    /// Replaces the configured secrets.
    pub fn set_configured(&self, configured: Redactor) {
        let mut state = write(&self.0);
        if state.configured != configured {
            state.configured = configured;
            state.update();
        }
    }

    /// Adds an account's secrets, which replace its oldest ones.
    pub fn learn<'a>(&self, account: &AccountId, secrets: impl IntoIterator<Item = &'a Secret>) {
        let secrets: Vec<&Secret> =
            secrets.into_iter().filter(|secret| secret.expose().len() <= MAX_SECRET_BYTES).collect();
        if secrets.is_empty() {
            return;
        }
        let mut state = write(&self.0);
        let known = state.accounts.iter().position(|(own, _)| own == account);
        let known = known.and_then(|index| state.accounts.remove(index));
        let (id, mut own) = known.unwrap_or_else(|| (account.clone(), VecDeque::new()));
        let mut is_new = false;
        for secret in secrets {
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
    /// Removes the least recently used accounts while the secrets are too large.
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
        self.current = self.configured.with(&learned.only_long_secrets());
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
        redactor.learn(&account("ann"), &[Secret::new("the-t0ken-of-ann")]);
        redactor.set_configured(Redactor::new(&[Secret::new("configured")]));
        redactor.learn(&account("bob"), &[Secret::new("the-t0ken-of-bob"), Secret::new("an-issue")]);
        let text = "configured the-t0ken-of-ann the-t0ken-of-bob an-issue";
        assert_eq!(redactor.current().redact(text), "*** *** *** an-issue");
        redactor.set_configured(Redactor::default());
        assert_eq!(redactor.current().redact(text), "configured *** *** an-issue");
    }

    #[test]
    fn replaced_tokens_are_forgotten_and_those_of_other_accounts_are_not() {
        let redactor = AccountRedactor::default();
        let kept = Secret::new("the-cl1ent-secret");
        redactor.learn(&account("ann"), &[Secret::new("the-t0ken-of-ann")]);
        for number in 0..1000 {
            let access = Secret::new(format!("the-access-t0ken-{number:04}"));
            redactor.learn(&account("bob"), [&access, &kept]);
        }
        let current = redactor.current();
        assert_eq!(current.redact("the-t0ken-of-ann the-cl1ent-secret"), "*** ***");
        assert_eq!(current.redact("the-access-t0ken-0999 the-access-t0ken-0998"), "*** ***");
        assert_eq!(current.redact("the-access-t0ken-0900"), "the-access-t0ken-0900");
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

    #[test]
    fn an_account_without_secrets_that_can_be_kept_takes_no_room() {
        let redactor = AccountRedactor::default();
        redactor.learn(&account("ann"), &[Secret::new("x".repeat(MAX_SECRET_BYTES + 1))]);
        redactor.learn(&account("bob"), []);
        assert!(read(&redactor.0).accounts.is_empty());
    }

    #[test]
    fn a_redactor_does_not_show_its_secrets() {
        let redactor = AccountRedactor::default();
        redactor.learn(&account("ann"), &[Secret::new("the-t0ken-of-ann")]);
        assert_eq!(format!("{redactor:?}"), "AccountRedactor { accounts: 1, .. }");
    }
}
