//! The HTTP listener's responses.

use hyper::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

use super::body::{Body, BodyError, Events};
use crate::request::errors::ErrorReply;
use crate::request::reply::Reply;

/// Responds without a body.
pub(super) fn empty(status: u16) -> Response<Body> {
    with_status(status, Body::empty())
}

/// Responds with one JSON-RPC message.
pub(super) fn json(status: u16, reply: Reply) -> Response<Body> {
    let mut response = with_status(status, Body::pieces(reply.pieces()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if matches!(status, 429 | 503) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// Responds with a JSON document that is not a JSON-RPC message.
pub(super) fn document(status: u16, text: impl Into<bytes::Bytes>) -> Response<Body> {
    let mut response = with_status(status, Body::one(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Responds with plain text.
pub(super) fn text(status: u16, text: impl Into<bytes::Bytes>) -> Response<Body> {
    let mut response = with_status(status, Body::one(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

/// Responds with an embedded file, whose media type is not set.
pub(super) fn file(bytes: bytes::Bytes) -> Response<Body> {
    with_status(200, Body::one(bytes))
}

/// Responds with an error to a request whose id is unknown.
pub(super) fn error(error: &ErrorReply) -> Response<Body> {
    with_retry_after(json(error.status, Reply::error(None, error)), error.retry_after())
}

/// Sets `Retry-After`, if the delay is known.
pub(super) fn with_retry_after(mut response: Response<Body>, seconds: Option<u64>) -> Response<Body> {
    if let Some(seconds) = seconds {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// The rule that refused a request before its message was read. [`record_refusal`](super::auth::record_refusal) takes it from the
/// response and adds it to the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RefusedBy(pub(super) &'static str);

/// Refuses a request because of its headers or its path. The status names the rule in the audit log.
pub(super) fn refuse(status: u16, message: impl Into<String>) -> Response<Body> {
    let response = error(&ErrorReply::refused(status, message));
    match rule_of(status) {
        Some(rule) => refused_by(rule, response),
        None => response,
    }
}

/// Names the rule that refused a request, for the audit log.
pub(super) fn refused_by(rule: &'static str, mut response: Response<Body>) -> Response<Body> {
    response.extensions_mut().insert(RefusedBy(rule));
    response
}

/// Returns the name of the rule that a status stands for. Unknown paths and sessions, and methods that a path does not have, are
/// not refusals: with them, clients find out what a gateway supports.
fn rule_of(status: u16) -> Option<&'static str> {
    Some(match status {
        400 => "request",
        401 => "authentication",
        403 => "origin",
        406 => "accept",
        408 => "body_timeout",
        413 => "body",
        415 => "content_type",
        429 => "limit",
        503 => "overload",
        _ => return None,
    })
}

/// Refuses a method.
pub(super) fn method_not_allowed(allow: &'static str) -> Response<Body> {
    let mut response = refuse(405, "Method Not Allowed");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    response
}

/// Refuses a body that could not be read, and closes the connection, because the rest of the body may follow.
pub(super) fn bad_body(error: BodyError, limit: usize) -> Response<Body> {
    closing(match error {
        BodyError::TooLarge => refuse(413, format!("the body exceeds {limit} bytes")),
        BodyError::TooSlow => refuse(408, "the body did not arrive in time"),
        BodyError::Broken => refuse(400, "the body is incomplete"),
        BodyError::NoRoom(full) => refused_by(full.rule(), self::error(&ErrorReply::over_share(full))),
    })
}

/// Responds with an event stream.
pub(super) fn events(events: impl Events + 'static) -> Response<Body> {
    let mut response = with_status(200, Body::events(events));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    // Nginx would buffer the events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Closes the connection after the response.
pub(super) fn closing(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

fn with_status(status: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}
