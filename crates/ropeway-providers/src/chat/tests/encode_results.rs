//! Encoding of tool results.

use serde_json::{Value, json};

use crate::{ChatRequest, MediaKinds, ProviderSettings, Quirks, encode};
use ropeway_core::content::ContentPart;
use ropeway_core::message::{AssistantMessage, AssistantPart, Conversation, Dialect, ToolCall, ToolResult};

const PNG: &str = "iVBORw0KGgoAAAANSUhEUg==";

fn calls<const N: usize>(ids: [&str; N]) -> AssistantMessage {
    let call = |id: &str| AssistantPart::ToolCall(ToolCall::new(id, "chart", Default::default()));
    AssistantMessage::new(ids.map(call).into())
}

fn result(id: &str, content: Value) -> ToolResult {
    let call = ToolCall::new(id, "chart", Default::default());
    ToolResult::new(&call, serde_json::from_value(content).expect("parts"))
}

fn image() -> Value {
    json!({"type": "image", "data": PNG, "mimeType": "image/png"})
}

fn image_part() -> Value {
    json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PNG}"), "detail": "auto"}})
}

fn tool(id: &str, content: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": content})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Returns the messages after the calls.
fn messages(conversation: &Conversation, quirks: Quirks) -> Value {
    let settings = ProviderSettings::new(Dialect::Chat).with_base_url("http://127.0.0.1:8080/v1").with_quirks(quirks);
    let encoded = encode(&settings, &ChatRequest::new("m", conversation)).expect("a request");
    let body: Value = serde_json::from_slice(&encoded.request.body).expect("JSON");
    let messages = body["messages"].as_array().expect("messages");
    let calls = messages.iter().position(|message| message["role"] == "assistant").expect("calls");
    messages[calls + 1..].iter().cloned().collect()
}

/// Returns the content of an encoded result.
fn content(result: ToolResult) -> Value {
    let conversation = Conversation::new().with("hi").with(calls(["c1"])).with(vec![result]);
    let messages = messages(&conversation, Quirks::default());
    assert_eq!(messages.as_array().map(Vec::len), Some(1), "{messages}");
    messages[0]["content"].clone()
}

#[test]
fn each_call_has_a_message_of_plain_text() {
    let document = json!({"type": "resource", "resource": {"uri": "file:///b", "text": "b"}});
    let results = vec![result("c2", json!([text("two")])), result("c1", json!([text("one"), text(""), document]))];
    let conversation = Conversation::new().with("hi").with(calls(["c1", "c2"])).with(results);
    let expected = json!([tool("c1", "one\n[file:///b]\nb"), tool("c2", "two")]);
    assert_eq!(messages(&conversation, Quirks::default()), expected);
}

#[test]
fn an_empty_result_has_placeholder_text() {
    assert_eq!(content(result("c1", json!([]))), "(no output)");
    assert_eq!(content(result("c1", json!([text("")]))), "(no output)");
}

#[test]
fn an_error_starts_with_a_prefix() {
    let error = |words: &str| content(ToolResult::error(&ToolCall::new("c1", "chart", Default::default()), words));
    assert_eq!(error("no such file"), "error: no such file");
    assert_eq!(error(""), "error: (no output)");
    assert_eq!(error("{\"a\": 1}"), "error: {\"a\": 1}");
    assert_eq!(error(" {\"error\": \"no\"}"), " {\"error\": \"no\"}");
}

#[test]
fn a_call_without_a_result_gets_one() {
    let conversation = Conversation::new().with("hi").with(calls(["c1"])).with("go on");
    let expected = json!([
        tool("c1", "error: the call was interrupted and returned no result"),
        {"role": "user", "content": "go on"},
    ]);
    assert_eq!(messages(&conversation, Quirks::default()), expected);
}

#[test]
fn images_follow_all_results_in_one_message() {
    let pdf = json!({"type": "resource", "resource": {"uri": "file:///r.pdf", "mimeType": "application/pdf", "blob": "JVBERi0x"}});
    let sound = json!({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"});
    let results =
        vec![result("c1", json!([text("Here:"), image(), image()])), result("c2", json!([pdf, sound, image()]))];
    let conversation = Conversation::new().with("hi").with(calls(["c1", "c2"])).with(results);
    let conversation = conversation.with(AssistantMessage::text("I see."));
    let expected = json!([
        tool("c1", "Here:\n[image 1 of `chart`, shown below]\n[image 2 of `chart`, shown below]"),
        tool("c2", "[document 1 of `chart`, shown below]\n[sound 1 of `chart`, shown below]\n[image 1 of `chart`, shown below]"),
        {"role": "user", "content": [
            text("[image 1 of `chart`, call `c1`]"),
            image_part(),
            text("[image 2 of `chart`, call `c1`]"),
            image_part(),
            text("[document 1 of `chart`, call `c2`]"),
            {"type": "file", "file": {"filename": "r.pdf", "file_data": "data:application/pdf;base64,JVBERi0x"}},
            text("[sound 1 of `chart`, call `c2`]"),
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            text("[image 1 of `chart`, call `c2`]"),
            image_part(),
        ]},
        {"role": "assistant", "content": "I see."},
    ]);
    assert_eq!(messages(&conversation, Quirks::default()), expected);
}

#[test]
fn images_precede_the_next_user_text() {
    let conversation = Conversation::new().with("hi").with(calls(["c1"])).with(vec![result("c1", json!([image()]))]);
    let parts = json!([text("[image 1 of `chart`, call `c1`]"), image_part()]);
    let alone = json!([tool("c1", "[image 1 of `chart`, shown below]"), {"role": "user", "content": parts}]);
    assert_eq!(messages(&conversation, Quirks::default()), alone);
    let conversation = conversation.with(vec![ContentPart::text("and now?")]);
    let parts = json!([text("[image 1 of `chart`, call `c1`]"), image_part(), text("and now?")]);
    let followed = json!([tool("c1", "[image 1 of `chart`, shown below]"), {"role": "user", "content": parts}]);
    assert_eq!(messages(&conversation, Quirks::default()), followed);
}

#[test]
fn images_are_described_with_the_quirk() {
    let conversation = Conversation::new().with("hi").with(calls(["c1"])).with(vec![result("c1", json!([image()]))]);
    let quirks = Quirks { described_media: MediaKinds::IMAGES, ..Quirks::default() };
    let told = json!([tool("c1", "[image, image/png, 16 bytes: it cannot be shown here]")]);
    assert_eq!(messages(&conversation, quirks), told);
}
