//! What is written about times and amounts, and what it means.

use crate::config::raw::{RawLimits, RawReconnect, RawTimeouts, Short, Size, Wait};
use crate::config::{ReconnectPolicy, ServerLimits, ServerTimeouts};

pub(super) fn timeouts(raw: &RawTimeouts) -> ServerTimeouts {
    let usual = ServerTimeouts::default();
    let or = |wait: Option<Wait>, usual| wait.map_or(usual, |Wait(wait)| wait);
    ServerTimeouts {
        connect: or(raw.connect, usual.connect),
        // A time to connect that is set is kept, unless a time to download is set, too.
        download: raw.download.or(raw.connect).map_or(usual.download, |Wait(wait)| wait),
        probe: or(raw.probe, usual.probe),
        idle: or(raw.idle, usual.idle),
        total: or(raw.total, usual.total),
        close: or(raw.close, usual.close),
        grace: or(raw.grace, usual.grace),
    }
}

pub(super) fn limits(raw: &RawLimits) -> ServerLimits {
    let usual = ServerLimits::default();
    let count = |count: Option<u32>, usual| count.map_or(usual, |count| count as usize);
    let size = |size: Option<Size>, usual| size.map_or(usual, |Size(bytes)| bytes);
    ServerLimits {
        message_bytes: size(raw.message_bytes, usual.message_bytes),
        pages: count(raw.pages, usual.pages),
        list_entries: count(raw.list_entries, usual.list_entries),
        list_bytes: size(raw.list_bytes, usual.list_bytes),
        input_rounds: count(raw.input_rounds, usual.input_rounds),
        questions: count(raw.questions, usual.questions),
        stderr_bytes: size(raw.stderr_bytes, usual.stderr_bytes),
    }
}

pub(super) fn reconnect(raw: Option<&Short<bool, RawReconnect>>) -> ReconnectPolicy {
    let usual = ReconnectPolicy::default();
    match raw {
        None => usual,
        Some(Short::Short(enabled)) => ReconnectPolicy { enabled: *enabled, ..usual },
        Some(Short::Full(RawReconnect { enabled, first, longest })) => ReconnectPolicy {
            enabled: enabled.unwrap_or(usual.enabled),
            first: first.map_or(usual.first, |Wait(wait)| wait),
            longest: longest.map_or(usual.longest, |Wait(wait)| wait),
        },
    }
}
