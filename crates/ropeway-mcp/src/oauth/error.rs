//! OAuth errors, with advice.

use std::sync::Arc;

use super::text::is_hidden;

/// An error's cause, shared by all calls that wait for the same sign-in.
pub type SharedError = Arc<dyn std::error::Error + Send + Sync>;

/// Why a sign-in, a refresh or a token request failed.
///
/// Server texts are bounded and redacted; URLs have no query.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OAuthError {
    /// A URL that must not be used: a private address, another origin, or plain HTTP.
    #[error("`{url}` is not allowed: {reason}")]
    Blocked {
        /// The URL.
        url: String,
        /// The rule, and how to allow it if that is possible.
        reason: String,
    },
    /// The server or the authorization server cannot be reached.
    #[error("could not connect to `{url}`")]
    Unreachable {
        /// The URL.
        url: String,
        /// The cause.
        #[source]
        source: SharedError,
    },
    /// A response that violates the specification: HTML, an error status, too large, not JSON.
    #[error("`{url}` returned an invalid response: {reason}")]
    Invalid {
        /// The URL.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The authorization server refused a request
    /// ([RFC 6749, section 5.2](https://www.rfc-editor.org/rfc/rfc6749#section-5.2)).
    #[error("the authorization server refused the request: {error}{}", .description.as_ref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Refused {
        /// The error code, like `invalid_grant`.
        error: String,
        /// The authorization server's description.
        description: Option<String>,
    },
    /// The authorization server lacks something that is required.
    #[error("{what}")]
    Unsupported {
        /// What is missing, and what to do about it.
        what: String,
    },
    /// A value differs from the one that it must equal.
    #[error("the {what} does not match: expected `{expected}`, found `{got}`")]
    Mismatch {
        /// The value: `issuer`, `resource`, `iss parameter`, `state` and so on.
        what: String,
        /// The required value.
        expected: String,
        /// The value that was received.
        got: String,
    },
    /// The user, or the authorization server, declined the sign-in.
    #[error("the sign-in was declined{}", .description.as_ref().map(|text| format!(": {text}")).unwrap_or_default())]
    Denied {
        /// The reason that the authorization server gave.
        description: Option<String>,
    },
    /// A response took too long.
    #[error("`{url}` did not respond in time")]
    Timeout {
        /// The URL.
        url: String,
    },
    /// The user has to sign in.
    #[error("sign-in required: run `ropeway login {server}`")]
    SignInRequired {
        /// The server's alias or URL, as `ropeway login` takes it.
        server: String,
    },
    /// The server rejects a token that was just obtained.
    #[error("the server rejects the new token{}{}", if *.is_scope { ": it lacks a scope" } else { "" }, .said.as_ref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Rejected {
        /// Whether the token lacks a scope, according to the server.
        is_scope: bool,
        /// The server's description.
        said: Option<String>,
    },
    /// The sign-in took too long. It has to be started again.
    #[error("the sign-in has expired; start it again")]
    Expired,
    /// A second callback, or one without a sign-in in progress.
    #[error("no sign-in is in progress; start it again")]
    NotInProgress,
    /// The stored tokens cannot be used.
    #[error("could not access the stored tokens")]
    Store(#[source] SharedError),
    /// A command that provides tokens failed.
    #[error("the token command `{command}` failed: {reason}")]
    Command {
        /// The program that was run.
        command: String,
        /// What failed.
        reason: String,
    },
    /// A private key cannot be used.
    #[error("the private key cannot be used: {reason}")]
    Key {
        /// What is wrong.
        reason: String,
    },
    /// A setting is missing or invalid.
    #[error("{reason}")]
    Settings {
        /// What is wrong.
        reason: String,
    },
}

impl OAuthError {
    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into() }
    }

    pub(crate) fn mismatch(what: &str, expected: &str, got: &str) -> Self {
        let bounded = |text: &str| text.chars().filter(|c| !is_hidden(*c)).take(200).collect();
        Self::Mismatch { what: what.to_owned(), expected: bounded(expected), got: bounded(got) }
    }

    /// Returns `true` if a later attempt may succeed without a change: the network or the server failed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Timeout { .. } | Self::Invalid { .. })
            || self.is_refused("temporarily_unavailable")
            || self.is_refused("server_error")
    }

    /// Returns `true` if the refresh token or the grant is not valid: only a new sign-in helps.
    pub fn is_invalid_grant(&self) -> bool {
        self.is_refused("invalid_grant")
    }

    /// Returns `true` if the authorization server does not recognize the client: it has to be registered again.
    pub fn is_invalid_client(&self) -> bool {
        self.is_refused("invalid_client") || self.is_refused("unauthorized_client")
    }

    fn is_refused(&self, code: &str) -> bool {
        matches!(self, Self::Refused { error, .. } if error == code)
    }
}
