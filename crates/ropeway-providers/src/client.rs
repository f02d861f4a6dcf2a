//! A model provider: the handle that sends requests.

use std::fmt;

use super::encode::encode;
use super::encoded_request::EncodedRequest;
use super::error::ProviderError;
use super::media_kinds::MediaKinds;
use super::media_support::UnsupportedMedia;
use super::record::Recorder;
use super::recording::Recording;
use super::reply::Reply;
use super::request::ChatRequest;
use super::settings::ProviderSettings;
use super::stream::ReplyStream;
use super::transport::Transport;
use ropeway_core::message::Dialect;

/// Sends requests to one provider's models.
///
/// Cloning a provider is cheap. Clones share their connections, and remember which media each model rejects.
///
/// # Examples
///
/// ```no_run
/// use ropeway::message::{Conversation, Dialect};
/// use ropeway::provider::{ChatRequest, Provider, ProviderError, ProviderSettings};
///
/// # async fn run() -> Result<(), ProviderError> {
/// let provider = Provider::new(ProviderSettings::from_env(Dialect::Anthropic))?;
/// let conversation = Conversation::new().with("What is the capital of France?");
/// let reply = provider.complete(&ChatRequest::new("claude-opus-5-5", &conversation)).await?;
/// println!("{}", reply.message.to_text());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Provider {
    pub(super) transport: Transport,
    unsupported_media: UnsupportedMedia,
}

impl Provider {
    /// Creates a provider with these settings. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// Returns [`ProviderErrorKind::Unusable`](super::ProviderErrorKind::Unusable) if the base URL, a header or the proxy is invalid.
    pub fn new(settings: ProviderSettings) -> Result<Self, ProviderError> {
        Ok(Self { transport: Transport::connect(settings)?, unsupported_media: UnsupportedMedia::default() })
    }

    /// Creates a provider from its vendor's environment variables, such as `ANTHROPIC_API_KEY`; see
    /// [`ProviderSettings::from_env`].
    ///
    /// # Errors
    ///
    /// Fails if the base URL or the environment's proxy is not a valid URL.
    pub fn from_env(dialect: Dialect) -> Result<Self, ProviderError> {
        Self::new(ProviderSettings::from_env(dialect))
    }

    /// Creates a provider that answers from a recording, without a connection.
    ///
    /// Each request takes the first unused exchange that matches it. A request without a match fails with an error that
    /// describes how it differs from the next exchange.
    pub fn replaying(settings: ProviderSettings, recording: Recording) -> Self {
        let transport = Transport::replay(settings, recording);
        Self { transport, unsupported_media: UnsupportedMedia::default() }
    }

    /// Records every exchange with this recorder.
    #[must_use]
    pub fn with_recorder(mut self, recorder: Recorder) -> Self {
        self.transport.recorder = Some(recorder);
        // A replay does not know which media were rejected before, so the recording must not either.
        self.unsupported_media = UnsupportedMedia::default();
        self
    }

    /// Returns the dialect in the settings.
    pub fn dialect(&self) -> Dialect {
        self.settings().dialect
    }

    /// Returns the settings that this provider was created with.
    pub fn settings(&self) -> &ProviderSettings {
        &self.transport.settings
    }

    /// Sends a request and streams the reply. The request is sent when the first event is polled.
    ///
    /// If a request with images, audio or documents is rejected, it is sent once more with text descriptions instead of the
    /// media, and a warning is emitted. A model that supports no such media is remembered, and gets the descriptions at once from
    /// then on.
    pub fn stream(&self, request: &ChatRequest<'_>) -> ReplyStream {
        let settings = self.settings();
        // Anthropic's own API accepts text documents; compatible servers may not.
        let with_text = settings.dialect == Dialect::Anthropic && !settings.is_anthropic();
        let media = MediaKinds::in_conversation(request.conversation, with_text);
        if settings.described_media(request).contains(media) {
            return self.reply_stream(encode(settings, request), None);
        }
        let encode_with = |described: MediaKinds| {
            let described_media = request.described_media.union(described);
            encode(settings, &ChatRequest { described_media, ..request.clone() })
        };
        let encoded = encode_with(self.unsupported_media.of_model(request.model));
        let differs =
            |other: &EncodedRequest| encoded.as_ref().is_ok_and(|encoded| encoded.request.body != other.request.body);
        let without_media = encode_with(MediaKinds::ALL).ok().filter(differs);
        self.reply_stream(encoded, without_media)
    }

    fn reply_stream(
        &self,
        encoded: Result<EncodedRequest, ProviderError>,
        without_media: Option<EncodedRequest>,
    ) -> ReplyStream {
        ReplyStream::new(self.transport.clone(), self.unsupported_media.clone(), encoded, without_media)
    }

    /// Sends a request and returns the complete reply.
    ///
    /// # Errors
    ///
    /// Fails if the request is rejected, or if the reply is cut off or invalid, after the [`RetryPolicy`](super::RetryPolicy)'s
    /// retries.
    pub fn complete(
        &self,
        request: &ChatRequest<'_>,
    ) -> impl Future<Output = Result<Reply, ProviderError>> + Send + use<> {
        self.stream(request).finish()
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("settings", self.settings()).finish_non_exhaustive()
    }
}
