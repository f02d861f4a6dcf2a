//! Decoding of calls and their arguments.

use serde_json::{Map, Value, json};

use super::{input, reply, stream, tool_use};
use crate::StopReason;
use ropeway_core::message::{AssistantPart, CallArguments, ToolCall};

fn fields(json: Value) -> Map<String, Value> {
    serde_json::from_value(json).expect("an object")
}

/// Returns the arguments of the only call.
fn arguments(block: Value, deltas: &[&str], stop: &str) -> CallArguments {
    let reply = reply(stream([(block, deltas.iter().map(|json| input(json)).collect())], stop));
    let mut calls = reply.message.calls();
    let call = calls.next().expect("a call").arguments.clone();
    assert_eq!(calls.next(), None);
    call
}

fn broken(text: &str, problem: &str) -> CallArguments {
    CallArguments::broken(text, problem)
}

#[test]
fn arguments_that_are_not_an_object_are_invalid() {
    let call = || tool_use("a", "t");
    assert_eq!(arguments(call(), &[], "tool_use"), CallArguments::Object(Map::new()));
    assert_eq!(arguments(call(), &["", " "], "tool_use"), CallArguments::Object(Map::new()));
    assert_eq!(
        arguments(call(), &["[1", "]"], "tool_use"),
        broken("[1]", "the arguments must be a JSON object, not an array")
    );
    let CallArguments::Broken { text, problem } = arguments(call(), &["{city: Paris}"], "tool_use") else {
        panic!("broken")
    };
    assert_eq!(text, "{city: Paris}");
    assert!(problem.starts_with("the arguments are not valid JSON: "), "{problem}");
}

#[test]
fn truncated_arguments_are_invalid() {
    let cut = "the arguments were cut off: the reply reached its maximum length";
    for stop in ["max_tokens", "model_context_window_exceeded"] {
        assert_eq!(arguments(tool_use("a", "t"), &["{\"city\": \"Pa"], stop), broken("{\"city\": \"Pa", cut));
    }
}

#[test]
fn deltas_replace_arguments_given_at_the_start() {
    let whole = |input: Value| json!({"type": "tool_use", "id": "a", "name": "t", "input": input});
    let object = |json: Value| CallArguments::Object(fields(json));
    assert_eq!(arguments(whole(json!({"a": 1})), &[], "tool_use"), object(json!({"a": 1})));
    assert_eq!(arguments(whole(json!({"a": 1})), &["", "{\"b\"", ":2}"], "tool_use"), object(json!({"b": 2})));
    assert_eq!(arguments(whole(Value::Null), &["{}"], "tool_use"), object(json!({})));
    assert_eq!(arguments(whole(json!("{\"a\":1}")), &[], "tool_use"), object(json!({"a": 1})));
    assert_eq!(
        arguments(whole(json!([1])), &[], "tool_use"),
        broken("[1]", "the arguments must be a JSON object, not an array")
    );
}

#[test]
fn an_unknown_tool_keeps_the_name_of_the_model() {
    let reply = reply(stream([(tool_use("a", "no such"), vec![input("{}")])], "tool_use"));
    assert_eq!(reply.message.parts, [AssistantPart::ToolCall(ToolCall::new("a", "no such", Map::new()))]);
}

#[test]
fn a_truncated_call_has_invalid_arguments() {
    let frames = |stop: &str| {
        let mut frames = stream([(tool_use("a", "t"), vec![])], stop);
        frames.retain(|frame| frame["type"] != "content_block_stop");
        frames
    };
    let problem = |stop: &str| {
        let message = json!(reply(frames(stop)).message);
        message["parts"][0]["broken_arguments"]["problem"].clone()
    };
    for stop in ["refusal", "something_new"] {
        assert_eq!(problem(stop), "the call was cut off before it was complete", "{stop}");
    }
    assert_eq!(problem("max_tokens"), "the arguments were cut off: the reply reached its maximum length");
    for stop in ["tool_use", "end_turn", "stop_sequence", "pause_turn"] {
        assert_eq!(problem(stop), serde_json::Value::Null, "{stop}");
    }
}

#[test]
fn a_reply_with_calls_stops_for_tool_use() {
    assert_eq!(reply(stream([(tool_use("a", "t"), vec![])], "end_turn")).stop, StopReason::ToolUse);
}
