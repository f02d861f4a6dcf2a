//! Conversations that continue after a decoded reply, in the same dialect and in others.

use ropeway::content::ContentPart;
use ropeway::message::{Conversation, Dialect, Message, ToolCall, ToolResult};
use serde_json::{Value, json};

use super::case::{Case, tools};
use super::parts::part;
use super::streams::stream;

/// Saves and loads a conversation.
fn saved_and_loaded(conversation: &Conversation) -> Conversation {
    let saved = serde_json::to_string(conversation).expect("JSON");
    let loaded = serde_json::from_str(&saved).expect("a conversation");
    assert_eq!(conversation, &loaded, "saving loses something");
    loaded
}

/// Returns the calls of the last reply.
fn last_calls(conversation: &Conversation) -> Vec<ToolCall> {
    match conversation.messages.last() {
        Some(Message::Assistant(answer)) => answer.calls().cloned().collect(),
        other => panic!("{other:?} is no answer"),
    }
}

/// Creates a conversation in which a model of `dialect` called tools and got their results.
fn after_tools(mut conversation: Conversation, dialect: Dialect) -> Conversation {
    conversation.push(format!("How is the wind, {dialect}?"));
    conversation.push(stream(dialect, "tools").decode().end.expect("a reply").message);
    let calls = last_calls(&conversation);
    let [wind, cabins] = &calls[..] else { panic!("{calls:?} are not two calls") };
    conversation.push(vec![
        ToolResult::new(wind, vec![ContentPart::text("41 km/h"), part("png")]),
        ToolResult::error(cabins, "nobody counts at night"),
    ]);
    saved_and_loaded(&conversation)
}

/// Creates a conversation for each dialect, and one through all of them.
pub(super) fn cases() -> Vec<Case> {
    let began = || Conversation::new().with_system("Be brief.");
    let one = Dialect::ALL.into_iter().map(|from| Case::new(format!("from_{from}"), after_tools(began(), from)));
    let done = Dialect::ALL.into_iter().map(|from| {
        let mut conversation = after_tools(began(), from);
        conversation.push(stream(from, "final").decode().end.expect("a reply").message);
        Case::new(format!("done_by_{from}"), saved_and_loaded(&conversation).with("Thanks"))
    });
    let through = Dialect::ALL.into_iter().fold(began(), after_tools);
    let all = one.chain(done).chain([Case::new("through_all", through)]);
    all.chain(private()).map(|case| case.with_tools(tools())).collect()
}

/// Replies with opaque parts.
fn private() -> Vec<Case> {
    let streams = [
        (Dialect::Anthropic, "unknown"),
        (Dialect::Anthropic, "pause"),
        (Dialect::Anthropic, "hidden_thinking"),
        (Dialect::Responses, "unknown"),
        (Dialect::Responses, "refusal"),
        (Dialect::Gemini, "unknown"),
        (Dialect::Chat, "unknown"),
    ];
    let cases = streams.into_iter().map(|(dialect, name)| {
        let answer = stream(dialect, name).decode().end.expect("a reply").message;
        let conversation = Conversation::new().with("When does it open?").with(answer).with("And when does it close?");
        Case::new(format!("{name}_of_{dialect}"), saved_and_loaded(&conversation))
    });
    let calls = [
        (Dialect::Responses, "open_reasoning"),
        (Dialect::Gemini, "no_ids"),
        (Dialect::Chat, "odd_reasoning_details"),
        (Dialect::Chat, "odd_signature"),
        (Dialect::Chat, "odd_bad_arguments"),
    ];
    let with_results = calls.into_iter().map(|(dialect, name)| {
        let mut conversation = Conversation::new().with("How is the wind?");
        conversation.push(stream(dialect, name).decode().end.expect("a reply").message);
        let calls = last_calls(&conversation);
        let results: Vec<_> = calls.iter().map(|call| ToolResult::new(call, vec![part("text")])).collect();
        Case::new(format!("{name}_of_{dialect}"), saved_and_loaded(&conversation.with(results)))
    });
    cases.chain(with_results).collect()
}

/// The encoded form of the reply decoded from `tools`, in its own dialect.
fn echoed(dialect: Dialect) -> Value {
    let case = Case::new("echo", after_tools(Conversation::new(), dialect)).with_tools(tools());
    let body: Value = serde_json::from_slice(&case.encode(dialect).request.body).expect("JSON");
    let at = |pointer: &str| body.pointer(pointer).cloned().expect(pointer);
    match dialect {
        Dialect::Anthropic => at("/messages/1"),
        Dialect::Responses => json!(at("/input").as_array().expect("items")[1..5]),
        Dialect::Gemini => at("/contents/1"),
        Dialect::Chat => at("/messages/1"),
    }
}

