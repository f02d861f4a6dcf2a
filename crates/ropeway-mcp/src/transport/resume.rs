//! Resumes interrupted event streams
//! ([resumability](https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#resumability-and-redelivery)).

use std::time::Duration;

use reqwest::header::HeaderValue;

use ropeway_web::SseEvent;

/// Maximum event id size.
const MAX_EVENT_ID_BYTES: usize = 4 << 10;

/// Minimum delay before a stream is reopened.
const MIN_RETRY: Duration = Duration::from_millis(200);

/// Maximum delay that a server can request.
pub(super) const MAX_RETRY: Duration = Duration::from_secs(30);

/// Maximum backoff for a call's stream, because the response may be ready already.
pub(super) const MAX_CALL_RETRY: Duration = Duration::from_secs(5);

/// Where and when to resume an interrupted stream.
#[derive(Debug)]
pub(super) struct ResumeState {
    /// The last event id.
    pub(super) last: Option<String>,
    /// The delay that the server requests.
    retry: Duration,
    /// The exponential backoff's maximum delay.
    max_delay: Duration,
    /// Counts consecutive attempts without a new event.
    pub(super) attempts: u32,
    /// Counts consecutive streams that ended too soon.
    pub(super) short: u32,
}

impl ResumeState {
    pub(super) fn new(retry: Duration, max_delay: Duration) -> Self {
        Self { last: None, retry, max_delay, attempts: 0, short: 0 }
    }

    pub(super) fn record_event(&mut self, event: &SseEvent) {
        // A server may close the stream and let the client poll, so a new id counts as an event
        // (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#sending-messages-to-the-server).
        let is_new = !event.data.is_empty() || event.id.as_ref().is_some_and(|id| Some(id) != self.last.as_ref());
        if let Some(id) = &event.id {
            // An id that is not a valid header value cannot resume the stream.
            let fits = id.len() <= MAX_EVENT_ID_BYTES && HeaderValue::from_str(id).is_ok();
            self.last = Some(id.clone()).filter(|id| fits && !id.is_empty());
        }
        if let Some(retry) = event.retry {
            self.retry = retry;
        }
        if is_new {
            self.attempts = 0;
        }
    }

    /// Returns the delay before the next attempt: the server's delay within bounds, doubled after each stream that ended too
    /// soon.
    pub(super) fn next_wait(&mut self) -> Duration {
        let asked = self.retry.clamp(MIN_RETRY, MAX_RETRY);
        let wait = asked.saturating_mul(1 << self.short.min(16)).min(asked.max(self.max_delay));
        self.short = self.short.saturating_add(1);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry(retry: Duration) -> SseEvent {
        SseEvent { retry: Some(retry), ..SseEvent::default() }
    }

    #[test]
    fn the_resume_delay_grows_within_its_bounds() {
        let mut resume = ResumeState::new(Duration::from_secs(1), MAX_CALL_RETRY);
        resume.record_event(&retry(Duration::ZERO));
        let waits: Vec<u128> = (0..7).map(|_| resume.next_wait().as_millis()).collect();
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 5000, 5000]);
        resume.record_event(&retry(Duration::MAX));
        assert_eq!(resume.next_wait(), MAX_RETRY);
        let mut polite = ResumeState::new(Duration::from_secs(1), MAX_CALL_RETRY);
        polite.record_event(&retry(Duration::from_secs(8)));
        assert_eq!([polite.next_wait(), polite.next_wait()], [Duration::from_secs(8); 2]);
    }

    #[test]
    fn an_invalid_event_id_is_not_kept() {
        let mut resume = ResumeState::new(Duration::from_secs(1), MAX_CALL_RETRY);
        for (id, kept) in [("7", true), ("a\rb: c", false), (&"x".repeat(10 << 20), false), ("", false)] {
            resume.record_event(&SseEvent { id: Some(id.to_owned()), ..SseEvent::default() });
            assert_eq!(resume.last.is_some(), kept, "{} bytes", id.len());
        }
    }
}
