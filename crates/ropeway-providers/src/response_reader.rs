//! Reads one response: from its first byte through the decoder to the event sink.

use bytes::Bytes;
use serde_json::Value;

use super::decoder::Decoder;
use super::error::{ProviderError, ProviderErrorKind};
use super::error_mapping;
use super::event_sink::EventSink;
use super::http_message::HttpRequest;
use super::live_exchange::LiveExchange;
use super::reply::Reply;
use super::tail_buffer::TailBuffer;
use super::transport::Transport;
use ropeway_core::json;
use ropeway_web::{SseEvent, SseParser, brief, looks_like_sse};

/// Maximum event size. An image arrives in a single event.
const MAX_EVENT: usize = 64 << 20;

/// Maximum response size, over all its events.
const MAX_RESPONSE: usize = 512 << 20;

/// Sends a request and decodes its response.
pub(super) struct ResponseReader<'a> {
    pub(super) transport: &'a Transport,
    pub(super) sink: &'a mut EventSink,
}

impl ResponseReader<'_> {
    /// Sends a request and reads the response to its end; returns its last bytes.
    pub(super) async fn read(
        &mut self,
        request: &HttpRequest,
        decoder: &mut Decoder,
    ) -> Result<TailBuffer, ProviderError> {
        let mut exchange = self.transport.send(request).await?;
        if !exchange.is_success() {
            return Err(exchange.into_error().await);
        }
        let tail = self.read_events(&mut exchange, decoder).await;
        if tail.is_ok() && decoder.is_finished() {
            exchange.finish().await;
            return tail;
        }
        tail.map_err(|error| exchange.with_request_id(error))
    }

    async fn read_events(
        &mut self,
        exchange: &mut LiveExchange,
        decoder: &mut Decoder,
    ) -> Result<TailBuffer, ProviderError> {
        let (mut chunk, mut size) = self.read_start(exchange).await?;
        let mut parser = SseParser::new(MAX_EVENT);
        let mut tail = TailBuffer::default();
        loop {
            size += chunk.len();
            self.check_size(size)?;
            tail.push(&chunk);
            let has_event = self.decode(&chunk, &mut parser, decoder).await?;
            if decoder.is_finished() {
                return Ok(tail);
            }
            let has_stopped = decoder.has_stopped();
            // Comments that only keep the connection alive do not extend the deadline.
            if has_stopped && has_event {
                exchange.expect_end(self.transport.settings.timeouts.idle);
            }
            match exchange.chunk().await {
                Ok(Some(next)) => chunk = next,
                Ok(None) => break,
                // The reply is complete, but some servers leave the connection open or reset it.
                Err(error)
                    if has_stopped
                        && matches!(error.kind, ProviderErrorKind::Timeout | ProviderErrorKind::Connection) =>
                {
                    break;
                }
                Err(error) if error.kind == ProviderErrorKind::Connection => {
                    let message = "connection lost during the reply".to_owned();
                    return Err(ProviderError { kind: ProviderErrorKind::Truncated, message, ..error });
                }
                Err(error) => return Err(error),
            }
        }
        // Some servers omit the blank line after the last event. A truncated event is ignored.
        match self.decode(b"\n\n", &mut parser, decoder).await {
            Err(error) if error.kind != ProviderErrorKind::Unreadable => Err(error),
            _ => Ok(tail),
        }
    }

    fn check_size(&self, size: usize) -> Result<(), ProviderError> {
        if size > MAX_RESPONSE {
            return Err(self.unreadable(format!("the reply exceeds {} MiB", MAX_RESPONSE >> 20)));
        }
        Ok(())
    }

    /// Reads until the body is known to be an event stream; returns its start, and the number of white space bytes before
    /// it.
    async fn read_start(&mut self, exchange: &mut LiveExchange) -> Result<(Bytes, usize), ProviderError> {
        let (mut start, mut blank) = (Bytes::new(), 0);
        let mut ended = false;
        loop {
            let bare = start.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&start);
            match bare.first() {
                Some(b'{' | b'[') => return Err(self.not_events(exchange, start, true).await),
                Some(_) if exchange.is_event_stream() || looks_like_sse(bare) => return Ok((start, blank)),
                // The longest field name in an event is `event:`.
                Some(_) if ended || bare.len() > 6 => return Err(self.not_events(exchange, start, false).await),
                None if ended => {
                    return Err(self.transport.error(ProviderErrorKind::Truncated, "the reply is empty"));
                }
                _ => {}
            }
            match exchange.chunk().await? {
                Some(chunk) if start.is_empty() => {
                    // White space is skipped, and does not count as the first byte.
                    let skipped = chunk.len() - chunk.trim_ascii_start().len();
                    blank += skipped;
                    self.check_size(blank)?;
                    start = chunk.slice(skipped..);
                    if !start.is_empty() {
                        exchange.set_idle_timeout(self.transport.settings.timeouts.idle);
                    }
                }
                Some(chunk) => start = [start, chunk].concat().into(),
                None => ended = true,
            }
        }
    }

    /// Reads the error from a successful response that is not an event stream.
    async fn not_events(&self, exchange: &mut LiveExchange, start: Bytes, is_json: bool) -> ProviderError {
        let body = exchange.read_error_body(start.into()).await;
        if is_json && let Some(error) = json::from_slice(&body).ok().and_then(|body| self.reported_error(&body)) {
            return error;
        }
        let found = if is_json { ", found JSON" } else { "" };
        self.unreadable(format!("expected an event stream{found}: `{}`", brief(&body, &self.transport.redactor)))
    }

    /// Returns the error that a JSON document reports, if any.
    fn reported_error(&self, body: &Value) -> Option<ProviderError> {
        let first = body.as_array().and_then(|items| items.first()).unwrap_or(body);
        let is_error = first.get("error").is_some_and(|error| !error.is_null()) || first["type"] == "error";
        is_error.then(|| error_mapping::from_event(self.transport.dialect(), body))
    }

    fn unreadable(&self, message: String) -> ProviderError {
        self.transport.error(ProviderErrorKind::Unreadable, message)
    }

    /// Decodes a chunk and emits its events. Returns `true` if it completed an event in the stream.
    async fn decode(
        &mut self,
        chunk: &[u8],
        parser: &mut SseParser,
        decoder: &mut Decoder,
    ) -> Result<bool, ProviderError> {
        let mut frames: Vec<SseEvent> = Vec::new();
        parser.push(chunk, |frame| frames.push(frame));
        let mut events = Vec::new();
        let mut outcome = Ok(());
        for frame in &frames {
            if frame.truncated.is_some() {
                outcome = Err(self.unreadable(format!("an event of the reply exceeds {} MiB", MAX_EVENT >> 20)));
            } else if !frame.data.trim_ascii().is_empty() {
                outcome = decoder.frame(&frame.data, &mut events);
            }
            if outcome.is_err() || decoder.is_finished() {
                break;
            }
        }
        // Events before the error are emitted before it.
        self.sink.emit(events).await;
        outcome.map(|()| frames.iter().any(|frame| !frame.data.trim_ascii().is_empty()))
    }

    /// Completes the reply when the stream ends.
    pub(super) async fn finish(&mut self, decoder: &mut Decoder, tail: &TailBuffer) -> Result<Reply, ProviderError> {
        let mut events = Vec::new();
        let ended = decoder.end(&mut events);
        self.sink.emit(events).await;
        let mut reply = ended.map_err(|error| match error.kind {
            // Some servers append an error as plain JSON after the events.
            ProviderErrorKind::Truncated => tail.json().and_then(|json| self.reported_error(&json)).unwrap_or(error),
            _ => error,
        })?;
        self.sink.flush().await;
        reply.warnings = self.sink.take_warnings(&reply.warnings);
        Ok(reply)
    }
}
