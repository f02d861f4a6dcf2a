//! Server requests to the client: runs the handlers and sends the replies.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::handlers::{Elicitation, ElicitationAnswer, ElicitationMode, HandlerError, Handlers, SamplingRequest};
use super::host::{Host, ReplySender};
use super::raw_caller::Callers;
use crate::protocol::{self, code};
use ropeway_core::json;
use ropeway_core::sync::lock;
use ropeway_core::tool::BoxError;

/// Maximum server requests that are handled concurrently. Further ones are rejected.
const MAX_REQUESTS: usize = 64;

/// Maximum server requests that wait for the message handler, which limits those for each call.
const MAX_SERVER_REQUESTS: usize = 1024;

/// Maximum total parameter size, over all requests in progress. A single request may be larger.
const MAX_REQUEST_BYTES: usize = 32 << 20;

/// Maximum size for a request id that is echoed.
const MAX_ID_BYTES: usize = 4 << 10;

impl Host {
    /// Handles a server request in the background and sends the reply when it is ready.
    ///
    /// Drops the request if the server does not read replies. `callers` returns the raw requests that the request can belong
    /// to.
    pub(crate) fn on_request(
        self: &Arc<Self>,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
        reply: &ReplySender,
        callers: impl FnOnce() -> Callers,
    ) {
        if id.get().len() > MAX_ID_BYTES || !reply.has_room() {
            return self.count_dropped_reply();
        }
        if method == "ping" {
            return reply.send(protocol::encode_result(id, &json!({})));
        }
        let size = params.map_or(0, |raw| raw.get().len());
        let mut requests = lock(&self.requests);
        while requests.try_join_next().is_some() {}
        let in_progress = self.request_bytes.load(Ordering::Acquire);
        let is_full =
            requests.len() >= MAX_REQUESTS || self.handler_state.open_server_requests() >= MAX_SERVER_REQUESTS;
        if is_full || (in_progress > 0 && in_progress + size > MAX_REQUEST_BYTES) {
            return reply.send(protocol::encode_error(id, code::INTERNAL, "too many requests at once"));
        }
        let bytes = RequestBytes::new(&self.request_bytes, size);
        if let Some(handler) = &self.handlers.message_handler {
            drop(requests);
            return self.pass_request(&**handler, (id, method, params), bytes, reply, callers);
        }
        let params = params.and_then(|raw| json::from_str(raw.get()).ok()).unwrap_or(Value::Null);
        let (host, id, method, reply) = (self.clone(), id.to_owned(), method.to_owned(), reply.clone());
        let key = id.get().to_owned();
        let running = RunningHandler { host: self.clone(), id: key.clone() };
        // The task may end before its handle is stored, and then waits for this lock.
        let mut handlers = lock(&self.request_handlers);
        let handler = requests.spawn(async move {
            let (_bytes, _running) = (bytes, running);
            reply.send(match host.answer_request(&method, params).await {
                Ok(result) => protocol::encode_result(&id, &result),
                Err(refusal) => protocol::encode_error(&id, refusal.code, &refusal.message),
            });
        });
        handlers.insert(key, handler);
    }

    /// Drops the handler for a request that the server has cancelled. A cancelled request gets no reply
    /// (<https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/cancellation>).
    pub(super) fn cancel_request(&self, params: Option<&RawValue>) {
        #[derive(serde::Deserialize)]
        struct Cancelled<'a> {
            #[serde(borrow, rename = "requestId")]
            request_id: &'a RawValue,
        }
        let cancelled = params.and_then(|params| serde_json::from_str::<Cancelled<'_>>(params.get()).ok());
        let handler = cancelled.and_then(|cancelled| lock(&self.request_handlers).remove(cancelled.request_id.get()));
        if let Some(handler) = handler {
            handler.abort();
        }
    }

