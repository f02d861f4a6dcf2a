//! Client authentication: keys, and tokens from an authorization server.

mod client_key;
mod jwks;
mod jwks_cache;
mod jwt;
mod key_file;
mod keys;
mod metadata;
mod principals;

use std::sync::{Arc, RwLock};

pub use self::client_key::{ClientKey, KeyLimits, NewKey};
use self::client_key::{KEY_PREFIX, unix_now};
use self::jwks_cache::KeySetCache;
use self::jwt::{JwtVerifier, TokenRefusal};
pub use self::key_file::{KeyFile, KeyFileError};
use self::keys::{KeyRefusal, Keys};
use self::metadata::Challenge;
pub(crate) use self::metadata::METADATA_PATH;
use self::principals::Principals;
use crate::client::principal::{Grant, Principal};
use crate::client::shares::Shares;
use ropeway_config::{AuthSettings, GatewaySettings, JwtSettings, PrincipalLimits};
use ropeway_core::error_chain::chain;
use ropeway_core::event::{Event, Events};
use ropeway_core::sync::{read, write};

/// A gateway's client authentication.
pub(crate) struct Auth {
    principals: Arc<Principals>,
    /// The principal for HTTP clients that are not authenticated.
    anonymous: Principal,
    /// The principal for the user who runs the gateway: standard input and output, and Unix sockets.
    local: Principal,
    methods: RwLock<Arc<AuthMethods>>,
    events: Events,
}

/// The methods that one configuration version defines.
struct AuthMethods {
    settings: AuthSettings,
    limits: PrincipalLimits,
    keys: Option<Keys>,
    jwt: Option<JwtVerifier>,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The message for the client.
    pub(crate) message: String,
    /// The `WWW-Authenticate` value.
    pub(crate) challenge: Option<String>,
}

impl Auth {
    /// Prepares the methods that the settings define. Problems at a reload are reported as events.
    ///
    /// # Errors
    ///
    /// Fails if the client keys cannot be read.
    pub(crate) fn new(settings: &GatewaySettings, shares: Shares, events: Events) -> Result<Self, KeyFileError> {
        let principals = Arc::new(Principals::new(shares));
        let limits = settings.principal_limits;
        let methods = AuthMethods::new(&settings.auth, limits, &principals, None, &events)?;
        let anonymous = Principal::new("", own_grant(limits));
        let local = Principal::new("", own_grant(PrincipalLimits::default()));
        Ok(Self { principals, anonymous, local, methods: RwLock::new(Arc::new(methods)), events })
    }

    /// Applies changed settings. If they cannot be applied, the previous ones stay in use.
    pub(crate) fn reload(&self, settings: &GatewaySettings) {
        let (auth, limits) = (&settings.auth, settings.principal_limits);
        let before = self.methods();
        if (&before.settings, before.limits) == (auth, limits) {
            return;
        }
        // A gateway that other machines can reach must not lose its authentication.
        if before.settings.is_required() && !auth.is_required() {
            return self.warn("`gateway.auth` was removed; restart the gateway to serve clients without it".to_owned());
        }
        match AuthMethods::new(auth, limits, &self.principals, before.jwt.as_ref(), &self.events) {
            Ok(methods) => {
                self.anonymous.set_grant(own_grant(limits));
                if let Some(keys) = &before.keys {
                    keys.end_streams_without(methods.keys.as_ref());
                }
                if before.settings.jwt != auth.jwt {
                    // Clients that are still accepted open their streams again.
                    self.principals.end_streams(u64::MAX);
                }
                *write(&self.methods) = Arc::new(methods);
            }
            Err(error) => {
                self.warn(format!("authentication settings not reloaded, using the previous ones: {}", chain(&error)))
            }
        }
    }

    fn warn(&self, message: String) {
        self.events.emit(Event::Warning { server: None, message });
    }

    fn methods(&self) -> Arc<AuthMethods> {
        read(&self.methods).clone()
    }

    /// Returns `true` if HTTP clients have to authenticate.
    pub(crate) fn is_required(&self) -> bool {
        read(&self.methods).settings.is_required()
    }

    /// Ends streams whose principals' keys or tokens are revoked or expired.
    pub(crate) fn end_streams(&self) {
        self.principals.end_streams(unix_now());
        if let Some(keys) = &self.methods().keys {
            keys.end_streams();
        }
    }

