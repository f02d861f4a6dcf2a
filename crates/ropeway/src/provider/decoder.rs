//! A decoder: frames of an answer in, events out.

use std::sync::Arc;

use super::{ProviderError, Reply, ReplyEvent, anthropic, chat, gemini, responses};
use crate::json;
use crate::lowering::LoweredTools;
use crate::message::{Dialect, ModelEndpoint};

/// Reads the answer to one request, frame by frame. It is pure: what goes in decides what comes out.
#[derive(Debug)]
pub struct Decoder(Kind);

#[derive(Debug)]
enum Kind {
    Anthropic(anthropic::Decoder),
    Responses(responses::Decoder),
    Gemini(gemini::Decoder),
    Chat(chat::Decoder),
}

impl Decoder {
    pub(super) fn new(speaker: ModelEndpoint, lowered: Arc<LoweredTools>) -> Self {
        Self(match speaker.dialect {
            Dialect::Anthropic => Kind::Anthropic(anthropic::Decoder::new(speaker, lowered)),
            Dialect::Responses => Kind::Responses(responses::Decoder::new(speaker, lowered)),
            Dialect::Gemini => Kind::Gemini(gemini::Decoder::new(speaker, lowered)),
            Dialect::Chat => Kind::Chat(chat::Decoder::new(speaker, lowered)),
        })
    }

    /// Takes the data of one server-sent event and adds what it tells to `events`.
    pub fn frame(&mut self, data: &[u8], events: &mut Vec<ReplyEvent>) -> Result<(), ProviderError> {
        // Providers cut text between two code units, too: half an emoji at the end of one event, half at the start of the next.
        let text = json::decodable(data);
        let data = text.as_bytes();
        match &mut self.0 {
            Kind::Anthropic(decoder) => decoder.frame(data, events),
            Kind::Responses(decoder) => decoder.frame(data, events),
            Kind::Gemini(decoder) => decoder.frame(data, events),
            Kind::Chat(decoder) => decoder.frame(data, events),
        }
    }

    /// Has the answer said that it is over? What comes after is not waited for.
    pub fn is_over(&self) -> bool {
        match &self.0 {
            Kind::Anthropic(decoder) => decoder.is_over(),
            Kind::Responses(decoder) => decoder.is_over(),
            Kind::Gemini(decoder) => decoder.is_over(),
            Kind::Chat(decoder) => decoder.is_over(),
        }
    }

    /// Has the answer said why it stopped? What may still come is its bill.
    pub(crate) fn has_stopped(&self) -> bool {
        match &self.0 {
            Kind::Anthropic(decoder) => decoder.has_stopped(),
            Kind::Responses(decoder) => decoder.has_stopped(),
            Kind::Gemini(decoder) => decoder.has_stopped(),
            Kind::Chat(decoder) => decoder.has_stopped(),
        }
    }

    /// Takes the end of the stream: the whole answer, or an error if it broke off.
    pub fn end(&mut self, events: &mut Vec<ReplyEvent>) -> Result<Reply, ProviderError> {
        match &mut self.0 {
            Kind::Anthropic(decoder) => decoder.end(events),
            Kind::Responses(decoder) => decoder.end(events),
            Kind::Gemini(decoder) => decoder.end(events),
            Kind::Chat(decoder) => decoder.end(events),
        }
    }

    /// The provider wants the same request again with this token, and goes on with the same answer.
    pub(super) fn continuation(&mut self) -> Option<String> {
        match &mut self.0 {
            Kind::Gemini(decoder) => decoder.continuation(),
            _ => None,
        }
    }
}
