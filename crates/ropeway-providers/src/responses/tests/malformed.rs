//! Decoding of malformed and truncated streams.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::stream::CAREFUL;
use super::{call, completed, decode_all, decoder, delta, message, reply, text};
use crate::{ProviderErrorKind, Usage};
use ropeway_web::SseParser;

#[test]
fn unknown_events_and_fields_are_ignored() {
    let stream = [
        json!({"type": "response.from_the_future", "item": 5}),
        json!({"type": "response.output_item.added", "item": null}),
        json!({"type": "response.output_item.done"}),
        json!({"type": 5}),
        json!([1, 2]),
        json!(null),
        json!("text"),
        json!({}),
        json!({"type": "response.output_text.delta", "item_id": null, "output_index": "0", "content_index": -1, "delta": "Hel"}),
        json!({"type": "response.output_text.delta", "delta": "lo", "logprobs": [{"token": "lo"}]}),
        json!({"type": "response.output_text.delta", "delta": {"odd": 1}}),
        json!({"type": "response.function_call_arguments.delta", "item_id": "nobody", "delta": "{"}),
        json!({"type": "response.completed", "response": {"output": [5, null], "usage": {"input_tokens": "many", "output_tokens": 3}}}),
    ];
    let (events, reply) = decode_all(&stream);
    assert_eq!(text(&events), "Hello");
    assert_eq!(reply.expect("a reply").usage, Usage { output: 3, ..Usage::default() });
}

#[test]
fn fields_that_repeat_the_request_are_skipped() {
    // Nested more deeply than a `Value` may be.
    let tools = (0..200).fold(json!([]), |inner, _| json!({"properties": inner}));
    let response =
        |status: &str| json!({"id": "resp_1", "status": status, "tools": tools, "usage": {"output_tokens": 3}});
    let stream = [
        json!({"type": "response.created", "response": response("in_progress")}),
        delta("msg_1", "Hello"),
        json!({"type": "response.completed", "response": response("completed")}),
    ];
    let (events, reply) = decode_all(&stream);
    let reply = reply.expect("a reply");
    assert_eq!((text(&events).as_str(), reply.id.as_deref(), reply.usage.output), ("Hello", Some("resp_1"), 3));
}