    /// Returns the principal for the user who runs the gateway.
    pub(crate) fn local(&self) -> &Principal {
        &self.local
    }

    /// Returns a request's principal by its `Authorization` header.
    ///
    /// # Errors
    ///
    /// Fails if the header is missing, or if its key or token is not valid.
    pub(crate) async fn authenticate(&self, headers: Authorization<'_>) -> Result<Principal, Denial> {
        let methods = self.methods();
        if !methods.settings.is_required() {
            return Ok(self.anonymous.clone());
        }
        match methods.authenticate(headers.token).await {
            Ok(principal) => Ok(principal),
            Err(refusal) => Err(methods.denial(refusal, headers.host)),
        }
    }

    /// Returns the gateway's protected-resource metadata, if it accepts tokens.
    pub(crate) fn resource_metadata(&self, name: &str, host: Option<&str>) -> Option<String> {
        let methods = self.methods();
        let metadata = metadata::resource_metadata(methods.jwt_settings()?, name, host)?;
        Some(metadata.to_string())
    }
}

/// Returns the rights for the user who runs the gateway. Without authentication, which other machines cannot use, all clients
/// have them.
fn own_grant(limits: PrincipalLimits) -> Grant {
    Grant { is_operator: true, limits, ..Grant::default() }
}

/// The request parts that authentication needs.
#[derive(Clone, Copy)]
pub(crate) struct Authorization<'a> {
    pub(crate) token: Token<'a>,
    /// The `Host` header.
    pub(crate) host: Option<&'a str>,
}

/// A request's `Authorization` header.
#[derive(Clone, Copy)]
pub(crate) enum Token<'a> {
    Missing,
    /// The header occurs twice, is not text, or has another scheme.
    Malformed,
    Bearer(&'a str),
}

impl<'a> Token<'a> {
    /// Reads the header's value.
    pub(crate) fn parse(value: &'a str) -> Self {
        match value.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
                let token = token.trim_matches(' ');
                let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
                if is_token { Self::Bearer(token) } else { Self::Malformed }
            }
            _ => Self::Malformed,
        }
    }
}

/// Why a request has no principal.
enum Refusal {
    Missing,
    Malformed,
    /// The token is neither a key nor a JWT that the gateway could accept.
    Unsupported,
    Key(KeyRefusal),
    Token(TokenRefusal),
}

impl AuthMethods {
    /// Prepares the methods. The public keys from `before` are kept if the issuer is the same.
    fn new(
        settings: &AuthSettings,
        limits: PrincipalLimits,
        principals: &Arc<Principals>,
        before: Option<&JwtVerifier>,
        events: &Events,
    ) -> Result<Self, KeyFileError> {
        let keys =
            settings.keys_file.as_ref().map(|path| Keys::load(KeyFile::new(path), principals, limits, events.clone()));
        let jwt = settings.jwt.as_ref().map(|jwt| {
            let (issuer, url) = (jwt.issuer.as_str(), jwt.jwks_url.as_deref());
            let known = before.map(JwtVerifier::keys).filter(|keys| keys.is_for(issuer, url));
            let keys = known.cloned().unwrap_or_else(|| KeySetCache::new(issuer, url, events.clone()));
            JwtVerifier::new(jwt, keys, principals, limits)
        });
        let keys = keys.transpose()?;
        principals.set_tokens(jwt.is_some());
        Ok(Self { settings: settings.clone(), limits, keys, jwt })
    }

    fn jwt_settings(&self) -> Option<&JwtSettings> {
        self.jwt.as_ref().map(JwtVerifier::settings)
    }

    async fn authenticate(&self, token: Token<'_>) -> Result<Principal, Refusal> {
        let token = match token {
            Token::Missing => return Err(Refusal::Missing),
            Token::Malformed => return Err(Refusal::Malformed),
            Token::Bearer(token) => token,
        };
        match (&self.keys, &self.jwt) {
            (Some(keys), _) if token.starts_with(KEY_PREFIX) => keys.find(token).map_err(Refusal::Key),
            (_, Some(jwt)) => jwt.find(token).await.map_err(Refusal::Token),
            _ => Err(Refusal::Unsupported),
        }
    }

