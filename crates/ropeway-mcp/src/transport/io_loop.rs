//! Reads JSON lines from a byte stream and flushes the outbox.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::outbox::{MAX_RETAINED, Outbox, OutboxReplySink};
use crate::error::RequestError;
use crate::host::ReplySender;
use crate::pending::PendingRequests;
use crate::protocol::{FrameError, TruncatedMessage};
use ropeway_core::sync::lock;

/// Minimum read size.
const CHUNK: usize = 64 << 10;

/// Number of bytes to read before other tasks get a turn.
const MAX_PER_POLL: usize = 256 << 10;

/// Maximum bytes to inspect in an invalid line.
const MAX_NOISE: usize = 16 << 10;

/// Reads lines and passes them to the pending requests; writes messages that callers could not write immediately.
pub(super) struct IoLoop {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    buffer: BytesMut,
    /// Length of the buffer's beginning that contains no newline.
    searched: usize,
    /// The line that exceeds the limit, while its rest is skipped.
    skipping: Option<TruncatedMessage>,
    limit: usize,
    pending: Arc<PendingRequests>,
    reply: ReplySender,
    outbox: Arc<Mutex<Outbox>>,
}

impl IoLoop {
    pub(super) fn new(
        reader: impl AsyncRead + Send + Unpin + 'static,
        outbox: Arc<Mutex<Outbox>>,
        pending: Arc<PendingRequests>,
        limit: usize,
    ) -> Self {
        let reply = Arc::new(OutboxReplySink { outbox: Arc::downgrade(&outbox), host: pending.host().clone() });
        Self {
            reader: Box::new(reader),
            buffer: BytesMut::with_capacity(CHUNK),
            searched: 0,
            skipping: None,
            limit,
            pending,
            reply,
            outbox,
        }
    }

    /// Runs until the server's output ends. Returns the error that ended it, if any.
    pub(super) async fn run(mut self) -> Option<std::io::Error> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<std::io::Error>> {
        let is_write_closed = lock(&self.outbox).poll_flush(cx);
        let mut taken = 0;
        loop {
            if taken >= MAX_PER_POLL {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.make_room();
            let read = pin!(self.reader.read_buf(&mut self.buffer)).poll(cx);
            match read {
                // The server does not read its input, and all of its output is read.
                Poll::Pending if is_write_closed => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => {
                    // The last line need not end in a newline. An incomplete one is lost with the link.
                    let rest = self.buffer.split().freeze();
                    let _ = self.pending.receive(&rest, &self.reply, None);
                    return Poll::Ready(None);
                }
                Poll::Ready(Ok(count)) => {
                    taken += count;
                    self.take_lines();
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Some(error)),
            }
        }
    }

    fn make_room(&mut self) {
        if self.buffer.is_empty() && self.buffer.capacity() > MAX_RETAINED {
            self.buffer = BytesMut::with_capacity(CHUNK);
        }
        if self.buffer.capacity() - self.buffer.len() < CHUNK / 8 {
            // Doubles the buffer, to copy a long line only a few times.
            self.buffer.reserve(CHUNK.max(self.buffer.len()));
        }
    }

    /// Handles all complete lines in the buffer.
    fn take_lines(&mut self) {
        while let Some(end) = memchr::memchr(b'\n', &self.buffer[self.searched..]) {
            let line = self.buffer.split_to(self.searched + end + 1).freeze();
            self.searched = 0;
            self.on_line(line.slice(..line.len() - 1));
        }
        self.searched = self.buffer.len();
        if self.buffer.len() > self.limit || self.skipping.is_some() {
            self.skipping.get_or_insert_default().push(&self.buffer);
            self.buffer.clear();
            self.searched = 0;
        }
    }

    fn on_line(&mut self, line: Bytes) {
        if let Some(mut skipped) = self.skipping.take() {
            skipped.push(&line);
            return self.pending.fail_unreadable(&skipped, None, RequestError::TooLarge { limit: self.limit });
        }
        if line.len() > self.limit {
            return self.pending.fail_unreadable(
                &TruncatedMessage::of(&line),
                None,
                RequestError::TooLarge { limit: self.limit },
            );
        }
        let line = match line.strip_prefix(b"\xEF\xBB\xBF") {
            Some(bare) => line.slice_ref(bare),
            None => line,
        };
        let bare = line.trim_ascii();
        if bare.is_empty() {
            return;
        }
        if let Err(error) = self.pending.receive(&line, &self.reply, None) {
            self.on_invalid_line(&line, bare.first() == Some(&b'{'), &error);
        }
    }

    /// Handles a line that is not a message: fails the request that it seems to answer, or counts it as noise.
    #[cold]
    fn on_invalid_line(&mut self, line: &Bytes, looks_like_json: bool, error: &FrameError) {
        let truncated = TruncatedMessage::of(line);
        let is_json = !matches!(error, FrameError::NotJson(_));
        if looks_like_json && !is_json && truncated.request_id().is_some() {
            return self.pending.fail_unreadable(
                &truncated,
                None,
                RequestError::Unreadable(self.pending.host().redact(&cause(error))),
            );
        }
        self.pending.host().count_noise();
        // Redacted before it is truncated, because half a secret would not be found.
        let text = self.pending.host().redact(&String::from_utf8_lossy(&line[..line.len().min(MAX_NOISE)]));
        let text: String = text.chars().take(200).collect();
        tracing::debug!(server = %self.pending.host().alias(), "non-protocol output on stdout: {text}");
    }
}

fn cause(error: &FrameError) -> String {
    match error {
        FrameError::NotJson(error) => error.to_string(),
        FrameError::NotRpc => error.to_string(),
    }
}