#[test]
fn repeated_fields_and_empty_errors_do_not_change_the_outcome() {
    let failed = r#"{"type": "response.completed", "response": {"id": "r", "id": "r", "status": "failed",
        "error": {"code": "rate_limit_exceeded", "message": "slow down"}}}"#;
    let error = decoder().frame(failed.as_bytes(), &mut Vec::new()).expect_err("a failure");
    assert_eq!(error.kind, ProviderErrorKind::RateLimited);
    let deep = "[".repeat(140) + &"]".repeat(140);
    for event in [
        format!(r#"{{"type": "error", "code": "rate_limit_exceeded", "message": "slow down", "more": {deep}}}"#),
        format!(r#"{{"type": "response.completed", "response": {{"status": "completed", "output": {deep}}}}}"#),
        format!(r#"{{"type": "response.output_item.done", "item": {deep}}}"#),
    ] {
        let error = decoder().frame(event.as_bytes(), &mut Vec::new()).expect_err("too deep");
        assert_eq!(error.kind, ProviderErrorKind::Unreadable, "{event}");
    }
    let with_error = |error: Value| {
        let mut event = delta("msg_1", "Hello");
        event["error"] = error;
        decode_all(&[event, completed(json!([]))])
    };
    for error in [json!(null), json!(""), json!(false), json!({})] {
        let (events, reply) = with_error(error);
        assert_eq!((text(&events).as_str(), reply.is_ok()), ("Hello", true));
    }
    let (_, reply) = with_error(json!({"message": "slow down"}));
    assert!(reply.is_err());
    let lists = [json!({"type": "response.created", "response": ["id", "model"]}), json!(["response.created"])];
    let (_, reply) = decode_all(&[&lists[..], &[completed(json!([]))]].concat());
    assert_ne!(reply.expect("a reply").id.as_deref(), Some("id"));
}

#[test]
fn errors_are_reported_in_every_shape() {
    let rate = "rate_limit_exceeded";
    let shapes = [
        json!({"type": "error", "sequence_number": 2, "code": rate, "message": "slow down", "param": null}),
        json!({"type": "error", "error": {"code": rate, "message": "slow down"}}),
        json!({"error": {"code": rate, "message": "slow down"}}),
        json!({"type": "response.error", "error": {"code": rate, "message": "slow down"}}),
        json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": rate, "message": "slow down"}}}),
        json!({"type": "response.completed", "response": {"status": "failed", "error": {"code": rate, "message": "slow down"}}}),
    ];
    for shape in shapes {
        let (events, reply) = decode_all(&[delta("msg_1", "Hel"), shape.clone(), delta("msg_1", "lo")]);
        let error = reply.expect_err("an error");
        assert_eq!(
            (error.kind, error.code.as_deref(), text(&events).as_str()),
            (ProviderErrorKind::RateLimited, Some(rate), "Hel"),
            "{shape}"
        );
        assert!(error.to_string().ends_with("slow down"), "{error}");
    }
    let (_, silent) = decode_all(&[json!({"type": "response.failed"})]);
    let error = silent.expect_err("an error");
    assert_eq!(
        (error.kind, error.to_string().as_str()),
        (ProviderErrorKind::Server, "the provider failed without a reason")
    );
    let too_long = json!({"type": "error", "code": "context_length_exceeded", "message": "too long"});
    assert!(decode_all(&[too_long]).1.expect_err("an error").is_context_length());
}

#[test]
fn a_reply_cannot_complete_after_an_error() {
    let (mut decoder, mut events) = (decoder(), Vec::new());
    decoder.frame(b"{\"type\":\"error\",\"message\":\"x\"}", &mut events).expect_err("an error");
    assert!(decoder.is_finished());
    decoder.frame(completed(json!([])).to_string().as_bytes(), &mut events).expect("passed over");
    assert_eq!(decoder.end(&mut events).expect_err("no answer").kind, ProviderErrorKind::Truncated);
}

#[test]
fn invalid_json_is_unreadable() {
    for data in [&b"{\"type\":"[..], b"<html>", b"\xff\xfe", b"{} {}"] {
        let error = decoder().frame(data, &mut Vec::new()).expect_err("unreadable");
        assert_eq!(
            (error.kind, error.to_string().as_str()),
            (ProviderErrorKind::Unreadable, "an event of the reply is not JSON")
        );
    }
    decoder().frame(b" ", &mut Vec::new()).expect("nothing");
}

#[test]
fn done_ends_the_stream_but_not_the_reply() {
    let mut events = Vec::new();
    let mut whole = decoder();
    whole.frame(completed(json!([])).to_string().as_bytes(), &mut events).expect("the end");
    assert!(whole.is_finished());
    whole.frame(b"[DONE]", &mut events).expect("the end again");
    whole.end(&mut events).expect("a reply");

    let mut cut = decoder();
    cut.frame(delta("msg_1", "Hel").to_string().as_bytes(), &mut events).expect("a piece");
    assert!(!cut.is_finished());
    cut.frame(b"[DONE]", &mut events).expect("the end");
    assert!(cut.is_finished());
    assert_eq!(cut.end(&mut events).expect_err("no answer").kind, ProviderErrorKind::Truncated);
}

/// Serializes events to a stream.
fn bytes(frames: &[Value]) -> Vec<u8> {
    let event = |frame: &Value| format!("event: {}\ndata: {frame}\n\n", frame["type"].as_str().unwrap_or_default());
    frames.iter().map(event).collect::<String>().into_bytes()
}

#[test]
fn a_stream_cut_anywhere_is_truncated_or_complete() {
    let frames = CAREFUL.stream(&[
        json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}),
        message("msg_1", "Hello ä"),
        call(1, "{\"city\": \"Paris\"}"),
    ]);
    let (stream, whole) = (bytes(&frames), reply(&frames));
    for end in 0..=stream.len() {
        let (mut decoder, mut parser, mut events) = (decoder(), SseParser::new(1 << 20), Vec::new());
        parser.push(&stream[..end], |event| decoder.frame(&event.data, &mut events).expect("a frame"));
        match decoder.end(&mut events) {
            Ok(reply) => assert_eq!((reply, end), (whole.clone(), stream.len())),
            Err(error) => assert_eq!(error.kind, ProviderErrorKind::Truncated),
        }
    }
}

fn frame() -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(vec![
        "response.created",
        "response.output_item.added",
        "response.output_item.done",
        "response.content_part.added",
        "response.content_part.done",
        "response.output_text.delta",
        "response.output_text.done",
        "response.refusal.delta",
        "response.refusal.done",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.completed",
        "response.incomplete",
        "odd",
    ]);
    let id = prop::sample::select(vec!["", "a", "b"]);
    let number = prop::option::of(0..3u64);
    let item = prop::sample::select(vec!["message", "reasoning", "function_call", "odd"]);
    (kind, id, number, item, "[a-z{}\"ä]{0,3}").prop_map(|(kind, id, number, item, text)| {
        let part = json!({"type": "output_text", "text": text});
        let item = json!({"type": item, "id": id, "call_id": id, "name": text, "arguments": text, "content": [part], "summary": [part]});
        json!({"type": kind, "item_id": id, "output_index": number, "content_index": number, "summary_index": number,
            "delta": text, "text": text, "refusal": text, "arguments": text, "part": part, "item": item,
            "response": {"output": [item]}})
    })
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..8)) {
        let (mut decoder, mut events) = (decoder(), Vec::new());
        for frame in frames {
            let _ = decoder.frame(&frame, &mut events);
        }
        let _ = decoder.end(&mut events);
    }

    #[test]
    fn events_in_any_order_emit_all_text(frames in prop::collection::vec(frame(), 0..16)) {
        let (_, reply) = decode_all(&frames);
        let is_finished = frames.iter().any(|frame| matches!(frame["type"].as_str(), Some("response.completed" | "response.incomplete")));
        match reply {
            Ok(_) => prop_assert!(is_finished),
            Err(error) => prop_assert_eq!((error.kind, is_finished), (ProviderErrorKind::Truncated, false)),
        }
    }
}
