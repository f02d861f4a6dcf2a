//! Encoding of contents.

use serde_json::{Map, Value, json};

use super::{
    GIF, NEW, OLD, PDF, PNG, SKIP, WAV, audio, body, call, calls, contents, encoded, endpoint, image, settings,
};
use crate::{ChatRequest, Quirks};
use ropeway_core::content::ContentPart;
use ropeway_core::message::{AssistantMessage, AssistantPart, AssistantText, Conversation, Message, ToolResult};

fn user(text: &str) -> Value {
    json!({"role": "user", "parts": [{"text": text}]})
}

fn inline(mime_type: &str, data: &str) -> Value {
    json!({"inlineData": {"mimeType": mime_type, "data": data}})
}

fn fields(value: Value) -> Map<String, Value> {
    value.as_object().cloned().expect("an object")
}

fn resource(value: Value) -> ContentPart {
    serde_json::from_value(json!({"type": "resource", "resource": value})).expect("a resource")
}

#[test]
fn all_media_of_the_user_are_sent() {
    let said = vec![
        ContentPart::text("look"),
        image("image/png", PNG),
        audio(WAV),
        resource(json!({"uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": PDF})),
        resource(json!({"uri": "file:///a.txt", "mimeType": "text/plain", "text": "words"})),
    ];
    let wanted = json!([{"role": "user", "parts": [
        {"text": "look"},
        inline("image/png", PNG),
        inline("audio/wav", WAV),
        inline("application/pdf", PDF),
        {"text": "[file:///a.txt]\nwords"},
    ]}]);
    for model in [NEW, OLD] {
        assert_eq!(contents(model, &Conversation::new().with(said.clone())), wanted);
    }
}

#[test]
fn a_conversation_starts_with_a_user_message() {
    let conversation = Conversation::new().with(AssistantMessage::text("Hello!")).with("hi");
    let wanted = json!([
        user("[the conversation begins]"),
        {"role": "model", "parts": [{"text": "Hello!"}]},
        user("hi"),
    ]);
    assert_eq!(contents(NEW, &conversation), wanted);
}

#[test]
fn consecutive_replies_are_merged() {
    let mut own = AssistantMessage::text("one");
    own.from = Some(endpoint(NEW));
    let mut other = calls(&[call("a", "t")]);
    other.from = Some(endpoint(NEW));
    let conversation = Conversation::new().with("hi").with(own).with(other);
    let found = contents(NEW, &conversation);
    assert_eq!(found.as_array().map(Vec::len), Some(3));
    assert_eq!(
        found[1],
        json!({"role": "model", "parts": [
            {"text": "one"},
            {"functionCall": {"name": "t", "args": {"city": "Paris"}}, "thoughtSignature": SKIP},
        ]})
    );
}

#[test]
fn foreign_calls_get_one_placeholder_signature_per_step() {
    let (a, b, c) = (call("toolu_a", "t"), call("toolu_b", "t"), call("toolu_c", "t"));
    let conversation = Conversation::new()
        .with("hi")
        .with(calls(&[a.clone(), b.clone()]))
        .with(vec![ToolResult::new(&a, vec![]), ToolResult::new(&b, vec![])])
        .with(calls(std::slice::from_ref(&c)))
        .with(vec![ToolResult::new(&c, vec![])]);
    let bare = json!({"functionCall": {"name": "t", "args": {"city": "Paris"}}});
    let excused = json!({"functionCall": {"name": "t", "args": {"city": "Paris"}}, "thoughtSignature": SKIP});
    let empty = json!({"functionResponse": {"name": "t", "response": {"output": ""}}});
    let wanted = |first: &Value| {
        json!([
            user("hi"),
            {"role": "model", "parts": [first, bare]},
            {"role": "user", "parts": [empty, empty]},
            {"role": "model", "parts": [first]},
            {"role": "user", "parts": [empty]},
        ])
    };
    for model in [NEW, "gemini-3-pro", "my-alias", "tunedModels/x", "gemini-pro-latest", "gemini-20"] {
        assert_eq!(contents(model, &conversation), wanted(&excused), "{model}");
    }
    for model in [OLD, "gemini-1.5-pro", "models/gemini-2.0-flash"] {
        assert_eq!(contents(model, &conversation), wanted(&bare), "{model}");
    }
}

