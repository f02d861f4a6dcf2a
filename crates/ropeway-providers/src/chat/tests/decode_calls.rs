//! Decoding of calls.

use serde_json::{Value, json};

use super::{delta, events, finish, parts, reply};
use crate::{ReplyEvent, StopReason};
use ropeway_core::message::{CallArguments, ToolCall};

/// Returns the calls of a reply: id, name and arguments.
fn calls(chunks: &[Value]) -> Value {
    let reply = reply(chunks);
    let calls = reply.message.calls().map(|call| match &call.arguments {
        CallArguments::Object(arguments) => json!([call.id, call.name, arguments]),
        CallArguments::Broken { text, problem } => json!([call.id, call.name, text, problem]),
    });
    calls.collect()
}

/// Creates a chunk with deltas of calls.
fn pieces(pieces: Value) -> Value {
    delta(json!({ "tool_calls": pieces }))
}

fn arguments(text: &str) -> CallArguments {
    CallArguments::Object(serde_json::from_str(text).expect("an object"))
}

#[test]
fn a_call_is_streamed() {
    let chunks = [
        delta(json!({"role": "assistant", "content": null})),
        pieces(json!([{"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": ""}}])),
        pieces(json!([{"index": 0, "function": {"arguments": "{\"a\""}}])),
        pieces(json!([{"index": 0, "function": {"arguments": ":1}"}}])),
        pieces(json!([{"index": 1, "id": "c2", "type": "function", "function": {"name": "find", "arguments": "{}"}}])),
        finish("tool_calls"),
    ];
    let delta = |index, json: &str| ReplyEvent::ToolCallDelta { index, json: json.to_owned() };
    let started =
        |index, id: &str, name: &str| ReplyEvent::ToolCallStarted { index, id: id.to_owned(), name: name.to_owned() };
    let whole = |index, id: &str, name: &str, json: &str| {
        let mut call = ToolCall::new(id, name, Default::default());
        call.arguments = arguments(json);
        ReplyEvent::ToolCall { index, call }
    };
    let expected = [
        started(0, "c1", "look"),
        delta(0, "{\"a\""),
        delta(0, ":1}"),
        started(1, "c2", "find"),
        delta(1, "{}"),
        whole(0, "c1", "look", "{\"a\":1}"),
        whole(1, "c2", "find", "{}"),
    ];
    assert_eq!(events(&chunks), expected);
    assert_eq!(reply(&chunks).stop, StopReason::ToolUse);
}

#[test]
fn parallel_calls_are_streamed() {
    let chunks = [
        pieces(json!([
            {"index": 0, "id": "c1", "function": {"name": "look", "arguments": "{\"a\""}},
            {"index": 1, "id": "c2", "function": {"name": "look", "arguments": "{\"a\""}},
        ])),
        delta(json!({"content": "and"})),
        pieces(json!([{"index": 1, "function": {"arguments": ":2}"}}, {"index": 0, "function": {"arguments": ":1}"}}])),
        finish("tool_calls"),
    ];
    assert_eq!(calls(&chunks), json!([["c1", "look", {"a": 1}], ["c2", "look", {"a": 2}]]));
}

#[test]
fn calls_without_indexes_are_sequential() {
    let whole = [
        pieces(json!([{"id": "c1", "function": {"name": "look", "arguments": "{\"a\":1}"}}])),
        pieces(json!([{"id": "c2", "function": {"name": "look", "arguments": "{\"a\":2}"}}])),
        finish("stop"),
    ];
    assert_eq!(calls(&whole), json!([["c1", "look", {"a": 1}], ["c2", "look", {"a": 2}]]));
    let without_ids = [
        pieces(
            json!([{"function": {"name": "look", "arguments": ""}}, {"function": {"name": "look", "arguments": ""}}]),
        ),
        finish("stop"),
    ];
    assert_eq!(calls(&without_ids), json!([["call_a1_0", "look", {}], ["call_a1_1", "look", {}]]));
    let in_pieces = [
        pieces(json!([{"id": "c1", "function": {"name": "look", "arguments": "{\"a\""}}])),
        pieces(json!([{"function": {"arguments": ":"}}])),
        pieces(json!([{"id": "c1", "function": {"name": "look", "arguments": "1}"}}])),
        finish("stop"),
    ];
    assert_eq!(calls(&in_pieces), json!([["c1", "look", {"a": 1}]]));
}

