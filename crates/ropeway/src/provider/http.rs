//! A provider that can be asked: the half that does the I/O, the same for all dialects.

use std::fmt;
use std::sync::Arc;

use super::stream::ReplyStream;
use super::wire::Wire;
use super::{ChatRequest, ProviderError, Recorder, Recording, Reply, Settings, encode};
use crate::message::Dialect;
use crate::secret::Mask;

/// A provider that can be asked. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Provider {
    pub(super) settings: Arc<Settings>,
    /// Hides what must not be seen, in everything that goes out of here.
    pub(super) mask: Mask,
    pub(super) wire: Wire,
    pub(super) recorder: Option<Recorder>,
}

impl Provider {
    /// A provider with these settings. Nothing is sent yet.
    pub fn new(settings: Settings) -> Result<Self, ProviderError> {
        let mask = settings.secrets();
        let wire = Wire::open(&settings).map_err(|error| error.hidden(&mask))?;
        Ok(Self { settings: Arc::new(settings), mask, wire, recorder: None })
    }

    /// A provider that answers as it did when the recording was made, and needs no connection for it.
    ///
    /// A request gets the first answer that is left of those to it. One that was not recorded is an error that says where it
    /// differs from the next.
    pub fn replaying(settings: Settings, recording: Recording) -> Self {
        let mask = settings.secrets();
        let wire = Wire::replaying(recording);
        Self { settings: Arc::new(settings), mask, wire, recorder: None }
    }

    /// The same provider; what it is asked and what it answers is recorded.
    #[must_use]
    pub fn with_recorder(mut self, recorder: Recorder) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// The dialect that it speaks.
    pub fn dialect(&self) -> Dialect {
        self.settings.dialect
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Asks, and gives the answer piece by piece. The request is sent when the first piece is asked for.
    pub fn stream(&self, request: &ChatRequest<'_>) -> ReplyStream {
        ReplyStream::new(self.clone(), encode(&self.settings, request))
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
