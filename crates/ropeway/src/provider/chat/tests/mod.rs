//! How Chat Completions are written and read.

mod cut;
mod reading;
mod reading_calls;
mod reading_thoughts;
mod round_trip;
mod writing;
mod writing_results;

use serde_json::{Value, json};

use super::Decoder;
use crate::lowering::LoweredTools;
use crate::message::{Dialect, ModelEndpoint};
use crate::provider::{ProviderError, Reply, ReplyEvent};

fn speaker() -> ModelEndpoint {
    ModelEndpoint { dialect: Dialect::Chat, endpoint: "http://127.0.0.1:8080".to_owned(), model: "m".to_owned() }
}

/// A chunk that holds a delta.
fn delta(delta: Value) -> Value {
    json!({"id": "a1", "object": "chat.completion.chunk", "model": "m-1", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

/// A chunk that ends the answer.
fn finish(reason: &str) -> Value {
    json!({"id": "a1", "model": "m-1", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

/// What a decoder makes of frames, be the last word said or not.
fn read_frames<'a>(frames: impl IntoIterator<Item = &'a [u8]>) -> Result<(Vec<ReplyEvent>, Reply), ProviderError> {
    let mut decoder = Decoder::new(speaker(), std::sync::Arc::new(LoweredTools::default()));
    let mut events = Vec::new();
    for frame in frames {
        decoder.frame(frame, &mut events)?;
    }
    let reply = decoder.end(&mut events)?;
    Ok((events, reply))
}

/// What a decoder makes of chunks and the last word.
fn read(chunks: &[Value]) -> Result<(Vec<ReplyEvent>, Reply), ProviderError> {
    let texts: Vec<String> = chunks.iter().map(Value::to_string).chain(["[DONE]".to_owned()]).collect();
    read_frames(texts.iter().map(String::as_bytes))
}

fn events(chunks: &[Value]) -> Vec<ReplyEvent> {
    read(chunks).expect("an answer").0
}

fn reply(chunks: &[Value]) -> Reply {
    read(chunks).expect("an answer").1
}

fn trouble(chunks: &[Value]) -> ProviderError {
    read(chunks).expect_err("no answer")
}

/// The parts of an answer, as they are saved.
fn parts(chunks: &[Value]) -> Value {
    json!(reply(chunks).message.parts)
}
