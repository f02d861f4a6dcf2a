//! Handlers for server requests to the client: elicitation, sampling and roots, and for sign-ins.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use super::message_handler::MessageHandler;
use crate::oauth::{AuthHost, SignInAnswer, SignInRequest, TokenStore};
use crate::protocol::code;
use ropeway_config::MAX_TIMEOUT;
use ropeway_core::secret::AccountRedactor;
use ropeway_core::setters::setters;
use ropeway_core::tool::{Alias, BoxError, BoxFuture};

pub(super) type Handler<Q, A> = Arc<dyn Fn(Q) -> BoxFuture<'static, Result<A, BoxError>> + Send + Sync>;

/// A server's question to the user
/// ([`elicitation/create`](https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation)).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Elicitation {
    /// The requesting server's alias.
    pub server: Alias,
    /// The question, for display.
    pub message: String,
    /// How the user answers: with a form or on a web page.
    pub mode: ElicitationMode,
    /// The request's parameters, unchanged.
    pub params: Value,
}

/// How the user answers an [`Elicitation`].
#[derive(Clone, Debug, PartialEq)]
pub enum ElicitationMode {
    /// Values that match a flat schema. Missing values get the schema's defaults.
    Form {
        /// The JSON Schema for the values.
        schema: Value,
    },
    /// A web page for the user to open.
    Url {
        /// The page's address.
        url: String,
    },
}

/// The user's answer to an [`Elicitation`].
#[derive(Clone, Debug, PartialEq)]
pub enum ElicitationAnswer {
    /// The user agreed and entered these values.
    Accept(Map<String, Value>),
    /// The user declined.
    Decline,
    /// The user dismissed the request.
    Cancel,
}

/// A server request to sample from a model
/// ([`sampling/createMessage`](https://modelcontextprotocol.io/specification/2025-11-25/client/sampling)).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SamplingRequest {
    /// The requesting server's alias.
    pub server: Alias,
    /// The request's parameters, unchanged.
    pub params: Value,
}

impl SamplingRequest {
    /// Creates a request with `sampling/createMessage` parameters.
    pub fn new(server: impl Into<Alias>, params: Value) -> Self {
        Self { server: server.into(), params }
    }
}

/// A directory that servers may access
/// ([roots](https://modelcontextprotocol.io/specification/2025-11-25/client/roots)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClientRoot {
    /// The directory as a `file://` URI.
    pub uri: String,
    /// The name to display.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Functions that answer server requests.
///
/// The client declares a capability to servers only if its handler is set, and rejects requests without a handler.
#[derive(Clone, Default)]
pub struct Handlers {
    pub(super) elicitation: Option<Handler<Elicitation, ElicitationAnswer>>,
    pub(super) sampling: Option<Handler<SamplingRequest, Value>>,
    pub(super) roots: Option<Handler<(), Vec<ClientRoot>>>,
    /// Receives all server requests in place of the handlers.
    pub(super) message_handler: Option<Arc<dyn MessageHandler>>,
    /// Sign-in handler, token store and account for HTTP servers.
    pub(super) auth: AuthHost,
}

impl Handlers {
    /// Creates a set without handlers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the elicitation handler.
    #[must_use]
    pub fn on_elicitation<F, R>(mut self, handler: F) -> Self
    where
        F: Fn(Elicitation) -> R + Send + Sync + 'static,
        R: Future<Output = Result<ElicitationAnswer, BoxError>> + Send + 'static,
    {
        self.elicitation = Some(Arc::new(move |request| Box::pin(handler(request))));
        self
    }

    /// Sets the sampling handler. It returns the `sampling/createMessage` result.
    #[must_use]
    pub fn on_sampling<F, R>(mut self, handler: F) -> Self
    where
        F: Fn(SamplingRequest) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Value, BoxError>> + Send + 'static,
    {
        self.sampling = Some(Arc::new(move |request| Box::pin(handler(request))));
        self
    }

