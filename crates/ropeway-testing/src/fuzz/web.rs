//! Targets for HTTP: server-sent events and headers.

use std::time::{Duration, SystemTime};

use super::chunks::ways;
use ropeway_mcp::oauth::Challenge;
use ropeway_web::{HeadTail, SseEvent, SseParser};

/// A limit that fuzzed inputs reach.
const SMALL: usize = 64;

/// The events do not depend on how the bytes are split, and respect the limit.
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

/// Returns the result that must not depend on the split. For an event that is too large, the remaining bytes may: it is dropped at
/// the chunk that exceeds the limit.
fn summary(events: &[SseEvent]) -> Vec<SseEvent> {
    let whole = |event: &SseEvent| SseEvent {
        truncated: event.truncated.as_ref().map(|_| HeadTail::default()),
        ..event.clone()
    };
    events.iter().map(whole).collect()
}

/// A delay is finite, and whitespace around the value does not matter.
pub(super) fn retry_after(data: &[u8]) {
    let text = super::input::text(data);
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let wait = ropeway_web::retry_after(&text, now);
    assert_eq!(ropeway_web::retry_after(&format!(" {text}\t"), now), wait);
    if let Some(wait) = wait {
        assert!(text.bytes().any(|byte| byte.is_ascii_digit()), "`{text}` is {wait:?}");
    }
}

/// Parameters belong to their scheme: other schemes in front of a challenge do not change it. Texts are part of the header.
pub(super) fn challenge(data: &[u8]) {
    // Longer headers are cut, at a place that depends on the other lines.
    let text = super::input::text(&data[..data.len().min(8 << 10)]);
    let parsed = Challenge::parse([&*text]);
    assert_eq!(Challenge::parse([r#"Basic realm="x, Bearer""#, &*text]), parsed);
    if let Some(challenge) = parsed {
        let texts = [challenge.error, challenge.error_description, challenge.scope, challenge.resource_metadata];
        let length: usize = texts.iter().flatten().map(String::len).sum();
        assert!(length <= text.len(), "{length} bytes of {}", text.len());
    }
}
