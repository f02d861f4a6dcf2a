//! Tests of the Gemini dialect.

mod contents;
mod decode;
mod malformed;
mod request;
mod round_trip;

use serde_json::{Value, json};

use crate::{ChatRequest, Decoder, EncodedRequest, ProviderError, ProviderSettings, Reply, ReplyEvent, encode};
use ropeway_core::content::ContentPart;
use ropeway_core::lowering::Toolset;
use ropeway_core::message::{AssistantMessage, AssistantPart, Conversation, Dialect, ModelEndpoint, ToolCall};
use ropeway_core::tool::ToolDefinition;

/// The placeholder signature.
const SKIP: &str = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=";
const NEW: &str = "gemini-3.8-flash";
const OLD: &str = "gemini-2.5-flash";

const PNG: &str = "iVBORw0KGgoAAAAN";
const GIF: &str = "R0lGODlhAQABAAAA";
const WAV: &str = "UklGRiQAAABXQVZF";
const PDF: &str = "JVBERi0xLjcKJeLj";

fn settings() -> ProviderSettings {
    ProviderSettings::new(Dialect::Gemini).with_key("k")
}

/// Encodes a valid request.
fn encoded(settings: &ProviderSettings, request: &ChatRequest<'_>) -> EncodedRequest {
    encode(settings, request).expect("a request")
}

fn body(encoded: &EncodedRequest) -> Value {
    serde_json::from_slice(&encoded.request.body).expect("JSON")
}

/// Encodes the contents of a conversation for a model.
fn contents(model: &str, conversation: &Conversation) -> Value {
    body(&encoded(&settings(), &ChatRequest::new(model, conversation)))["contents"].clone()
}

/// The endpoint of the test settings.
fn endpoint(model: &str) -> ModelEndpoint {
    settings().model_endpoint(model)
}

fn toolset() -> Toolset {
    Toolset::new([
        ToolDefinition::new("get.weather").with_description("The weather of a city."),
        ToolDefinition::new("read file"),
    ])
}

fn image(mime_type: &str, base64: &str) -> ContentPart {
    serde_json::from_value(json!({"type": "image", "data": base64, "mimeType": mime_type})).expect("an image")
}

fn audio(base64: &str) -> ContentPart {
    serde_json::from_value(json!({"type": "audio", "data": base64, "mimeType": "audio/wav"})).expect("a sound")
}

/// Creates a call of a model of another provider.
fn call(id: &str, name: &str) -> ToolCall {
    ToolCall::new(id, name, serde_json::Map::from_iter([("city".to_owned(), json!("Paris"))]))
}

fn calls(calls: &[ToolCall]) -> AssistantMessage {
    AssistantMessage::new(calls.iter().cloned().map(AssistantPart::ToolCall).collect())
}

/// Creates a decoder for a request without tools.
fn decoder() -> Decoder {
    encoded(&settings(), &ChatRequest::new(NEW, &Conversation::new().with("hi"))).decoder()
}

/// Decodes events to a reply.
fn read(frames: &[Value]) -> Result<(Reply, Vec<ReplyEvent>), ProviderError> {
    let conversation = Conversation::new().with("hi");
    let toolset = toolset();
    let mut decoder = encoded(&settings(), &ChatRequest::new(NEW, &conversation).with_tools(&toolset)).decoder();
    let mut events = Vec::new();
    for frame in frames {
        decoder.frame(frame.to_string().as_bytes(), &mut events)?;
        assert!(!decoder.is_finished());
    }
    let reply = decoder.end(&mut events)?;
    Ok((reply, events))
}

/// Creates an event with parts.
fn parts(parts: Value) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}]})
}

/// Creates an event with a finish reason.
fn finish(reason: &str) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": reason, "index": 0}]})
}
