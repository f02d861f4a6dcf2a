//! User sign-ins to servers through a browser, which returns to the gateway's own callback.

mod lists;
mod open;
mod starts;
mod waiting;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Url;
use ring::rand::{SecureRandom as _, SystemRandom};

use self::lists::PrincipalLists;
pub(crate) use self::open::{AccountKey, BrowserCookie, LIFETIME, SignInProgress};
use self::open::{OpenSignIn, OpenSignIns, TakenSignIn, Unavailable, UnknownCallback};
use self::starts::StartLimits;
pub(crate) use self::waiting::{Waiter, WaitingCalls};
use crate::client::principal::Principal;
use ropeway_bridge::{Bridge, SignInTarget};
use ropeway_core::error_chain::chain;
use ropeway_core::event::{Event, Events};
use ropeway_core::secret::AccountRedactor;
use ropeway_core::sync::lock;
use ropeway_mcp::oauth::{Challenge, Credentials, OAuthError, SignIn, SignInOptions, StoreError, TokenStore, revoke};

/// Maximum time in which the authorization server is found and a client registered, and in which a code is exchanged.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum time to wait for another process that changes the same tokens.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum length of a callback's query.
const MAX_QUERY: usize = 16 << 10;

/// Lets users sign in to a gateway's servers.
pub(crate) struct SignIns {
    pub(crate) store: TokenStore,
    /// Calls that wait for a sign-in.
    pub(crate) waiting: Arc<WaitingCalls>,
    bridge: Bridge,
    events: Events,
    /// Tool lists from servers where only principals have signed in.
    pub(crate) lists: PrincipalLists,
    /// Receives the tokens.
    redactor: Arc<AccountRedactor>,
    open: Mutex<OpenSignIns>,
    starts: Mutex<StartLimits>,
}

/// A sign-in that continues in the browser.
pub(crate) struct StartedSignIn {
    /// The authorization server's address, which the user opens.
    pub(crate) url: String,
    pub(crate) browser: BrowserCookie,
}

/// A sign-in whose browser has returned.
pub(crate) struct FinishedSignIn {
    pub(crate) key: AccountKey,
    /// The principal that has started it.
    pub(crate) principal: Principal,
    /// Whether tokens were obtained and stored.
    pub(crate) stored: Result<(), SignInError>,
}

/// Why a sign-in failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignInError {
    /// The server does not exist, or has no sign-in.
    #[error("this server has no interactive sign-in")]
    NotSupported,
    #[error("a sign-in is being started; try again in a moment")]
    Starting,
    #[error("too many sign-ins are in progress; try again later")]
    TooMany,
    /// No sign-in has the callback's state.
    #[error("no sign-in is in progress")]
    UnknownState,
    /// Another browser has started the sign-in.
    #[error("another browser has started the sign-in")]
    OtherBrowser,
    #[error(transparent)]
    OAuth(#[from] OAuthError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Unavailable> for SignInError {
    fn from(unavailable: Unavailable) -> Self {
        match unavailable {
            Unavailable::Starting => Self::Starting,
            Unavailable::TooMany => Self::TooMany,
        }
    }
}

impl From<UnknownCallback> for SignInError {
    fn from(unknown: UnknownCallback) -> Self {
        match unknown {
            UnknownCallback::State => Self::UnknownState,
            UnknownCallback::Browser => Self::OtherBrowser,
        }
    }
}

/// A slot for a sign-in that is being started. Dropping it releases the slot, unless the sign-in was added.
struct Reservation<'a>(&'a SignIns, &'a AccountKey);

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        lock(&self.0.open).release(self.1);
    }
}

impl SignIns {
    pub(crate) fn new(bridge: Bridge, store: TokenStore, redactor: Arc<AccountRedactor>) -> Self {
        Self {
            store,
            lists: PrincipalLists::default(),
            redactor,
            waiting: Arc::default(),
            events: bridge.event_channel(),
            bridge,
            open: Mutex::default(),
            starts: Mutex::default(),
        }
    }

    /// Starts a sign-in for an account. The browser returns to `redirect_uri`.
    pub(crate) async fn start(
        &self,
        key: &AccountKey,
        principal: &Principal,
        redirect_uri: &str,
    ) -> Result<StartedSignIn, SignInError> {
        let target = self.bridge.sign_in_target(&key.0).ok_or(SignInError::NotSupported)?;
        if !lock(&self.starts).take(&principal.shared_id()) {
            return Err(SignInError::TooMany);
        }
        lock(&self.open).reserve(key, principal)?;
        let _reservation = Reservation(self, key);
        // A sign-in whose tokens cannot be stored would be in vain.
        self.store.check().await?;
        let challenge = self.waiting.challenge(key);
        let reason = match &challenge {
            Some(challenge) if challenge.is_insufficient_scope() => "scope",
            _ => "first",
        };
        let (sign_in, url) = within(self.prepare(&target, key, challenge, redirect_uri), &target.url).await?;
        let state = state_of(Url::parse(&url).ok().as_ref().and_then(Url::query).unwrap_or_default());
        let state =
            state.ok_or_else(|| OAuthError::Settings { reason: "the authorization URL has no `state`".to_owned() })?;
        let browser = BrowserCookie::new(random_text()?, redirect_uri.starts_with("https:"));
        lock(&self.open).fill(key, OpenSignIn { state, browser: browser.clone(), sign_in });
        self.events.emit(Event::SignInStarted { server: key.0.clone(), reason: reason.to_owned() });
        Ok(StartedSignIn { url, browser })
    }

