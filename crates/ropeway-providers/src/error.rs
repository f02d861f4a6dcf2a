//! Provider errors.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use ropeway_core::message::Dialect;
use ropeway_core::secret::Redactor;
use ropeway_core::tool::BoxError;

/// Why a request to a model failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct ProviderError {
    /// The kind of failure.
    pub kind: ProviderErrorKind,
    /// The provider's dialect.
    pub dialect: Dialect,
    /// The message, with secrets redacted.
    pub message: String,
    /// The HTTP status, if a response arrived.
    pub status: Option<u16>,
    /// The provider's error code.
    pub code: Option<String>,
    /// The provider's request id, for support tickets.
    pub request_id: Option<String>,
    /// The delay before a retry, if the provider sent one.
    pub retry_after: Option<Duration>,
    /// Whether to retry, if the provider specifies it.
    pub should_retry: Option<bool>,
    /// The index of the tool that the provider rejected.
    pub tool: Option<u32>,
    pub(crate) source: Option<BoxError>,
}

/// A [`ProviderError`]'s kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProviderErrorKind {
    /// The settings or the request are invalid; nothing was sent.
    Unusable,
    /// The key is missing, invalid, or lacks a permission.
    Auth,
    /// The account's quota or credit is used up.
    Quota,
    /// The model or the URL does not exist.
    NotFound,
    /// The conversation exceeds the model's context window.
    ContextLength,
    /// The request exceeds the provider's size limit.
    TooLarge,
    /// The model does not support images, audio or documents.
    Media,
    /// The provider rejected the request.
    InvalidRequest,
    /// The rate limit was exceeded.
    RateLimited,
    /// The provider is overloaded.
    Overloaded,
    /// The provider reported an internal error.
    Server,
    /// The connection failed or was lost.
    Connection,
    /// No data arrived in time.
    Timeout,
    /// The reply was cut off.
    Truncated,
    /// The reply could not be decoded.
    Unreadable,
}

impl ProviderError {
    /// Creates an error without details.
    pub fn new(kind: ProviderErrorKind, dialect: Dialect, message: impl Into<String>) -> Self {
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

    /// Creates the error for a request or settings that cannot be used.
    pub(super) fn unusable(dialect: Dialect, message: impl Into<String>) -> Self {
        Self::new(ProviderErrorKind::Unusable, dialect, message)
    }

    /// Creates the error for a tool choice that names an unknown tool.
    pub(super) fn unknown_tool(dialect: Dialect, name: &str) -> Self {
        Self::unusable(dialect, format!("the tool choice `{name}` is not an offered tool"))
    }

    /// Creates the error for a reply without an end.
    pub(super) fn truncated(dialect: Dialect) -> Self {
        Self::new(ProviderErrorKind::Truncated, dialect, "the reply was cut off")
    }

    /// Sets the error's source.
    pub(super) fn with_source(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// Returns `true` if the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        use ProviderErrorKind::{Connection, Overloaded, RateLimited, Server, Timeout, Truncated};
        let by_kind = matches!(self.kind, RateLimited | Overloaded | Server | Connection | Timeout | Truncated);
        self.should_retry.unwrap_or(by_kind)
    }

    /// Returns `true` if the conversation exceeds the model's context window.
    pub fn is_context_length(&self) -> bool {
        self.kind == ProviderErrorKind::ContextLength
    }

    /// Returns `true` if the model does not support the request's media.
    pub fn is_unsupported_media(&self) -> bool {
        self.kind == ProviderErrorKind::Media
    }

    /// Returns `true` if the key is missing, invalid, or lacks a permission.
    pub fn is_auth(&self) -> bool {
        self.kind == ProviderErrorKind::Auth
    }

    /// Redacts secrets in the error and its sources.
    pub(super) fn redacted(mut self, redactor: &Redactor) -> Self {
        let texts = [Some(&mut self.message), self.code.as_mut(), self.request_id.as_mut()];
        for text in texts.into_iter().flatten() {
            *text = redactor.redact(text).into_owned();
        }
        self.source = self.source.map(|source| {
            if shows_secret(source.as_ref(), redactor) {
                Box::new(RedactedError::of(source.as_ref(), redactor))
            } else {
                source
            }
        });
        self
    }
}

/// Returns `true` if an error or any source in its chain shows a secret.
fn shows_secret(error: &(dyn std::error::Error + 'static), redactor: &Redactor) -> bool {
    let shows = |text: &str| matches!(redactor.redact(text), Cow::Owned(_));
    shows(&error.to_string())
        || shows(&format!("{error:?}"))
        || error.source().is_some_and(|source| shows_secret(source, redactor))
}

/// Replaces an error that shows a secret: the redacted messages in its chain.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct RedactedError {
    message: String,
    source: Option<Box<Self>>,
}

impl RedactedError {
    fn of(error: &(dyn std::error::Error + 'static), redactor: &Redactor) -> Self {
        let source = error.source().map(|source| Box::new(Self::of(source, redactor)));
        Self { message: redactor.redact(&error.to_string()).into_owned(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_core::secret::Secret;

    #[derive(Debug, thiserror::Error)]
    #[error("could not say `{0}`")]
    struct Cause(String, #[source] std::io::Error);

    fn redacted_error(message: &str) -> ProviderError {
        let source = Cause("hello".to_owned(), std::io::Error::other(message.to_owned()));
        let mut error = ProviderError::new(ProviderErrorKind::Connection, Dialect::Chat, "sk-12345678 is no key");
        (error.code, error.request_id) = (Some("sk-12345678".to_owned()), Some("r-sk-12345678".to_owned()));
        error.source = Some(Box::new(source));
        error.redacted(&Redactor::new(&[Secret::new("sk-12345678")]))
    }

    #[test]
    fn secrets_are_redacted_in_the_whole_chain() {
        let error = redacted_error("Bearer sk-12345678");
        let text = format!("{error:?} {:?} {:?} {}", error.code, error.request_id, error.message);
        assert!(!text.contains("1234"), "{text}");
        let source = std::error::Error::source(&error).expect("a source");
        let last = source.source().expect("another");
        assert_eq!((source.to_string(), last.to_string()), ("could not say `hello`".into(), "Bearer ***".into()));
    }

    #[test]
    fn a_source_without_secrets_is_kept() {
        let error = redacted_error("nothing");
        let source = std::error::Error::source(&error).expect("a source");
        assert!(source.downcast_ref::<Cause>().is_some());
    }
}
