//! Passes server messages on unparsed: server requests and notifications to the message handler, progress to raw callers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::handlers::{ElicitationMode, HandlerError};
use super::host::{Host, ReplySender};
use super::message_handler::{AnswerSink, LinkKey, MessageHandler, ServerRequest, ServerRequestMethod};
use super::rate_limit::RateLimit;
use super::raw_caller::{Callers, RawCaller};
use super::redaction::redact_entry;
use super::server_requests::RequestBytes;
use crate::protocol::{self, RpcError, code};
use ropeway_core::json;
use ropeway_core::sync::lock;

/// Rate limit for one server's notifications, except for list changes.
const NOTIFICATION_BURST: u32 = 1000;
const NOTIFICATIONS_PER_SECOND: u32 = 200;

/// Notifications that report changed lists.
const LIST_CHANGES: [&str; 3] =
    ["notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed"];

/// What a connection keeps for its message handler: the open server requests and a notification rate limit.
///
/// The host owns it. The tasks that read messages open server requests. Each leaves the list once: with its answer, when
/// the server cancels it, or when the link closes and all are withdrawn. Only the task that removes it acts, so an answer
/// that comes later is dropped. An answer holds the host weakly: a handler that keeps a server request does not keep the
/// connection alive.
///
/// The two std mutexes are never held together or across an `.await`. Both are released before the message handler runs,
/// because it may answer at once.
#[derive(Debug)]
pub(super) struct HandlerState {
    link: LinkKey,
    server_requests: Mutex<Vec<OpenServerRequest>>,
    rate_limit: Mutex<RateLimit>,
}

/// A server request that the message handler has not answered yet.
#[derive(Debug)]
struct OpenServerRequest {
    number: u64,
    id: Box<RawValue>,
    _bytes: RequestBytes,
}

impl HandlerState {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            link: LinkKey(NEXT.fetch_add(1, Ordering::Relaxed)),
            server_requests: Mutex::default(),
            rate_limit: Mutex::new(RateLimit::new(NOTIFICATION_BURST, NOTIFICATIONS_PER_SECOND)),
        }
    }

    /// Returns the number of server requests that are not answered yet.
    pub(super) fn open_server_requests(&self) -> usize {
        lock(&self.server_requests).len()
    }
}

/// The sink that answers one open server request.
struct PendingAnswer {
    host: Weak<Host>,
    number: u64,
    id: Box<RawValue>,
    reply: ReplySender,
}

impl AnswerSink for PendingAnswer {
    fn send(&self, outcome: Result<&RawValue, RpcError>) {
        // A withdrawn server request gets no answer.
        if self.host.upgrade().is_none_or(|host| host.close_server_request(|open| open.number == self.number).is_none())
        {
            return;
        }
        self.reply.send(match outcome {
            Ok(result) => response(&self.id, "result", &json::compact(result.get())),
            Err(RpcError { code, message, data: None }) => protocol::encode_error(&self.id, code, &message),
            Err(RpcError { code, message, data }) => {
                response(&self.id, "error", &json!({"code": code, "message": message, "data": data}).to_string())
            }
        });
    }

    fn is_awaited(&self) -> bool {
        let host = self.host.upgrade();
        host.is_some_and(|host| lock(&host.handler_state.server_requests).iter().any(|open| open.number == self.number))
    }
}

/// Encodes a response whose result or error is JSON text in one line.
fn response(id: &RawValue, key: &str, outcome: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{},"{key}":{outcome}}}"#, json::compact(id.get())).into_bytes()
}

impl Host {
    /// Returns the connection's key.
    pub(crate) fn link(&self) -> LinkKey {
        self.handler_state.link
    }

    /// Passes a server request to the message handler, or rejects it.
    pub(super) fn pass_request(
        self: &Arc<Self>,
        handler: &dyn MessageHandler,
        (id, method, params): (&RawValue, &str, Option<&RawValue>),
        bytes: RequestBytes,
        reply: &ReplySender,
        callers: impl FnOnce() -> Callers,
    ) {
        let method = match self.server_request_method(method, params) {
            Ok(method) => method,
            Err(refusal) => return reply.send(protocol::encode_error(id, refusal.code, &refusal.message)),
        };
        if lock(&self.handler_state.server_requests).iter().any(|open| open.id.get() == id.get()) {
            return reply.send(protocol::encode_error(id, code::INVALID_REQUEST, "the request id is in use"));
        }
        let nothing = || RawValue::from_string("{}".to_owned()).unwrap_or_default();
        let params = params.map_or_else(nothing, RawValue::to_owned);
        let number = self.open_server_request(id, bytes);
        let (id, reply) = (id.to_owned(), reply.clone());
        let answer = PendingAnswer { host: Arc::downgrade(self), number, id: id.clone(), reply };
        let asked = (callers(), self.elicitations.per_call());
        handler.on_request(ServerRequest::new((self.link(), id), method, params, asked, Arc::new(answer)));
    }

