//! Encoding of messages.

use serde_json::{Value, json};

use super::{messages, native, user};

const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB";
const PDF: &str = "JVBERi0xLjQKJeLjz9MKMSAwIG9iago8";

fn call(id: &str) -> Value {
    json!({"type": "tool_call", "id": id, "name": "look", "arguments": {"at": id}})
}

fn tool_use(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "look", "input": {"at": id}})
}

fn image() -> Value {
    json!({"type": "image", "data": PNG, "mimeType": "image/png"})
}

fn image_block() -> Value {
    json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}})
}

fn resource(uri: &str, mime_type: &str, kind: &str, data: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, kind: data}})
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Encodes a user message.
fn of_user(content: Value) -> Value {
    messages(json!([{"role": "user", "content": content}]))[0]["content"].take()
}

/// Encodes a result, without the id of its call.
fn of_result(content: Value, is_error: bool) -> Value {
    let result = json!({"call": "a", "tool": "look", "content": content, "is_error": is_error});
    let mut all = messages(
        json!([user("hi"), {"role": "assistant", "parts": [call("a")]}, {"role": "tool", "results": [result]}]),
    );
    let block = all[2]["content"][0].as_object_mut().expect("a block");
    assert_eq!(block.shift_remove("type"), Some(json!("tool_result")));
    assert_eq!(block.shift_remove("tool_use_id"), Some(json!("a")));
    Value::Object(block.clone())
}

#[test]
fn images_and_documents_become_blocks_with_titles() {
    let content = json!([
        text_block("look"),
        image(),
        resource("file:///a.pdf", "application/pdf", "blob", PDF),
        resource("file:///a.md", "text/markdown", "text", "# A"),
    ]);
    let pdf = json!({"type": "base64", "media_type": "application/pdf", "data": PDF});
    let markdown = json!({"type": "text", "media_type": "text/plain", "data": "# A"});
    assert_eq!(
        of_user(content),
        json!([
            text_block("look"),
            image_block(),
            {"type": "document", "source": pdf, "title": "file:///a.pdf"},
            {"type": "document", "source": markdown, "title": "file:///a.md"},
        ])
    );
}

#[test]
fn unsupported_media_are_described_and_blank_text_is_dropped() {
    let content = json!([
        text_block(" \n"),
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///b", "name": "b"},
        resource("file:///blank", "text/plain", "text", "\n"),
        text_block(""),
    ]);
    assert_eq!(
        of_user(content),
        json!([
            text_block("[sound, audio/wav, 3 bytes: it cannot be shown here]"),
            text_block("[resource `b`, file:///b]"),
            text_block("[file:///blank]\n\n"),
        ])
    );
}

#[test]
fn titles_are_truncated_to_the_limit_of_the_api() {
    let uri = format!("file:///{}", "ü".repeat(600));
    let content = of_user(json!([resource(&uri, "text/plain", "text", "a"), resource(" ", "text/plain", "text", "b")]));
    assert_eq!(content[0]["title"].as_str().expect("a title"), uri.chars().take(500).collect::<String>());
    assert_eq!(content[1].get("title"), None);
}