#[test]
fn a_reply_returns_unchanged_to_its_endpoint() {
    let summit = json!({"station": "summit", "unit": "km/h"});
    assert_eq!(
        echoed(Dialect::Anthropic),
        json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Two stations are asked for, so the wind is read at both.", "signature": "c2lnbmF0dXJlLW9mLXRoZS1yb3Bld2F5"},
            {"type": "redacted_thinking", "data": "cmVkYWN0ZWQtYnktdGhlLXJvcGV3YXk="},
            {"type": "text", "text": "I will look at both stations.", "citations": null},
            {"type": "tool_use", "id": "toolu_01Summit", "name": "wind", "caller": {"type": "direct"}, "input": summit},
            {"type": "tool_use", "id": "toolu_01Valley", "name": "cabins", "caller": {"type": "direct"}, "input": {}}
        ]})
    );
    assert_eq!(
        echoed(Dialect::Gemini),
        json!({"role": "model", "parts": [
            {"text": "**Two stations**\n\nThe wind is read at one, cabins at the other.", "thought": true},
            {"text": "I will look at both stations."},
            {"functionCall": {"id": "fc-summit-1", "name": "wind", "args": summit}, "thoughtSignature": "c2lnbmF0dXJlLW9mLXRoZS1yb3Bld2F5"},
            {"functionCall": {"id": "fc-cabins-2", "name": "cabins", "args": {}}}
        ]})
    );
    assert_eq!(
        echoed(Dialect::Chat),
        json!({
            "role": "assistant",
            "content": "I will look at both stations.",
            "reasoning_content": "Two stations are asked for, so the wind is read.",
            "tool_calls": [
                {"id": "call_Summit1", "type": "function", "function": {"name": "wind", "arguments": "{\"station\": \"summit\", \"unit\": \"km/h\"}"}},
                {"id": "call_Cabins2", "type": "function", "function": {"name": "cabins", "arguments": "{}"}}
            ]
        })
    );
    let call = |id: &str, call: &str, name: &str, arguments: &str| json!({"id": id, "type": "function_call", "status": "completed", "call_id": call, "name": name, "arguments": arguments});
    assert_eq!(
        echoed(Dialect::Responses),
        json!([
            {"id": "rs_ropeway_1", "type": "reasoning", "encrypted_content": "gAAAAropeway-encrypted-thoughts", "summary": [
                {"type": "summary_text", "text": "**Two stations**\n\nThe wind is read at one."},
                {"type": "summary_text", "text": "**Cabins**\n\nThey are counted."}
            ]},
            {"id": "msg_ropeway_tools", "type": "message", "status": "completed", "phase": "commentary", "role": "assistant", "content": [
                {"type": "output_text", "text": "I will look at both stations.", "annotations": [], "logprobs": []}
            ]},
            call("fc_ropeway_1", "call_Summit1", "wind", "{\"station\": \"summit\", \"unit\": \"km/h\"}"),
            call("fc_ropeway_2", "call_Cabins2", "cabins", "{}"),
        ])
    );
}

#[test]
fn opaque_parts_go_to_no_other_endpoint() {
    let secrets = [
        (Dialect::Anthropic, &["c2lnbmF0dXJlLW9mLXRoZS1yb3Bld2F5", "cmVkYWN0ZWQ", "Two stations"][..]),
        (Dialect::Responses, &["gAAAAropeway", "rs_ropeway_1", "fc_ropeway_1", "Two stations"]),
        (Dialect::Gemini, &["c2lnbmF0dXJlLW9mLXRoZS1yb3Bld2F5", "Two stations"]),
        (Dialect::Chat, &["reasoning_content", "Two stations"]),
    ];
    for (from, secrets) in secrets {
        let case = Case::new("told", after_tools(Conversation::new(), from)).with_tools(tools());
        for to in Dialect::ALL {
            let body = String::from_utf8(case.encode(to).request.body.to_vec()).expect("text");
            for secret in secrets {
                assert_eq!(body.contains(secret), from == to, "`{secret}` of {from}, told to {to}");
            }
        }
    }
}
