//! Replies that return to their endpoint.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::stream::{CAREFUL, Style};
use super::{body, conversation, decode_all, encode, input, local, message, openai, reply, text, tools};
use crate::{ChatRequest, ProviderSettings, ReplyEvent};
use ropeway_core::lowering::Toolset;
use ropeway_core::message::{Conversation, Message};
use ropeway_core::tool::ToolDefinition;

/// Items of every type.
fn everything() -> Vec<Value> {
    vec![
        json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA==", "summary": [
            {"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Then."}]}),
        json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}),
        json!({"type": "reasoning", "id": "rs_2", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}),
        json!({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "phase": "commentary", "content": [
            {"type": "output_text", "text": "It says ", "annotations": [{"type": "url_citation", "url": "https://a"}], "logprobs": []},
            {"type": "output_text", "text": "18 °C.", "annotations": [], "logprobs": []}]}),
        json!({"type": "message", "id": "msg_2", "status": "completed", "role": "assistant", "content": []}),
        json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": "{\"city\": \"Paris\"}", "status": "completed", "namespace": "n"}),
        json!({"type": "function_call", "id": "fc_2", "call_id": "call_2", "name": "weather", "arguments": "{}", "status": "completed"}),
        json!({"type": "odd", "id": "odd_1", "nested": {"b": 1, "a": [null]}}),
    ]
}

/// Returns the encoded items of a reply, without results.
fn sent_back(settings: &ProviderSettings, conversation: &Conversation) -> Vec<Value> {
    let items = input(settings, conversation);
    let is_answer = |item: &&Value| item["role"] != "user" && item["type"] != "function_call_output";
    items.as_array().expect("items").iter().filter(is_answer).cloned().collect()
}