    /// Calls a server request's handler. A handler's panic becomes an error.
    pub(crate) async fn answer_request(&self, method: &str, params: Value) -> Result<Value, HandlerError> {
        let mut answer = std::pin::pin!(self.call_handler(method, params));
        poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(cx))) {
            Ok(answer) => answer,
            Err(_) => {
                let message = format!("the handler of `{method}` panicked");
                Poll::Ready(Err(HandlerError { code: code::INTERNAL, message }))
            }
        })
        .await
    }

    async fn call_handler(&self, method: &str, params: Value) -> Result<Value, HandlerError> {
        let failed = |error: BoxError| match error.downcast::<HandlerError>() {
            Ok(refusal) => *refusal,
            Err(error) => HandlerError { code: code::INTERNAL, message: error.to_string() },
        };
        match (method, &self.handlers) {
            ("elicitation/create", Handlers { elicitation: Some(handler), .. }) => {
                let request = self.elicitation(params)?;
                self.elicitations.take()?;
                let schema = match &request.mode {
                    ElicitationMode::Form { schema } => Some(schema.clone()),
                    ElicitationMode::Url { .. } => None,
                };
                let open = self.elicitations.open();
                let answer = handler(request).await;
                drop(open);
                Ok(match (answer.map_err(failed)?, schema) {
                    (ElicitationAnswer::Accept(content), Some(schema)) => {
                        json!({"action": "accept", "content": with_defaults(content, &schema)})
                    }
                    (ElicitationAnswer::Accept(_), None) => json!({"action": "accept"}),
                    (ElicitationAnswer::Decline, _) => json!({"action": "decline"}),
                    (ElicitationAnswer::Cancel, _) => json!({"action": "cancel"}),
                })
            }
            ("sampling/createMessage", Handlers { sampling: Some(handler), .. }) => {
                handler(SamplingRequest::new(self.alias().clone(), params)).await.map_err(failed)
            }
            ("roots/list", Handlers { roots: Some(handler), .. }) => {
                let roots = handler(()).await.map_err(failed)?;
                Ok(json!({"roots": roots}))
            }
            _ => Err(HandlerError::unsupported(method)),
        }
    }

    pub(super) fn elicitation(&self, params: Value) -> Result<Elicitation, HandlerError> {
        let missing = |what: &str| HandlerError { code: code::INVALID_PARAMS, message: format!("`{what}` is missing") };
        let mode = match params["mode"].as_str() {
            None | Some("form") => ElicitationMode::Form { schema: params["requestedSchema"].clone() },
            Some("url") => {
                ElicitationMode::Url { url: params["url"].as_str().ok_or_else(|| missing("url"))?.to_owned() }
            }
            Some(other) => {
                return Err(HandlerError {
                    code: code::INVALID_PARAMS,
                    message: format!("mode `{other}` is not supported"),
                });
            }
        };
        let message = params["message"].as_str().unwrap_or_default().to_owned();
        Ok(Elicitation { server: self.alias().clone(), message, mode, params })
    }
}

/// Removes a server request's abort handle when its handler has ended.
struct RunningHandler {
    host: Arc<Host>,
    id: String,
}

impl Drop for RunningHandler {
    fn drop(&mut self) {
        let mut handlers = lock(&self.host.request_handlers);
        // A server may use an id again.
        if handlers.get(&self.id).map(|handler| handler.id()) == tokio::task::try_id() {
            handlers.remove(&self.id);
        }
    }
}

/// Counts a request's parameters as in progress until dropped.
#[derive(Debug)]
pub(super) struct RequestBytes {
    bytes: Arc<AtomicUsize>,
    size: usize,
}

impl RequestBytes {
    fn new(bytes: &Arc<AtomicUsize>, size: usize) -> Self {
        bytes.fetch_add(size, Ordering::AcqRel);
        Self { bytes: bytes.clone(), size }
    }
}

impl Drop for RequestBytes {
    fn drop(&mut self) {
        self.bytes.fetch_sub(self.size, Ordering::AcqRel);
    }
}

/// Adds the schema's defaults for missing values.
fn with_defaults(mut content: Map<String, Value>, schema: &Value) -> Map<String, Value> {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(default) = property.get("default")
            && !content.contains_key(name)
        {
            content.insert(name.clone(), default.clone());
        }
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Era;
    use ropeway_core::event::Events;
    use ropeway_core::secret::Redactor;

    fn host(handlers: Handlers) -> Host {
        Host::new("s".into(), handlers, Events::default(), Redactor::default())
    }

    #[tokio::test]
    async fn an_accepted_form_gets_defaults_for_missing_values() {
        let handlers = Handlers::new()
            .on_elicitation(|_| async { Ok(ElicitationAnswer::Accept(Map::from_iter([("a".to_owned(), json!(1))]))) });
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer", "default": 7}, "b": {"type": "string", "default": "x"}, "c": {"type": "string"}}});
        let answer = host(handlers)
            .answer_request("elicitation/create", json!({"message": "m", "requestedSchema": schema}))
            .await;
        assert_eq!(answer.expect("an answer"), json!({"action": "accept", "content": {"a": 1, "b": "x"}}));
    }

    #[tokio::test]
    async fn a_handler_can_choose_the_error_code() {
        let error = || HandlerError { code: code::INVALID_PARAMS, message: "no".into() };
        let handlers = Handlers::new().on_sampling(move |_| async move { Err(error().into()) });
        assert_eq!(host(handlers).answer_request("sampling/createMessage", json!({})).await, Err(error()));
    }

    #[tokio::test]
    async fn requests_without_a_handler_are_neither_declared_nor_answered() {
        let host = host(Handlers::new());
        assert_eq!(host.capabilities(Era::Legacy), json!({}));
        assert_eq!(
            host.answer_request("sampling/createMessage", json!({})).await.expect_err("no handler").code,
            code::METHOD_NOT_FOUND
        );
    }
}
