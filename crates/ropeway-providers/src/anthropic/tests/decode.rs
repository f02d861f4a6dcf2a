//! Decoding of streams.

use serde_json::{Map, Value, json};

use super::{delta_of, input, read, reply, start, stop_with, stream, text, text_block, tool_use};
use crate::{ProviderErrorKind, Reply, ReplyEvent, StopReason, Usage};
use ropeway_core::message::{AssistantPart, AssistantText, ToolCall};

fn fields(json: Value) -> Map<String, Value> {
    serde_json::from_value(json).expect("an object")
}

fn text_part(text: &str) -> AssistantPart {
    AssistantPart::Text(AssistantText { text: text.to_owned(), extra: Map::new() })
}

fn opaque(json: Value) -> AssistantPart {
    AssistantPart::Opaque { json: fields(json) }
}

fn usage(input: u64, output: u64) -> Usage {
    Usage { input, output, ..Usage::default() }
}

#[test]
fn thinking_text_and_calls_are_streamed() {
    let thinking = json!({"type": "thinking", "thinking": "", "signature": ""});
    let thought = |text: &str| json!({"type": "thinking_delta", "thinking": text});
    let signature = json!({"type": "signature_delta", "signature": "c2ln"});
    let mut call = tool_use("toolu_1", "weather");
    call["caller"] = json!({"type": "direct"});
    let mut frames = stream(
        [
            (thinking, vec![thought("two "), thought("cities"), signature]),
            (text_block(), vec![text("Let me"), text(" \"look\".")]),
            (call, vec![input(""), input("{\"city\":"), input("\"Paris\"}")]),
            (tool_use("toolu_2", "clock"), vec![input("")]),
        ],
        "tool_use",
    );
    frames.insert(3, json!({"type": "ping"}));
    let (reply, events) = read(frames.iter().map(Value::to_string));

    let mut weather = ToolCall::new("toolu_1", "weather", fields(json!({"city": "Paris"})));
    weather.extra = fields(json!({"caller": {"type": "direct"}}));
    let clock = ToolCall::new("toolu_2", "clock", Map::new());
    let started = |index: usize, id: &str, name: &str| ReplyEvent::ToolCallStarted {
        index,
        id: id.to_owned(),
        name: name.to_owned(),
    };
    assert_eq!(
        events,
        [
            ReplyEvent::Usage(usage(10, 1)),
            ReplyEvent::Reasoning("two ".to_owned()),
            ReplyEvent::Reasoning("cities".to_owned()),
            ReplyEvent::Text("Let me".to_owned()),
            ReplyEvent::Text(" \"look\".".to_owned()),
            started(0, "toolu_1", "weather"),
            ReplyEvent::ToolCallDelta { index: 0, json: "{\"city\":".to_owned() },
            ReplyEvent::ToolCallDelta { index: 0, json: "\"Paris\"}".to_owned() },
            ReplyEvent::ToolCall { index: 0, call: weather.clone() },
            started(1, "toolu_2", "clock"),
            ReplyEvent::Usage(usage(10, 7)),
            ReplyEvent::ToolCall { index: 1, call: clock.clone() },
        ]
    );
    let reply = reply.expect("a reply");
    let reasoning = AssistantText { text: "two cities".to_owned(), extra: fields(json!({"signature": "c2ln"})) };
    let parts = vec![
        AssistantPart::Reasoning(reasoning),
        text_part("Let me \"look\"."),
        AssistantPart::ToolCall(weather),
        AssistantPart::ToolCall(clock),
    ];
    assert_eq!(reply.message.parts, parts);
    assert_eq!((reply.stop, reply.usage, reply.warnings), (StopReason::ToolUse, usage(10, 7), Vec::<String>::new()));
    assert_eq!((reply.id.as_deref(), reply.model.as_deref()), (Some("msg_1"), Some("claude-5")));
    assert_eq!(
        json!(reply.message.from),
        json!({"dialect": "anthropic", "endpoint": "https://api.anthropic.com", "model": "claude"})
    );
}