#[test]
fn an_unsigned_native_call_gets_a_placeholder_signature() {
    let step = |model: &str, extra: Value| {
        let mut call = call("a", "t");
        call.extra = fields(extra);
        let mut answer = calls(&[call]);
        answer.from = Some(endpoint(model));
        contents(NEW, &Conversation::new().with("hi").with(answer))[1]["parts"][0]["thoughtSignature"].clone()
    };
    assert_eq!(step(OLD, json!({})), SKIP);
    assert_eq!(step(OLD, json!({"thoughtSignature": "s"})), "s");
    // A proxy may have dropped the signature.
    assert_eq!(step(NEW, json!({})), SKIP);
    assert_eq!(step(NEW, json!({"thoughtSignature": "s"})), "s");
}

#[test]
fn a_reply_returns_unchanged_only_to_its_endpoint() {
    let mut signed = call("8f2b", "t");
    signed.extra = fields(json!({
        "thoughtSignature": "c2ln", "functionCall": {"id": "8f2b", "later": 1}, "arguments": "{ }"
    }));
    // This id was generated, not received.
    let own_id = call("call_x_1", "t");
    let text = |text: &str, extra: Value| AssistantText { text: text.to_owned(), extra: fields(extra) };
    let mut answer = AssistantMessage::new(vec![
        AssistantPart::Reasoning(AssistantText { text: "hm".to_owned(), extra: Map::new() }),
        AssistantPart::Reasoning(AssistantText {
            text: String::new(),
            extra: fields(json!({"thoughtSignature": "dA=="})),
        }),
        AssistantPart::Text(text("a", json!({}))),
        AssistantPart::Text(text("b", json!({"thoughtSignature": "dGV4dA=="}))),
        AssistantPart::Text(text("", json!({"thoughtSignature": "ZW5k"}))),
        AssistantPart::Opaque { json: fields(json!({"executableCode": {"code": "1"}})) },
        AssistantPart::ToolCall(signed.clone()),
        AssistantPart::ToolCall(own_id.clone()),
    ]);
    answer.from = Some(endpoint(NEW));
    let results = vec![
        ToolResult::new(&own_id, vec![ContentPart::text("second")]),
        ToolResult::new(&signed, vec![ContentPart::text("first")]),
    ];
    let conversation = Conversation::new().with("hi").with(answer).with(results);
    let wanted = json!([
        user("hi"),
        {"role": "model", "parts": [
            {"text": "hm", "thought": true},
            {"text": "", "thought": true, "thoughtSignature": "dA=="},
            {"text": "a"},
            {"text": "b", "thoughtSignature": "dGV4dA=="},
            {"text": "", "thoughtSignature": "ZW5k"},
            {"executableCode": {"code": "1"}},
            {"functionCall": {"name": "t", "args": {"city": "Paris"}, "id": "8f2b", "later": 1}, "thoughtSignature": "c2ln"},
            {"functionCall": {"name": "t", "args": {"city": "Paris"}}},
        ]},
        {"role": "user", "parts": [
            {"functionResponse": {"id": "8f2b", "name": "t", "response": {"output": "first"}}},
            {"functionResponse": {"name": "t", "response": {"output": "second"}}},
        ]},
    ]);
    assert_eq!(contents(NEW, &conversation), wanted);

    let elsewhere = settings().with_base_url("https://elsewhere.test");
    let found = body(&encoded(&elsewhere, &ChatRequest::new(NEW, &conversation)))["contents"].clone();
    let wanted = json!([
        user("hi"),
        {"role": "model", "parts": [
            {"text": "a"},
            {"text": "b"},
            {"functionCall": {"name": "t", "args": {"city": "Paris"}}, "thoughtSignature": SKIP},
            {"functionCall": {"name": "t", "args": {"city": "Paris"}}},
        ]},
        {"role": "user", "parts": [
            {"functionResponse": {"name": "t", "response": {"output": "first"}}},
            {"functionResponse": {"name": "t", "response": {"output": "second"}}},
        ]},
    ]);
    assert_eq!(found, wanted);
}

/// Returns the contents after a call of the tool `shot` with this result.
fn after_result(model: &str, quirks: Quirks, results: Vec<(Vec<ContentPart>, bool)>) -> Vec<Value> {
    let made: Vec<_> = (0..results.len()).map(|at| call(&format!("id{at}"), "shot")).collect();
    let results: Vec<ToolResult> = std::iter::zip(&made, results)
        .map(|(call, (content, is_error))| ToolResult { is_error, ..ToolResult::new(call, content) })
        .collect();
    let conversation = Conversation::new().with("hi").with(calls(&made)).with(results).with("and?");
    let settings = settings().with_quirks(quirks);
    let found = body(&encoded(&settings, &ChatRequest::new(model, &conversation)))["contents"].clone();
    let mut found = found.as_array().cloned().expect("contents");
    assert_eq!(found.pop(), Some(user("and?")));
    found.split_off(2)
}

