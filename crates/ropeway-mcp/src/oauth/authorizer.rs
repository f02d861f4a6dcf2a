//! Authorizes the requests to one server: holds the current token, and obtains the next one.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{RequestBuilder, Url};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::active_token::{ActiveToken, TokenOrigin};
use super::credentials::Credentials;
use super::discovery::is_same_issuer;
use super::dpop_nonces::DpopNonces;
use super::error::OAuthError;
use super::http::OAuthHttp;
use super::oauth_client::DPOP;
use super::sign_in_clock::SignInClock;
use super::sign_in_request::SignInHandler;
use super::store::{StoreError, StoreStamp, TokenStore};
use ropeway_config::{HttpServer, OAuthSettings, ServerAuth, TokenCommand};
use ropeway_core::event::{Event, Events};
use ropeway_core::secret::{AccountRedactor, SharedRedactor};
use ropeway_core::sync::{read, write};
use ropeway_core::tool::Alias;

/// Interval at which a connection without a token checks whether another process has signed in.
const STORE_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum sign-in time, unless the host sets another one.
pub(crate) const SIGN_IN_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// The host's handlers and settings for authorizing its connections.
#[derive(Clone, Default)]
pub(crate) struct AuthHost {
    pub(crate) sign_in: Option<SignInHandler>,
    pub(crate) sign_in_timeout: Option<Duration>,
    pub(crate) store: Option<TokenStore>,
    pub(crate) account: Option<String>,
    /// Redactors that receive the tokens from all connections.
    pub(crate) redactors: Vec<Arc<AccountRedactor>>,
}

/// How a server's tokens are obtained.
#[derive(Debug)]
pub(super) enum TokenGrant {
    /// The user signs in. The tokens are in the store.
    Person(OAuthSettings),
    /// The client authenticates itself.
    Machine(OAuthSettings),
    /// A command prints them.
    Command(TokenCommand),
}

/// Authorizes all requests of one connection.
///
/// The connection's host creates it, and every transport that the connection opens shares it, so it outlives sessions and
/// reconnects. Requests read the token from `current`. The holder of `flight` replaces it. `flight` is an async mutex, because
/// it is held across `.await` while a token is obtained: requests that need the same token queue for it and share the outcome.
/// The locks are taken in this order: `flight`, then the store's lock for the sign-in, then `current`, a std `RwLock` that is
/// held only to copy or replace an `Arc`, never across `.await`.
///
/// Dropping a request cancels the sign-in or grant that it waits for. A refresh runs in a task instead, because the server may
/// already have replaced the refresh token, and so does every renewal before a token expires. Such a task keeps the authorizer
/// alive until it ends.
pub(crate) struct Authorizer {
    pub(super) alias: Alias,
    pub(super) server: Url,
    pub(super) account: Option<String>,
    pub(super) grant: TokenGrant,
    /// Whether the configuration requires OAuth.
    pub(super) is_configured: bool,
    pub(super) store: TokenStore,
    pub(super) sign_in: Option<SignInHandler>,
    pub(super) sign_in_timeout: Duration,
    pub(super) http: OAuthHttp,
    pub(super) nonces: DpopNonces,
    pub(super) redactor: Arc<SharedRedactor>,
    pub(super) events: Events,
    pub(crate) clock: SignInClock,
    current: RwLock<Current>,
    /// Held while a token is obtained.
    pub(super) flight: Arc<AsyncMutex<Flight>>,
    /// Number of finished recoveries.
    pub(super) recoveries: AtomicU64,
    /// Number of finished replacements for tokens that were about to expire.
    pub(super) replacements: AtomicU64,
    /// Whether a request that no call waits for may prompt the user to sign in.
    may_offer: AtomicBool,
}

/// The token that requests use, and its version.
#[derive(Default)]
struct Current {
    /// Incremented with every change.
    generation: u64,
    token: Option<Arc<ActiveToken>>,
}

/// State that is changed only while a token is obtained.
///
/// The guard is the permission to obtain a token. A request notes `recoveries` or `replacements` before it waits for the guard. If
/// the number has changed by then, another request has done the work, and `failure` or `replacement_failure` is the outcome for
/// both.
///
/// A renewal moves the guard into its task. A recovery moves the state itself into its refresh task, and puts it back
/// afterwards. If that recovery is dropped meanwhile, the task goes on without the guard, ordered only by the store's lock, and
/// the next holder finds the default state and reads the stored tokens again.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// The stored credentials' version when they were last read.
    pub(super) stamp: Option<StoreStamp>,
    /// The last recovery's error, for the calls that waited for it.
    pub(super) failure: Option<OAuthError>,
    /// The last replacement's error, for the requests that waited for it.
    pub(super) replacement_failure: Option<OAuthError>,
    /// A sign-in that has ended. The next one reuses its client and scopes.
    pub(super) previous: Option<Credentials>,
    /// The scopes that the server required for the last sign-in.
    pub(super) requested: Vec<String>,
    /// Whether the last sign-in was for further scopes.
    pub(super) is_stepped_up: bool,
    /// When the server rejected a token that was just obtained.
    pub(super) rejected_at: Option<Instant>,
}

