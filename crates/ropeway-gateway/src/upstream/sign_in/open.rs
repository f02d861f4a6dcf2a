//! Sign-ins in progress: their accounts, browsers and lifetimes, and why one failed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::client::principal::Principal;
use ropeway_core::tool::Alias;
use ropeway_mcp::oauth::SignIn;

/// How long the user has to finish a sign-in.
pub(crate) const LIFETIME: Duration = Duration::from_secs(10 * 60);

/// Maximum number of sign-ins in progress.
const MAX_OPEN: usize = 64;

/// Maximum number of sign-ins in progress that one principal has started.
const MAX_OPEN_PER_PRINCIPAL: usize = 8;

/// Maximum characters in a failure's reason.
const MAX_REASON: usize = 500;

/// A server, and a principal's account; `None` is the shared account.
pub(crate) type AccountKey = (Alias, Option<Arc<str>>);

/// Ties a sign-in to the browser that started it: a cookie's name and value.
///
/// Without it, a user could be tricked into finishing another user's sign-in
/// ([RFC 6819](https://www.rfc-editor.org/rfc/rfc6819#section-4.4.1.8)).
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct BrowserCookie {
    pub(crate) name: String,
    pub(crate) value: String,
    /// Whether browsers send it over HTTPS only.
    pub(crate) is_secure: bool,
}

impl BrowserCookie {
    /// Creates a cookie. A secure one's name has the prefix `__Host-`: neither another host in the same domain nor a page
    /// without HTTPS can set it
    /// ([cookie name prefixes](https://datatracker.ietf.org/doc/html/draft-ietf-httpbis-rfc6265bis#section-4.1.3.2)).
    pub(super) fn new(value: String, is_secure: bool) -> Self {
        let prefix = if is_secure { "__Host-" } else { "" };
        Self { name: format!("{prefix}ropeway-sign-in-{:016x}", fastrand::u64(..)), value, is_secure }
    }
}

/// A sign-in that waits for its callback.
pub(super) struct OpenSignIn {
    pub(super) state: String,
    pub(super) browser: BrowserCookie,
    pub(super) sign_in: SignIn,
}

/// A sign-in whose callback has arrived.
pub(super) struct TakenSignIn {
    pub(super) key: AccountKey,
    /// The principal that has started it.
    pub(super) principal: Principal,
    pub(super) sign_in: SignIn,
}

struct Entry {
    principal: Principal,
    expires_at: Instant,
    phase: Phase,
}

enum Phase {
    /// The authorization server is being discovered.
    Starting,
    Open(Box<OpenSignIn>),
    /// The sign-in has failed for a reason.
    Failed(Arc<str>),
}

impl Entry {
    fn open(&self) -> Option<&OpenSignIn> {
        match &self.phase {
            Phase::Open(open) => Some(open),
            Phase::Starting | Phase::Failed(_) => None,
        }
    }

    fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Starting)
    }

    fn is_failed(&self) -> bool {
        matches!(self.phase, Phase::Failed(_))
    }
}

/// An account's sign-in as the web page shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SignInProgress {
    /// Whether a callback is awaited.
    pub(crate) is_open: bool,
    /// Why the latest sign-in failed.
    pub(crate) failure: Option<Arc<str>>,
}

/// Why a sign-in cannot be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unavailable {
    /// Another request starts one for the same account.
    Starting,
    TooMany,
}

/// Why a callback is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnknownCallback {
    /// No sign-in has this state: it was finished, replaced, has expired, or never existed.
    State,
    /// Another browser has started the sign-in.
    Browser,
}

/// The sign-ins in progress or failed: at most one for each account. The start rate and the lifetime limit their number.
#[derive(Default)]
pub(super) struct OpenSignIns(HashMap<AccountKey, Entry>);

impl OpenSignIns {
    /// Reserves a slot for a sign-in, which replaces an earlier one for the same account.
    pub(super) fn reserve(&mut self, key: &AccountKey, principal: &Principal) -> Result<(), Unavailable> {
        let now = Instant::now();
        self.0.retain(|_, entry| entry.expires_at > now);
        if self.0.get(key).is_some_and(Entry::is_starting) {
            return Err(Unavailable::Starting);
        }
        self.0.remove(key);
        let in_progress = || self.0.values().filter(|entry| !entry.is_failed());
        let own = in_progress().filter(|entry| entry.principal == *principal).count();
        if in_progress().count() >= MAX_OPEN || own >= MAX_OPEN_PER_PRINCIPAL {
            return Err(Unavailable::TooMany);
        }
        let entry = Entry { principal: principal.clone(), expires_at: now + LIFETIME, phase: Phase::Starting };
        self.0.insert(key.clone(), entry);
        Ok(())
    }

    /// Adds the sign-in to its reserved slot.
    pub(super) fn fill(&mut self, key: &AccountKey, open: OpenSignIn) {
        if let Some(entry) = self.0.get_mut(key) {
            entry.phase = Phase::Open(Box::new(open));
        }
    }

