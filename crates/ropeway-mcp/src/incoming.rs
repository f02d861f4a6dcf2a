//! Routes server messages: responses to pending requests, everything else to the host.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::error::{RequestError, redact_error};
use super::host::ReplySender;
use super::message_log;
use super::pending::PendingRequests;
use super::raw_response::RawResponse;
use crate::protocol::{self, FrameError, Incoming, TruncatedMessage};
use ropeway_core::event::Event;
use ropeway_core::json;
use ropeway_core::tool::Progress;
use ropeway_web::SseEvent;

/// Progress messages are truncated to this many bytes.
const MAX_PROGRESS_MESSAGE: usize = 16 << 10;

impl PendingRequests {
    /// Handles one text from the server: a message or a batch. A response without an id belongs to `owner`, if given.
    pub(crate) fn receive(&self, text: &Bytes, reply: &ReplySender, owner: Option<u64>) -> Result<(), FrameError> {
        message_log::received(self.host(), text);
        if let Some((id, range)) = protocol::quick_response(text) {
            self.complete(id, Ok(RawResponse::unverified(text.slice(range), text.clone())));
            return Ok(());
        }
        // A batch's messages are parsed one by one, and invalid ones are skipped.
        if text.trim_ascii_start().starts_with(b"[")
            && let Cow::Owned(repaired) = json::decodable(text)
        {
            return self.receive_messages(&repaired.into(), reply, owner);
        }
        match self.receive_messages(text, reply, owner) {
            Err(FrameError::NotJson(error)) => match json::repair(text) {
                Some(repaired) => {
                    if let Err(error) = std::str::from_utf8(text) {
                        self.host().warn(&format!("replaced invalid UTF-8 in a message: {error}"));
                    }
                    self.receive_messages(&repaired.into(), reply, owner)
                }
                None => Err(FrameError::NotJson(error)),
            },
            received => received,
        }
    }

    fn receive_messages(&self, text: &Bytes, reply: &ReplySender, owner: Option<u64>) -> Result<(), FrameError> {
        let redactor = || self.host().redactor();
        protocol::read(text, |message| match message {
            Incoming::Response { id, outcome } => {
                let outcome = outcome.map(|raw| RawResponse::parsed(text.slice_ref(raw.get().as_bytes())));
                match (id.or(owner), outcome) {
                    (Some(id), Ok(response)) => self.complete(id, Ok(response)),
                    (Some(id), Err(error)) => {
                        self.complete(id, Err(RequestError::Refused(redact_error(error, &redactor()))));
                    }
                    (None, Err(error)) => self.complete_unidentified(redact_error(error, &redactor())),
                    (None, Ok(_)) => self.host().warn("ignored a result without a request id"),
                }
            }
            Incoming::Request { id, method, params } => {
                self.host().on_request(id, &method, params, reply, || self.callers(owner));
            }
            Incoming::Notification { method, params } => match &*method {
                "notifications/progress" => self.on_progress(params),
                _ => {
                    self.host().on_notification(&method, params);
                    self.host().pass_notification(&method, params, || self.callers(owner));
                }
            },
        })
    }

    /// Handles one stream event, unless it is empty.
    pub(crate) fn receive_event(&self, event: &SseEvent, reply: &ReplySender, owner: Option<u64>, limit: usize) {
        if let Some(truncated) = &event.truncated {
            let message = TruncatedMessage::from(truncated.clone());
            return self.fail_unreadable(&message, owner, RequestError::TooLarge { limit });
        }
        if event.data.trim_ascii().is_empty() {
            return;
        }
        if let Err(error) = self.receive(&event.data, reply, owner) {
            self.host().warn(&format!("ignored an event: {error}"));
        }
    }

    fn on_progress(&self, params: Option<&RawValue>) {
        let Some(raw) = params else { return };
        let Ok(params) = json::from_str::<Value>(raw.get()) else { return };
        let token = match &params["progressToken"] {
            Value::Number(token) => token.as_u64(),
            Value::String(token) => token.parse().ok(),
            _ => None,
        };
        let value = params["progress"].as_f64().unwrap_or_default();
        let (cx, caller) = {
            let mut table = self.table();
            let Some(request) = token.and_then(|token| table.get_mut(token)) else { return };
            request.active_at = Instant::now();
            // Progress must increase (https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/progress).
            // Other notifications only reset the idle timeout.
            if value <= request.progress {
                return;
            }
            request.progress = value;
            (request.cx.clone(), request.caller.clone())
        };
        let host = self.host();
        if let Some(caller) = &caller {
            host.pass_progress(&**caller, raw);
        }
        let progress = Progress {
            progress: value,
            total: params["total"].as_f64(),
            message: params["message"].as_str().map(|message| host.redact_truncated(message, MAX_PROGRESS_MESSAGE)),
        };
        if host.events().has_listeners() {
            host.emit_limited(|| Event::Progress {
                server: host.alias().clone(),
                call: cx.id().clone(),
                progress: progress.clone(),
            });
        }
        // A panic in the caller's listener must not end the reading.
        if catch_unwind(AssertUnwindSafe(|| cx.report(progress))).is_err() {
            host.warn("the progress listener of a call panicked");
        }
    }
}
