//! Why there is no answer of a model.

use std::fmt;
use std::time::Duration;

use crate::message::Dialect;
use crate::tool::BoxError;

/// Why there is no answer of a model.
#[derive(Debug)]
#[non_exhaustive]
pub struct ProviderError {
    /// What kind of trouble it is.
    pub kind: ErrorKind,
    /// The dialect that was spoken.
    pub dialect: Dialect,
    /// What is known, in words; keys are hidden.
    pub message: String,
    /// The HTTP status, when there was one.
    pub status: Option<u16>,
    /// The provider's own word for the trouble.
    pub code: Option<String>,
    /// The provider's name for the exchange, for its support.
    pub request_id: Option<String>,
    /// When to try again, if the provider said so.
    pub retry_after: Option<Duration>,
    /// The provider said that to try again is worth it, or is not.
    pub should_retry: Option<bool>,
    /// The tool that the provider does not take, by its place in the request.
    pub tool: Option<usize>,
    pub(crate) source: Option<BoxError>,
}

/// What kind of trouble it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request could not be made out of what was given.
    Unusable,
    /// The key is missing, wrong, or not allowed to do this.
    Auth,
    /// The account has nothing left to spend.
    Quota,
    /// There is no such model or address.
    NotFound,
    /// The conversation is longer than the model's window.
    ContextLength,
    /// The request has more bytes than the provider takes.
    TooLarge,
    /// The provider does not take the request.
    InvalidRequest,
    /// Too many requests in too short a time.
    RateLimited,
    /// The provider has too much to do.
    Overloaded,
    /// The provider failed.
    Server,
    /// The provider could not be reached, or the connection broke.
    Connection,
    /// Nothing came in time.
    Timeout,
    /// The answer broke off before its end.
    Truncated,
    /// The answer cannot be understood.
    Unreadable,
}

impl ProviderError {
    /// Trouble of which nothing but words is known.
    pub fn new(kind: ErrorKind, dialect: Dialect, message: impl Into<String>) -> Self {
        Self {
            kind,
            dialect,
            message: message.into(),
            status: None,
            code: None,
            request_id: None,
            retry_after: None,
            should_retry: None,
            tool: None,
            source: None,
        }
    }

    /// May the same request do better in a while?
    pub fn is_retryable(&self) -> bool {
        use ErrorKind::{Connection, Overloaded, RateLimited, Server, Timeout, Truncated};
        let by_kind = matches!(self.kind, RateLimited | Overloaded | Server | Connection | Timeout | Truncated);
        self.should_retry.unwrap_or(by_kind)
    }

    /// Is the conversation longer than the model's window?
    pub fn is_context_length(&self) -> bool {
        self.kind == ErrorKind::ContextLength
    }

    /// Is the key missing, wrong, or not allowed to do this?
    pub fn is_auth(&self) -> bool {
        self.kind == ErrorKind::Auth
    }
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ProviderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
