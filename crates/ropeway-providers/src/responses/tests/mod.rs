//! Tests of the Responses dialect.

mod decode;
mod encode;
mod malformed;
mod round_trip;
mod stream;

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::{ChatRequest, Decoder, EncodedRequest, ProviderError, ProviderSettings, Reply, ReplyEvent};
use ropeway_core::lowering::Toolset;
use ropeway_core::message::{Conversation, Dialect};
use ropeway_core::tool::ToolDefinition;

fn openai() -> ProviderSettings {
    ProviderSettings::new(Dialect::Responses).with_key("sk-test")
}

fn local() -> ProviderSettings {
    ProviderSettings::new(Dialect::Responses).with_base_url("http://127.0.0.1:18082/v1")
}

fn encode(settings: &ProviderSettings, request: &ChatRequest<'_>) -> EncodedRequest {
    crate::encode(settings, request).expect("a request")
}

fn body(settings: &ProviderSettings, request: &ChatRequest<'_>) -> Value {
    serde_json::from_slice(&encode(settings, request).request.body).expect("JSON")
}

/// Returns the encoded items of a conversation.
fn input(settings: &ProviderSettings, conversation: &Conversation) -> Value {
    body(settings, &ChatRequest::new("m", conversation))["input"].take()
}

fn conversation(messages: Value) -> Conversation {
    serde_json::from_value(json!({ "messages": messages })).expect("a conversation")
}

/// Tools, some with names that the API rejects.
fn tools() -> Toolset {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    Toolset::new(["weather", "files.read"].map(|name| ToolDefinition::new(name).with_input_schema(schema.clone())))
}

fn decoder() -> Decoder {
    static ENCODED: LazyLock<EncodedRequest> = LazyLock::new(|| {
        let (conversation, tools) = (Conversation::new().with("hi"), tools());
        encode(&openai(), &ChatRequest::new("m", &conversation).with_tools(&tools))
    });
    ENCODED.decoder()
}

/// Decodes events up to the first error.
fn decode_all(frames: &[Value]) -> (Vec<ReplyEvent>, Result<Reply, ProviderError>) {
    let (mut decoder, mut events) = (decoder(), Vec::new());
    for frame in frames {
        if let Err(error) = decoder.frame(frame.to_string().as_bytes(), &mut events) {
            return (events, Err(error));
        }
    }
    let reply = decoder.end(&mut events);
    (events, reply)
}

fn reply(frames: &[Value]) -> Reply {
    decode_all(frames).1.expect("a reply")
}

/// Returns the text of events.
fn text(events: &[ReplyEvent]) -> String {
    let texts = events.iter().filter_map(|event| match event {
        ReplyEvent::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

fn message(id: &str, text: &str) -> Value {
    json!({"type": "message", "id": id, "role": "assistant", "status": "completed", "content": [
        {"type": "output_text", "text": text, "annotations": []}]})
}

fn call(number: usize, arguments: &str) -> Value {
    json!({"type": "function_call", "id": format!("fc_{number}"), "call_id": format!("call_{number}"), "name": "weather",
        "arguments": arguments, "status": "completed"})
}

fn completed(output: Value) -> Value {
    json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": output}})
}

fn delta(item: &str, text: &str) -> Value {
    json!({"type": "response.output_text.delta", "item_id": item, "output_index": 0, "content_index": 0, "delta": text})
}
