//! The message handler: receives server requests and notifications unparsed, in place of [`Handlers`](super::Handlers).

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::raw_caller::Callers;
use crate::protocol::{Era, RpcError};

/// Identifies one [`Mcp`](super::Mcp)'s connection, also after it was re-established.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkKey(pub u64);

/// Receives server requests and notifications.
///
/// All methods run on the task that reads messages and must not block.
pub trait MessageHandler: Send + Sync {
    /// Returns the id that identifies the connection's own program. A server with the same id is that program itself.
    fn own_id(&self) -> &str;

    /// Returns the client capabilities that servers in an era get.
    fn capabilities(&self, era: Era) -> Value;

    /// Receives a server request. Dropping it answers it with an error.
    fn on_request(&self, server_request: ServerRequest);

    /// Reports that the server has withdrawn a server request: it cancelled the request, or its link is closed.
    fn on_withdrawn(&self, link: LinkKey, id: &RawValue);

    /// Reports that the link is closed. The connection may be re-established under the same key.
    fn on_closed(&self, link: LinkKey);

    /// Receives a notification, except for progress. `callers` are the raw requests that it can belong to.
    fn on_notification(&self, link: LinkKey, method: &str, params: Option<&RawValue>, callers: Callers);
}

/// A [`ServerRequest`]'s method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerRequestMethod {
    /// `elicitation/create`.
    Elicit {
        /// Whether the mode is `url` instead of `form`.
        url: bool,
    },
    /// `sampling/createMessage`.
    Sample,
    /// `roots/list`.
    Roots,
}

impl ServerRequestMethod {
    /// Returns the method on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Elicit { .. } => "elicitation/create",
            Self::Sample => "sampling/createMessage",
            Self::Roots => "roots/list",
        }
    }
}

/// A server request that waits for an answer. Dropping it answers with an error.
pub struct ServerRequest {
    /// The connection that the server request arrived on.
    pub link: LinkKey,
    /// The server's request id, unique among the link's open server requests.
    pub id: Box<RawValue>,
    /// The requested method.
    pub method: ServerRequestMethod,
    /// The params; `{}` if the request has none.
    pub params: Box<RawValue>,
    /// The raw requests that the server request can belong to.
    pub callers: Callers,
    /// Maximum elicitations per call.
    pub limit: usize,
    /// `None` once answered.
    pub(super) answer: Option<Arc<dyn AnswerSink>>,
}

/// Sends the answer to a server request. Only the first answer is sent.
pub trait AnswerSink: Send + Sync {
    /// Sends a result, or an error.
    fn send(&self, outcome: Result<&RawValue, RpcError>);

    /// Returns `false` once the server has withdrawn the server request.
    fn is_awaited(&self) -> bool;
}

impl ServerRequest {
    /// Creates a server request that sends its answer to `answer`.
    pub fn new(
        (link, id): (LinkKey, Box<RawValue>),
        method: ServerRequestMethod,
        params: Box<RawValue>,
        (callers, limit): (Callers, usize),
        answer: Arc<dyn AnswerSink>,
    ) -> Self {
        Self { link, id, method, params, callers, limit, answer: Some(answer) }
    }

    /// Returns the answer sink, with which the server request can be answered in place of its owner. `None` once answered.
    pub fn sink(&self) -> Option<Arc<dyn AnswerSink>> {
        self.answer.clone()
    }

    /// Replaces the answer sink.
    pub fn wrap_sink(&mut self, wrap: impl FnOnce(Arc<dyn AnswerSink>) -> Arc<dyn AnswerSink>) {
        self.answer = self.answer.take().map(wrap);
    }

    /// Sends the result or the error to the server, unless it has withdrawn the server request.
    pub fn answer(mut self, outcome: Result<&RawValue, RpcError>) {
        if let Some(answer) = self.answer.take() {
            answer.send(outcome);
        }
    }

    /// Returns `true` if the server has withdrawn the server request.
    pub fn is_withdrawn(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| !answer.is_awaited())
    }
}

impl Drop for ServerRequest {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            let message = format!("`{}` was not answered", self.method.as_str());
            answer.send(Err(RpcError { code: crate::protocol::code::INTERNAL, message, data: None }));
        }
    }
}

impl fmt::Debug for ServerRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerRequest")
            .field("link", &self.link)
            .field("id", &self.id.get())
            .field("method", &self.method)
            .field("callers", &self.callers)
            .finish_non_exhaustive()
    }
}
