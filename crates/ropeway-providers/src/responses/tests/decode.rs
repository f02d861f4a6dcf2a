//! Decoding of replies.

use serde_json::{Value, json};

use super::stream::{CAREFUL, Style};
use super::{call, completed, decode_all, delta, message, reply, text};
use crate::{ReplyEvent, StopReason, Usage};
use ropeway_core::message::{CallArguments, ToolCall};

#[test]
fn text_is_streamed() {
    let mut stream = CAREFUL.stream(&[message("msg_1", "Hello, world")]);
    let end = stream.len() - 1;
    stream[end]["response"]["usage"] = json!({
        "input_tokens": 100, "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
        "output_tokens": 20, "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 120});
    let (events, reply) = decode_all(&stream);
    let usage = Usage { input: 100, output: 20, cache_read: 60, cache_write: 30, reasoning: 5, ..Usage::default() };
    let expected =
        [ReplyEvent::Text("Hello,".to_owned()), ReplyEvent::Text(" world".to_owned()), ReplyEvent::Usage(usage)];
    assert_eq!(events, expected);
    let reply = reply.expect("a reply");
    assert_eq!(
        (reply.message.to_text().as_str(), reply.stop, reply.usage),
        ("Hello, world", StopReason::EndTurn, usage)
    );
    assert_eq!((reply.id.as_deref(), reply.model.as_deref()), (Some("resp_1"), Some("m-1")));
}

#[test]
fn a_call_is_streamed_and_complete_with_its_item() {
    let (events, reply) = decode_all(&CAREFUL.stream(&[call(1, "{\"city\":\"Paris\"}"), message("msg_1", "so")]));
    let arguments = serde_json::from_value(json!({"city": "Paris"})).expect("arguments");
    let mut whole = ToolCall::new("call_1", "weather", arguments);
    whole.extra.insert("item".to_owned(), json!({"type": "function_call", "id": "fc_1", "status": "completed"}));
    let piece = |json: &str| ReplyEvent::ToolCallDelta { index: 0, json: json.to_owned() };
    let expected = [
        ReplyEvent::ToolCallStarted { index: 0, id: "call_1".to_owned(), name: "weather".to_owned() },
        piece("{\"city\":"),
        piece("\"Paris\"}"),
        ReplyEvent::ToolCall { index: 0, call: whole },
        ReplyEvent::Text("s".to_owned()),
        ReplyEvent::Text("o".to_owned()),
    ];
    assert_eq!(events, expected);
    assert_eq!(reply.expect("a reply").stop, StopReason::ToolUse);
}

/// llama.cpp sends no indexes, and all complete items at the end.
#[test]
fn complete_items_match_announced_items() {
    let announced = |number| {
        let mut item = call(number, "");
        item["status"] = "in_progress".into();
        json!({"type": "response.output_item.added", "item": item})
    };
    let piece = |number: usize, delta: &str| json!({"type": "response.function_call_arguments.delta", "item_id": format!("fc_{number}"), "delta": delta});
    let whole = |item| json!({"type": "response.output_item.done", "item": item});
    let (first, second) = (call(1, "{\"city\": \"Paris\"}"), call(2, "{\"city\": \"Oslo\"}"));
    let stream = [
        json!({"type": "response.created", "response": {"id": "resp_1", "object": "response", "status": "in_progress"}}),
        json!({"type": "response.output_item.added", "item": {"type": "message", "id": "msg_1", "role": "assistant", "content": [], "status": "in_progress"}}),
        json!({"type": "response.content_part.added", "item_id": "msg_1", "part": {"type": "output_text", "text": ""}}),
        json!({"type": "response.output_text.delta", "item_id": "msg_1", "delta": "Both."}),
        announced(1),
        piece(1, "{\"city\": \"Par"),
        announced(2),
        piece(2, "{\"city\": \"Oslo\"}"),
        piece(1, "is\"}"),
        json!({"type": "response.output_text.done", "item_id": "msg_1", "text": "Both."}),
        whole(message("msg_1", "Both.")),
        whole(first.clone()),
        whole(second.clone()),
        completed(json!([message("msg_1", "Both."), first, second])),
    ];
    let (events, reply) = decode_all(&stream);
    assert_eq!(text(&events), "Both.");
    let cities: Vec<Option<CallArguments>> =
        ["Paris", "Oslo"].map(|city| serde_json::from_value(json!({"arguments": {"city": city}})).ok()).into();
    let calls: Vec<Option<CallArguments>> =
        reply.expect("a reply").message.calls().map(|call| Some(call.arguments.clone())).collect();
    assert_eq!(calls, cities);
}

#[test]
fn items_with_changing_ids_are_emitted_once() {
    let mut stream = CAREFUL.stream(&[message("msg_1", "Hello"), call(1, "{}")]);
    for (at, frame) in stream.iter_mut().enumerate() {
        for pointer in ["/item_id", "/item/id", "/response/output/0/id", "/response/output/1/id"] {
            if let Some(id) = frame.pointer_mut(pointer) {
                *id = format!("{at}{pointer}").into();
            }
        }
    }
    let (events, reply) = decode_all(&stream);
    let message = reply.expect("a reply").message;
    assert_eq!((text(&events).as_str(), message.to_text().as_str(), message.calls().count()), ("Hello", "Hello", 1));
}

#[test]
fn calls_with_the_same_item_id_are_distinct() {
    let mut stream = CAREFUL.stream(&[call(1, "{\"n\": 1}"), call(2, "{\"n\": 2}")]);
    for frame in &mut stream {
        for pointer in ["/item_id", "/item/id", "/response/output/0/id", "/response/output/1/id"] {
            if let Some(id) = frame.pointer_mut(pointer) {
                *id = "fc".into();
            }
        }
        if let Some(place) = frame.get_mut("output_index") {
            *place = 0.into();
        }
    }
    let ids: Vec<String> = reply(&stream).message.calls().map(|call| call.id.clone()).collect();
    assert_eq!(ids, ["call_1", "call_2"]);
}

#[test]
fn an_incomplete_item_is_kept() {
    let stream = [
        delta("msg_1", "Hel"),
        delta("msg_1", "lo"),
        json!({"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "summary_index": 0, "delta": "Hm"}),
        json!({"type": "response.reasoning_summary_text.done", "item_id": "rs_1", "summary_index": 0, "text": "Hmm"}),
        json!({"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "summary_index": 1, "delta": "So"}),
        json!({"type": "response.reasoning_summary_text.done", "item_id": "rs_1", "summary_index": 0, "text": "Hmm"}),
        completed(json!([])),
    ];
    let parts = json!([
        {"type": "text", "text": "Hello", "extra": {
            "part": {"type": "output_text", "text": "", "annotations": []},
            "item": {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}}},
        {"type": "reasoning", "text": "Hmm\n\nSo", "extra": {"item": {"id": "rs_1", "type": "reasoning", "summary": []}}}
    ]);
    let message = reply(&stream).message;
    assert_eq!(json!(message.parts), parts);
    assert_eq!(json!(message.extra), json!({"output": ["msg_1", "rs_1"]}));
}

#[test]
fn a_complete_text_replaces_different_deltas() {
    let (events, reply) = decode_all(&[delta("msg_1", "Helo"), completed(json!([message("msg_1", "Hello")]))]);
    assert_eq!((text(&events).as_str(), reply.expect("a reply").message.to_text().as_str()), ("Helo", "Hello"));
}

#[test]
fn a_refusal_is_text_with_a_stop_reason() {
    let item = json!({"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "refusal", "refusal": "No, sorry."}]});
    for style in Style::all() {
        let (events, reply) = decode_all(&style.stream(std::slice::from_ref(&item)));
        let reply = reply.expect("a reply");
        assert_eq!((text(&events).as_str(), reply.stop), ("No, sorry.", StopReason::Refusal), "{style:?}");
    }
    let stream = [
        json!({"type": "response.refusal.delta", "item_id": "msg_1", "delta": "No"}),
        json!({"type": "response.completed"}),
    ];
    let reply = reply(&stream);
    assert_eq!(reply.stop, StopReason::Refusal);
    assert_eq!(json!(reply.message.parts)[0]["extra"]["part"], json!({"type": "refusal", "refusal": ""}));
}

#[test]
fn an_incomplete_reply_has_a_stop_reason() {
    let stop =
        |kind: &str, response: Value| reply(&[json!({"type": format!("response.{kind}"), "response": response})]).stop;
    let because =
        |reason: &str| stop("incomplete", json!({"status": "incomplete", "incomplete_details": {"reason": reason}}));
    assert_eq!(because("max_output_tokens"), StopReason::MaxTokens);
    assert_eq!(because("content_filter"), StopReason::ContentFilter);
    assert_eq!(because("steered"), StopReason::Other("steered".to_owned()));
    assert_eq!(stop("incomplete", json!({})), StopReason::Other("incomplete".to_owned()));
    assert_eq!(stop("completed", json!({"status": "cancelled"})), StopReason::Other("cancelled".to_owned()));
    assert_eq!(
        stop("completed", json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}})),
        StopReason::MaxTokens
    );
    assert_eq!(stop("completed", json!({"status": "in_progress", "incomplete_details": null})), StopReason::EndTurn);
}

#[test]
fn a_truncated_call_has_invalid_arguments() {
    let cut = |arguments: &str| {
        CallArguments::broken(arguments, "the arguments were cut off: the reply reached its maximum length")
    };
    let incomplete =
        |reason: &str| json!({"type": "response.incomplete", "response": {"incomplete_details": {"reason": reason}}});
    let announced = json!({"type": "response.output_item.added", "output_index": 0, "item": call(1, "")});
    let arguments =
        |stream: &[Value]| reply(stream).message.calls().map(|call| call.arguments.clone()).collect::<Vec<_>>();
    assert_eq!(arguments(&[announced.clone(), incomplete("max_output_tokens")]), [cut("")]);
    let mut item = call(1, "{\"city\": \"Pa");
    item["status"] = "incomplete".into();
    let done = json!({"type": "response.output_item.done", "output_index": 0, "item": item});
    assert_eq!(arguments(&[announced, done, incomplete("content_filter")]), [cut("{\"city\": \"Pa")]);
}

#[test]
fn missing_arguments_are_an_empty_object() {
    let arguments = |text: &str| {
        let reply = reply(&CAREFUL.stream(&[call(1, text)]));
        reply.message.calls().map(|call| call.arguments.clone()).collect::<Vec<_>>()
    };
    assert_eq!(arguments(""), [CallArguments::Object(serde_json::Map::new())]);
    assert_eq!(arguments("[1]"), [CallArguments::read("[1]")]);
    assert_eq!(arguments("{\"city\""), [CallArguments::read("{\"city\"")]);
    assert!(matches!(arguments("nonsense")[..], [CallArguments::Broken { .. }]));
}

#[test]
fn a_call_of_an_unknown_tool_keeps_its_name() {
    let mut item = call(1, "{}");
    item["name"] = "made_up".into();
    let names: Vec<String> = reply(&CAREFUL.stream(&[item])).message.calls().map(|call| call.name.clone()).collect();
    assert_eq!(names, ["made_up"]);
}

#[test]
fn an_empty_reply_is_valid() {
    let reply = reply(&CAREFUL.stream(&[]));
    assert_eq!((reply.message.parts, reply.message.extra.is_empty(), reply.stop), (vec![], true, StopReason::EndTurn));
}
