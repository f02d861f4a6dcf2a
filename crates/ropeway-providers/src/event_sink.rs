//! A reply's events, passed from the driver to the stream.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use super::reply::ReplyEvent;
use ropeway_core::secret::Redactor;
use ropeway_core::sync::lock;

/// Events that the stream has not taken yet.
#[derive(Clone, Default)]
pub(super) struct EventBuffer(Arc<Mutex<Vec<ReplyEvent>>>);

impl EventBuffer {
    pub(super) fn take(&self) -> Vec<ReplyEvent> {
        std::mem::take(&mut lock(&self.0))
    }

    /// Adds events and yields once, so the stream can take them.
    async fn put(&self, events: &mut Vec<ReplyEvent>) {
        if events.is_empty() {
            return;
        }
        lock(&self.0).append(events);
        // No waker is needed: the stream that polls this future takes the events, and polls again for more.
        let mut has_yielded = false;
        poll_fn(|_| if std::mem::replace(&mut has_yielded, true) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

/// Emits events, and holds back those that precede a reply's content.
pub(super) struct EventSink {
    redactor: Redactor,
    buffer: EventBuffer,
    /// The request's own warnings, in addition to the decoder's.
    warnings: Vec<String>,
    /// The decoder's usage and warnings. While nothing else has arrived, the request may be retried without them.
    held: Vec<ReplyEvent>,
    has_content: bool,
}

impl EventSink {
    pub(super) fn new(redactor: Redactor, buffer: EventBuffer) -> Self {
        Self { redactor, buffer, warnings: Vec::new(), held: Vec::new(), has_content: false }
    }

    /// Returns `true` once reply content was emitted. From then on a retry would emit it twice.
    pub(super) fn has_content(&self) -> bool {
        self.has_content
    }

    /// Discards the events that were held back.
    pub(super) fn reset(&mut self) {
        self.held.clear();
    }

    /// Emits the decoder's events as soon as one of them is content.
    pub(super) async fn emit(&mut self, events: Vec<ReplyEvent>) {
        for mut event in events {
            match &mut event {
                ReplyEvent::Usage(_) => {}
                ReplyEvent::Warning(warning) => *warning = self.redactor.redact(warning).into_owned(),
                _ => self.has_content = true,
            }
            self.held.push(event);
        }
        if self.has_content {
            self.flush().await;
        }
    }

    /// Emits the events that were held back.
    pub(super) async fn flush(&mut self) {
        self.buffer.put(&mut self.held).await;
    }

    /// Emits a warning at once.
    pub(super) async fn warn(&mut self, warning: &str) {
        let warning = self.redactor.redact(warning).into_owned();
        self.warnings.push(warning.clone());
        self.buffer.put(&mut vec![ReplyEvent::Warning(warning)]).await;
    }

    /// Returns all warnings: those emitted by [`warn`](Self::warn), then the decoder's.
    pub(super) fn take_warnings(&mut self, of_decoder: &[String]) -> Vec<String> {
        let mut warnings = std::mem::take(&mut self.warnings);
        warnings.extend(of_decoder.iter().map(|warning| self.redactor.redact(warning).into_owned()));
        warnings
    }
}
