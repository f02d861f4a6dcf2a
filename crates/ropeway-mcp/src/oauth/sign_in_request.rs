//! A request to a connection's host to let the user sign in.

use std::fmt;
use std::sync::Arc;

use super::credentials::Credentials;
use super::error::OAuthError;
use super::sign_in::{SignIn, SignInOptions};
use ropeway_core::tool::{Alias, BoxError, BoxFuture};

/// A request to let the user sign in to a server. Calls that need the sign-in wait for the answer.
///
/// # Examples
///
/// ```no_run
/// use ropeway::mcp::Handlers;
/// use ropeway::oauth::SignInAnswer;
///
/// # async fn open(_: &str) -> String { String::new() }
/// let handlers = Handlers::new().on_sign_in(|request| async move {
///     let mut sign_in = request.start().await?;
///     let url = sign_in.prepare("http://127.0.0.1:8123/callback").await?;
///     let callback = open(&url).await;
///     Ok(SignInAnswer::from(sign_in.finish(&callback).await?))
/// });
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SignInRequest {
    /// The server's alias.
    pub server: Alias,
    /// The server's URL.
    pub url: String,
    /// Why the user has to sign in.
    pub reason: SignInReason,
    /// The scopes that the server requires.
    pub scopes: Vec<String>,
    /// The options that [`start`](Self::start) uses, with the challenge and the previous sign-in.
    pub options: SignInOptions,
}

impl SignInRequest {
    /// Starts the sign-in: finds the authorization server.
    ///
    /// # Errors
    ///
    /// Fails if the server or its authorization server does not support OAuth, or cannot be reached.
    pub async fn start(&self) -> Result<SignIn, OAuthError> {
        SignIn::start(self.options.clone()).await
    }
}

/// Why the user has to sign in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignInReason {
    /// No token is stored for the server.
    First,
    /// The token has expired or was revoked, and could not be refreshed.
    Expired,
    /// The token lacks scopes.
    Scope,
}

impl SignInReason {
    /// Returns the reason's name in events.
    pub fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Expired => "expired",
            Self::Scope => "scope",
        }
    }
}

impl fmt::Display for SignInReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "the server needs a sign-in",
            Self::Expired => "the sign-in has expired",
            Self::Scope => "the server asks for further permissions",
        })
    }
}

/// The answer to a [`SignInRequest`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SignInAnswer {
    /// The user signed in. The connection stores the tokens.
    SignedIn(Box<Credentials>),
    /// The user signed in elsewhere, and the token store has the tokens.
    Stored,
    /// The user declined. The waiting calls fail.
    Declined,
}

impl From<Credentials> for SignInAnswer {
    fn from(credentials: Credentials) -> Self {
        Self::SignedIn(Box::new(credentials))
    }
}

/// The function that lets the user sign in.
pub(crate) type SignInHandler =
    Arc<dyn Fn(SignInRequest) -> BoxFuture<'static, Result<SignInAnswer, BoxError>> + Send + Sync>;
