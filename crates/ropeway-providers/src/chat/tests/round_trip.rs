//! Replies that return to their endpoint.

use serde_json::{Value, json};

use super::{delta, endpoint, finish};
use crate::{ChatRequest, ProviderSettings, encode};
use ropeway_core::lowering::Toolset;
use ropeway_core::message::{Conversation, Dialect, ToolResult};
use ropeway_core::tool::ToolDefinition;

/// Returns a decoded message as encoded for its own endpoint, and for another one.
fn sent_back(chunks: &[Value]) -> (Value, Value) {
    let reply = super::reply(chunks);
    let results: Vec<ToolResult> = reply.message.calls().map(|call| ToolResult::new(call, Vec::new())).collect();
    // The conversation is saved and loaded in between.
    let conversation = Conversation::new().with("hi").with(reply.message).with(results);
    let conversation: Conversation = serde_json::from_value(json!(conversation)).expect("a conversation");
    let encoded = |base_url: &str| {
        let settings = ProviderSettings::new(Dialect::Chat).with_base_url(base_url);
        let encoded = encode(&settings, &ChatRequest::new("m", &conversation)).expect("a request");
        let body: Value = serde_json::from_slice(&encoded.request.body).expect("JSON");
        body["messages"][1].clone()
    };
    (encoded(&format!("{}/v1", endpoint().endpoint)), encoded("http://127.0.0.1:9090/v1"))
}

#[test]
fn a_message_returns_with_all_fields() {
    let details = json!([{"type": "reasoning.encrypted", "data": "x", "index": 0}]);
    let signature = json!({"google": {"thought_signature": "s"}});
    let (back, abroad) = sent_back(&[
        delta(json!({"role": "assistant", "content": null, "reasoning_content": "h"})),
        delta(json!({"reasoning_content": "m", "reasoning_details": details, "odd": {"a": 1}})),
        delta(json!({"content": "Wait."})),
        delta(json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "extra_content": signature,
            "function": {"name": "look", "arguments": "{\n  \"a\": 1.0", "odd": 1}}]})),
        delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "\n}"}}]})),
        finish("tool_calls"),
    ]);
    let expected = json!({
        "role": "assistant", "content": "Wait.", "reasoning_content": "hm", "reasoning_details": details, "odd": {"a": 1},
        "tool_calls": [{"id": "c1", "type": "function", "extra_content": signature,
            "function": {"name": "look", "arguments": "{\n  \"a\": 1.0\n}", "odd": 1}}],
    });
    assert_eq!(back, expected);
    let plain = json!({
        "role": "assistant", "content": "Wait.",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{\"a\":1.0}"}}],
    });
    assert_eq!(abroad, plain);
}

