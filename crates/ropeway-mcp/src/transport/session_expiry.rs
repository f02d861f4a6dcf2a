//! Detects expired Streamable HTTP sessions.

use reqwest::StatusCode;

use super::http_client::ErrorResponse;

/// Errors that servers on the official SDKs send with status 400 instead of 404 for an unknown session. They all do so
/// before they process the request.
///
/// TypeScript: `validateSession` in `StreamableHTTPServerTransport`, and its example servers. Python before 1.26:
/// <https://github.com/modelcontextprotocol/python-sdk/issues/1727>.
const UNKNOWN_SESSION: [&str; 5] = [
    "Bad Request: No valid session ID provided",
    "Bad Request: Server not initialized",
    "Bad Request: Mcp-Session-Id header is required",
    "Bad Request: Missing session ID",
    "Session not found",
];

/// The error codes that belong to these messages.
const UNKNOWN_SESSION_CODES: [i64; 3] = [-32000, -32001, -32600];

/// Whether an error response means that the session has expired.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SessionExpiry {
    /// The error is not about the session.
    No,
    /// The error may also be about the request.
    Possible,
    /// The session has expired, and the server has not processed the request.
    Certain,
}

impl SessionExpiry {
    /// Classifies the error response to a request with a session id: status 404 by the specification
    /// (<https://modelcontextprotocol.io/specification/2025-06-18/basic/transports#session-management>), 400 by many
    /// servers.
    pub(super) fn of(rejected: &ErrorResponse, id: Option<u64>) -> Self {
        let message = rejected.rpc.as_ref().map_or(rejected.body.as_str(), |error| error.message.as_str());
        let lowercase = message.to_ascii_lowercase();
        let is_about_session = ["session", "not initialized"].iter().any(|it| lowercase.contains(it));
        match rejected.status {
            // A JSON-RPC error that answers this request.
            StatusCode::NOT_FOUND
                if rejected.request_id.is_some() && rejected.request_id == id && !is_about_session =>
            {
                Self::Possible
            }
            // The application's own JSON, which may have failed in the middle of the call.
            StatusCode::NOT_FOUND if rejected.body.trim_start().starts_with('{') && !is_about_session => Self::Possible,
            StatusCode::NOT_FOUND => Self::Certain,
            StatusCode::BAD_REQUEST if is_unknown_session(rejected) => Self::Certain,
            StatusCode::BAD_REQUEST if is_about_session => Self::Possible,
            _ => Self::No,
        }
    }
}

/// Returns `true` for the official SDKs' errors about an unknown session, and for no others.
fn is_unknown_session(rejected: &ErrorResponse) -> bool {
    match &rejected.rpc {
        Some(error) => UNKNOWN_SESSION_CODES.contains(&error.code) && UNKNOWN_SESSION.contains(&error.message.trim()),
        None => UNKNOWN_SESSION.contains(&rejected.body.trim()),
    }
}
