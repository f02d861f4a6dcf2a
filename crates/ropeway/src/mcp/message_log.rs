//! The log of messages: every JSON-RPC message in both directions, redacted and bounded.

use tracing::Level;

use super::host::Host;

/// The target of these log events.
const TARGET: &str = "ropeway::message";

/// Number of bytes of a message that are logged.
const LONGEST: usize = 2 << 10;

/// Logs a message that goes to the server.
pub(crate) fn sent(host: &Host, message: &[u8]) {
    if is_enabled() {
        log(host, "→", message);
    }
}

/// Logs a message that came from the server. Text that is not JSON is left to the caller.
pub(crate) fn received(host: &Host, message: &[u8]) {
    if is_enabled() && matches!(message.trim_ascii_start().first(), Some(b'{' | b'[')) {
        log(host, "←", message);
    }
}

/// Logs that the server refused an HTTP request, and the message in the body, if it is one.
pub(crate) fn refused(host: &Host, status: u16, body: &str) {
    tracing::debug!(server = %host.alias(), "HTTP {status}");
    received(host, body.as_bytes());
}

/// Whether a subscriber wants messages. Without one this compares one atomic number.
fn is_enabled() -> bool {
    tracing::enabled!(target: TARGET, Level::TRACE)
}

#[cold]
fn log(host: &Host, arrow: &str, message: &[u8]) {
    let message = message.trim_ascii();
    let kept = &message[..message.len().min(LONGEST)];
    let text = String::from_utf8_lossy(kept);
    // The cut may split a character.
    let text = if kept.len() < message.len() { text.trim_end_matches('\u{fffd}') } else { &text };
    let missing = message.len() - kept.len();
    let (text, more) = match missing {
        0 => (host.mask().hide(text), String::new()),
        missing => (host.mask().hide_cut(text), format!("… ({missing} more bytes)")),
    };
    tracing::trace!(target: TARGET, server = %host.alias(), "{arrow} {text}{more}");
}
