//! Decoding of malformed and truncated streams.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{input, read, stream, text, text_block, tool_use};
use crate::{ProviderErrorKind, Reply};

/// A reply with every kind of block, as bytes.
fn whole() -> String {
    let thinking = json!({"type": "thinking", "thinking": "", "signature": ""});
    let frames = stream(
        [
            (
                thinking,
                vec![
                    json!({"type": "thinking_delta", "thinking": "hm"}),
                    json!({"type": "signature_delta", "signature": "s"}),
                ],
            ),
            (text_block(), vec![text("Grüße, "), text("\"Welt\"")]),
            (
                json!({"type": "server_tool_use", "id": "s", "name": "search", "input": {}}),
                vec![input("{\"q\":"), input("1}")],
            ),
            (json!({"type": "future", "content": null}), vec![json!({"type": "future_delta", "content": "x"})]),
            (tool_use("a", "t"), vec![input("{\"a\":"), input("1}")]),
        ],
        "tool_use",
    );
    frames.iter().map(|frame| format!("data: {frame}\n\n")).collect()
}

/// Returns the complete events of a stream.
fn frames(stream: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut rest = stream;
    while let Some(end) = rest.windows(2).position(|bytes| bytes == b"\n\n") {
        frames.push(rest["data: ".len()..end].to_vec());
        rest = &rest[end + 2..];
    }
    frames
}

/// Generates JSON that resembles an event.
fn event() -> impl Strategy<Value = Value> {
    let kinds = [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "error",
        "",
    ];
    let kind = proptest::sample::select(kinds.to_vec());
    (kind, field(), field(), field(), field()).prop_map(
        |(kind, index, delta, block, usage)| json!({"type": kind, "index": index, "delta": delta, "content_block": block, "usage": usage, "message": delta}),
    )
}

fn field() -> impl Strategy<Value = Value> {
    let words = [
        "text",
        "thinking",
        "tool_use",
        "future",
        "text_delta",
        "thinking_delta",
        "input_json_delta",
        "signature_delta",
        "citations_delta",
        "refusal",
        "{}",
        "[",
        "",
    ];
    let word = proptest::sample::select(words.to_vec()).prop_map(Value::from);
    let scalar = prop_oneof![4 => word.clone(), 1 => Just(Value::Null), 1 => any::<i64>().prop_map(Value::from), 1 => any::<f64>().prop_map(Value::from)];
    let names = [
        "type",
        "text",
        "thinking",
        "partial_json",
        "signature",
        "citation",
        "stop_reason",
        "stop_details",
        "id",
        "name",
        "input",
        "usage",
        "input_tokens",
    ];
    let name = proptest::sample::select(names.to_vec()).prop_map(str::to_owned);
    let object = proptest::collection::hash_map(name, scalar.clone(), 0..6).prop_map(|fields| json!(fields));
    prop_oneof![1 => scalar, 1 => (0_u64..3).prop_map(Value::from), 4 => object]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_the_decoder_panic(frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..8)) {
        if let Ok(reply) = read(frames).0 {
            prop_assert!(false, "an answer out of nothing: {reply:?}");
        }
    }

    #[test]
    fn no_events_make_the_decoder_panic(events in proptest::collection::vec(event(), 0..20)) {
        if let Err(error) = read(events.iter().map(Value::to_string)).0 {
            prop_assert!(error.kind != ProviderErrorKind::Unreadable, "{error:?}");
        }
    }

    #[test]
    fn a_changed_byte_never_panics(at in any::<proptest::sample::Index>(), byte in any::<u8>()) {
        let mut stream = whole().into_bytes();
        let at = at.index(stream.len());
        stream[at] = byte;
        let text = String::from_utf8_lossy(&stream).into_owned();
        let _ = read(text.split("\n\n").map(|frame| frame.get("data: ".len()..).unwrap_or_default().to_owned()));
    }
}

#[test]
fn a_stream_cut_anywhere_is_truncated_or_complete() {
    let stream = whole().into_bytes();
    let reply: Reply = read(frames(&stream)).0.expect("a reply");
    assert_eq!(reply.message.parts.len(), 5);
    let mut wholes = 0;
    for length in 0..=stream.len() {
        match read(frames(&stream[..length])).0 {
            Ok(cut) => {
                assert_eq!(cut, reply);
                wholes += 1;
            }
            Err(error) => assert_eq!(error.kind, ProviderErrorKind::Truncated),
        }
    }
    // Everything before the stop reason is complete.
    assert_eq!(wholes, "data: {\"type\":\"message_stop\"}\n\n".len() + 1);
}