#[test]
fn a_result_of_one_text_is_a_string() {
    assert_eq!(of_result(json!([text_block("18C")]), false), json!({"content": "18C"}));
    assert_eq!(
        of_result(json!([text_block("a"), text_block("b")]), false),
        json!({"content": [text_block("a"), text_block("b")]})
    );
    assert_eq!(of_result(json!([image()]), false), json!({"content": [image_block()]}));
    let pdf = json!({"type": "base64", "media_type": "application/pdf", "data": PDF});
    let json_text = json!({"type": "text", "media_type": "text/plain", "data": "{}"});
    assert_eq!(
        of_result(
            json!([
                text_block("see"),
                resource("a.pdf", "application/pdf", "blob", PDF),
                resource("a.json", "application/json", "text", "{}")
            ]),
            false
        ),
        json!({"content": [
            text_block("see"),
            {"type": "document", "source": pdf, "title": "a.pdf"},
            {"type": "document", "source": json_text, "title": "a.json"},
        ]})
    );
    let audio = json!({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"});
    assert_eq!(
        of_result(json!([audio]), false),
        json!({"content": "[sound, audio/wav, 3 bytes: it cannot be shown here]"})
    );
}

#[test]
fn an_empty_result_is_an_empty_string() {
    assert_eq!(of_result(json!([]), false), json!({"content": ""}));
    assert_eq!(of_result(json!([text_block(""), text_block(" ")]), false), json!({"content": ""}));
}

#[test]
fn an_error_result_has_only_text() {
    assert_eq!(of_result(json!([text_block("boom")]), true), json!({"content": "boom", "is_error": true}));
    assert_eq!(
        of_result(json!([text_block("boom"), image(), resource("a.log", "text/plain", "text", "trace")]), true),
        json!({"content": [text_block("boom"), text_block("[image, image/png, 24 bytes: it cannot be shown here]"), text_block("[a.log]\ntrace")], "is_error": true})
    );
    let words = json!({"content": "the call failed and gave no reason", "is_error": true});
    assert_eq!(of_result(json!([]), true), words);
    assert_eq!(of_result(json!([text_block(" ")]), true), words);
}

#[test]
fn results_precede_other_content_in_one_message() {
    let answer = json!({"role": "assistant", "parts": [text_block("hm"), call("a"), call("b")]});
    let result = |call: &str| json!({"call": call, "tool": "look", "content": [text_block(call)]});
    let block = |call: &str| json!({"type": "tool_result", "tool_use_id": call, "content": call});
    assert_eq!(
        messages(json!([user("hi"), answer, {"role": "tool", "results": [result("b"), result("a")]}, user("and?")])),
        json!([
            {"role": "user", "content": [text_block("hi")]},
            {"role": "assistant", "content": [text_block("hm"), tool_use("a"), tool_use("b")]},
            {"role": "user", "content": [block("a"), block("b"), text_block("and?")]},
        ])
    );
}

#[test]
fn a_reply_returns_unchanged() {
    let parts = json!([
        {"type": "reasoning", "text": "", "extra": {"signature": "sig"}},
        {"type": "private", "json": {"type": "redacted_thinking", "data": "x"}},
        {"type": "text", "text": "ok", "extra": {"citations": [{"type": "char_location"}]}},
        {"type": "private", "json": {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": 1}}},
        {"type": "tool_call", "id": "a", "name": "look", "arguments": {"at": "a"}, "extra": {"caller": {"type": "direct"}}},
    ]);
    assert_eq!(
        messages(json!([user("hi"), native(parts)]))[1],
        json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "", "signature": "sig"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": "ok", "citations": [{"type": "char_location"}]},
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": 1}},
            {"type": "tool_use", "id": "a", "name": "look", "caller": {"type": "direct"}, "input": {"at": "a"}},
        ]})
    );
}

#[test]
fn a_reply_of_another_model_is_sent_without_opaque_parts() {
    let mut foreign = native(json!([
        {"type": "reasoning", "text": "hm", "extra": {"signature": "sig"}},
        {"type": "private", "json": {"type": "redacted_thinking", "data": "x"}},
        {"type": "text", "text": "ok", "extra": {"citations": []}},
        {"type": "tool_call", "id": "a/b", "name": "look", "arguments": {"at": 1}, "extra": {"caller": {"type": "direct"}, "arguments": "{\"at\": 1}"}},
    ]));
    foreign["from"]["endpoint"] = json!("https://elsewhere.example");
    assert_eq!(
        messages(json!([user("hi"), foreign]))[1],
        json!({"role": "assistant", "content": [text_block("ok"), {"type": "tool_use", "id": "a_b", "name": "look", "input": {"at": 1}}]})
    );
}

#[test]
fn extra_fields_never_repeat_a_field() {
    let parts = json!([
        {"type": "reasoning", "text": "a", "extra": {"thinking": "x", "type": "y", "signature": "s"}},
        {"type": "text", "text": "b", "extra": {"text": "x", "type": "y"}},
        {"type": "tool_call", "id": "a", "name": "look", "arguments": {"at": "a"}, "extra": {"id": 1, "name": 2, "input": 3, "type": 4}},
    ]);
    assert_eq!(
        messages(json!([user("hi"), native(parts)]))[1]["content"],
        json!([{"type": "thinking", "thinking": "a", "signature": "s"}, text_block("b"), tool_use("a")])
    );
}

#[test]
fn blank_text_and_truncated_thinking_are_dropped() {
    let thought = json!({"type": "reasoning", "text": "so"});
    assert_eq!(
        messages(json!([user("hi"), native(json!([text_block("\n"), text_block("ok"), thought])), user("go on")]))[1]["content"],
        json!([text_block("ok")])
    );
    assert_eq!(
        messages(json!([user("hi"), native(json!([thought])), user("go on")])),
        json!([{"role": "user", "content": [text_block("hi"), text_block("go on")]}])
    );
}

#[test]
fn thinking_at_the_end_of_a_reply_is_dropped() {
    let thought = json!({"type": "reasoning", "text": "so", "extra": {"signature": "s"}});
    let redacted = json!({"type": "private", "json": {"type": "redacted_thinking", "data": "x"}});
    let answer = native(json!([text_block("ok"), thought, redacted, text_block("\n")]));
    assert_eq!(messages(json!([user("hi"), answer, user("go on")]))[1]["content"], json!([text_block("ok")]));
    let person = json!([{"role": "user", "content": [text_block("hi"), text_block("go on")]}]);
    assert_eq!(messages(json!([user("hi"), native(json!([redacted, thought])), user("go on")])), person);
    assert_eq!(
        messages(json!([native(json!([thought])), user("hi")])),
        json!([{"role": "user", "content": [text_block("hi")]}])
    );
}

#[test]
fn unsigned_thinking_is_dropped_for_anthropic_itself() {
    let thought = json!({"type": "reasoning", "text": "so"});
    let sent = |endpoint: &str| {
        let mut answers = [native(json!([thought, text_block("ok")])), native(json!([thought, text_block("\n")]))];
        answers.iter_mut().for_each(|answer| answer["from"]["endpoint"] = endpoint.into());
        let [first, second] = answers;
        let conversation = super::conversation(json!([user("hi"), first, user("and"), second, user("go on")]));
        let request = crate::ChatRequest::new("claude", &conversation);
        let encoded = crate::encode(&super::settings().with_base_url(endpoint), &request);
        super::body(&encoded.expect("a request"))["messages"].take()
    };
    let wanted = |answer: Value| {
        json!([
            {"role": "user", "content": [text_block("hi")]},
            {"role": "assistant", "content": answer},
            {"role": "user", "content": [text_block("and"), text_block("go on")]},
        ])
    };
    let unsigned = json!({"type": "thinking", "thinking": "so", "signature": ""});
    assert_eq!(sent("https://api.anthropic.com"), wanted(json!([text_block("ok")])));
    assert_eq!(sent("https://elsewhere.example"), wanted(json!([unsigned, text_block("ok")])));
}

#[test]
fn unanswered_server_tool_calls_are_dropped() {
    let search =
        json!({"type": "private", "json": {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}});
    let found =
        json!({"type": "private", "json": {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}});
    let results = json!({"role": "tool", "results": [{"call": "a", "tool": "look", "content": [text_block("18C")]}]});
    let content = |all: Value| messages(all)[1]["content"].clone();
    let open = native(json!([text_block("ok"), search]));
    assert_eq!(content(json!([user("hi"), open, user("go on")])), json!([text_block("ok")]));
    assert_eq!(content(json!([user("hi"), open])), json!([text_block("ok"), search["json"]]));
    let whole = native(json!([search, found]));
    assert_eq!(content(json!([user("hi"), whole, user("go on")])), json!([search["json"], found["json"]]));
    let calls = native(json!([search, call("a")]));
    let both = json!([search["json"], tool_use("a")]);
    assert_eq!(content(json!([user("hi"), calls, results])), both);
    assert_eq!(content(json!([user("hi"), calls, results, user("go on")])), json!([tool_use("a")]));
    assert_eq!(content(json!([user("hi"), calls, results, user("go on"), native(json!([found]))])), both);
}

#[test]
fn a_blank_last_user_message_is_replaced() {
    let answer = json!({"role": "assistant", "parts": [text_block("ok")]});
    assert_eq!(
        messages(json!([user("hi"), answer, user("\n")])),
        json!([
            {"role": "user", "content": [text_block("hi")]},
            {"role": "assistant", "content": [text_block("ok")]},
            {"role": "user", "content": [text_block("[empty message]")]},
        ])
    );
}

#[test]
fn the_first_message_is_from_the_user() {
    let answer = json!({"role": "assistant", "parts": [text_block("Hello!")]});
    assert_eq!(
        messages(json!([answer, user("hi")])),
        json!([
            {"role": "user", "content": [text_block("[the conversation begins here]")]},
            {"role": "assistant", "content": [text_block("Hello!")]},
            {"role": "user", "content": [text_block("hi")]},
        ])
    );
}

#[test]
fn a_continued_reply_is_one_message() {
    let search =
        json!({"type": "private", "json": {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}});
    let found =
        json!({"type": "private", "json": {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}});
    assert_eq!(
        messages(json!([user("hi"), native(json!([text_block("a "), search])), native(json!([found]))])),
        json!([
            {"role": "user", "content": [text_block("hi")]},
            {"role": "assistant", "content": [text_block("a "), search["json"], found["json"]]},
        ])
    );
}

#[test]
fn unchanged_arguments_return_verbatim() {
    let input = |arguments: Value| {
        let raw_arguments = "{\"at\": 12345678901234567890123, \"b\":1.10}";
        let call = json!({"type": "tool_call", "id": "a", "name": "look", "arguments": arguments, "extra": {"arguments": raw_arguments}});
        let conversation = super::conversation(json!([user("hi"), native(json!([call]))]));
        let request = crate::ChatRequest::new("claude", &conversation);
        let encoded = crate::encode(&super::settings(), &request).expect("a request");
        let body = String::from_utf8(encoded.request.body.to_vec()).expect("text");
        let (_, rest) = body.split_once("\"input\":").expect("an input");
        rest.split_once('}').expect("an end").0.to_owned()
    };
    let read: Value = serde_json::from_str("{\"at\": 12345678901234567890123, \"b\": 1.10}").expect("JSON");
    assert_eq!(input(read), "{\"at\": 12345678901234567890123, \"b\":1.10");
    assert_eq!(input(json!({"at": "hidden"})), "{\"at\":\"hidden\"");
}

#[test]
fn invalid_arguments_return_in_an_object() {
    let call = json!({"type": "tool_call", "id": "a", "name": "look", "broken_arguments": {"text": "{\"at", "problem": "cut"}});
    let result = json!({"call": "a", "tool": "look", "content": [text_block("cut")], "is_error": true});
    assert_eq!(
        messages(json!([user("hi"), native(json!([call])), {"role": "tool", "results": [result]}])),
        json!([
            {"role": "user", "content": [text_block("hi")]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {"invalid_arguments": "{\"at"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "cut", "is_error": true}]},
        ])
    );
}