#[test]
fn a_new_id_on_a_used_index_is_a_new_call() {
    let chunks = [
        pieces(json!([{"index": 0, "id": "c1", "function": {"name": "look", "arguments": "{\"a\":"}}])),
        pieces(json!([{"index": 0, "id": "c1", "function": {"name": "look", "arguments": "1}"}}])),
        pieces(json!([{"index": 0, "id": "c2", "function": {"name": "look", "arguments": "{\"a\":"}}])),
        pieces(json!([{"index": 0, "function": {"arguments": "2}"}}])),
        finish("tool_calls"),
    ];
    assert_eq!(calls(&chunks), json!([["c1", "look", {"a": 1}], ["c2", "look", {"a": 2}]]));
}

#[test]
fn calls_with_the_same_index_are_split_when_complete() {
    let piece =
        |arguments: &str| pieces(json!([{"index": 0, "id": "", "function": {"name": "look", "arguments": arguments}}]));
    let chunks = [piece("{\"a\":1}"), piece("{\"a\":1}"), finish("stop")];
    assert_eq!(calls(&chunks), json!([["call_a1_0", "look", {"a": 1}], ["call_a1_1", "look", {"a": 1}]]));
    let named_again = [piece("{\"a\""), piece(":1}"), piece(""), finish("stop")];
    assert_eq!(calls(&named_again), json!([["call_a1_0", "look", {"a": 1}]]));
}

#[test]
fn a_repeated_name_does_not_start_a_call() {
    let piece = |arguments: &str| {
        pieces(json!([{"index": 0, "id": "c1", "function": {"name": "look", "arguments": arguments}}]))
    };
    let text = "x".repeat(5_000);
    let start = [piece("{\"a\":"), piece("{\"b\":\"")];
    let middle = text.chars().map(|letter| piece(&letter.to_string()));
    let end = [piece("\"}"), piece("}"), piece("\n"), finish("tool_calls")];
    let chunks: Vec<Value> = start.into_iter().chain(middle).chain(end).collect();
    assert_eq!(calls(&chunks), json!([["c1", "look", {"a": {"b": text}}]]));
    let blank = [piece("{\"a\":1}"), piece(" "), piece(" {\"a\":2}"), finish("tool_calls")];
    assert_eq!(calls(&blank), json!([["c1", "look", {"a": 1}], ["c1", "look", {"a": 2}]]));
}

#[test]
fn a_repeated_call_is_one_call() {
    let whole = pieces(json!([{"index": 0, "id": "c1", "function": {"name": "look", "arguments": "{\"a\":1}"}}]));
    assert_eq!(calls(&[whole.clone(), whole, finish("tool_calls")]), json!([["c1", "look", {"a": 1}]]));
}

#[test]
fn name_and_id_may_follow_the_arguments() {
    let chunks = [
        pieces(json!([{"index": 0, "function": {"arguments": "{\"a\""}}])),
        pieces(json!([{"index": 0, "function": {"name": "look"}}])),
        pieces(json!([{"index": 0, "id": "c1", "function": {"arguments": ":1}"}}])),
        pieces(json!([{"index": 0, "id": "c2", "function": {"name": "look"}}])),
        finish("tool_calls"),
    ];
    assert_eq!(calls(&chunks), json!([["call_a1_0", "look", {"a": 1}], ["c2", "look", {}]]));
    let delta = |json: &str| ReplyEvent::ToolCallDelta { index: 0, json: json.to_owned() };
    let started = ReplyEvent::ToolCallStarted { index: 0, id: "call_a1_0".to_owned(), name: "look".to_owned() };
    assert_eq!(events(&chunks)[..3], [started, delta("{\"a\""), delta(":1}")]);
}

