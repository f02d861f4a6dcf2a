//! Providers: one request and one answer, in four dialects.
//!
//! The halves that speak are pure: a request becomes bytes ([`encode`]), frames become events ([`Decoder`]). One half does the
//! I/O for all of them ([`Provider`]).

mod anthropic;
mod chat;
mod cost;
mod credentials;
mod decoder;
mod draft;
mod encoded;
mod error;
mod gemini;
mod history;
mod http;
mod media;
mod models;
mod not_taken;
mod piece;
mod record;
mod recording;
mod replay;
mod reply;
mod request;
mod responses;
mod retry;
mod settings;
mod stream;
mod tail;
mod trouble;
mod wire;

pub use self::cost::Cost;
pub use self::decoder::Decoder;
pub use self::encoded::{EncodedRequest, HttpRequest};
pub use self::error::{ProviderError, ProviderErrorKind};
pub use self::http::Provider;
pub use self::media::MediaSupport;
pub use self::record::Recorder;
pub use self::recording::{Exchange, ExchangeEnd, RecordedRequest, Recording, RecordingError};
pub use self::reply::{Reply, ReplyEvent, StopReason, Usage};
pub use self::request::{ChatRequest, OutputError, OutputFormat, ToolChoice};
pub use self::settings::{KeyHeader, ProviderSettings, ProviderTimeouts, Proxy, Quirks, RetryPolicy};
pub use self::stream::ReplyStream;
use crate::message::Dialect;
pub use crate::message::ReasoningEffort;

/// Writes a request in the dialect of the settings. It is pure: nothing is sent.
pub fn encode(settings: &ProviderSettings, request: &ChatRequest<'_>) -> Result<EncodedRequest, ProviderError> {
    if request.is_silent(&settings.speaker(request.model)) {
        let message = "there is no message that the model could answer";
        return Err(ProviderError::new(ProviderErrorKind::Unusable, settings.dialect, message));
    }
    match settings.dialect {
        Dialect::Anthropic => anthropic::encode(settings, request),
        Dialect::Responses => responses::encode(settings, request),
        Dialect::Gemini => gemini::encode(settings, request),
        Dialect::Chat => chat::encode(settings, request),
    }
}
