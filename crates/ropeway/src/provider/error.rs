//! Why there is no answer of a model.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::message::Dialect;
use crate::secret::Redactor;
use crate::tool::BoxError;

/// Why there is no answer of a model.
#[derive(Debug)]
#[non_exhaustive]
pub struct ProviderError {
    /// What kind of trouble it is.
    pub kind: ProviderErrorKind,
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
    pub tool: Option<u32>,
    pub(crate) source: Option<BoxError>,
}

/// What kind of trouble it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProviderErrorKind {
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
    /// The model takes no pictures, sounds or documents.
    Media,
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

    /// An answer that ended too early.
    pub(super) fn truncated(dialect: Dialect) -> Self {
        Self::new(ProviderErrorKind::Truncated, dialect, "the answer broke off before its end")
    }

    /// The same trouble, with what it came from.
    pub(super) fn with_source(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// May the same request do better in a while?
    pub fn is_retryable(&self) -> bool {
        use ProviderErrorKind::{Connection, Overloaded, RateLimited, Server, Timeout, Truncated};
        let by_kind = matches!(self.kind, RateLimited | Overloaded | Server | Connection | Timeout | Truncated);
        self.should_retry.unwrap_or(by_kind)
    }

    /// Is the conversation longer than the model's window?
    pub fn is_context_length(&self) -> bool {
        self.kind == ProviderErrorKind::ContextLength
    }

    /// Does the model take no pictures, sounds or documents?
    pub fn is_media(&self) -> bool {
        self.kind == ProviderErrorKind::Media
    }

    /// Is the key missing, wrong, or not allowed to do this?
    pub fn is_auth(&self) -> bool {
        self.kind == ProviderErrorKind::Auth
    }

    /// The same trouble; what must not be seen is hidden in all its words.
    pub(super) fn hidden(mut self, mask: &Redactor) -> Self {
        let words = [Some(&mut self.message), self.code.as_mut(), self.request_id.as_mut()];
        for text in words.into_iter().flatten() {
            *text = mask.hide(text).into_owned();
        }
        self.source = self.source.map(|source| match is_seen_in(source.as_ref(), mask) {
            true => Box::new(Told::of(source.as_ref(), mask)),
            false => source,
        });
        self
    }
}

/// Does an error, or one of those it came from, show what must not be seen?
fn is_seen_in(error: &(dyn std::error::Error + 'static), mask: &Redactor) -> bool {
    let shows = |text: &str| matches!(mask.hide(text), Cow::Owned(_));
    shows(&error.to_string())
        || shows(&format!("{error:?}"))
        || error.source().is_some_and(|source| is_seen_in(source, mask))
}

/// What is left of an error that showed what must not be seen: its words without it.
#[derive(Debug)]
struct Told {
    words: String,
    source: Option<Box<Self>>,
}

impl Told {
    fn of(error: &(dyn std::error::Error + 'static), mask: &Redactor) -> Self {
        let source = error.source().map(|source| Box::new(Self::of(source, mask)));
        Self { words: mask.hide(&error.to_string()).into_owned(), source }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for Told {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    #[derive(Debug, thiserror::Error)]
    #[error("could not say `{0}`")]
    struct Loose(String, #[source] std::io::Error);

    fn broken(words: &str) -> ProviderError {
        let source = Loose("hello".to_owned(), std::io::Error::other(words.to_owned()));
        let mut error = ProviderError::new(ProviderErrorKind::Connection, Dialect::Chat, "sk-12345678 is no key");
        (error.code, error.request_id) = (Some("sk-12345678".to_owned()), Some("r-sk-12345678".to_owned()));
        error.source = Some(Box::new(source));
        error.hidden(&Redactor::new(&[Secret::new("sk-12345678")]))
    }

    #[test]
    fn a_secret_is_hidden_all_the_way_down() {
        let error = broken("Bearer sk-12345678");
        let text = format!("{error:?} {:?} {:?} {}", error.code, error.request_id, error.message);
        assert!(!text.contains("1234"), "{text}");
        let source = std::error::Error::source(&error).expect("a source");
        let last = source.source().expect("another");
        assert_eq!((source.to_string(), last.to_string()), ("could not say `hello`".into(), "Bearer ***".into()));
    }

    #[test]
    fn a_cause_that_shows_nothing_is_left_as_it_is() {
        let error = broken("nothing");
        let source = std::error::Error::source(&error).expect("a source");
        assert!(source.downcast_ref::<Loose>().is_some());
    }
}
