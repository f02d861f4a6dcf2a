//! Decides whether a failed handshake may succeed in another era or over another transport.

use serde_json::Value;

use super::error::{ConnectErrorKind, RequestError};
use crate::protocol::{RpcError, code};

/// Returns `true` if `initialize` over HTTP would fail in the same way.
pub(super) fn is_final(error: &RequestError) -> bool {
    match error {
        RequestError::Disconnected { cause, .. } => {
            !matches!(**cause, ConnectErrorKind::Status { .. } | ConnectErrorKind::Hangup { .. })
        }
        RequestError::Refused(error) => matches!(error.code, code::HEADER_MISMATCH | code::MISSING_CAPABILITY),
        RequestError::Cancelled => true,
        RequestError::Timeout { .. }
        | RequestError::TooLarge { .. }
        | RequestError::Unreadable(_)
        | RequestError::WebPage(_) => false,
    }
}

/// Returns `true` if a restart in another era would fail in the same way: the supported versions do not change, and a program
/// that could not be started has received no request.
pub(super) fn is_permanent(failed: &ConnectErrorKind) -> bool {
    matches!(
        failed,
        ConnectErrorKind::Version { .. }
            | ConnectErrorKind::Spawn { .. }
            | ConnectErrorKind::Sandbox { .. }
            | ConnectErrorKind::OwnGateway
    )
}

/// Returns `true` if a rejected `initialize` may come from an HTTP+SSE server
/// ([backwards compatibility](https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#backwards-compatibility)).
pub(super) fn may_be_sse(failed: &ConnectErrorKind) -> bool {
    match failed {
        ConnectErrorKind::Status { status, .. } => (400..500).contains(status) && *status != 429,
        ConnectErrorKind::Refused { .. } | ConnectErrorKind::Protocol(_) | ConnectErrorKind::WebPage { .. } => true,
        _ => false,
    }
}

/// Returns `true` if a formerly legacy server may be modern now: it rejects `initialize`, or exits when it gets it.
pub(super) fn may_be_modern(failed: &ConnectErrorKind) -> bool {
    match failed {
        ConnectErrorKind::Refused { .. }
        | ConnectErrorKind::Protocol(_)
        | ConnectErrorKind::Version { .. }
        | ConnectErrorKind::Exited { .. }
        | ConnectErrorKind::Hangup { .. } => true,
        ConnectErrorKind::Status { status, .. } => (400..500).contains(status) && *status != 429,
        _ => false,
    }
}

/// Returns the protocol versions that an error offers in its data.
pub(super) fn supported_versions(error: &RpcError) -> Vec<String> {
    strings(error.data.as_ref().and_then(|data| data.get("supported")))
}

pub(super) fn strings(list: Option<&Value>) -> Vec<String> {
    let texts = list.and_then(Value::as_array).into_iter().flatten();
    texts.filter_map(|version| version.as_str().map(str::to_owned)).collect()
}
