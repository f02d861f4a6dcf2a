//! A reply as it arrives.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::encoded_request::EncodedRequest;
use super::error::{ProviderError, ProviderErrorKind};
use super::event_sink::{EventBuffer, EventSink};
use super::media_support::UnsupportedMedia;
use super::reply::{Reply, ReplyEvent};
use super::reply_driver::ReplyDriver;
use super::transport::Transport;
use ropeway_core::message::Dialect;

type ReplyFuture = dyn Future<Output = Result<Reply, ProviderError>> + Send;

/// A model's reply as it arrives. Dropping the stream cancels the request.
///
/// The stream does its work while it is polled; it spawns no task. It owns the driver's future, which sends the request, and
/// polls it only when no event is ready. The driver leaves its events in a buffer that both share. Its lock is a std mutex: it
/// is held only to append or take events, never across `.await`, and one task polls both sides, so it is never contended.
///
/// A stream is running while it has a driver. The driver's result ends it: a reply becomes the last event, an error is returned
/// after the events before it are taken, and from then on [`next`](Self::next) returns `None`. Dropping a running stream drops
/// the driver, which cancels the request, or the wait before the next attempt.
///
/// # Examples
///
/// ```no_run
/// # use ropeway::provider::{ChatRequest, Provider, ProviderError, ReplyEvent};
/// # async fn run(provider: Provider, request: ChatRequest<'_>) -> Result<(), ProviderError> {
/// let mut stream = provider.stream(&request);
/// while let Some(event) = stream.next().await {
///     match event? {
///         ReplyEvent::Text(text) => print!("{text}"),
///         ReplyEvent::Finished(reply) => println!("\n{} tokens", reply.usage.output),
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct ReplyStream {
    dialect: Dialect,
    /// Resolves to the complete reply; its events pass through `buffer`.
    driver: Option<Pin<Box<ReplyFuture>>>,
    buffer: EventBuffer,
    ready: VecDeque<ReplyEvent>,
}

impl ReplyStream {
    /// Streams the reply to `encoded`. `without_media` is the same request without its media, if it has any.
    pub(super) fn new(
        transport: Transport,
        unsupported_media: UnsupportedMedia,
        encoded: Result<EncodedRequest, ProviderError>,
        without_media: Option<EncodedRequest>,
    ) -> Self {
        let buffer = EventBuffer::default();
        let dialect = transport.dialect();
        let sink = EventSink::new(transport.redactor.clone(), buffer.clone());
        let driver = ReplyDriver { transport, unsupported_media, sink, without_media };
        Self { dialect, driver: Some(Box::pin(driver.run(encoded))), buffer, ready: VecDeque::new() }
    }

    /// Returns the next event, and `None` after the last one, which is [`ReplyEvent::Finished`] or an error.
    ///
    /// This method is cancel safe: dropping its future loses no event.
    pub async fn next(&mut self) -> Option<Result<ReplyEvent, ProviderError>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Reads the stream to its end and returns the complete reply.
    ///
    /// # Errors
    ///
    /// Returns the error that ended the stream. A stream that was already read to its end returns
    /// [`ProviderErrorKind::Unusable`].
    pub async fn finish(mut self) -> Result<Reply, ProviderError> {
        while let Some(event) = self.next().await {
            if let ReplyEvent::Finished(reply) = event? {
                return Ok(*reply);
            }
        }
        Err(ProviderError::new(ProviderErrorKind::Unusable, self.dialect, "the reply was already read"))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<ReplyEvent, ProviderError>>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            let Some(driver) = &mut self.driver else { return Poll::Ready(None) };
            let polled = driver.as_mut().poll(cx);
            self.ready.extend(self.buffer.take());
            match polled {
                Poll::Pending if self.ready.is_empty() => return Poll::Pending,
                Poll::Pending => {}
                Poll::Ready(Ok(reply)) => {
                    self.driver = None;
                    self.ready.push_back(ReplyEvent::Finished(Box::new(reply)));
                }
                Poll::Ready(Err(error)) => {
                    self.driver = None;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}

impl fmt::Debug for ReplyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyStream").field("is_over", &self.driver.is_none()).finish_non_exhaustive()
    }
}
