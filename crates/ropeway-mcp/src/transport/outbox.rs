//! Messages that wait to be written to a byte stream.

use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};

use tokio::io::AsyncWrite;

use crate::error::ConnectErrorKind;
use crate::host::{Host, ReplySink};
use crate::message_log;
use ropeway_core::sync::lock;

/// Number of queued messages that the last caller writes at once: few enough that the server is busy while more are encoded, and
/// enough to save wake-ups.
const MAX_QUEUED: usize = 16;

/// Maximum unwritten bytes. A single message may be larger.
const MAX_BACKLOG: usize = 64 << 20;

/// From this many unwritten bytes on, replies to the server's requests are dropped.
const MAX_REPLY_BACKLOG: usize = 1 << 20;

/// An empty buffer with more capacity than this is released.
pub(super) const MAX_RETAINED: usize = 1 << 20;

/// Messages that wait to be written. Callers write themselves, and the I/O loop writes the rest.
pub(super) struct Outbox {
    writer: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    waiting: Vec<u8>,
    written: usize,
    /// Number of waiting messages.
    queued: usize,
    io_loop: Option<Waker>,
    /// Position in `waiting` at which a write failed.
    failed_at: usize,
}

/// Why a message was not sent.
pub(super) struct SendError {
    /// The message was partly written. The server may have read all but the end of its line.
    pub(super) started: bool,
    pub(super) cause: ConnectErrorKind,
}

impl SendError {
    fn closed(started: bool) -> Self {
        Self { started, cause: ConnectErrorKind::Hangup { said: None } }
    }
}

impl Outbox {
    pub(super) fn new(writer: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        Self { writer: Some(Box::new(writer)), waiting: Vec::new(), written: 0, queued: 0, io_loop: None, failed_at: 0 }
    }

    /// Writes these bytes before the first message.
    pub(super) fn with_preamble(self, preamble: Vec<u8>) -> Self {
        Self { waiting: preamble, ..self }
    }

    /// Closes the stream for writing.
    pub(super) fn close(&mut self) {
        self.writer = None;
    }

    /// Queues one message. `now` writes it at once; otherwise the I/O loop writes the queued messages together.
    pub(super) fn send(&mut self, mut message: Vec<u8>, now: bool) -> Result<(), SendError> {
        message.push(b'\n');
        if self.writer.is_none() {
            return Err(SendError::closed(false));
        }
        let idle = self.waiting.is_empty();
        if self.written > self.waiting.len() / 2 {
            // Frees the written part even if more messages keep coming.
            let written = std::mem::take(&mut self.written);
            self.waiting.drain(..written);
        }
        if self.backlog() + message.len() > MAX_BACKLOG.max(message.len()) {
            let cause = ConnectErrorKind::Broken("the server does not read its input".into());
            return Err(SendError { started: false, cause });
        }
        let start = self.waiting.len();
        if idle {
            self.waiting = message;
        } else {
            self.waiting.extend_from_slice(&message);
        }
        self.queued += 1;
        if (now && idle) || self.queued == MAX_QUEUED {
            self.flush(&mut Context::from_waker(Waker::noop()));
            if self.writer.is_none() {
                return Err(SendError::closed(self.failed_at > start));
            }
        }
        // The write above may have replaced the I/O loop's waker. Waking it registers it again.
        if !self.waiting.is_empty()
            && let Some(io_loop) = &self.io_loop
        {
            io_loop.wake_by_ref();
        }
        Ok(())
    }

    /// Flushes from the I/O loop and registers its waker. Returns `true` if the stream is closed for writing.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.io_loop {
            Some(io_loop) => io_loop.clone_from(cx.waker()),
            io_loop => *io_loop = Some(cx.waker().clone()),
        }
        self.flush(cx);
        self.writer.is_none()
    }

    /// Writes as much as possible without waiting. An error closes the stream for writing.
    fn flush(&mut self, cx: &mut Context<'_>) {
        while self.written < self.waiting.len() {
            let Some(writer) = &mut self.writer else { break };
            match Pin::new(writer).poll_write(cx, &self.waiting[self.written..]) {
                Poll::Ready(Ok(count)) if count > 0 => self.written += count,
                Poll::Ready(_) => {
                    self.writer = None;
                    self.failed_at = self.written;
                }
                Poll::Pending => return,
            }
        }
        self.waiting.clear();
        self.written = 0;
        self.queued = 0;
        if self.waiting.capacity() > MAX_RETAINED {
            self.waiting = Vec::new();
        }
    }

    /// Returns the number of unwritten bytes.
    fn backlog(&self) -> usize {
        self.waiting.len() - self.written
    }
}

/// Sends replies through an outbox.
pub(super) struct OutboxReplySink {
    pub(super) outbox: Weak<Mutex<Outbox>>,
    pub(super) host: Arc<Host>,
}

impl ReplySink for OutboxReplySink {
    fn has_room(&self) -> bool {
        self.outbox.upgrade().is_some_and(|outbox| lock(&outbox).backlog() < MAX_REPLY_BACKLOG)
    }

    fn send(&self, message: Vec<u8>) {
        let Some(outbox) = self.outbox.upgrade() else { return };
        // The outbox may have filled up while the handler ran.
        let backlog = lock(&outbox).backlog();
        if backlog > 0 && backlog + message.len() > MAX_BACKLOG / 2 {
            return self.host.count_dropped_reply();
        }
        message_log::sent(&self.host, &message);
        // A closed link needs no reply.
        let _ = lock(&outbox).send(message, true);
    }
}