#[test]
fn a_local_server_may_omit_input_and_usage() {
    let frames = [
        json!({"type": "message_start", "message": {"id": "chatcmpl-1", "model": "local",
            "usage": {"cache_read_input_tokens": 123, "input_tokens": 62, "output_tokens": 0}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "mOa1", "name": "weather"}}),
        delta_of(0, input("{\n  \"city\": \"Paris\"\n}")),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {"output_tokens": 36}}),
    ];
    let reply = reply(frames);
    let mut call = ToolCall::new("mOa1", "weather", fields(json!({"city": "Paris"})));
    call.extra = fields(json!({"arguments": "{\n  \"city\": \"Paris\"\n}"}));
    assert_eq!(reply.message.parts, [AssistantPart::ToolCall(call)]);
    assert_eq!(reply.usage, Usage { input: 185, output: 36, cache_read: 123, ..Usage::default() });
}

#[test]
fn null_fields_are_ignored() {
    let mut frames = stream([(text_block(), vec![text("a")])], "end_turn");
    let plain = reply(frames.clone());
    for frame in &mut frames {
        for name in ["message", "index", "content_block", "delta", "usage", "error"] {
            frame.as_object_mut().expect("an event").entry(name).or_insert(Value::Null);
        }
    }
    assert_eq!(reply(frames), plain);
}

#[test]
fn the_last_usage_counts_and_input_is_a_sum() {
    let mut frames = stream([], "end_turn");
    frames[0]["message"]["usage"] = json!({"input_tokens": 5, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 200, "output_tokens": 1, "output_tokens_details": null});
    frames[1]["usage"] = json!({"input_tokens": 6, "cache_creation_input_tokens": null, "output_tokens": 96, "output_tokens_details": {"thinking_tokens": 21}});
    let usage = Usage { input: 236, output: 96, cache_read: 200, cache_write: 30, reasoning: 21, ..Usage::default() };
    assert_eq!(reply(frames.clone()).usage, usage);
    // Counts are totals and do not add up.
    frames.insert(2, json!({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 97}}));
    assert_eq!(reply(frames).usage, Usage { output: 97, ..usage });
}

#[test]
fn every_stop_reason_is_mapped() {
    for (word, stop) in [
        ("end_turn", StopReason::EndTurn),
        ("max_tokens", StopReason::MaxTokens),
        ("stop_sequence", StopReason::StopSequence),
        ("tool_use", StopReason::ToolUse),
        ("pause_turn", StopReason::Pause),
        ("refusal", StopReason::Refusal),
        ("model_context_window_exceeded", StopReason::ContextWindow),
        ("compaction", StopReason::Other("compaction".to_owned())),
    ] {
        assert_eq!(reply(stream([(text_block(), vec![text("a")])], word)).stop, stop, "{word}");
    }
}

#[test]
fn a_refusal_is_explained_in_a_warning() {
    let refusal = |details: Value| {
        let stop = stop_with(json!({"stop_reason": "refusal", "stop_details": details}));
        let (reply, events) = read([start(), stop].map(|frame| frame.to_string()));
        let reply = reply.expect("a reply");
        assert_eq!((&reply.stop, reply.message.parts.len()), (&StopReason::Refusal, 0));
        let told: Vec<String> = events
            .into_iter()
            .filter_map(|event| match event {
                ReplyEvent::Warning(warning) => Some(warning),
                _ => None,
            })
            .collect();
        assert_eq!(told, reply.warnings);
        told
    };
    let details = json!({"type": "refusal", "category": "cyber", "explanation": "It would do harm."});
    assert_eq!(refusal(details), ["the model refused to answer (`cyber`): It would do harm."]);
    assert_eq!(
        refusal(json!({"type": "refusal", "category": "bio", "explanation": null})),
        ["the model refused to answer (`bio`)"]
    );
    assert_eq!(refusal(json!({"explanation": "No."})), ["the model refused to answer: No."]);
    assert!(refusal(Value::Null).is_empty());
}

#[test]
fn unknown_events_and_deltas_are_ignored() {
    let mut frames =
        stream([(text_block(), vec![text("a"), json!({"type": "future_delta", "text": "x"}), text("b")])], "end_turn");
    frames.insert(1, json!({"type": "future_event", "index": 0, "delta": {"type": "text_delta", "text": "x"}}));
    frames.insert(2, json!({"no": "type"}));
    assert_eq!(reply(frames).message.parts, [text_part("ab")]);
}

