//! Decoding of malformed and truncated streams.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{delta, finish, read_frames};
use crate::ProviderErrorKind;

/// Field names of the API and its servers, for generated chunks.
const NAMES: [&str; 24] = [
    "id",
    "model",
    "object",
    "choices",
    "usage",
    "error",
    "index",
    "delta",
    "message",
    "finish_reason",
    "content",
    "refusal",
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "tool_calls",
    "function_call",
    "function",
    "name",
    "arguments",
    "type",
    "text",
    "thinking",
    "unknown",
];

/// Generates JSON that resembles a chunk.
fn chunk() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop_oneof!["[a-z{}\"]{0,4}", Just("stop".to_owned()), Just("{}".to_owned()), Just("text".to_owned())]
            .prop_map(Value::from),
    ];
    let any_json = leaf.prop_recursive(5, 48, 4, |inner| {
        let field = (prop::sample::select(&NAMES[..]), inner.clone());
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            prop::collection::vec(field, 0..6).prop_map(|fields| Value::Object(
                fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            )),
        ]
    });
    let fields = prop::collection::vec((prop::sample::select(&NAMES[..]), any_json), 0..6);
    fields.prop_map(|fields| {
        let delta: Map<String, Value> = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        json!({"choices": [{"delta": delta}]})
    })
}

fn stream() -> Vec<String> {
    let chunks = [
        delta(json!({"role": "assistant", "content": "", "reasoning_content": "hm"})),
        delta(json!({"content": "Checking"})),
        delta(json!({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "look", "arguments": "{\"a\""}}]})),
        delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]})),
        delta(json!({"tool_calls": [{"index": 1, "id": "c2", "function": {"name": "look", "arguments": "{}"}}]})),
        finish("tool_calls"),
        json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}),
    ];
    chunks.iter().map(Value::to_string).chain(["[DONE]".to_owned()]).collect()
}

#[test]
fn a_stream_cut_between_events_is_truncated_or_complete() {
    let stream = stream();
    let read = |length: usize| read_frames(stream[..length].iter().map(String::as_bytes));
    let mut whole = read(stream.len()).expect("a reply").1;
    for length in 0..6 {
        assert_eq!(read(length).expect_err("a part").kind, ProviderErrorKind::Truncated, "{length}");
    }
    assert_eq!(read(7).expect("a reply").1, whole);
    whole.usage = Default::default();
    assert_eq!(read(6).expect("a reply").1, whole);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..6)) {
        let _ = read_frames(frames.iter().map(Vec::as_slice));
    }

    #[test]
    fn no_chunk_panics_and_text_is_emitted(chunks in prop::collection::vec(chunk(), 0..6)) {
        let frames: Vec<String> = chunks.iter().map(Value::to_string).chain([finish("stop").to_string()]).collect();
        if let Ok((events, reply)) = read_frames(frames.iter().map(String::as_bytes)) {
            let told: String = events.iter().filter_map(|event| match event {
                crate::ReplyEvent::Text(text) => Some(text.as_str()),
                _ => None,
            }).collect();
// Text of several parts may be emitted in another order.
            prop_assert_eq!(told.len(), reply.message.to_text().len());
        }
    }

    #[test]
    fn a_stream_cut_anywhere_is_an_error_or_complete(frame in 0usize..8, at in 0usize..200) {
        let mut stream = stream();
        stream.truncate(frame + 1);
        let cut = at.min(stream[frame].len());
        stream[frame].truncate(cut);
        match read_frames(stream.iter().map(String::as_bytes)) {
            Ok((_, reply)) => prop_assert_eq!(reply.message.calls().count(), 2),
            Err(error) => prop_assert!(matches!(error.kind, ProviderErrorKind::Truncated | ProviderErrorKind::Unreadable), "{:?}", error),
        }
    }
}
