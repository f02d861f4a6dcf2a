//! Encodes a request in a provider's dialect.

use super::encoded_request::EncodedRequest;
use super::error::ProviderError;
use super::request::ChatRequest;
use super::settings::ProviderSettings;
use super::{anthropic, chat, gemini, responses};
use ropeway_core::message::Dialect;

/// Encodes a request in the dialect that the settings name, without sending it.
///
/// # Errors
///
/// Returns [`ProviderErrorKind::Unusable`](super::ProviderErrorKind::Unusable) if the conversation has no message to answer, if
/// the tool choice names a tool that is not offered, or if the output schema cannot be expressed in the dialect.
pub fn encode(settings: &ProviderSettings, request: &ChatRequest<'_>) -> Result<EncodedRequest, ProviderError> {
    if request.is_empty(&settings.model_endpoint(request.model)) {
        return Err(ProviderError::unusable(settings.dialect, "the conversation has no message to answer"));
    }
    match settings.dialect {
        Dialect::Anthropic => anthropic::encode(settings, request),
        Dialect::Responses => responses::encode(settings, request),
        Dialect::Gemini => gemini::encode(settings, request),
        Dialect::Chat => chat::encode(settings, request),
    }
}
