//! Decoding of malformed and truncated streams.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{decoder, finish, parts, read};
use crate::{ProviderError, ProviderErrorKind, Reply, ReplyEvent};
use ropeway_web::SseParser;

/// A stream with every kind of part, as bytes.
fn stream() -> Vec<u8> {
    let mut last = finish("STOP");
    last["usageMetadata"] = json!({"promptTokenCount": 5, "candidatesTokenCount": 7});
    let frames = [
        parts(json!([{"text": "hm ü", "thought": true}])),
        parts(json!([{"text": "a"}, {"text": "b", "thoughtSignature": "s"}])),
        parts(json!([{"functionCall": {"name": "t", "args": {"a": "😀"}, "id": "x"}, "thoughtSignature": "s"}])),
        parts(json!([{"executableCode": {"code": "1"}}])),
        last,
        json!({"usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 8}}),
    ];
    frames.iter().flat_map(|frame| format!("data: {frame}\r\n\r\n").into_bytes()).collect()
}

fn frames(bytes: &[u8]) -> Vec<Bytes> {
    let mut frames = Vec::new();
    SseParser::new(1 << 20).push(bytes, |event| frames.push(event.data));
    frames
}

fn read_bytes(bytes: &[u8]) -> Result<Reply, ProviderError> {
    let mut decoder = decoder();
    for frame in frames(bytes) {
        decoder.frame(&frame, &mut Vec::new())?;
    }
    decoder.end(&mut Vec::new())
}

#[test]
fn a_stream_cut_anywhere_is_truncated_or_complete() {
    let stream = stream();
    let whole = read_bytes(&stream).expect("a reply");
    let mut complete = 0;
    for end in 0..stream.len() {
        match read_bytes(&stream[..end]) {
            Ok(reply) => {
                complete += 1;
                assert_eq!((reply.message, reply.stop), (whole.message.clone(), whole.stop.clone()));
            }
            Err(error) => assert_eq!(error.kind, ProviderErrorKind::Truncated, "{end}"),
        }
    }
    // Only the last event, which has only usage, and the newline before it may be missing.
    let last = frames(&stream).pop().expect("a frame");
    assert_eq!(complete, "\n".len() + "data: \r\n\r\n".len() + last.len());
}

/// Generates JSON that resembles a response.
fn odd_frame() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        Just(json!(0)),
        Just(json!(-3.5)),
        Just(json!(true)),
        Just(json!("STOP")),
        Just(json!("")),
        Just(json!("CONTINUATION")),
        Just(json!("x"))
    ];
    let names = [
        "candidates",
        "content",
        "parts",
        "text",
        "thought",
        "thoughtSignature",
        "functionCall",
        "function_call",
        "name",
        "args",
        "id",
        "index",
        "finishReason",
        "continuationToken",
        "usageMetadata",
        "promptTokenCount",
        "promptFeedback",
        "blockReason",
        "error",
        "other",
    ];
    leaf.prop_recursive(6, 48, 5, move |inner| {
        let name = proptest::sample::select(names.to_vec()).prop_map(str::to_owned);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((name, inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Generates a part.
fn odd_part() -> impl Strategy<Value = Value> {
    prop_oneof![
        ("[a-c]{0,2}", any::<bool>(), proptest::option::of("[s-t]{0,1}")).prop_map(|(text, thought, signature)| {
            json!({"text": text, "thought": thought, "thoughtSignature": signature})
        }),
        (proptest::option::of("[a-b]{0,1}"), odd_frame(), proptest::option::of("[0-9]{0,1}"))
            .prop_map(|(name, args, id)| json!({"functionCall": {"name": name, "args": args, "id": id}})),
        odd_frame().prop_map(|value| json!({"surprise": value})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_the_decoder_panic(frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..4)) {
        let mut decoder = decoder();
        for frame in frames {
            let _ = decoder.frame(&frame, &mut Vec::new());
        }
        let _ = (decoder.continuation(), decoder.end(&mut Vec::new()));
    }

    #[test]
    fn no_frames_make_the_decoder_panic(frames in proptest::collection::vec(odd_frame(), 0..6)) {
        let mut decoder = decoder();
        for frame in frames {
            let _ = decoder.frame(frame.to_string().as_bytes(), &mut Vec::new());
            let _ = decoder.continuation();
        }
        let _ = decoder.end(&mut Vec::new());
    }

    #[test]
    fn all_text_is_emitted_in_order(sent in proptest::collection::vec(odd_part(), 0..8)) {
        let text = |thought: bool| -> String {
            let texts = sent.iter().filter(|part| part["thought"].as_bool().unwrap_or_default() == thought);
            texts.filter_map(|part| part["text"].as_str()).collect()
        };
        let frames: Vec<Value> = sent.iter().map(|part| parts(json!([part]))).chain([finish("STOP")]).collect();
        let (reply, events) = read(&frames).expect("a reply");
        let mut told = (String::new(), String::new());
        for event in &events {
            match event {
                ReplyEvent::Text(delta) => told.0.push_str(delta),
                ReplyEvent::Reasoning(delta) => told.1.push_str(delta),
                _ => {}
            }
        }
        prop_assert_eq!(told, (text(false), text(true)));
        let named = sent.iter().filter(|part| part["functionCall"]["name"].as_str().is_some_and(|name| !name.is_empty()));
        prop_assert_eq!(reply.message.calls().count(), named.count());
        prop_assert_eq!(reply.message.to_text(), text(false));
    }
}