#[test]
fn unknown_blocks_are_kept() {
    let reply = reply(stream(
        [
            (json!({"type": "redacted_thinking", "data": "x"}), vec![]),
            (
                json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "web_search_result"}]}),
                vec![],
            ),
            (
                json!({"type": "compaction", "content": null}),
                vec![
                    json!({"type": "compaction_delta", "content": "so "}),
                    json!({"type": "compaction_delta", "content": "far", "encrypted_content": "e"}),
                ],
            ),
            (
                json!({"type": "future", "text": "a", "list": [1], "state": {"n": 1}}),
                vec![
                    text("b"),
                    json!({"type": "future_delta", "list": [2], "state": {"n": 2}}),
                    json!({"type": "signature_delta", "signature": "s"}),
                    json!({"type": "citations_delta", "citation": {"n": 1}}),
                ],
            ),
        ],
        "end_turn",
    ));
    assert_eq!(
        reply.message.parts,
        [
            opaque(json!({"type": "redacted_thinking", "data": "x"})),
            opaque(
                json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "web_search_result"}]})
            ),
            opaque(json!({"type": "compaction", "content": "so far", "encrypted_content": "e"})),
            opaque(
                json!({"type": "future", "text": "ab", "list": [1, 2], "state": {"n": 2}, "signature": "s", "citations": [{"n": 1}]})
            ),
        ]
    );
}

#[test]
fn the_input_of_a_server_tool_is_assembled() {
    let search = || json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}});
    let with =
        |input: Value| opaque(json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": input}));
    let reply_to = |pieces: &[&str]| {
        let deltas = pieces.iter().map(|json| input(json)).collect();
        reply(stream([(search(), deltas)], "pause_turn")).message.parts
    };
    assert_eq!(reply_to(&["", "{\"query\": \"", "rust\"}"]), [with(json!({"query": "rust"}))]);
    assert_eq!(reply_to(&["{\"query\": \"ru"]), [with(json!({}))]);
    // The same without the end of the block.
    let frames = [
        json!({"type": "content_block_start", "index": 0, "content_block": search()}),
        delta_of(0, input("{\"query\":1}")),
        stop_with(json!({"stop_reason": "end_turn"})),
    ];
    assert_eq!(reply(frames).message.parts, [with(json!({"query": 1}))]);
}

#[test]
fn citations_are_kept_with_their_text() {
    let block = json!({"type": "text", "text": "", "citations": null});
    let cite = |n: u8| json!({"type": "citations_delta", "citation": {"type": "char_location", "n": n}});
    let reply = reply(stream([(block, vec![cite(1), text("a"), cite(2)])], "end_turn"));
    let citations = json!({"citations": [{"type": "char_location", "n": 1}, {"type": "char_location", "n": 2}]});
    assert_eq!(
        reply.message.parts,
        [AssistantPart::Text(AssistantText { text: "a".to_owned(), extra: fields(citations) })]
    );
}

#[test]
fn text_of_an_unopened_block_is_kept() {
    let frames = [
        delta_of(0, json!({"type": "thinking_delta", "thinking": "hm"})),
        delta_of(1, text("a")),
        delta_of(1, text("b")),
        delta_of(2, input("{}")),
        json!({"type": "content_block_stop", "index": 7}),
        stop_with(json!({"stop_reason": "end_turn"})),
    ];
    let thought = AssistantPart::Reasoning(AssistantText { text: "hm".to_owned(), extra: Map::new() });
    assert_eq!(reply(frames).message.parts, [thought, text_part("ab")]);
}

#[test]
fn an_empty_reply_is_valid() {
    let empty = |frames: Vec<Value>| {
        let Reply { message, stop, .. } = reply(frames);
        assert_eq!((message.parts, stop), (vec![], StopReason::EndTurn));
    };
    empty(stream([], "end_turn"));
    empty(vec![start(), json!({"type": "message_stop"})]);
}