#[test]
fn a_message_with_only_calls_has_no_content() {
    let call = json!({"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let (back, abroad) = sent_back(&[delta(json!({"content": null, "tool_calls": [call]})), finish("tool_calls")]);
    assert_eq!(back, json!({"role": "assistant", "content": null, "tool_calls": [call]}));
    assert_eq!(abroad, back);
}

#[test]
fn reasoning_returns_under_its_names() {
    let (both, _) =
        sent_back(&[delta(json!({"reasoning_content": "hm", "reasoning": "hm", "content": "ok"})), finish("stop")]);
    assert_eq!(both, json!({"role": "assistant", "content": "ok", "reasoning_content": "hm", "reasoning": "hm"}));
    let (differing, _) = sent_back(&[delta(json!({"reasoning_content": "a", "reasoning": "b"})), finish("stop")]);
    assert_eq!(differing, json!({"role": "assistant", "content": "", "reasoning_content": "a", "reasoning": "b"}));
}

#[test]
fn content_parts_return_as_parts() {
    let content = json!([
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "a"},
        {"type": "reference", "reference_ids": [1]},
        {"type": "text", "text": "b"},
    ]);
    let (back, abroad) = sent_back(&[delta(json!({ "content": content })), finish("stop")]);
    assert_eq!(back, json!({"role": "assistant", "content": content}));
    assert_eq!(abroad, json!({"role": "assistant", "content": "ab"}));
}

#[test]
fn reasoning_between_texts_returns_in_order() {
    let thinking = |text: &str| json!({"type": "thinking", "thinking": [{"type": "text", "text": text}]});
    let text = |text: &str| json!({"type": "text", "text": text});
    let (back, abroad) = sent_back(&[
        delta(json!({"content": [thinking("A")]})),
        delta(json!({"content": [thinking("a"), text("x")]})),
        delta(json!({"content": "y"})),
        delta(json!({"content": [thinking("B")]})),
        delta(json!({"content": "z"})),
        finish("stop"),
    ]);
    let content = json!([thinking("Aa"), text("xy"), thinking("B"), text("z")]);
    assert_eq!(back, json!({"role": "assistant", "content": content}));
    assert_eq!(abroad, json!({"role": "assistant", "content": "xyz"}));
}

#[test]
fn a_call_of_an_unknown_tool_keeps_its_name() {
    let tools = Toolset::new([ToolDefinition::new("look")]);
    let conversation = Conversation::new().with("hi");
    let request = ChatRequest::new("m", &conversation).with_tools(&tools);
    let mut decoder = encode(&ProviderSettings::new(Dialect::Chat), &request).expect("a request").decoder();
    let call = json!({"index": 0, "id": "c1", "function": {"name": "made_up", "arguments": "{}"}});
    let mut events = Vec::new();
    for chunk in [delta(json!({ "tool_calls": [call] })), finish("tool_calls")] {
        decoder.frame(chunk.to_string().as_bytes(), &mut events).expect("a frame");
    }
    let answer = decoder.end(&mut events).expect("a reply").message;
    assert_eq!(answer.calls().map(|call| call.name.as_str()).collect::<Vec<_>>(), ["made_up"]);
}

#[test]
fn a_refusal_returns_unchanged_and_is_text_elsewhere() {
    let (back, abroad) = sent_back(&[delta(json!({"refusal": "I cannot."})), finish("stop")]);
    assert_eq!(back, json!({"role": "assistant", "content": null, "refusal": "I cannot."}));
    assert_eq!(abroad, json!({"role": "assistant", "content": "I cannot."}));
}

#[test]
fn tool_names_are_mapped_in_both_directions() {
    let tools = Toolset::new([ToolDefinition::new("files/look.up")]);
    let settings = ProviderSettings::new(Dialect::Chat).with_base_url("http://127.0.0.1:8080/v1");
    let mut conversation = Conversation::new().with("hi");
    let first = encode(&settings, &ChatRequest::new("m", &conversation).with_tools(&tools)).expect("a request");
    let body: Value = serde_json::from_slice(&first.request.body).expect("JSON");
    let wire_name = body["tools"][0]["function"]["name"].as_str().expect("a name").to_owned();
    assert_ne!(wire_name, "files/look.up");

    let mut decoder = first.decoder();
    let call = json!({"id": "c1", "type": "function", "function": {"name": wire_name, "arguments": "{\"a\":1}"}});
    for chunk in [delta(json!({"tool_calls": [call]})), finish("tool_calls")] {
        decoder.frame(chunk.to_string().as_bytes(), &mut Vec::new()).expect("a chunk");
    }
    let reply = decoder.end(&mut Vec::new()).expect("a reply");
    let names: Vec<&str> = reply.message.calls().map(|call| call.name.as_str()).collect();
    assert_eq!(names, ["files/look.up"]);

    conversation.push(reply.message);
    let second = encode(&settings, &ChatRequest::new("m", &conversation).with_tools(&tools)).expect("a request");
    let body: Value = serde_json::from_slice(&second.request.body).expect("JSON");
    assert_eq!(body["messages"][1]["tool_calls"], json!([call]));
}