/// One request's headers.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// The token's generation, for [`Authorizer::recover`].
    pub(crate) generation: u64,
    pub(super) authorization: Option<HeaderValue>,
    pub(super) proof: Option<HeaderValue>,
}

impl Access {
    /// Adds the headers to a request.
    pub(crate) fn apply(&self, request: RequestBuilder) -> RequestBuilder {
        let request = match &self.authorization {
            Some(value) => request.header(AUTHORIZATION, value.clone()),
            None => request,
        };
        match &self.proof {
            Some(value) => request.header(DPOP, value.clone()),
            None => request,
        }
    }

    /// Returns `true` if the request has a token.
    pub(crate) fn has_token(&self) -> bool {
        self.authorization.is_some()
    }
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorizer").field("server", &self.alias).finish_non_exhaustive()
    }
}

impl Authorizer {
    /// Creates a server's authorizer. Returns `None` if its requests are never authorized by one: it has fixed credentials, or
    /// neither settings, stored tokens nor a handler.
    pub(crate) fn new(
        alias: &Alias,
        server: &HttpServer,
        host: &AuthHost,
        events: &Events,
        redactor: &Arc<SharedRedactor>,
    ) -> Option<Arc<Self>> {
        if server.auth.is_none() && (server.has_fixed_credentials() || (host.store.is_none() && host.sign_in.is_none()))
        {
            return None;
        }
        // An invalid URL fails when the link is opened.
        let url = Url::parse(&server.url).ok()?;
        let grant = match &server.auth {
            None => TokenGrant::Person(OAuthSettings::new()),
            Some(ServerAuth::OAuth(settings)) if settings.grant.is_interactive() => {
                TokenGrant::Person((**settings).clone())
            }
            Some(ServerAuth::OAuth(settings)) => TokenGrant::Machine((**settings).clone()),
            Some(ServerAuth::Command(command)) => TokenGrant::Command(command.clone()),
        };
        let http = match &grant {
            TokenGrant::Person(settings) | TokenGrant::Machine(settings) => {
                OAuthHttp::for_settings(&url, settings, &redactor.current())
            }
            TokenGrant::Command(_) => OAuthHttp::new(&url, &[], redactor.current()),
        };
        let configured = match &grant {
            TokenGrant::Person(settings) => settings.account.clone(),
            TokenGrant::Machine(_) | TokenGrant::Command(_) => None,
        };
        Some(Arc::new(Self {
            alias: alias.clone(),
            http,
            server: url,
            account: host.account.clone().or(configured),
            grant,
            is_configured: server.auth.is_some(),
            store: host.store.clone().unwrap_or_else(TokenStore::in_memory),
            sign_in: host.sign_in.clone(),
            sign_in_timeout: host.sign_in_timeout.unwrap_or(SIGN_IN_TIMEOUT),
            nonces: DpopNonces::default(),
            redactor: redactor.clone(),
            events: events.clone(),
            clock: SignInClock::default(),
            current: RwLock::default(),
            flight: Arc::default(),
            recoveries: AtomicU64::new(0),
            replacements: AtomicU64::new(0),
            may_offer: AtomicBool::new(false),
        }))
    }

    /// Returns `true` if the configuration requires OAuth.
    pub(crate) fn is_configured(&self) -> bool {
        self.is_configured
    }

    /// Returns `true` if requests have a token.
    pub(crate) fn has_token(&self) -> bool {
        self.current_token().is_some()
    }

    /// Returns `true` if other tokens were stored since they were last read.
    pub(crate) async fn has_new_tokens(&self) -> bool {
        matches!(self.grant, TokenGrant::Person(_)) && self.is_store_changed(&*self.flight.lock().await)
    }

    /// Returns the maximum sign-in time, or zero if the user cannot be prompted.
    pub(crate) fn max_sign_in_time(&self) -> Duration {
        match (&self.sign_in, &self.grant) {
            (Some(_), TokenGrant::Person(_)) => self.sign_in_timeout,
            _ => Duration::ZERO,
        }
    }

    /// Allows one sign-in for a request that no call waits for: a connection's handshake that a caller waits for.
    pub(crate) fn allow_offer(&self) {
        self.may_offer.store(true, Ordering::Release);
    }

    /// Withdraws [`allow_offer`](Self::allow_offer).
    pub(crate) fn take_offer(&self) -> bool {
        self.may_offer.swap(false, Ordering::AcqRel)
    }

    /// Returns `true` if another attempt may succeed: the user can be prompted, the stored tokens have changed, or the grant
    /// needs no user.
    pub(crate) async fn can_retry(&self) -> bool {
        match &self.grant {
            TokenGrant::Machine(_) | TokenGrant::Command(_) => true,
            TokenGrant::Person(_) => self.sign_in.is_some() || self.is_store_changed(&*self.flight.lock().await),
        }
    }