    fn denial(&self, refusal: Refusal, host: Option<&str>) -> Denial {
        let (status, message, challenge) = match refusal {
            Refusal::Missing => (401, "authentication is required".to_owned(), Some(Challenge::Missing)),
            Refusal::Malformed => invalid("the Authorization header must be `Bearer TOKEN`"),
            Refusal::Unsupported => invalid("the token is not a key of this gateway"),
            Refusal::Key(KeyRefusal::Unknown) => invalid("the key is unknown or was revoked"),
            Refusal::Key(KeyRefusal::Expired) => invalid("the key has expired"),
            Refusal::Token(TokenRefusal::Invalid(reason)) => invalid(reason),
            Refusal::Token(refusal @ TokenRefusal::Scope) => {
                (403, refusal.to_string(), Some(Challenge::InsufficientScope))
            }
            Refusal::Token(refusal @ TokenRefusal::Unavailable) => (503, refusal.to_string(), None),
        };
        let settings = self.jwt_settings();
        let challenge = challenge.map(|challenge| metadata::challenge(settings, host, challenge));
        Denial { status, message, challenge }
    }
}

fn invalid(reason: &'static str) -> (u16, String, Option<Challenge>) {
    (401, reason.to_owned(), Some(Challenge::InvalidToken(reason)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::shares::Resource;
    use ropeway_config::GatewayLimits;

    #[test]
    fn only_one_bearer_token_is_read() {
        let bearer = |value: &str| match Token::parse(value) {
            Token::Bearer(token) => Some(token.to_owned()),
            _ => None,
        };
        assert_eq!(bearer("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(bearer("bearer  abc ").as_deref(), Some("abc"));
        for value in
            ["", "abc", "Bearer", "Bearer ", "Basic YTpi", "Bearer a b", "Bearer a\tb", "Bearera b", "Bearer \u{e9}"]
        {
            assert_eq!(bearer(value), None, "{value}");
        }
    }

    fn shares() -> Shares {
        Shares::new(&GatewayLimits { isolated: 8, ..GatewayLimits::default() })
    }

    #[tokio::test]
    async fn the_only_key_may_hold_everything() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = KeyFile::new(folder.path().join("keys.json"));
        let (key, _) = file.add(NewKey::new("a")).expect("a key");
        let keyed = AuthSettings::default().with_keys_file(Some(file.path().to_owned()));
        let settings = GatewaySettings::default().with_auth(keyed.clone());
        let shares = shares();
        let auth = Auth::new(&settings, shares.clone(), Events::default()).expect("keys");
        let share = async || {
            std::thread::sleep(std::time::Duration::from_millis(2));
            let bearer = Authorization { token: Token::Bearer(key.expose()), host: None };
            let principal = auth.authenticate(bearer).await.expect("a principal");
            shares.share(Resource::Isolated, principal.holdings())
        };
        assert_eq!(share().await, 8);
        file.add(NewKey::new("b")).expect("a key");
        assert_eq!(share().await, 2, "a quarter");
        file.revoke("b").expect("a key");
        assert_eq!(share().await, 8);
        // An authorization server's users are not known in advance.
        let jwt = JwtSettings::new("https://issuer.example", "gateway");
        auth.reload(&settings.with_auth(keyed.with_jwt(Some(jwt))));
        assert_eq!(share().await, 2);
    }

    #[tokio::test]
    async fn authentication_cannot_be_removed_while_the_gateway_runs() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = KeyFile::new(folder.path().join("keys.json"));
        file.add(NewKey::new("a")).expect("a key");
        let open = GatewaySettings::default();
        let keyed = open.clone().with_auth(AuthSettings::default().with_keys_file(Some(file.path().to_owned())));
        let auth = Auth::new(&keyed, shares(), Events::default()).expect("keys");
        auth.reload(&open);
        assert!(auth.is_required());
        let missing = Authorization { token: Token::Missing, host: None };
        assert_eq!(auth.authenticate(missing).await.map_err(|denial| denial.status), Err(401));
        // It can be added, and broken settings change nothing.
        let auth = Auth::new(&open, shares(), Events::default()).expect("no keys");
        assert!(auth.authenticate(missing).await.is_ok());
        auth.reload(&open.with_auth(AuthSettings::default().with_keys_file(Some(folder.path().join("none")))));
        assert!(!auth.is_required());
        auth.reload(&keyed);
        assert!(auth.is_required());
    }
}
