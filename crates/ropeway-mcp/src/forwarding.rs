//! Passes messages of the server to the gateway: questions and notifications to the tap, progress to raw callers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::handlers::{ElicitationMode, HandlerError};
use super::host::{Host, ReplySender};
use super::rate_limit::RateLimit;
use super::raw_caller::{Callers, RawCaller};
use super::redaction::redact_entry;
use super::server_requests::RequestBytes;
use super::tap::{AnswerSink, LinkKey, Question, QuestionMethod, ServerTap};
use crate::protocol::{self, RpcError, code};
use ropeway_core::json;
use ropeway_core::sync::lock;

/// Rate limit of the notifications of one server, except for list changes.
const NOTIFICATION_BURST: u32 = 1000;
const NOTIFICATIONS_PER_SECOND: u32 = 200;

/// Notifications that report changed lists.
const LIST_CHANGES: [&str; 3] =
    ["notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed"];

/// State of a connection for its tap.
#[derive(Debug)]
pub(super) struct TapState {
    link: LinkKey,
    questions: Mutex<Vec<OpenQuestion>>,
    rate_limit: Mutex<RateLimit>,
}

/// A question that the tap has not answered yet.
#[derive(Debug)]
struct OpenQuestion {
    number: u64,
    id: Box<RawValue>,
    _bytes: RequestBytes,
}

impl TapState {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            link: LinkKey(NEXT.fetch_add(1, Ordering::Relaxed)),
            questions: Mutex::default(),
            rate_limit: Mutex::new(RateLimit::new(NOTIFICATION_BURST, NOTIFICATIONS_PER_SECOND)),
        }
    }

    /// Returns the number of questions that are not answered yet.
    pub(super) fn open_questions(&self) -> usize {
        lock(&self.questions).len()
    }
}

/// The server's request behind a question.
struct PendingAnswer {
    host: Weak<Host>,
    number: u64,
    id: Box<RawValue>,
    reply: ReplySender,
}

impl AnswerSink for PendingAnswer {
    fn send(&self, outcome: Result<&RawValue, RpcError>) {
        // A withdrawn question gets no answer.
        if self.host.upgrade().is_none_or(|host| host.close_question(|open| open.number == self.number).is_none()) {
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
        host.is_some_and(|host| lock(&host.tap_state.questions).iter().any(|open| open.number == self.number))
    }
}

/// Encodes a response whose result or error is JSON text in one line.
fn response(id: &RawValue, key: &str, outcome: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{},"{key}":{outcome}}}"#, json::compact(id.get())).into_bytes()
}

impl Host {
    /// Returns the key of the connection.
    pub(crate) fn link(&self) -> LinkKey {
        self.tap_state.link
    }

    /// Passes a request of the server to the tap, or rejects it.
    pub(super) fn ask_tap(
        self: &Arc<Self>,
        tap: &dyn ServerTap,
        (id, method, params): (&RawValue, &str, Option<&RawValue>),
        bytes: RequestBytes,
        reply: &ReplySender,
        callers: impl FnOnce() -> Callers,
    ) {
        let method = match self.question_method(method, params) {
            Ok(method) => method,
            Err(refusal) => return reply.send(protocol::encode_error(id, refusal.code, &refusal.message)),
        };
        if lock(&self.tap_state.questions).iter().any(|open| open.id.get() == id.get()) {
            return reply.send(protocol::encode_error(id, code::INVALID_REQUEST, "the request id is in use"));
        }
        let nothing = || RawValue::from_string("{}".to_owned()).unwrap_or_default();
        let params = params.map_or_else(nothing, RawValue::to_owned);
        let number = self.open_question(id, bytes);
        let (id, reply) = (id.to_owned(), reply.clone());
        let answer = PendingAnswer { host: Arc::downgrade(self), number, id: id.clone(), reply };
        let asked = (callers(), self.elicitations.per_call());
        tap.on_question(Question::new((self.link(), id), method, params, asked, Arc::new(answer)));
    }

