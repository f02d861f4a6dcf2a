//! Tests of the Anthropic dialect.

mod calls;
mod content;
mod decode;
mod malformed;
mod request;
mod round_trip;
mod tools;

use serde_json::{Value, json};

use crate::{ChatRequest, EncodedRequest, ProviderError, ProviderSettings, Reply, ReplyEvent, encode};
use ropeway_core::message::{Conversation, Dialect};

fn settings() -> ProviderSettings {
    ProviderSettings::new(Dialect::Anthropic)
}

/// Creates a conversation from its saved messages.
fn conversation(messages: Value) -> Conversation {
    ropeway_core::json::from_str(&json!({"messages": messages}).to_string()).expect("a conversation")
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": [{"type": "text", "text": text}]})
}

/// Creates a message of the same endpoint.
fn native(parts: Value) -> Value {
    let from = json!({"dialect": "anthropic", "endpoint": "https://api.anthropic.com", "model": "claude"});
    json!({"role": "assistant", "from": from, "parts": parts})
}

fn body(encoded: &EncodedRequest) -> Value {
    serde_json::from_slice(&encoded.request.body).expect("JSON")
}

/// Returns the encoded messages of a conversation.
fn messages(messages: Value) -> Value {
    let conversation = conversation(messages);
    let encoded = encode(&settings(), &ChatRequest::new("claude", &conversation)).expect("a request");
    body(&encoded)["messages"].take()
}

/// Decodes events to a reply.
fn read<T: AsRef<[u8]>>(frames: impl IntoIterator<Item = T>) -> (Result<Reply, ProviderError>, Vec<ReplyEvent>) {
    let conversation = conversation(json!([user("hi")]));
    let encoded = encode(&settings(), &ChatRequest::new("claude", &conversation)).expect("a request");
    let mut decoder = encoded.decoder();
    let mut events = Vec::new();
    for frame in frames {
        if let Err(error) = decoder.frame(frame.as_ref(), &mut events) {
            return (Err(error), events);
        }
        if decoder.is_finished() {
            break;
        }
    }
    let reply = decoder.end(&mut events);
    (reply, events)
}

fn reply(frames: impl IntoIterator<Item = Value>) -> Reply {
    read(frames.into_iter().map(|frame| frame.to_string())).0.expect("a reply")
}

/// Returns the events of a complete reply: each block with its deltas.
fn stream<const N: usize>(blocks: [(Value, Vec<Value>); N], stop: &str) -> Vec<Value> {
    let mut frames = vec![start()];
    for (index, (block, deltas)) in blocks.into_iter().enumerate() {
        frames.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        frames.extend(deltas.into_iter().map(|delta| delta_of(index, delta)));
        frames.push(json!({"type": "content_block_stop", "index": index}));
    }
    frames.push(stop_with(json!({"stop_reason": stop, "stop_sequence": null})));
    frames.push(json!({"type": "message_stop"}));
    frames
}

fn start() -> Value {
    let usage = json!({"input_tokens": 10, "output_tokens": 1});
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-5", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage});
    json!({"type": "message_start", "message": message})
}

fn delta_of(index: usize, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop_with(delta: Value) -> Value {
    json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}})
}

fn text_block() -> Value {
    json!({"type": "text", "text": ""})
}

fn text(text: &str) -> Value {
    json!({"type": "text_delta", "text": text})
}

fn tool_use(id: &str, name: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": name, "input": {}})
}

fn input(json: &str) -> Value {
    json!({"type": "input_json_delta", "partial_json": json})
}