fn response(said: Value) -> Value {
    json!({"functionResponse": {"name": "shot", "response": said}})
}

#[test]
fn a_result_is_an_object() {
    let results = vec![
        (vec![], false),
        (vec![ContentPart::text("18C")], false),
        (vec![ContentPart::text("a"), ContentPart::text(""), ContentPart::text("b")], false),
        (vec![ContentPart::text("boom")], true),
        (vec![], true),
        (vec![resource(json!({"uri": "a:b", "text": "words"}))], false),
    ];
    let wanted = json!({"role": "user", "parts": [
        response(json!({"output": ""})),
        response(json!({"output": "18C"})),
        response(json!({"output": "a\nb"})),
        response(json!({"error": "boom"})),
        response(json!({"error": "the call failed"})),
        response(json!({"output": "[a:b]\nwords"})),
    ]});
    assert_eq!(after_result(NEW, Quirks::default(), results), [wanted]);
}

#[test]
fn results_contain_images_since_gemini_3() {
    let results = || {
        let pdf = resource(json!({"uri": "a.pdf", "mimeType": "application/pdf", "blob": PDF}));
        vec![(vec![ContentPart::text("seen"), image("image/png", PNG), pdf], false)]
    };
    let inside = json!({"role": "user", "parts": [{"functionResponse": {
        "name": "shot",
        "response": {"output": "seen"},
        "parts": [inline("image/png", PNG), inline("application/pdf", PDF)]
    }}]});
    let lines = "seen\n[image, image/png: it follows the results]\n[document, application/pdf: it follows the results]";
    let behind = [
        json!({"role": "user", "parts": [response(json!({"output": lines}))]}),
        json!({"role": "user", "parts": [
            {"text": "[returned by the tool `shot`]"}, inline("image/png", PNG), inline("application/pdf", PDF)
        ]}),
    ];
    let quirks = |parts: bool| Quirks { gemini_result_parts: Some(parts), ..Quirks::default() };
    assert_eq!(after_result(NEW, Quirks::default(), results()), std::slice::from_ref(&inside));
    assert_eq!(after_result("my-alias", Quirks::default(), results()), std::slice::from_ref(&inside));
    assert_eq!(after_result(OLD, quirks(true), results()), [inside]);
    assert_eq!(after_result(OLD, Quirks::default(), results()), behind);
    assert_eq!(after_result(NEW, quirks(false), results()), behind);
}

#[test]
fn other_media_follow_the_results_with_the_tool_name() {
    let results = vec![
        (vec![audio(WAV), image("image/png", PNG)], false),
        (vec![ContentPart::text("nothing")], false),
        (vec![image("image/gif", GIF)], true),
    ];
    let wanted = [
        json!({"role": "user", "parts": [
            {"functionResponse": {
                "name": "shot",
                "response": {"output": "[sound, audio/wav: it follows the results]"},
                "parts": [inline("image/png", PNG)]
            }},
            response(json!({"output": "nothing"})),
            response(json!({"error": "[image, image/gif: it follows the results]"})),
        ]}),
        json!({"role": "user", "parts": [
            {"text": "[returned by the tool `shot`, result 1 of 3]"},
            inline("audio/wav", WAV),
            {"text": "[returned by the tool `shot`, result 3 of 3]"},
            inline("image/gif", GIF),
        ]}),
    ];
    assert_eq!(after_result(NEW, Quirks::default(), results), wanted);
}

#[test]
fn an_invalid_call_without_a_result_is_repaired() {
    let mut broken = call("a", "t");
    broken.arguments = ropeway_core::message::CallArguments::read("[1");
    let conversation = Conversation::new().with("hi").with(calls(&[broken])).with(Message::from("go on"));
    let found = contents(OLD, &conversation);
    let wanted =
        json!({"role": "model", "parts": [{"functionCall": {"name": "t", "args": {"invalid_arguments": "[1"}}}]});
    assert_eq!(found[1], wanted);
    assert!(found[2]["parts"][0]["functionResponse"]["response"]["error"].is_string(), "{found}");
    assert_eq!(found[3], user("go on"));
}
