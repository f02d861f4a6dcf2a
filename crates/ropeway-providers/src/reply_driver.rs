//! Drives a request to its reply: retries, leaves out rejected tools and media, and continues paused replies.

use super::encoded_request::EncodedRequest;
use super::error::{ProviderError, ProviderErrorKind};
use super::event_sink::EventSink;
use super::media_kinds::MediaKinds;
use super::media_support::{UnsupportedMedia, unsupported_media};
use super::reply::Reply;
use super::response_reader::ResponseReader;
use super::transport::Transport;
use ropeway_core::duration::format_duration;

/// How many rejected tools are left out one by one. After that all tools are.
const MAX_TOOLS_LEFT_OUT: usize = 8;

/// How often one reply may be continued.
const MAX_CONTINUATIONS: usize = 32;

/// Turns a request into its complete reply.
///
/// The [`ReplyStream`](super::ReplyStream) owns the driver, as the future that [`run`](Self::run) returns, and takes the events
/// that the driver writes to `sink`. A failed attempt leads to one of four outcomes: the request is sent without the tool that
/// was rejected, without media (once), or again after a backoff, or the error ends the reply. Once content was emitted, every
/// error ends it.
///
/// All clones of a provider share `unsupported_media`. The driver writes to it only after a request without media got a reply.
/// Like the sink's buffer, it is behind a std mutex that is never held across `.await`. Dropping the future ends the request at
/// once, and records no media.
pub(super) struct ReplyDriver {
    pub(super) transport: Transport,
    pub(super) unsupported_media: UnsupportedMedia,
    pub(super) sink: EventSink,
    /// The request with text descriptions instead of its media, if it has media and they were not rejected yet.
    pub(super) without_media: Option<EncodedRequest>,
}

impl ReplyDriver {
    pub(super) async fn run(mut self, encoded: Result<EncodedRequest, ProviderError>) -> Result<Reply, ProviderError> {
        let reply = match encoded {
            Ok(encoded) => self.send_with_retries(encoded).await,
            Err(error) => Err(error),
        };
        reply.map_err(|error| error.redacted(&self.transport.redactor))
    }

    /// Sends the request until it has a reply or an error that a retry cannot fix.
    async fn send_with_retries(&mut self, mut encoded: EncodedRequest) -> Result<Reply, ProviderError> {
        for warning in std::mem::take(&mut encoded.warnings) {
            self.sink.warn(&warning).await;
        }
        let (mut retries, mut tools_left_out) = (0, 0);
        let mut rejected_media = MediaKinds::NONE;
        loop {
            let mut error = match self.send(&encoded).await {
                Ok(reply) => {
                    // Only now is it certain that the media were the reason.
                    self.unsupported_media.insert(encoded.model(), rejected_media);
                    return Ok(reply);
                }
                Err(error) if self.sink.has_content() => return Err(error),
                Err(error) => error,
            };
            if let Some((index, name)) =
                error.tool.and_then(|index| Some((index, encoded.tool_name(index)?.to_owned())))
            {
                let (fewer, what) = if tools_left_out < MAX_TOOLS_LEFT_OUT {
                    (encoded.without_tool(index), format!("left out tool `{name}`"))
                } else {
                    let count = encoded.tool_count();
                    let what = format!(
                        "left out all {count} remaining tools: {tools_left_out} tools were rejected, and so was `{name}`"
                    );
                    (encoded.without_tools(), what)
                };
                if let Some(fewer) = fewer {
                    tools_left_out += 1;
                    self.sink.warn(&format!("{what}: {}", error.message)).await;
                    encoded = fewer;
                    continue;
                }
                error.message = format!("tool `{name}` was rejected: {}", error.message);
            }
            if may_be_media(&error)
                && let Some(without_media) = self.without_media.take()
            {
                rejected_media = unsupported_media(&error.message).unwrap_or_default();
                let model = encoded.model();
                let warning = match rejected_media {
                    MediaKinds::NONE => {
                        format!("sent text descriptions instead of media to model `{model}`: {}", error.message)
                    }
                    media => format!("model `{model}` does not support {media}: sent text descriptions instead"),
                };
                self.sink.warn(&warning).await;
                encoded = without_media;
                continue;
            }
            let Some(backoff) = self.transport.settings.retries.backoff(&error, retries, fastrand::f64()) else {
                if retries > 0 {
                    error.message = format!("{} (after {} attempts)", error.message, retries + 1);
                }
                return Err(error);
            };
            retries += 1;
            let message = self.transport.redactor.redact(&error.message);
            tracing::debug!("model request failed, retrying in {}: {message}", format_duration(backoff));
            tokio::time::sleep(backoff).await;
        }
    }

    /// Sends the request once, and again only to continue the same reply.
    async fn send(&mut self, encoded: &EncodedRequest) -> Result<Reply, ProviderError> {
        self.sink.reset();
        let mut reader = ResponseReader { transport: &self.transport, sink: &mut self.sink };
        let mut decoder = encoded.decoder();
        let mut continued = None;
        for _ in 0..=MAX_CONTINUATIONS {
            let request = continued.as_ref().unwrap_or(&encoded.request);
            let tail = reader.read(request, &mut decoder).await?;
            match decoder.continuation() {
                Some(token) => continued = Some(encoded.with_field("continuationToken", &token.into()).request),
                None => return reader.finish(&mut decoder, &tail).await,
            }
        }
        let message = format!("the reply did not end after {MAX_CONTINUATIONS} continuations");
        Err(self.transport.error(ProviderErrorKind::Truncated, message))
    }
}

/// Returns `true` if a request's media may be the reason for an error.
///
/// Providers have many messages for an image that is broken, too large or one too many, and would reject every later request in
/// the same conversation as well.
fn may_be_media(error: &ProviderError) -> bool {
    let is_rejected = matches!(error.kind, ProviderErrorKind::InvalidRequest | ProviderErrorKind::TooLarge);
    error.is_unsupported_media() || (is_rejected && error.tool.is_none() && !error.is_retryable())
}