    /// Records why a sign-in failed, unless another one has been started since.
    pub(super) fn fail(&mut self, key: &AccountKey, principal: Principal, reason: &str) {
        let reason = reason.chars().take(MAX_REASON).collect::<String>().into();
        let expires_at = Instant::now() + LIFETIME;
        self.0.entry(key.clone()).or_insert(Entry { principal, expires_at, phase: Phase::Failed(reason) });
    }

    /// Returns an account's sign-in progress.
    pub(super) fn progress(&self, key: &AccountKey) -> SignInProgress {
        let now = Instant::now();
        match self.0.get(key).filter(|entry| entry.expires_at > now).map(|entry| &entry.phase) {
            Some(Phase::Failed(reason)) => SignInProgress { failure: Some(reason.clone()), ..Default::default() },
            Some(Phase::Starting | Phase::Open(_)) => SignInProgress { is_open: true, ..Default::default() },
            None => SignInProgress::default(),
        }
    }

    /// Removes a sign-in that could not be started.
    pub(super) fn release(&mut self, key: &AccountKey) {
        if self.0.get(key).is_some_and(Entry::is_starting) {
            self.0.remove(key);
        }
    }

    /// Ends an account's sign-in.
    pub(super) fn remove(&mut self, key: &AccountKey) {
        self.0.remove(key);
    }

    /// Takes the sign-in with a state, if `cookie` returns its browser's value. A state can be taken once.
    pub(super) fn take<'a>(
        &mut self,
        state: &str,
        cookie: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<TakenSignIn, UnknownCallback> {
        let now = Instant::now();
        let is_it = |entry: &Entry| entry.expires_at > now && entry.open().is_some_and(|open| open.state == state);
        let found = self.0.iter().find(|(_, entry)| is_it(entry)).map(|(key, _)| key.clone());
        let key = found.ok_or(UnknownCallback::State)?;
        let browser = self.0.get(&key).and_then(Entry::open).map(|open| open.browser.clone());
        // A callback from another browser does not end the sign-in.
        if browser.is_none_or(|browser| cookie(&browser.name) != Some(&browser.value)) {
            return Err(UnknownCallback::Browser);
        }
        match self.0.remove(&key) {
            Some(Entry { principal, phase: Phase::Open(open), .. }) => {
                Ok(TakenSignIn { key, principal, sign_in: open.sign_in })
            }
            _ => Err(UnknownCallback::State),
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> AccountKey {
        (Alias::new(format!("s{number}")), None)
    }

    #[tokio::test(start_paused = true)]
    async fn sign_ins_in_progress_are_limited_and_expire() {
        let mut open = OpenSignIns::default();
        for principal in 0..MAX_OPEN / MAX_OPEN_PER_PRINCIPAL {
            let name = Principal::from(&*format!("key:{principal}"));
            for number in 0..MAX_OPEN_PER_PRINCIPAL {
                let key = (Alias::new(format!("s{number}")), Some(name.shared_id()));
                assert_eq!(open.reserve(&key, &name), Ok(()));
                assert_eq!(open.reserve(&key, &name), Err(Unavailable::Starting));
            }
            let further = (Alias::new("further"), Some(name.shared_id()));
            assert_eq!(open.reserve(&further, &name), Err(Unavailable::TooMany), "of one principal");
        }
        assert_eq!(open.len(), MAX_OPEN);
        let other = Principal::from("key:other");
        assert_eq!(open.reserve(&key(0), &other), Err(Unavailable::TooMany), "of all principals");
        tokio::time::advance(LIFETIME).await;
        assert_eq!(open.reserve(&key(0), &other), Ok(()));
        assert_eq!(open.len(), 1);
        open.release(&key(0));
        assert_eq!(open.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_shown_until_the_next_sign_in_and_takes_no_room() {
        let (mut open, name) = (OpenSignIns::default(), Principal::from("key:ann"));
        assert_eq!(open.progress(&key(0)), SignInProgress::default());
        for number in 0..2 * MAX_OPEN {
            open.fail(&key(number), name.clone(), &"x".repeat(2 * MAX_REASON));
        }
        let failure = open.progress(&key(0)).failure.expect("a reason");
        assert_eq!(failure.len(), MAX_REASON);
        assert_eq!(open.reserve(&key(0), &name), Ok(()));
        assert_eq!(open.progress(&key(0)), SignInProgress { is_open: true, failure: None });
        open.fail(&key(0), name, "the sign-in before");
        assert_eq!(open.progress(&key(0)).failure, None);
        tokio::time::advance(LIFETIME).await;
        assert_eq!(
            [0, 1].map(|number| open.progress(&key(number))),
            [SignInProgress::default(), SignInProgress::default()]
        );
    }

    #[test]
    fn a_state_without_a_sign_in_is_unknown() {
        let mut open = OpenSignIns::default();
        open.reserve(&key(0), &"".into()).expect("room");
        // The entry has no state yet.
        assert_eq!(open.take("", |_| Some("")).err(), Some(UnknownCallback::State));
    }
}
