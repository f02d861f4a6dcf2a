//! Replies that return to their endpoint.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{NEW, SKIP, body, encoded, finish, parts, read, settings, toolset};
use crate::ChatRequest;
use ropeway_core::content::ContentPart;
use ropeway_core::message::{Conversation, ToolResult};

/// Returns the contents after the first, once a reply was decoded and its calls were answered.
fn again(sent: &[Value]) -> Vec<Value> {
    let frames: Vec<Value> = sent.iter().cloned().chain([finish("STOP")]).collect();
    let (reply, _) = read(&frames).expect("a reply");
    let results: Vec<ToolResult> =
        reply.message.calls().map(|call| ToolResult::new(call, vec![ContentPart::text("ok")])).collect();
    // The conversation is saved and loaded in between.
    let saved = json!(Conversation::new().with("hi").with(reply.message).with(results));
    let conversation: Conversation = serde_json::from_value(saved).expect("a conversation");
    let toolset = toolset();
    let request = ChatRequest::new(NEW, &conversation).with_tools(&toolset);
    let mut contents = body(&encoded(&settings(), &request))["contents"].as_array().cloned().expect("contents");
    contents.split_off(1)
}

#[test]
fn a_reply_returns_part_by_part() {
    let thought = json!({"text": "hm", "thought": true});
    let text = json!({"text": "Looking.", "thoughtSignature": "dGV4dA=="});
    let code = json!({"executableCode": {"language": "PYTHON", "code": "print(1)"}, "thoughtSignature": "Y29kZQ=="});
    let first = json!({"functionCall": {"name": "get.weather", "args": {"z": 1.0, "a": [null, "ü"]}, "id": "8f2b"}, "thoughtSignature": "c2ln"});
    let second = json!({"functionCall": {"name": "unheard-of", "args": {}, "surprise": 1}});
    let end = json!({"text": "", "thoughtSignature": "ZW5k"});
    let sent = [
        parts(json!([thought])),
        parts(json!([text, {"text": "On"}])),
        parts(json!([{"text": "ce."}, code])),
        parts(json!([first, second])),
        parts(json!([end])),
    ];
    let wanted = [
        json!({"role": "model", "parts": [thought, text, {"text": "Once."}, code, first, second, end]}),
        json!({"role": "user", "parts": [
            {"functionResponse": {"id": "8f2b", "name": "get.weather", "response": {"output": "ok"}}},
            {"functionResponse": {"name": "unheard-of", "response": {"output": "ok"}}},
        ]}),
    ];
    assert_eq!(again(&sent), wanted);
}

/// Generates a part that Gemini may send.
fn part() -> impl Strategy<Value = Value> {
    let signed = |part: Value, signature: Option<String>| {
        let mut part = part;
        if let Some(signature) = signature {
            part["thoughtSignature"] = signature.into();
        }
        part
    };
    let signature = || proptest::option::of("[a-z]{1,3}");
    prop_oneof![
        ("[a-c]{1,2}", signature()).prop_map(move |(text, signature)| signed(json!({"text": text}), signature)),
        "[a-z]{1,3}".prop_map(|signature| json!({"text": "", "thoughtSignature": signature})),
        ("[a-c]{1,2}", signature())
            .prop_map(move |(text, signature)| signed(json!({"text": text, "thought": true}), signature)),
        ("[a-c]{1,2}", proptest::option::of("[0-9a-f]{4}"), any::<i64>(), signature()).prop_map(
            move |(name, id, number, signature)| {
                let mut call = json!({"name": name, "args": {"n": number, "a": {"b": [true]}}});
                if let Some(id) = id {
                    call["id"] = id.into();
                }
                signed(json!({"functionCall": call}), signature)
            }
        ),
        signature()
            .prop_map(move |signature| signed(json!({"inlineData": {"mimeType": "a/b", "data": "AA=="}}), signature)),
    ]
}

/// Adds a signature to the first call.
fn excused(mut parts: Vec<Value>) -> Vec<Value> {
    if let Some(first) = parts.iter_mut().find(|part| part.get("functionCall").is_some())
        && first.get("thoughtSignature").is_none()
    {
        first["thoughtSignature"] = SKIP.into();
    }
    parts
}

/// Merges adjacent plain text of the same kind.
fn merged(parts: &[Value]) -> Vec<Value> {
    let kind = |part: &Value| {
        let is_plain = part.get("text").is_some() && part.get("thoughtSignature").is_none();
        is_plain.then(|| part.get("thought").is_some())
    };
    let mut merged: Vec<Value> = Vec::new();
    for part in parts {
        match merged.last_mut() {
            Some(last) if kind(last).is_some() && kind(last) == kind(part) => {
                let both = [&last["text"], &part["text"]].map(|text| text.as_str().unwrap_or_default()).concat();
                last["text"] = both.into();
            }
            _ => merged.push(part.clone()),
        }
    }
    merged
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_reply_returns_unchanged(sent in proptest::collection::vec(part(), 1..10), together in 1_usize..4) {
        let frames: Vec<Value> = sent.chunks(together).map(|some| parts(some.into())).collect();
        let contents = again(&frames);
        prop_assert_eq!(&contents[0], &json!({"role": "model", "parts": excused(merged(&sent))}));
        let ids = |part: &Value| part["functionCall"]["id"].clone();
        let called: Vec<Value> = sent.iter().filter(|part| part.get("functionCall").is_some()).map(ids).collect();
        let answered: Vec<Value> = match contents.get(1) {
            Some(results) => results["parts"].as_array().into_iter().flatten()
                .map(|part| part["functionResponse"]["id"].clone()).collect(),
            None => Vec::new(),
        };
        prop_assert_eq!(answered, called);
    }
}
