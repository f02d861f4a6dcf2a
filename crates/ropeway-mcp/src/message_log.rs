//! Logs every JSON-RPC message in both directions, redacted and truncated.

use tracing::Level;

use super::host::Host;

/// The log events' target.
const TARGET: &str = "ropeway::message";

/// Logged messages are truncated to this many bytes.
const MAX_LOGGED: usize = 2 << 10;

/// Logs an outgoing message.
pub(crate) fn sent(host: &Host, message: &[u8]) {
    if is_enabled() {
        log(host, "→", message);
    }
}

/// Logs an incoming message, if it is JSON.
pub(crate) fn received(host: &Host, message: &[u8]) {
    if is_enabled() && matches!(message.trim_ascii_start().first(), Some(b'{' | b'[')) {
        log(host, "←", message);
    }
}

/// Logs an HTTP error status, and the body if it is a message.
pub(crate) fn error_status(host: &Host, status: u16, body: &str) {
    tracing::debug!(server = %host.alias(), "HTTP {status}");
    received(host, body.as_bytes());
}

/// Returns `true` if a subscriber enables the target. Without a subscriber, this costs one atomic load.
fn is_enabled() -> bool {
    tracing::enabled!(target: TARGET, Level::TRACE)
}

#[cold]
fn log(host: &Host, arrow: &str, message: &[u8]) {
    let message = message.trim_ascii();
    let kept = &message[..message.len().min(MAX_LOGGED)];
    let text = String::from_utf8_lossy(kept);
    // The truncation may split a character.
    let text = if kept.len() < message.len() { text.trim_end_matches('\u{fffd}') } else { &text };
    let missing = message.len() - kept.len();
    let (text, more) = match missing {
        0 => (host.redactor().redact(text), String::new()),
        missing => (host.redactor().redact_truncated(text), format!("… ({missing} more bytes)")),
    };
    tracing::trace!(target: TARGET, server = %host.alias(), "{arrow} {text}{more}");
}