fn reasoning(events: &[ReplyEvent]) -> String {
    let texts = events.iter().filter_map(|event| match event {
        ReplyEvent::Reasoning(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// Checks a stream of items in any style.
fn check(style: Style, items: &[Value]) {
    let is_empty = |item: &Value| item["content"].as_array().is_some_and(Vec::is_empty);
    let expected: Vec<Value> = items.iter().filter(|item| !is_empty(item)).map(|item| style.item(item)).collect();
    let (events, reply) = decode_all(&style.stream(items));
    let reply = reply.expect("a reply");
    assert_eq!(text(&events), reply.message.to_text(), "each text is told once: {style:?}");
    let (conversation, decoded) = (Conversation::new().with("hi").with(reply.message.clone()), reply.message);
    assert_eq!(sent_back(&openai(), &conversation), expected, "{style:?}");
    let saved = serde_json::to_string(&conversation).expect("JSON");
    let loaded: Conversation = serde_json::from_str(&saved).expect("a conversation");
    assert_eq!(loaded.messages[1], Message::Assistant(decoded), "{style:?}");
}

#[test]
fn items_return_unchanged_for_every_server_style() {
    for style in Style::all() {
        check(style, &everything());
    }
}

#[test]
fn text_and_reasoning_are_emitted_once_in_order() {
    for style in Style::all() {
        let (events, reply) = decode_all(&style.stream(&everything()));
        assert_eq!(text(&events), "It says 18 °C.", "{style:?}");
        // Without indexes, summaries are separated only in the complete item.
        if style.places || !style.pieces {
            assert_eq!(reasoning(&events), "First.\n\nThen.Hm.", "{style:?}");
        }
        let ids = reply.expect("a reply").message.calls().map(|call| call.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids, ["call_1", "call_2"], "{style:?}");
    }
}

#[test]
fn output_only_fields_are_removed() {
    let stream = CAREFUL.stream(&[
        json!({"type": "message", "id": "msg_1", "created_by": "x", "role": "assistant", "content": [
            {"type": "output_text", "text": "{}", "parsed": {}}]}),
        json!({"type": "function_call", "id": null, "created_by": "x", "call_id": "c", "name": "t", "arguments": "{}", "parsed_arguments": {}}),
        json!({"type": "odd", "id": null, "created_by": "x", "parsed": 1}),
    ]);
    let conversation = Conversation::new().with(reply(&stream).message);
    let expected = [
        json!({"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "{}"}]}),
        json!({"type": "function_call", "call_id": "c", "name": "t", "arguments": "{}"}),
        json!({"type": "odd"}),
    ];
    assert_eq!(sent_back(&openai(), &conversation), expected);
}

#[test]
fn opaque_parts_stay_with_their_endpoint() {
    let conversation = Conversation::new().with(reply(&CAREFUL.stream(&everything())).message);
    let said = |at: usize, text: &str| {
        json!({"type": "message", "id": format!("msg_{at}"), "role": "assistant", "status": "completed", "content": [
            {"type": "output_text", "text": text, "annotations": []}]})
    };
    let expected = [
        said(0, "It says "),
        said(1, "18 °C."),
        json!({"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{\"city\":\"Paris\"}"}),
        json!({"type": "function_call", "call_id": "call_2", "name": "weather", "arguments": "{}"}),
    ];
    assert_eq!(sent_back(&local(), &conversation), expected);
}

#[test]
fn tool_names_are_mapped_in_both_directions() {
    let item = json!({"type": "function_call", "id": "fc_1", "call_id": "c", "name": "files_read", "arguments": "{}"});
    let (tools, answer) = (tools(), reply(&CAREFUL.stream(std::slice::from_ref(&item))).message);
    assert_eq!(answer.calls().map(|call| call.name.as_str()).collect::<Vec<_>>(), ["files.read"]);
    let conversation = Conversation::new().with(answer);
    let body = body(&openai(), &ChatRequest::new("m", &conversation).with_tools(&tools));
    assert_eq!(body["input"][0], item);
}

#[test]
fn reasoning_without_a_following_item_is_dropped() {
    let thought = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"});
    let stream = [
        json!({"type": "response.output_item.done", "item": thought}),
        json!({"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}}),
    ];
    let conversation = Conversation::new().with("hi").with(reply(&stream).message).with("go on");
    assert_eq!(sent_back(&openai(), &conversation), Vec::<Value>::new());
}

#[test]
fn an_empty_message_and_its_reasoning_are_dropped() {
    let thought = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"});
    let empty = json!({"type": "message", "id": "msg_1", "role": "assistant", "content": []});
    let sent = |items: &[Value]| {
        sent_back(&openai(), &Conversation::new().with("hi").with(reply(&CAREFUL.stream(items)).message))
    };
    assert_eq!(sent(&[thought.clone(), empty.clone()]), Vec::<Value>::new());
    let said = message("msg_2", "18 °C.");
    assert_eq!(sent(&[thought.clone(), empty, said.clone()]), [thought, said]);
}

#[test]
fn a_shortened_reply_returns_without_reasoning_and_ids() {
    let call =
        json!({"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{\"city\": \"Paris\"}"});
    let said = |text: &str| json!({"type": "message", "role": "assistant", "content": text});
    let whole = reply(&CAREFUL.stream(&everything())).message;
    let mut without_thoughts = whole.clone();
    without_thoughts.parts.drain(..3);
    without_thoughts.parts.truncate(4);
    let expected = vec![said("It says "), said("18 °C."), call.clone()];
    assert_eq!(sent_back(&openai(), &Conversation::new().with(without_thoughts)), expected);

    let mut without_text = whole;
    without_text.parts.drain(3..6);
    without_text.parts.truncate(4);
    assert_eq!(sent_back(&openai(), &Conversation::new().with(without_text)), [call]);
}

#[test]
fn models_without_reasoning_get_no_reasoning_and_ids() {
    let sent = |items: &[Value]| {
        let conversation = Conversation::new().with(reply(&CAREFUL.stream(items)).message);
        body(&openai(), &ChatRequest::new("gpt-4o", &conversation))["input"].take()
    };
    let thought = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"});
    let said = json!({"type": "message", "role": "assistant", "content": "18 °C."});
    assert_eq!(sent(&[thought, message("msg_1", "18 °C.")]), json!([said]));
    assert_eq!(sent(&[message("msg_1", "18 °C.")]), json!([message("msg_1", "18 °C.")]), "its own answers");
}

#[test]
fn reasoning_with_only_an_id_is_not_sent_to_openai() {
    for encrypted in [json!({}), json!({"encrypted_content": null}), json!({"content": []})] {
        let mut thought = json!({"type": "reasoning", "id": "rs_1", "summary": []});
        thought.as_object_mut().expect("an object").extend(encrypted.as_object().cloned().unwrap_or_default());
        let answer = reply(&CAREFUL.stream(&[thought, message("msg_1", "18 °C.")])).message;
        let expected = json!({"type": "message", "role": "assistant", "content": "18 °C."});
        assert_eq!(sent_back(&openai(), &Conversation::new().with(answer)), [expected]);
    }
}

#[test]
fn text_added_by_the_host_is_a_separate_message() {
    let items = [json!({"type": "message", "id": "msg_1", "role": "assistant", "content": []})];
    let mut answer = reply(&CAREFUL.stream(&items)).message;
    answer.parts.extend(ropeway_core::message::AssistantMessage::text("more").parts);
    let expected = [json!({"type": "message", "role": "assistant", "content": "more"})];
    assert_eq!(sent_back(&openai(), &Conversation::new().with(answer)), expected);
}

#[test]
fn changed_arguments_are_serialized_again() {
    let items = [
        json!({"type": "function_call", "id": "fc_1", "call_id": "c", "name": "t", "arguments": "{\"key\": \"secret\"}"}),
    ];
    let saved = serde_json::to_value(Message::Assistant(reply(&CAREFUL.stream(&items)).message)).expect("JSON");
    let mut changed = saved;
    changed["parts"][0]["arguments"] = json!({"key": "***"});
    let expected =
        json!({"type": "function_call", "id": "fc_1", "call_id": "c", "name": "t", "arguments": "{\"key\":\"***\"}"});
    assert_eq!(sent_back(&openai(), &conversation(json!([changed]))), [expected]);
}

#[test]
fn strict_arguments_return_verbatim() {
    let mut weather = ToolDefinition::new("weather")
        .with_input_schema(json!({"type": "object", "properties": {"city": {"type": "string"}, "unit": {"type": "string"}}, "required": ["city"]}));
    weather.provider_options = serde_json::from_value(json!({"openai": {"strict": true}})).expect("options");
    let (tools, start) = (Toolset::new([weather]), Conversation::new().with("hi"));
    let encoded = encode(&openai(), &ChatRequest::new("m", &start).with_tools(&tools));
    let item = json!({"type": "function_call", "id": "fc_1", "call_id": "c", "name": "weather", "arguments": "{\"city\":\"Paris\",\"unit\":null}"});
    let (mut decoder, mut events) = (encoded.decoder(), Vec::new());
    for frame in CAREFUL.stream(std::slice::from_ref(&item)) {
        decoder.frame(frame.to_string().as_bytes(), &mut events).expect("a frame");
    }
    let answer = decoder.end(&mut events).expect("a reply").message;
    assert_eq!(json!(answer.parts)[0]["arguments"], json!({"city": "Paris"}));
    let conversation = start.with(answer);
    let body = body(&openai(), &ChatRequest::new("m", &conversation).with_tools(&tools));
    assert_eq!(body["input"][1], item);
}

#[test]
fn invalid_arguments_return_in_an_object() {
    let items = [json!({"type": "function_call", "id": "fc_1", "call_id": "c", "name": "t", "arguments": "[1]"})];
    let sent = sent_back(&openai(), &Conversation::new().with(reply(&CAREFUL.stream(&items)).message));
    let expected = json!({"type": "function_call", "id": "fc_1", "call_id": "c", "name": "t", "arguments": "{\"invalid_arguments\":\"[1]\"}"});
    assert_eq!(sent, [expected]);
}

fn item() -> impl Strategy<Value = Value> {
    let text = "[ -~ä\u{1f980}\n\"]{0,12}";
    let part = (text, any::<bool>()).prop_map(|(text, refusal)| match refusal {
        true => json!({"type": "refusal", "refusal": text}),
        false => json!({"type": "output_text", "text": text, "annotations": []}),
    });
    let message = prop::collection::vec(part, 0..3)
        .prop_map(|content| json!({"type": "message", "role": "assistant", "status": "completed", "content": content}));
    let thought = prop::collection::vec(text, 0..3).prop_map(|texts| {
        let summary: Vec<Value> = texts.iter().map(|text| json!({"type": "summary_text", "text": text})).collect();
        json!({"type": "reasoning", "summary": summary, "encrypted_content": "x"})
    });
    let call = ("[a-z]{1,4}", text).prop_map(|(name, text)| {
        let arguments = format!("{{ \"a\": {}}}", Value::from(text));
        json!({"type": "function_call", "name": name, "arguments": arguments, "status": "completed"})
    });
    prop_oneof![message, thought, call, Just(json!({"type": "odd"}))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn arbitrary_items_return_unchanged(items in prop::collection::vec(item(), 0..5)) {
        let last = message("", "The end.");
        let items: Vec<Value> = items.into_iter().chain([last]).enumerate().map(|(at, mut item)| {
            item["id"] = format!("item_{at}").into();
            if item["type"] == "function_call" {
                item["call_id"] = format!("call_{at}").into();
            }
            item
        }).collect();
        for style in Style::all() {
            check(style, &items);
        }
    }
}