    async fn prepare(
        &self,
        target: &SignInTarget,
        key: &AccountKey,
        challenge: Option<Challenge>,
        redirect_uri: &str,
    ) -> Result<(SignIn, String), OAuthError> {
        let account = account_of(key, target);
        // Unreadable credentials are replaced.
        let previous = self.store.load(&target.url, account).await.ok().flatten();
        let options = SignInOptions::new(&target.url)
            .with_settings(target.settings.clone())
            .with_challenge(challenge)
            .with_account(account.map(str::to_owned))
            .with_previous(previous);
        let mut sign_in = SignIn::start(options).await?;
        let url = sign_in.prepare(redirect_uri).await?;
        Ok((sign_in, url))
    }

    /// Ends a sign-in with its callback's query, and stores the tokens. `cookie` returns a cookie's value.
    ///
    /// # Errors
    ///
    /// Fails if the callback belongs to no sign-in.
    pub(crate) async fn finish<'a>(
        &self,
        query: &str,
        cookie: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<FinishedSignIn, SignInError> {
        let state = Some(query).filter(|query| query.len() <= MAX_QUERY).and_then(state_of);
        let state = state.ok_or(SignInError::UnknownState)?;
        let TakenSignIn { key, principal, mut sign_in } = lock(&self.open).take(&state, cookie)?;
        let target = self.bridge.sign_in_target(&key.0).ok_or(SignInError::NotSupported)?;
        let finished = async {
            let mut credentials = within(sign_in.finish(query), &target.url).await?;
            credentials.account = account_of(&key, &target).map(str::to_owned);
            self.redactor.learn(&(key.0.to_string(), credentials.account.clone()), credentials.secrets());
            self.save(&credentials).await
        };
        let stored = finished.await;
        match &stored {
            Ok(()) => self.events.emit(Event::SignedIn { server: key.0.clone() }),
            Err(error) => {
                let reason = chain(error);
                lock(&self.open).fail(&key, principal.clone(), &reason);
                let message = format!("the sign-in failed: {reason}");
                self.events.emit(Event::Warning { server: Some(key.0.clone()), message });
                self.waiting.end(&key, false);
            }
        }
        Ok(FinishedSignIn { key, principal, stored })
    }

    /// Returns an account's sign-in progress.
    pub(crate) fn progress(&self, key: &AccountKey) -> SignInProgress {
        lock(&self.open).progress(key)
    }

    async fn save(&self, credentials: &Credentials) -> Result<(), SignInError> {
        let account = credentials.account.as_deref();
        let _lock = self.store.lock_within(&credentials.server, account, LOCK_TIMEOUT).await?;
        Ok(self.store.save(credentials).await?)
    }

    /// Removes an account's tokens, and revokes them if the authorization server supports it. Returns `false` if it has none.
    pub(crate) async fn sign_out(&self, key: &AccountKey) -> Result<bool, SignInError> {
        let target = self.bridge.sign_in_target(&key.0).ok_or(SignInError::NotSupported)?;
        lock(&self.open).remove(key);
        let account = account_of(key, &target);
        let removed = {
            let _lock = self.store.lock_within(&target.url, account, LOCK_TIMEOUT).await?;
            let credentials = self.store.load(&target.url, account).await.ok().flatten();
            let is_removed = self.store.remove(&target.url, account).await?;
            is_removed.then_some(credentials)
        };
        let Some(credentials) = removed else { return Ok(false) };
        if let Some(credentials) = credentials {
            let revoked = within(revoke(&credentials, &target.settings), &target.url).await;
            if let Some(error) = revoked.map_or_else(Some, |revocation| revocation.problem) {
                // They are removed here, and expire there.
                tracing::debug!(server = %key.0, "could not revoke the tokens: {}", chain(&error));
            }
        }
        Ok(true)
    }
}

/// Returns the account under which tokens are stored: a principal's, or the configured one.
fn account_of<'a>(key: &'a AccountKey, target: &'a SignInTarget) -> Option<&'a str> {
    key.1.as_deref().or(target.settings.account.as_deref())
}

/// Limits a step's time.
async fn within<T>(step: impl Future<Output = Result<T, OAuthError>>, url: &str) -> Result<T, OAuthError> {
    let late = |_| Err(OAuthError::Timeout { url: without_query(url) });
    tokio::time::timeout(STEP_TIMEOUT, step).await.unwrap_or_else(late)
}

fn without_query(url: &str) -> String {
    url.split(['?', '#']).next().unwrap_or_default().to_owned()
}

/// Returns a query's only `state`.
fn state_of(query: &str) -> Option<String> {
    let url = Url::parse(&format!("query:?{query}")).ok()?;
    let mut states = url.query_pairs().filter(|(name, _)| name == "state").map(|(_, value)| value.into_owned());
    let state = states.next().filter(|state| !state.is_empty());
    if states.next().is_some() { None } else { state }
}

/// Returns 32 random bytes as base64url.
fn random_text() -> Result<String, OAuthError> {
    let mut bytes = [0; 32];
    let failed = |_| OAuthError::Settings { reason: "the system's random number generator failed".to_owned() };
    SystemRandom::new().fill(&mut bytes).map_err(failed)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callback_has_one_state() {
        assert_eq!(state_of("code=1&state=a%2Bb").as_deref(), Some("a+b"));
        for query in ["", "code=1", "state=", "state=a&state=b", "state=a&state=a", "State=a"] {
            assert_eq!(state_of(query), None, "{query}");
        }
    }
}
