//! A request as this dialect writes it.

use crate::provider::encoded::{Body, headers};
use crate::provider::{ChatRequest, Encoded, ProviderError, Settings};

/// Writes a request.
pub(crate) fn encode(settings: &Settings, request: &ChatRequest<'_>) -> Result<Encoded, ProviderError> {
    let body = Body::new(settings, request);
    body.finish(settings.speaker(request.model), settings.url(""), headers(settings, &[]), None)
}
