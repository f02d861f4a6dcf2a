//! A provider that can be asked: the half that does the I/O, the same for all dialects.

use std::fmt;
use std::sync::Arc;

use super::media::NotTaken;
use super::stream::ReplyStream;
use super::wire::Wire;
use super::{
    ChatRequest, EncodedRequest, MediaSupport, ProviderError, ProviderSettings, Recorder, Recording, Reply, encode,
};
use crate::message::Dialect;
use crate::secret::Redactor;

/// A provider that can be asked. Cheap to clone; clones share their connections, and what they know of the models.
#[derive(Clone)]
pub struct Provider {
    pub(super) settings: Arc<ProviderSettings>,
    /// Hides what must not be seen, in everything that goes out of here.
    pub(super) mask: Redactor,
    pub(super) wire: Wire,
    pub(super) recorder: Option<Recorder>,
    pub(super) not_taken: NotTaken,
}

impl Provider {
    /// A provider with these settings. Nothing is sent yet.
    pub fn new(settings: ProviderSettings) -> Result<Self, ProviderError> {
        let mask = settings.secrets();
        let wire = Wire::open(&settings).map_err(|error| error.hidden(&mask))?;
        Ok(Self { settings: Arc::new(settings), mask, wire, recorder: None, not_taken: NotTaken::default() })
    }

    /// A provider that answers as it did when the recording was made, and needs no connection for it.
    ///
    /// A request gets the first answer that is left of those to it. One that was not recorded is an error that says where it
    /// differs from the next.
    pub fn replaying(settings: ProviderSettings, recording: Recording) -> Self {
        let mask = settings.secrets();
        let wire = Wire::replaying(recording);
        Self { settings: Arc::new(settings), mask, wire, recorder: None, not_taken: NotTaken::default() }
    }

    /// The same provider; what it is asked and what it answers is recorded.
    #[must_use]
    pub fn with_recorder(mut self, recorder: Recorder) -> Self {
        self.recorder = Some(recorder);
        // Whoever hears the recording again knows nothing of the models either.
        self.not_taken = NotTaken::default();
        self
    }

    /// The dialect that it speaks.
    pub fn dialect(&self) -> Dialect {
        self.settings.dialect
    }

    /// Its settings.
    pub fn settings(&self) -> &ProviderSettings {
        &self.settings
    }

    /// Asks, and gives the answer piece by piece. The request is sent when the first piece is asked for.
    ///
    /// A request with pictures, sounds or documents that is refused is sent once more, with all of them told in words, and a
    /// warning says so. Of a model that takes none of them that is known from then on, and they are told in words at once.
    pub fn stream(&self, request: &ChatRequest<'_>) -> ReplyStream {
        // Anthropic itself takes a text with a name; not all who speak like it do.
        let texts_too = self.settings.dialect == Dialect::Anthropic && !self.settings.is_anthropic();
        let media = MediaSupport::within(request.conversation, texts_too);
        if self.settings.in_words(request).holds(media) {
            return ReplyStream::new(self.clone(), encode(&self.settings, request), None);
        }
        let asking = |in_words: MediaSupport| {
            let in_words = request.in_words.and(in_words);
            encode(&self.settings, &ChatRequest { in_words, ..request.clone() })
        };
        let encoded = asking(self.not_taken.by(request.model));
        let is_another = |in_words: &EncodedRequest| {
            encoded.as_ref().is_ok_and(|encoded| encoded.request.body != in_words.request.body)
        };
        let in_words = asking(MediaSupport::ALL).ok().filter(is_another);
        ReplyStream::new(self.clone(), encoded, in_words)
    }

    /// Asks, and gives the whole answer: the stream, finished.
    pub fn complete(
        &self,
        request: &ChatRequest<'_>,
    ) -> impl Future<Output = Result<Reply, ProviderError>> + Send + use<> {
        self.stream(request).finish()
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("settings", &self.settings).finish_non_exhaustive()
    }
}
