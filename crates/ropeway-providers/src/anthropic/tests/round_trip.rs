//! Replies that return to their endpoint.

use serde_json::{Value, json};

use super::{body, conversation, input, reply, settings, stream, text, text_block, tool_use, user};
use crate::{ChatRequest, encode};
use ropeway_core::message::Message;

/// Returns the blocks of a reply in the next request, after it was saved and loaded.
fn sent_back(frames: Vec<Value>) -> Value {
    let mut conversation = conversation(json!([user("hi")]));
    let answer = Message::Assistant(reply(frames).message);
    conversation.push(ropeway_core::json::from_str::<Message>(&json!(answer).to_string()).expect("a message"));
    let encoded = encode(&settings(), &ChatRequest::new("claude", &conversation)).expect("a request");
    body(&encoded)["messages"][1]["content"].take()
}

fn thinking(pieces: &[&str], signature: &str) -> (Value, Vec<Value>) {
    let block = json!({"type": "thinking", "thinking": "", "signature": ""});
    let mut deltas: Vec<Value> =
        pieces.iter().map(|text| json!({"type": "thinking_delta", "thinking": text})).collect();
    deltas.push(json!({"type": "signature_delta", "signature": signature}));
    (block, deltas)
}

#[test]
fn thinking_text_and_parallel_calls_round_trip() {
    let call = |id: &str| {
        let mut block = tool_use(id, "weather");
        block["caller"] = json!({"type": "direct"});
        block
    };
    let frames = stream(
        [
            thinking(&["two ", "cities"], "c2ln"),
            (json!({"type": "text", "text": "", "citations": null}), vec![text("I'll "), text("look.")]),
            (call("toolu_1"), vec![input(""), input("{\"city\": \"Par"), input("is\"}")]),
            (call("toolu_2"), vec![input("")]),
        ],
        "tool_use",
    );
    assert_eq!(
        sent_back(frames),
        json!([
            {"type": "thinking", "thinking": "two cities", "signature": "c2ln"},
            {"type": "text", "text": "I'll look.", "citations": null},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "caller": {"type": "direct"}, "input": {"city": "Paris"}},
            {"type": "tool_use", "id": "toolu_2", "name": "weather", "caller": {"type": "direct"}, "input": {}},
        ])
    );
}

#[test]
fn redacted_thinking_round_trips() {
    let redacted = json!({"type": "redacted_thinking", "data": "ZGF0YQ=="});
    let frames = stream(
        [
            thinking(&[], "c2ln"),
            (redacted.clone(), vec![]),
            (tool_use("a", "t"), vec![input("{\"n\":1.50,\"big\":123456789012345678901234567890}")]),
            thinking(&["more"], "c2lnMg=="),
        ],
        "max_tokens",
    );
    let expected: Value = serde_json::from_str(
        r#"[{"type": "thinking", "thinking": "", "signature": "c2ln"}, {"type": "redacted_thinking", "data": "ZGF0YQ=="},
            {"type": "tool_use", "id": "a", "name": "t", "input": {"n": 1.50, "big": 123456789012345678901234567890}}]"#,
    )
    .expect("JSON");
    assert_eq!(sent_back(frames), expected);
}

#[test]
fn a_server_search_with_citations_round_trips() {
    let search = json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}});
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1",
        "content": [{"type": "web_search_result", "url": "https://a.example", "title": "A", "encrypted_content": "e"}]});
    let citation = json!({"type": "web_search_result_location", "url": "https://a.example", "cited_text": "so", "encrypted_index": "i"});
    let cite = json!({"type": "citations_delta", "citation": citation});
    let frames = stream(
        [
            (search, vec![input(""), input("{\"query\": \"a\"}")]),
            (found.clone(), vec![]),
            (json!({"type": "text", "text": "", "citations": []}), vec![cite, text("It is so.")]),
        ],
        "pause_turn",
    );
    assert_eq!(
        sent_back(frames),
        json!([
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "a"}},
            found,
            {"type": "text", "text": "It is so.", "citations": [citation]},
        ])
    );
}

#[test]
fn unknown_blocks_round_trip() {
    let odd = json!({"type": "future", "deep": {"a": [1, null, {"b": 1.5}]}});
    let frames = stream([(odd.clone(), vec![]), (text_block(), vec![text("ok")])], "end_turn");
    assert_eq!(sent_back(frames), json!([odd, {"type": "text", "text": "ok"}]));
}

#[test]
fn blank_text_does_not_round_trip() {
    let frames =
        stream([(text_block(), vec![text("\n\n")]), (tool_use("a", "t"), vec![]), (text_block(), vec![])], "end_turn");
    assert_eq!(sent_back(frames), json!([{"type": "tool_use", "id": "a", "name": "t", "input": {}}]));
}