    /// Returns the method of a question, if the tap may answer it.
    fn question_method(&self, method: &str, params: Option<&RawValue>) -> Result<QuestionMethod, HandlerError> {
        match method {
            "elicitation/create" => {
                let params = params.and_then(|raw| json::from_str(raw.get()).ok()).unwrap_or_default();
                let url = matches!(self.elicitation(params)?.mode, ElicitationMode::Url { .. });
                Ok(QuestionMethod::Elicit { url })
            }
            "sampling/createMessage" => Ok(QuestionMethod::Sample),
            "roots/list" => Ok(QuestionMethod::Roots),
            _ => Err(HandlerError::unsupported(method)),
        }
    }

    /// Records a question. A server that waits for its answer is not idle.
    fn open_question(&self, id: &RawValue, bytes: RequestBytes) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        lock(&self.tap_state.questions).push(OpenQuestion { number, id: id.to_owned(), _bytes: bytes });
        self.elicitations.opened();
        number
    }

    /// Removes the first open question for which `is_it` returns `true`.
    fn close_question(&self, is_it: impl Fn(&OpenQuestion) -> bool) -> Option<OpenQuestion> {
        let question = {
            let mut questions = lock(&self.tap_state.questions);
            let at = questions.iter().position(is_it)?;
            questions.swap_remove(at)
        };
        self.elicitations.closed();
        Some(question)
    }

    /// Withdraws all open questions, because their link is closed.
    pub(super) fn withdraw_questions(&self) {
        let Some(tap) = &self.handlers.tap else { return };
        while let Some(question) = self.close_question(|_| true) {
            tap.on_withdrawn(self.link(), &question.id);
        }
        tap.on_closed(self.link());
    }

    /// Passes a notification of the server to the tap, if one is set.
    pub(crate) fn tap_notification(&self, method: &str, params: Option<&RawValue>, callers: impl FnOnce() -> Callers) {
        let Some(tap) = &self.handlers.tap else { return };
        if method == "notifications/cancelled" {
            return self.on_cancelled(&**tap, params);
        }
        if !LIST_CHANGES.contains(&method) && !lock(&self.tap_state.rate_limit).take() {
            return self.count_dropped_event();
        }
        let redacted = params.map(|params| redact_entry(&self.redactor(), params));
        match redacted {
            None => tap.on_notification(self.link(), method, None, callers()),
            Some(Some(params)) => tap.on_notification(self.link(), method, Some(&params), callers()),
            Some(None) => self.warn("ignored a notification that cannot be redacted"),
        }
    }

    /// Reports changes of all lists to the tap, after a time without notifications.
    pub(super) fn tap_all_changed(&self) {
        for method in LIST_CHANGES {
            self.tap_notification(method, None, Callers::default);
        }
    }

    /// Reports a change to a subscribed resource to the tap, after a time without notifications about it. The server's rate limit
    /// does not hold for it: there is one for each subscription, after a reconnect.
    pub(super) fn tap_resource_changed(&self, uri: &str) {
        let Some(tap) = &self.handlers.tap else { return };
        if let Ok(params) = serde_json::value::to_raw_value(&json!({"uri": uri})) {
            tap.on_notification(self.link(), "notifications/resources/updated", Some(&params), Callers::default());
        }
    }

    /// Withdraws the question that the server cancelled.
    fn on_cancelled(&self, tap: &dyn ServerTap, params: Option<&RawValue>) {
        #[derive(Deserialize)]
        struct Cancelled<'a> {
            #[serde(borrow, rename = "requestId")]
            request_id: &'a RawValue,
        }
        let cancelled = params.and_then(|params| serde_json::from_str::<Cancelled<'_>>(params.get()).ok());
        let Some(Cancelled { request_id }) = cancelled else { return };
        if let Some(question) = self.close_question(|open| open.id.get() == request_id.get()) {
            tap.on_withdrawn(self.link(), &question.id);
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