    /// Sets the handler that lists the directories servers may access.
    #[must_use]
    pub fn on_roots<F, R>(mut self, handler: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<Vec<ClientRoot>, BoxError>> + Send + 'static,
    {
        self.roots = Some(Arc::new(move |()| Box::pin(handler())));
        self
    }

    /// Sets the handler that lets the user sign in to an HTTP server. Calls that need a sign-in wait for it.
    ///
    /// Without it, such calls fail with [`CallError::NeedsAuth`](ropeway_core::tool::CallError::NeedsAuth).
    #[must_use]
    pub fn on_sign_in<F, R>(mut self, handler: F) -> Self
    where
        F: Fn(SignInRequest) -> R + Send + Sync + 'static,
        R: Future<Output = Result<SignInAnswer, BoxError>> + Send + 'static,
    {
        self.auth.sign_in = Some(Arc::new(move |request| Box::pin(handler(request))));
        self
    }
}

setters!(Handlers {
    /// Sets the maximum time of a sign-in. Defaults to five minutes.
    with_sign_in_timeout(timeout: Duration) => auth.sign_in_timeout = Some(timeout.min(MAX_TIMEOUT));
    /// Sets the store of the tokens of sign-ins. Without it, they are kept in memory and end with the connection.
    with_token_store(store: TokenStore) => auth.store = Some(store);
    /// Sets the account whose tokens are used. Each account of a server signs in separately.
    with_account(account: impl Into<String>) => auth.account = Some(account.into());
});

impl Handlers {
    /// Adds a redactor that receives every connection's tokens when they are obtained or read from the store.
    ///
    /// A connection redacts them in its events, errors and logs. A host uses the redactor for its own output, such as tool
    /// results.
    #[must_use]
    pub fn with_token_redactor(mut self, redactor: Arc<AccountRedactor>) -> Self {
        self.auth.redactors.push(redactor);
        self
    }
}

impl Handlers {
    /// Sets the message handler. It receives all server requests, and no other handler is called for them.
    #[must_use]
    pub fn with_message_handler(mut self, message_handler: Arc<dyn MessageHandler>) -> Self {
        self.message_handler = Some(message_handler);
        self
    }

    /// Returns the store that holds sign-in tokens.
    pub fn token_store(&self) -> Option<&TokenStore> {
        self.auth.store.as_ref()
    }
}

impl Handlers {
    /// Takes the sign-in handler and the token store from other handlers. An account that is set here is kept.
    #[must_use]
    pub fn with_auth_of(mut self, other: &Self) -> Self {
        let account = self.auth.account.take();
        self.auth = other.auth.clone();
        self.auth.account = account.or(self.auth.account);
        self
    }

    /// Returns `true` if both sets hold the same functions.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        fn same<T: ?Sized>(one: &Option<Arc<T>>, other: &Option<Arc<T>>) -> bool {
            match (one, other) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                (one, other) => one.is_none() && other.is_none(),
            }
        }
        same(&self.elicitation, &other.elicitation)
            && same(&self.sampling, &other.sampling)
            && same(&self.roots, &other.roots)
            && same(&self.message_handler, &other.message_handler)
            && same(&self.auth.sign_in, &other.auth.sign_in)
            && self.auth.redactors.iter().map(Arc::as_ptr).eq(other.auth.redactors.iter().map(Arc::as_ptr))
            && self.auth.account == other.auth.account
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handlers")
            .field("elicitation", &self.elicitation.is_some())
            .field("sampling", &self.sampling.is_some())
            .field("roots", &self.roots.is_some())
            .field("message_handler", &self.message_handler.is_some())
            .field("sign_in", &self.auth.sign_in.is_some())
            .field("account", &self.auth.account)
            .finish()
    }
}

/// The JSON-RPC error that answers a server request. A handler may return it as its error, to choose the code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HandlerError {
    /// JSON-RPC error code.
    pub code: i64,
    /// Message for the server.
    pub message: String,
}

impl HandlerError {
    /// The error for a request whose method is not supported.
    pub(crate) fn unsupported(method: &str) -> Self {
        Self { code: code::METHOD_NOT_FOUND, message: format!("`{method}` is not supported") }
    }
}
