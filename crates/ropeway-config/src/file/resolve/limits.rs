//! Resolves timeouts, limits and reconnection.

use crate::file::raw::{RawByteSize, RawDuration, RawLimits, RawRate, RawReconnect, RawShorthand, RawTimeouts};
use crate::settings::{ReconnectPolicy, ServerLimits, ServerTimeouts};

pub(super) fn timeouts(raw: &RawTimeouts) -> ServerTimeouts {
    let default = ServerTimeouts::default();
    let or = |duration: Option<RawDuration>, default| duration.map_or(default, |RawDuration(duration)| duration);
    ServerTimeouts {
        connect: or(raw.connect, default.connect),
        // An explicit `connect` applies to downloads as well.
        download: raw.download.or(raw.connect).map_or(default.download, |RawDuration(duration)| duration),
        probe: or(raw.probe, default.probe),
        idle: or(raw.idle, default.idle),
        total: or(raw.total, default.total),
        close: or(raw.close, default.close),
        grace: or(raw.grace, default.grace),
    }
}

pub(super) fn limits(raw: &RawLimits) -> ServerLimits {
    let default = ServerLimits::default();
    let count = |count: Option<u32>, default| count.map_or(default, |count| count as usize);
    let size = |size: Option<RawByteSize>, default| size.map_or(default, |RawByteSize(bytes)| bytes);
    ServerLimits {
        message_bytes: size(raw.message_bytes, default.message_bytes),
        pages: count(raw.pages, default.pages),
        list_entries: count(raw.list_entries, default.list_entries),
        list_bytes: size(raw.list_bytes, default.list_bytes),
        input_rounds: count(raw.input_rounds, default.input_rounds),
        questions: count(raw.questions, default.questions),
        stderr_bytes: size(raw.stderr_bytes, default.stderr_bytes),
        // Zero would refuse all requests.
        calls: raw.calls.map(|calls| (calls as usize).max(1)),
        rate: raw.rate.map(|RawRate(rate)| rate),
    }
}

pub(super) fn reconnect(raw: Option<&RawShorthand<bool, RawReconnect>>) -> ReconnectPolicy {
    let default = ReconnectPolicy::default();
    match raw {
        None => default,
        Some(RawShorthand::Short(enabled)) => ReconnectPolicy { enabled: *enabled, ..default },
        Some(RawShorthand::Full(RawReconnect { enabled, initial_delay, max_delay })) => ReconnectPolicy {
            enabled: enabled.unwrap_or(default.enabled),
            initial_delay: initial_delay.map_or(default.initial_delay, |RawDuration(duration)| duration),
            max_delay: max_delay.map_or(default.max_delay, |RawDuration(duration)| duration),
        },
    }
}
