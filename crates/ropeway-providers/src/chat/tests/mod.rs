//! Tests of the Chat Completions dialect.

mod decode;
mod decode_calls;
mod decode_reasoning;
mod encode;
mod encode_results;
mod round_trip;
mod truncated;

use serde_json::{Value, json};

use super::ChatDecoder;
use crate::{ProviderError, Reply, ReplyEvent};
use ropeway_core::lowering::LoweredTools;
use ropeway_core::message::{Dialect, ModelEndpoint};

fn endpoint() -> ModelEndpoint {
    ModelEndpoint { dialect: Dialect::Chat, endpoint: "http://127.0.0.1:8080".to_owned(), model: "m".to_owned() }
}

/// Creates a chunk with a delta.
fn delta(delta: Value) -> Value {
    json!({"id": "a1", "object": "chat.completion.chunk", "model": "m-1", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

/// Creates a chunk with a finish reason.
fn finish(reason: &str) -> Value {
    json!({"id": "a1", "model": "m-1", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

/// Decodes events.
fn read_frames<'a>(frames: impl IntoIterator<Item = &'a [u8]>) -> Result<(Vec<ReplyEvent>, Reply), ProviderError> {
    let mut decoder = ChatDecoder::new(endpoint(), std::sync::Arc::new(LoweredTools::default()));
    let mut events = Vec::new();
    for frame in frames {
        decoder.frame(frame, &mut events)?;
    }
    let reply = decoder.end(&mut events)?;
    Ok((events, reply))
}

/// Decodes chunks followed by `[DONE]`.
fn read(chunks: &[Value]) -> Result<(Vec<ReplyEvent>, Reply), ProviderError> {
    let texts: Vec<String> = chunks.iter().map(Value::to_string).chain(["[DONE]".to_owned()]).collect();
    read_frames(texts.iter().map(String::as_bytes))
}

fn events(chunks: &[Value]) -> Vec<ReplyEvent> {
    read(chunks).expect("a reply").0
}

fn reply(chunks: &[Value]) -> Reply {
    read(chunks).expect("a reply").1
}

fn error_of(chunks: &[Value]) -> ProviderError {
    read(chunks).expect_err("no answer")
}

/// Returns the parts of a reply in their saved form.
fn parts(chunks: &[Value]) -> Value {
    json!(reply(chunks).message.parts)
}