    /// Returns the request's method, if the message handler may answer it.
    fn server_request_method(
        &self,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<ServerRequestMethod, HandlerError> {
        match method {
            "elicitation/create" => {
                let params = params.and_then(|raw| json::from_str(raw.get()).ok()).unwrap_or_default();
                let url = matches!(self.elicitation(params)?.mode, ElicitationMode::Url { .. });
                Ok(ServerRequestMethod::Elicit { url })
            }
            "sampling/createMessage" => Ok(ServerRequestMethod::Sample),
            "roots/list" => Ok(ServerRequestMethod::Roots),
            _ => Err(HandlerError::unsupported(method)),
        }
    }

    /// Records a server request. A server that waits for its answer is not idle.
    fn open_server_request(&self, id: &RawValue, bytes: RequestBytes) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        lock(&self.handler_state.server_requests).push(OpenServerRequest { number, id: id.to_owned(), _bytes: bytes });
        self.elicitations.opened();
        number
    }

    /// Removes the first open server request for which `is_it` returns `true`.
    fn close_server_request(&self, is_it: impl Fn(&OpenServerRequest) -> bool) -> Option<OpenServerRequest> {
        let server_request = {
            let mut server_requests = lock(&self.handler_state.server_requests);
            let at = server_requests.iter().position(is_it)?;
            server_requests.swap_remove(at)
        };
        self.elicitations.closed();
        Some(server_request)
    }

    /// Withdraws all open server requests, because their link is closed.
    pub(super) fn withdraw_server_requests(&self) {
        let Some(handler) = &self.handlers.message_handler else { return };
        while let Some(server_request) = self.close_server_request(|_| true) {
            handler.on_withdrawn(self.link(), &server_request.id);
        }
        handler.on_closed(self.link());
    }

    /// Passes a server notification to the message handler, if one is set.
    pub(crate) fn pass_notification(&self, method: &str, params: Option<&RawValue>, callers: impl FnOnce() -> Callers) {
        let Some(handler) = &self.handlers.message_handler else { return };
        if method == "notifications/cancelled" {
            return self.on_cancelled(&**handler, params);
        }
        if !LIST_CHANGES.contains(&method) && !lock(&self.handler_state.rate_limit).take() {
            return self.count_dropped_event();
        }
        let redacted = params.map(|params| redact_entry(&self.redactor(), params));
        match redacted {
            None => handler.on_notification(self.link(), method, None, callers()),
            Some(Some(params)) => handler.on_notification(self.link(), method, Some(&params), callers()),
            Some(None) => self.warn("ignored a notification that cannot be redacted"),
        }
    }

    /// Reports changes to all lists to the message handler, after a period without notifications.
    pub(super) fn report_all_changed(&self) {
        for method in LIST_CHANGES {
            self.pass_notification(method, None, Callers::default);
        }
    }

    /// Reports a change to a subscribed resource to the message handler, after a period without notifications about it. The
    /// server's rate limit does not apply: a reconnect causes one report for each subscription.
    pub(super) fn report_resource_changed(&self, uri: &str) {
        let Some(handler) = &self.handlers.message_handler else { return };
        if let Ok(params) = serde_json::value::to_raw_value(&json!({"uri": uri})) {
            handler.on_notification(self.link(), "notifications/resources/updated", Some(&params), Callers::default());
        }
    }

    /// Withdraws the server request that the server cancelled.
    fn on_cancelled(&self, handler: &dyn MessageHandler, params: Option<&RawValue>) {
        #[derive(Deserialize)]
        struct Cancelled<'a> {
            #[serde(borrow, rename = "requestId")]
            request_id: &'a RawValue,
        }
        let cancelled = params.and_then(|params| serde_json::from_str::<Cancelled<'_>>(params.get()).ok());
        let Some(Cancelled { request_id }) = cancelled else { return };
        if let Some(server_request) = self.close_server_request(|open| open.id.get() == request_id.get()) {
            handler.on_withdrawn(self.link(), &server_request.id);
        }
    }

    /// Passes progress to a raw caller.
    pub(super) fn pass_progress(&self, caller: &dyn RawCaller, params: &RawValue) {
        let Some(params) = redact_entry(&self.redactor(), params) else { return };
        let mut token = None;
        let scanned = protocol::scan_object(params.get().as_bytes(), |key, member| {
            if key == b"progressToken" {
                token = Some(member.value);
            }
        });
        if let (Ok(()), Some(token)) = (scanned, token) {
            caller.on_progress(params.get(), token);
        }
    }
}