#[test]
fn a_call_without_a_name_is_emitted() {
    let chunks = [pieces(json!([{"index": 0, "id": "c1", "function": {"arguments": "{}"}}])), finish("tool_calls")];
    let expected = [
        ReplyEvent::ToolCallStarted { index: 0, id: "c1".to_owned(), name: String::new() },
        ReplyEvent::ToolCallDelta { index: 0, json: "{}".to_owned() },
        ReplyEvent::ToolCall { index: 0, call: ToolCall::new("c1", "", Default::default()) },
    ];
    assert_eq!(events(&chunks), expected);
    let nothing = [pieces(json!([{"index": 0, "id": "", "function": {"arguments": ""}}, null, {}])), finish("stop")];
    assert_eq!(calls(&nothing), json!([]));
}

#[test]
fn arguments_may_be_an_object_or_nothing() {
    let chunks = [
        pieces(json!([{"index": 0, "id": "c1", "function": {"name": "look", "arguments": {"a": 1.50}}}])),
        pieces(json!([{"index": 1, "id": "c2", "function": {"name": "look", "arguments": null}}])),
        pieces(json!([{"index": 2, "id": "c3", "function": {"name": "look"}}])),
        finish("stop"),
    ];
    assert_eq!(calls(&chunks), json!([["c1", "look", {"a": 1.5}], ["c2", "look", {}], ["c3", "look", {}]]));
    assert_eq!(reply(&chunks).stop, StopReason::ToolUse);
}

#[test]
fn arguments_that_are_not_an_object_have_a_problem() {
    let chunks = [
        pieces(json!([{"index": 0, "id": "c1", "function": {"name": "look", "arguments": "{a: 1}"}}])),
        pieces(json!([{"index": 1, "id": "c2", "function": {"name": "look", "arguments": [1]}}])),
        finish("tool_calls"),
    ];
    let expected = json!([
        ["c1", "look", "{a: 1}", "the arguments are not valid JSON: key must be a string at line 1 column 2"],
        ["c2", "look", "[1]", "the arguments must be a JSON object, not an array"],
    ]);
    assert_eq!(calls(&chunks), expected);
}

#[test]
fn a_truncated_call_is_invalid_even_if_it_parses() {
    let chunks = [
        pieces(json!([{"index": 0, "id": "c1", "function": {"name": "look", "arguments": "{\"a\":1}"}}])),
        pieces(json!([{"index": 1, "id": "c2", "function": {"name": "look", "arguments": "{}"}}])),
        finish("length"),
    ];
    let cut = "the arguments were cut off: the reply reached its maximum length";
    assert_eq!(calls(&chunks), json!([["c1", "look", {"a": 1}], ["c2", "look", "{}", cut]]));
    assert_eq!(reply(&chunks).stop, StopReason::MaxTokens);
}

#[test]
fn the_deprecated_function_call_is_decoded() {
    let chunks = [
        delta(json!({"function_call": {"name": "look", "arguments": ""}})),
        delta(json!({"function_call": {"arguments": "{\"a\":"}})),
        delta(json!({"function_call": {"arguments": "1}"}})),
        finish("function_call"),
    ];
    assert_eq!(calls(&chunks), json!([["call_a1_0", "look", {"a": 1}]]));
    assert_eq!(reply(&chunks).stop, StopReason::ToolUse);
}

#[test]
fn unknown_fields_of_a_call_are_kept() {
    let signature = json!({"google": {"thought_signature": "s1"}});
    let chunks = [
        pieces(json!([{"index": 0, "id": "c1", "type": "function", "extra_content": signature, "note": null,
            "function": {"name": "look", "arguments": "{ \"a\": 1", "odd": true}}])),
        pieces(json!([{"index": 0, "extra_content": signature, "function": {"arguments": " }"}}])),
        finish("tool_calls"),
    ];
    let expected = json!([{"type": "tool_call", "id": "c1", "name": "look", "arguments": {"a": 1}, "extra": {
        "extra_content": signature, "function": {"odd": true}, "arguments": "{ \"a\": 1 }",
    }}]);
    assert_eq!(parts(&chunks), expected);
}
