//! Targets for what is read over HTTP: server-sent events and headers.

use std::time::{Duration, SystemTime};

use super::chunks::ways;
use crate::web::{HeadTail, SseEvent, SseParser};

/// A limit that inputs of a fuzzer reach.
const SMALL: usize = 64;

/// The same events however the bytes are cut, and none above the limit.
pub(super) fn sse(data: &[u8]) {
    for limit in [SMALL, usize::MAX / 2] {
        let whole = events(&[data], limit);
        for event in &whole {
            assert!(event.data.len() <= limit, "an event of {} bytes", event.data.len());
            assert!(event.truncated.is_none() || limit == SMALL, "an event was cut below the limit");
        }
        for chunks in ways(data) {
            assert_eq!(summary(&events(&chunks, limit)), summary(&whole), "limit {limit}, chunks {chunks:?}");
        }
    }
}

fn events(chunks: &[&[u8]], limit: usize) -> Vec<SseEvent> {
    let mut parser = SseParser::new(limit);
    let mut events = Vec::new();
    for chunk in chunks {
        parser.push(chunk, |event| events.push(event));
    }
    events
}

/// What must not depend on the chunks. Of an event that is too large, which bytes remain may: it is dropped at the chunk that exceeds
/// the limit.
fn summary(events: &[SseEvent]) -> Vec<SseEvent> {
    let whole = |event: &SseEvent| SseEvent {
        truncated: event.truncated.as_ref().map(|_| HeadTail::default()),
        ..event.clone()
    };
    events.iter().map(whole).collect()
}

/// A wait is finite, and read the same with blanks around the value.
pub(super) fn retry_after(data: &[u8]) {
    let text = super::text(data);
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let wait = crate::web::retry_after(&text, now);
    assert_eq!(crate::web::retry_after(&format!(" {text}\t"), now), wait);
    if let Some(wait) = wait {
        assert!(text.bytes().any(|byte| byte.is_ascii_digit()), "`{text}` is {wait:?}");
    }
}