    /// Reads the stored tokens if they have changed. Called once for each connection attempt.
    pub(crate) async fn load(&self) -> Result<(), OAuthError> {
        if let TokenGrant::Person(_) = &self.grant {
            let mut flight = self.flight.lock().await;
            if self.is_store_changed(&flight)
                && let Err(error) = self.load_stored(&mut flight).await
            {
                // A server that needs no token works without a readable store.
                if self.is_configured {
                    return Err(error);
                }
                tracing::debug!(server = %self.alias, "could not read the stored tokens: {error}");
            }
        }
        Ok(())
    }

    pub(super) fn is_store_changed(&self, flight: &Flight) -> bool {
        let stamp = flight.stamp.as_ref();
        stamp.is_none_or(|stamp| self.store.changed_since(self.server.as_str(), self.account.as_deref(), stamp))
    }

    /// Waits until another process changes the stored tokens. Never returns if the grant needs no user.
    pub(crate) async fn signed_in_elsewhere(&self) {
        if !matches!(self.grant, TokenGrant::Person(_)) {
            return std::future::pending().await;
        }
        let (server, account) = (self.server.as_str(), self.account.as_deref());
        let entered = self.store.stamp(server, account);
        loop {
            tokio::time::sleep(STORE_INTERVAL).await;
            let flight = self.flight.lock().await;
            // Without a stamp, the tokens could not be read.
            if self.store.changed_since(server, account, flight.stamp.as_ref().unwrap_or(&entered)) {
                return;
            }
        }
    }

    /// Reads the stored tokens. Returns `true` if they differ from the current ones.
    pub(super) async fn load_stored(&self, flight: &mut Flight) -> Result<bool, OAuthError> {
        let (server, account) = (self.server.as_str(), self.account.as_deref());
        // Taken before, so that a change during the read is noticed.
        let stamp = self.store.stamp(server, account);
        let stored = self.store.load(server, account).await.map_err(store_error)?;
        flight.stamp = Some(stamp);
        let current = self.current_token();
        match stored.filter(|stored| self.is_usable(stored)) {
            Some(stored) if current.as_ref().is_some_and(|token| token.is_same(&stored.tokens)) => Ok(false),
            Some(stored) => {
                self.adopt(ActiveToken::stored(stored, TokenOrigin::Store)?);
                Ok(true)
            }
            None => {
                // Signed out elsewhere.
                if current.is_some() {
                    self.drop_token();
                }
                Ok(false)
            }
        }
    }

    /// Returns `true` if stored credentials match the settings.
    pub(super) fn is_usable(&self, stored: &Credentials) -> bool {
        let TokenGrant::Person(settings) = &self.grant else { return false };
        settings.issuer.as_ref().is_none_or(|issuer| is_same_issuer(issuer, &stored.issuer))
    }

    /// Records that the server accepted a token.
    pub(crate) fn accepted(&self, access: &Access) {
        if access.has_token() {
            let current = read(&self.current);
            if let Some(token) = current.token.as_ref().filter(|_| current.generation == access.generation) {
                token.set_accepted();
            }
        }
    }

    /// Remembers a response's nonce.
    pub(crate) fn remember_nonce(&self, url: &Url, nonce: &str) {
        self.nonces.remember(url, nonce);
    }

    pub(super) fn snapshot(&self) -> (u64, Option<Arc<ActiveToken>>) {
        let current = read(&self.current);
        (current.generation, current.token.clone())
    }

    pub(super) fn generation(&self) -> u64 {
        read(&self.current).generation
    }

    pub(super) fn current_token(&self) -> Option<Arc<ActiveToken>> {
        read(&self.current).token.clone()
    }

    /// Makes a token the current one.
    pub(super) fn adopt(&self, token: ActiveToken) {
        self.redactor.learn(token.secrets());
        let mut current = write(&self.current);
        current.generation += 1;
        current.token = Some(Arc::new(token));
    }

    pub(super) fn learn(&self, credentials: &Credentials) {
        self.redactor.learn(credentials.secrets());
    }

    pub(super) fn drop_token(&self) {
        let mut current = write(&self.current);
        current.generation += 1;
        current.token = None;
    }

    pub(super) fn sign_in_required(&self) -> OAuthError {
        OAuthError::SignInRequired { server: self.alias.to_string() }
    }

    pub(super) fn warn(&self, message: &str) {
        let message = self.redactor.current().redact(message).into_owned();
        tracing::warn!(server = %self.alias, "{message}");
        self.events.emit(Event::Warning { server: Some(self.alias.clone()), message });
    }
}

pub(super) fn store_error(error: StoreError) -> OAuthError {
    OAuthError::Store(Arc::new(error))
}
