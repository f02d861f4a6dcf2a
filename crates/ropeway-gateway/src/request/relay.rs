//! Sends one client request to its server, and the result back.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use crate::observe::{ErrorType, UpstreamCall};
use crate::request::errors::ErrorReply;
use crate::request::exchange::{Exchange, Outcome};
use crate::request::reply::{ResultExtras, ServerInfoText};
use crate::request::sign_in_offer::{RefusedCall, offer, sign_in_required};
use crate::request::translate::InputRound;
use crate::shared::GatewayShared;
use ropeway_core::conversions::conversions;
use ropeway_core::tool::{Alias, CallError};
use ropeway_mcp::oauth::Challenge;
use ropeway_mcp::protocol::{Era, meta};
use ropeway_mcp::{RawReply, RawRequest};

/// Maximum number of input rounds per call.
const MAX_ROUNDS: usize = 16;

/// A request for one server.
pub(crate) struct UpstreamRequest {
    pub(crate) server: Alias,
    pub(crate) method: &'static str,
    /// The server's own name for the tool or prompt, the URI or the task.
    pub(crate) name: Option<String>,
    /// The params without `_meta`.
    pub(crate) params: Bytes,
    /// The arguments, if the tool has header params.
    pub(crate) arguments: Option<Bytes>,
    /// Forwarded `_meta` entries: a JSON object's text without its braces.
    pub(crate) meta: String,
    /// Whether a legacy server runs the tool only as a task.
    pub(crate) as_task: bool,
    pub(crate) extras: ResultExtras,
}

/// Why a request has no reply.
enum SendError {
    Call(CallError),
    Reply(ErrorReply),
}

conversions!(SendError {
    error: CallError => Self::Call(error);
    error: ErrorReply => Self::Reply(error);
});

/// Sends a request. If the server needs a sign-in, the client is prompted for one, and the request is sent again. A failure is
/// the outcome for the client.
pub(crate) async fn send(
    shared: &Arc<GatewayShared>,
    exchange: &Arc<Exchange>,
    request: UpstreamRequest,
) -> Result<RawReply, Outcome> {
    for offers in 0.. {
        let (server, challenge) = match send_once(shared, exchange, &request).await {
            Ok(reply) => return Ok(reply),
            // The server has not executed the request.
            Err(SendError::Call(CallError::NeedsAuth { server, challenge })) => (server, challenge),
            Err(SendError::Call(error)) => return Err(ErrorReply::for_client(&error, &exchange.client).into()),
            Err(SendError::Reply(error)) => return Err(error.into()),
        };
        let challenge = Challenge::parse(challenge.as_deref());
        // After a sign-in, only missing scopes justify another one.
        let may_offer =
            offers == 0 || (offers == 1 && challenge.as_ref().is_some_and(Challenge::is_insufficient_scope));
        if !may_offer {
            return Err(sign_in_required(shared, exchange, &server, "; the previous one did not grant access").into());
        }
        offer(shared, RefusedCall { exchange, server: &server, challenge }).await?;
    }
    Err(ErrorReply::internal("too many sign-ins").into())
}

/// Sends a request, in as many rounds as the server needs.
async fn send_once(
    shared: &Arc<GatewayShared>,
    exchange: &Arc<Exchange>,
    request: &UpstreamRequest,
) -> Result<RawReply, SendError> {
    let limits = shared.bridge.request_limits(&request.server);
    exchange.note(|record| record.note_server(&request.server, request.name.as_deref()));
    let _permit = shared.server_limits.begin(&request.server, &limits).inspect_err(|_| {
        exchange.note(|record| record.note_denied("server"));
    })?;
    let own_name = request.name.as_deref().filter(|_| request.method == "tools/call");
    let lease = shared.upstreams.connect(&request.server, own_name, exchange).await?;
    let modern_meta = modern_meta(exchange);
    let mut params = request.params.clone();
    for round in 0..MAX_ROUNDS {
        let (sending, meta) = SendingRequest::begin(exchange, request, lease.mcp.network_transport());
        let raw = RawRequest {
            method: Cow::Borrowed(request.method),
            params: params.clone(),
            name: request.name.clone(),
            meta,
            modern_meta: modern_meta.clone(),
            arguments: request.arguments.clone(),
            as_task: request.as_task,
        };
        let sent = lease.send(raw, exchange).await;
        sending.end(&sent);
        let reply = sent?;
        match InputRound::read(exchange, &reply)? {
            None => return Ok(check_size(exchange, reply)?),
            Some(input) => params = input.answer(exchange, &params, round).await?,
        }
    }
    let server = request.server.clone();
    Err(CallError::Protocol { server, source: "the server asked for input too often".into() }.into())
}

/// Checks that a result is not larger than the principal may receive.
fn check_size(exchange: &Exchange, reply: RawReply) -> Result<RawReply, ErrorReply> {
    let size = reply.result.len();
    match exchange.client.principal.limits().result {
        Some(limit) if size > limit => Err(ErrorReply::result_too_large(size, limit)),
        _ => Ok(reply),
    }
}

/// Returns how a request ends for the client.
pub(crate) fn finish(exchange: &Exchange, reply: RawReply, extras: ResultExtras) -> Outcome {
    let (from, info) = (reply.info.era, &reply.info);
    if reply.is_error {
        exchange.note(|record| record.note_tool_error());
    }
    let is_translated = from == Era::Legacy && exchange.client.era == Era::Modern;
    let server = is_translated.then(|| ServerInfoText::new(&info.name, &info.version));
    Outcome::Result { result: reply.result, from, extras, server }
}

/// Returns the client's `_meta` entries for a modern server.
fn modern_meta(exchange: &Exchange) -> Arc<str> {
    match exchange.requested_log_level() {
        None => exchange.client.modern_meta.clone(),
        Some(level) => format!(r#"{},"{}":"{}""#, exchange.client.modern_meta, meta::LOG_LEVEL, level.name()).into(),
    }
}

/// A request to a server in progress. Dropping it records that the request was cancelled.
struct SendingRequest<'a> {
    exchange: &'a Exchange,
    /// `None` once the request is recorded.
    call: Option<UpstreamCall>,
}

impl<'a> SendingRequest<'a> {
    /// Begins a request. Returns its `_meta` as well.
    fn begin(exchange: &'a Exchange, request: &UpstreamRequest, transport: &'static str) -> (Self, String) {
        let begun = exchange.note(|record| record.begin_upstream(&request.server, &request.meta, transport));
        match begun {
            Some((call, meta)) => (Self { exchange, call: Some(call) }, meta),
            None => (Self { exchange, call: None }, request.meta.clone()),
        }
    }

    fn end(mut self, sent: &Result<RawReply, CallError>) {
        let error = match sent {
            Ok(reply) => reply.is_error.then_some(ErrorType::TOOL),
            Err(CallError::Refused { code, .. }) => Some(ErrorType::of_code(*code)),
            Err(error) => Some(ErrorType::of_failure(error)),
        };
        let info = sent.as_ref().ok().map(|reply| reply.info.clone());
        if let Some(call) = self.call.take() {
            self.exchange.note(|record| record.end_upstream(call, error, info));
        }
    }
}

impl Drop for SendingRequest<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.exchange.note(|record| record.end_upstream(call, Some(ErrorType::CANCELLED), None));
        }
    }
}
