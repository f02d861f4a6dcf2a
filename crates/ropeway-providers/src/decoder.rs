//! Decodes response events in any dialect.

use std::sync::Arc;

use super::anthropic::AnthropicDecoder;
use super::chat::ChatDecoder;
use super::encoded_request::EncodedRequest;
use super::error::ProviderError;
use super::gemini::GeminiDecoder;
use super::reply::{Reply, ReplyEvent};
use super::responses::ResponsesDecoder;
use ropeway_core::json;
use ropeway_core::lowering::LoweredTools;
use ropeway_core::message::{Dialect, ModelEndpoint};

/// Decodes the response to one request, event by event.
///
/// A decoder does no I/O. [`EncodedRequest::decoder`] creates one.
#[derive(Debug)]
pub struct Decoder(DialectDecoder);

#[derive(Debug)]
enum DialectDecoder {
    Anthropic(AnthropicDecoder),
    Responses(ResponsesDecoder),
    Gemini(GeminiDecoder),
    Chat(ChatDecoder),
}

/// Calls a method on the dialect's decoder.
macro_rules! dispatch {
    ($decoder:expr, $method:ident($($argument:expr),*)) => {
        match $decoder {
            DialectDecoder::Anthropic(decoder) => decoder.$method($($argument),*),
            DialectDecoder::Responses(decoder) => decoder.$method($($argument),*),
            DialectDecoder::Gemini(decoder) => decoder.$method($($argument),*),
            DialectDecoder::Chat(decoder) => decoder.$method($($argument),*),
        }
    };
}

impl Decoder {
    fn new(endpoint: ModelEndpoint, lowered: Arc<LoweredTools>) -> Self {
        Self(match endpoint.dialect {
            Dialect::Anthropic => DialectDecoder::Anthropic(AnthropicDecoder::new(endpoint, lowered)),
            Dialect::Responses => DialectDecoder::Responses(ResponsesDecoder::new(endpoint, lowered)),
            Dialect::Gemini => DialectDecoder::Gemini(GeminiDecoder::new(endpoint, lowered)),
            Dialect::Chat => DialectDecoder::Chat(ChatDecoder::new(endpoint, lowered)),
        })
    }

    /// Decodes one server-sent event's data and appends the result to `events`.
    ///
    /// # Errors
    ///
    /// Fails if the data is not the dialect's JSON, or if it reports a provider error.
    pub fn frame(&mut self, data: &[u8], events: &mut Vec<ReplyEvent>) -> Result<(), ProviderError> {
        // Providers may split a surrogate pair between two events.
        let text = json::decodable(data);
        dispatch!(&mut self.0, frame(text.as_bytes(), events))
    }

    /// Returns `true` if the provider marked the reply's end. Later events are ignored.
    pub fn is_finished(&self) -> bool {
        dispatch!(&self.0, is_finished())
    }

    /// Returns `true` if the stop reason is known. Only usage may still follow.
    pub fn has_stopped(&self) -> bool {
        dispatch!(&self.0, has_stopped())
    }

    /// Completes the reply when the stream ends.
    ///
    /// # Errors
    ///
    /// Returns [`ProviderErrorKind::Truncated`](super::ProviderErrorKind::Truncated) if the reply was cut off.
    pub fn end(&mut self, events: &mut Vec<ReplyEvent>) -> Result<Reply, ProviderError> {
        dispatch!(&mut self.0, end(events))
    }

    /// Returns the token to repeat the request with, if the provider paused the reply.
    pub(super) fn continuation(&mut self) -> Option<String> {
        match &mut self.0 {
            DialectDecoder::Gemini(decoder) => decoder.continuation(),
            _ => None,
        }
    }
}

impl EncodedRequest {
    /// Creates a decoder for the response to this request.
    pub fn decoder(&self) -> Decoder {
        Decoder::new(self.endpoint.clone(), self.lowered.clone())
    }
}
