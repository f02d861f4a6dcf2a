//! The token that requests use.

use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::header::HeaderValue;

use super::credentials::Credentials;
use super::dpop::DpopKey;
use super::error::OAuthError;
use super::token_set::TokenSet;
use ropeway_core::secret::Secret;

/// How a token was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenOrigin {
    /// It was stored, by this process or another one.
    Store,
    /// It was refreshed.
    Refresh,
    /// The user signed in.
    SignIn,
    /// The client authenticated itself, or a command printed it.
    Grant,
}

/// A token with its headers.
pub(super) struct ActiveToken {
    pub(super) tokens: TokenSet,
    /// `None` for a command's token.
    pub(super) credentials: Option<Credentials>,
    pub(super) header: HeaderValue,
    pub(super) dpop_key: Option<DpopKey>,
    pub(super) origin: TokenOrigin,
    is_accepted: AtomicBool,
}

impl ActiveToken {
    /// Creates a token from a stored sign-in or a grant's result.
    pub(super) fn stored(credentials: Credentials, origin: TokenOrigin) -> Result<Self, OAuthError> {
        let mut token = Self::bearer(credentials.tokens.clone(), origin)?;
        if token.tokens.dpop {
            let key = credentials.dpop_key.as_ref();
            let key =
                key.ok_or_else(|| OAuthError::Key { reason: "the key of a bound token is missing".to_owned() })?;
            token.dpop_key = Some(DpopKey::from_secret(key)?);
        }
        token.credentials = Some(credentials);
        Ok(token)
    }

    /// Creates a token without credentials.
    pub(super) fn bearer(tokens: TokenSet, origin: TokenOrigin) -> Result<Self, OAuthError> {
        let text = format!("{} {}", tokens.scheme(), tokens.access_token.expose());
        let invalid = |_| OAuthError::Settings { reason: "the access token is not valid in a header".to_owned() };
        let mut header = HeaderValue::try_from(text).map_err(invalid)?;
        header.set_sensitive(true);
        Ok(Self { tokens, credentials: None, header, dpop_key: None, origin, is_accepted: AtomicBool::new(false) })
    }

    pub(super) fn is_same(&self, tokens: &TokenSet) -> bool {
        self.tokens.access_token == tokens.access_token
    }

    /// Returns `true` if the server has accepted the token.
    pub(super) fn is_accepted(&self) -> bool {
        self.is_accepted.load(Ordering::Relaxed)
    }

    pub(super) fn set_accepted(&self) {
        self.is_accepted.store(true, Ordering::Relaxed);
    }

    /// Returns the scopes that were granted so far.
    pub(super) fn granted(&self) -> &[String] {
        self.credentials.as_ref().map_or(&self.tokens.scopes, |credentials| &credentials.granted)
    }

    /// Returns the values to redact.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        let own = std::iter::once(&self.tokens.access_token).chain(&self.tokens.refresh_token);
        own.chain(self.credentials.iter().flat_map(Credentials::secrets))
    }
}