#[test]
fn a_reply_without_an_end_is_truncated() {
    let frames = stream([(text_block(), vec![text("a")])], "end_turn");
    for length in 0..frames.len() - 2 {
        let error = read(frames[..length].iter().map(Value::to_string)).0.expect_err("no answer");
        assert_eq!((error.kind, error.to_string().as_str()), (ProviderErrorKind::Truncated, "the reply was cut off"));
        assert!(error.is_retryable());
    }
    // Some servers send nothing after the stop reason.
    assert_eq!(reply(frames[..frames.len() - 1].to_vec()), reply(frames));
}

#[test]
fn events_after_the_end_are_ignored() {
    let frames = stream([(text_block(), vec![text("a")])], "end_turn");
    let conversation = super::conversation(json!([super::user("hi")]));
    let request = crate::ChatRequest::new("claude", &conversation);
    let mut decoder = crate::encode(&super::settings(), &request).expect("a request").decoder();
    let mut events = Vec::new();
    for frame in frames.iter().chain([&delta_of(0, text("b")), &json!({"type": "error", "error": {}})]) {
        decoder.frame(frame.to_string().as_bytes(), &mut events).expect("a frame");
    }
    assert!(decoder.is_finished());
    assert_eq!(decoder.end(&mut events).expect("a reply").message.parts, [text_part("a")]);
}

#[test]
fn an_error_event_fails_the_reply() {
    let overloaded =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "req_1"});
    let local = json!({"error": {"code": 500, "message": "out of memory", "type": "server_error"}});
    for (told, expected) in [
        (overloaded, (ProviderErrorKind::Overloaded, "the provider ended the reply: Overloaded")),
        (local, (ProviderErrorKind::Server, "the provider ended the reply: out of memory")),
    ] {
        let mut frames = stream([(text_block(), vec![text("a")])], "end_turn");
        frames.insert(3, told);
        let (reply, events) = read(frames.iter().map(Value::to_string));
        let error = reply.expect_err("an error");
        assert_eq!((error.kind, error.message.as_str()), expected);
        assert_eq!(events.last(), Some(&ReplyEvent::Text("a".to_owned())));
    }
}

#[test]
fn invalid_json_is_an_error_and_unknown_json_is_ignored() {
    let whole = stream([(text_block(), vec![text("a")])], "end_turn");
    let with = |odd: &str| {
        let mut frames: Vec<String> = whole.iter().map(Value::to_string).collect();
        frames.insert(2, odd.to_owned());
        read(frames).0
    };
    for odd in [
        "",
        " ",
        "[DONE]",
        "null",
        "[]",
        "7",
        "\"a\"",
        "{}",
        "{\"type\":7}",
        "{\"type\":\"content_block_delta\",\"delta\":null}",
        "{\"type\":\"content_block_delta\",\"index\":\"0\",\"delta\":{\"type\":\"text_delta\",\"text\":7}}",
        "{\"type\":\"content_block_start\",\"index\":-1,\"content_block\":7}",
        "{\"type\":\"message_delta\",\"usage\":[1.5]}",
        "{\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":\"many\"}}}",
        "{\"type\":\"ping\",\"type\":\"ping\"}",
    ] {
        assert_eq!(with(odd).expect(odd).message.parts, [text_part("a")], "{odd}");
    }
    for odd in ["{", "<html>", "{\"type\":\"ping\"} x", "{\"type\":\"ping\"}{}"] {
        let error = with(odd).expect_err(odd);
        assert_eq!(
            (error.kind, error.message.as_str()),
            (ProviderErrorKind::Unreadable, "an event of the reply is not JSON")
        );
        assert!(std::error::Error::source(&error).is_some());
    }
    assert_eq!(with("{\"type\": \"ping\"}   \n").expect("spaces are nothing").message.parts, [text_part("a")]);
}

#[test]
fn the_code_execution_container_is_kept() {
    let mut frames = stream([], "end_turn");
    frames[0]["message"]["container"] = Value::Null;
    frames[1]["delta"]["container"] = json!({"id": "container_1", "expires_at": "2026-11-15T10:00:00Z"});
    let expected = json!({"container": {"id": "container_1", "expires_at": "2026-11-15T10:00:00Z"}});
    assert_eq!(Value::Object(reply(frames).message.extra), expected);
}
