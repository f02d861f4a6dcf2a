//! Decoding of replies.

use serde_json::{Map, Value, json};

use super::{decoder, finish, parts, read};
use crate::{Decoder, ProviderErrorKind, Reply, ReplyEvent, StopReason, Usage};
use ropeway_core::json;
use ropeway_core::message::{AssistantPart, CallArguments};

fn reply(frames: &[Value]) -> Reply {
    read(frames).expect("a reply").0
}

/// Returns the parts of a reply in their saved form.
fn saved_parts(frames: &[Value]) -> Value {
    json!(reply(frames).message.parts)
}

fn stop(frames: &[Value]) -> StopReason {
    reply(frames).stop
}

fn usage(input: u64, output: u64, cache_read: u64, reasoning: u64) -> Usage {
    Usage { input, output, cache_read, reasoning, ..Usage::default() }
}

#[test]
fn text_reasoning_and_calls_are_streamed() {
    let city = |city: &str| Map::from_iter([("city".to_owned(), json!(city))]);
    let mut first = parts(json!([{"text": "Both are ", "thought": true}, {"text": "needed.", "thought": true}]));
    first["responseId"] = json!("r1");
    first["modelVersion"] = json!("gemini-3.8-flash-001");
    first["usageMetadata"] = json!({"promptTokenCount": 10, "thoughtsTokenCount": 3, "totalTokenCount": 13});
    let calls = json!([
        {"functionCall": {"name": "get.weather", "args": {"city": "Paris"}, "id": "8f"}, "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "get.weather", "args": {"city": "Tokyo"}}},
    ]);
    let mut last = finish("STOP");
    last["usageMetadata"] = json!({
        "promptTokenCount": 10, "cachedContentTokenCount": 4, "candidatesTokenCount": 6, "thoughtsTokenCount": 3,
        "toolUsePromptTokenCount": 2, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 10}]
    });
    let (reply, events) = read(&[first, parts(json!([{"text": "Looking."}])), parts(calls), last]).expect("a reply");
    let calls: Vec<_> = reply.message.calls().cloned().collect();
    assert_eq!((calls[0].id.as_str(), calls[1].id.as_str()), ("8f", "call_r1_1"));
    assert_eq!(calls[0].arguments, CallArguments::Object(city("Paris")));
    assert_eq!(json!(calls[0].extra), json!({"thoughtSignature": "c2ln", "functionCall": {"id": "8f"}}));
    assert_eq!((&calls[1].arguments, calls[1].extra.len()), (&CallArguments::Object(city("Tokyo")), 0));
    let started = |index: usize| ReplyEvent::ToolCallStarted {
        index,
        id: calls[index].id.clone(),
        name: "get.weather".to_owned(),
    };
    let delta = |index: usize, json: &str| ReplyEvent::ToolCallDelta { index, json: json.to_owned() };
    let whole = |index: usize| ReplyEvent::ToolCall { index, call: calls[index].clone() };
    let told = [
        ReplyEvent::Reasoning("Both are ".to_owned()),
        ReplyEvent::Reasoning("needed.".to_owned()),
        ReplyEvent::Usage(usage(10, 3, 0, 3)),
        ReplyEvent::Text("Looking.".to_owned()),
        started(0),
        delta(0, r#"{"city":"Paris"}"#),
        whole(0),
        started(1),
        delta(1, r#"{"city":"Tokyo"}"#),
        whole(1),
        ReplyEvent::Usage(usage(12, 9, 4, 3)),
    ];
    assert_eq!(events, told);
    assert_eq!(reply.stop, StopReason::ToolUse);
    assert_eq!(reply.usage, usage(12, 9, 4, 3));
    assert_eq!((reply.id.as_deref(), reply.model.as_deref()), (Some("r1"), Some("gemini-3.8-flash-001")));
    let AssistantPart::Reasoning(thoughts) = &reply.message.parts[0] else { panic!("{:?}", reply.message.parts) };
    assert_eq!((thoughts.text.as_str(), reply.message.parts.len()), ("Both are needed.", 4));
}

#[test]
fn text_is_merged_unless_a_part_is_signed() {
    let frames = [
        parts(json!([{"text": "a"}, {"text": "b"}])),
        parts(json!([{"text": "c"}, {"text": ""}])),
        parts(json!([{"text": "d", "thoughtSignature": "s1"}])),
        parts(json!([{"text": "e"}])),
        parts(json!([{"text": "f", "thought": true}])),
        parts(json!([{"text": "g", "thought": true, "thoughtSignature": "s2"}])),
        parts(json!([{"text": "", "thoughtSignature": "s3"}])),
        parts(json!([{"text": "h", "partMetadata": {"x": 1}}, {"text": "i", "thoughtSignature": ""}])),
        finish("STOP"),
    ];
    let wanted = json!([
        {"type": "text", "text": "abc"},
        {"type": "text", "text": "d", "extra": {"thoughtSignature": "s1"}},
        {"type": "text", "text": "e"},
        {"type": "reasoning", "text": "f"},
        {"type": "reasoning", "text": "g", "extra": {"thoughtSignature": "s2"}},
        {"type": "text", "text": "", "extra": {"thoughtSignature": "s3"}},
        {"type": "text", "text": "h", "extra": {"partMetadata": {"x": 1}}},
        {"type": "text", "text": "i"},
    ]);
    assert_eq!(saved_parts(&frames), wanted);
}

#[test]
fn unknown_parts_are_kept() {
    let code = json!({"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "s"});
    let picture = json!({"inlineData": {"mimeType": "image/png", "data": "AAAA"}, "thought": true});
    let frames = [
        parts(json!([{"text": "a"}, code, {"text": "b"}])),
        parts(json!([picture, {"surprise": [1, {"a": null}]}, {}, {"thoughtSignature": "alone"}])),
        finish("STOP"),
    ];
    let wanted = json!([
        {"type": "text", "text": "a"},
        {"type": "private", "json": code},
        {"type": "text", "text": "b"},
        {"type": "private", "json": picture},
        {"type": "private", "json": {"surprise": [1, {"a": null}]}},
        {"type": "private", "json": {"thoughtSignature": "alone"}},
    ]);
    assert_eq!(saved_parts(&frames), wanted);
}

#[test]
fn the_first_candidate_is_the_reply() {
    let both = json!({"candidates": [
        {"content": {"parts": [{"text": "other"}]}, "index": 1, "finishReason": "SAFETY"},
        {"content": {"parts": [{"text": "one"}]}, "index": 0},
    ]});
    let other = json!({"candidates": [{"content": {"parts": [{"text": "other"}]}, "index": 1}]});
    assert_eq!(saved_parts(&[both.clone(), other, finish("STOP")]), json!([{"type": "text", "text": "one"}]));
    assert_eq!(read(&[both]).expect_err("no end").kind, ProviderErrorKind::Truncated);
}

#[test]
fn every_finish_reason_is_mapped() {
    use StopReason::{ContentFilter, EndTurn, MalformedToolCall, MaxTokens, Other, Pause};
    let other = |reason: &str| Other(reason.to_owned());
    let reasons = [
        ("STOP", EndTurn),
        ("stop", EndTurn),
        ("MAX_TOKENS", MaxTokens),
        ("SAFETY", ContentFilter),
        ("RECITATION", ContentFilter),
        ("BLOCKLIST", ContentFilter),
        ("PROHIBITED_CONTENT", ContentFilter),
        ("SPII", ContentFilter),
        ("IMAGE_SAFETY", ContentFilter),
        ("IMAGE_OTHER", ContentFilter),
        ("MALFORMED_FUNCTION_CALL", MalformedToolCall),
        ("UNEXPECTED_TOOL_CALL", MalformedToolCall),
        ("TOO_MANY_TOOL_CALLS", MalformedToolCall),
        ("CONTINUATION", Pause),
        ("LANGUAGE", other("LANGUAGE")),
        ("OTHER", other("OTHER")),
        ("NO_IMAGE", other("NO_IMAGE")),
        ("MALFORMED_RESPONSE", other("MALFORMED_RESPONSE")),
        ("Brand_New", other("Brand_New")),
    ];
    for (reason, wanted) in reasons {
        assert_eq!(stop(&[parts(json!([{"text": "a"}])), finish(reason)]), wanted, "{reason}");
    }
}

#[test]
fn a_finish_message_is_a_warning() {
    let mut last = finish("MALFORMED_FUNCTION_CALL");
    last["candidates"][0]["finishMessage"] = json!("call: print(1)");
    assert_eq!(reply(&[last]).warnings, ["gemini stopped with `MALFORMED_FUNCTION_CALL`: call: print(1)"]);
}

#[test]
fn a_blocked_prompt_stops_with_a_content_filter() {
    let blocked = json!({
        "promptFeedback": {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "no"},
        "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9}
    });
    let (reply, events) = read(&[blocked]).expect("a reply");
    let warning = "gemini blocked the prompt with `PROHIBITED_CONTENT`: no".to_owned();
    assert_eq!((&reply.stop, &reply.message.parts), (&StopReason::ContentFilter, &vec![]));
    assert_eq!(reply.warnings, std::slice::from_ref(&warning));
    assert_eq!(events, [ReplyEvent::Warning(warning), ReplyEvent::Usage(usage(9, 0, 0, 0))]);
    let harmless = json!({"promptFeedback": {"safetyRatings": []}});
    assert_eq!(stop(&[harmless, finish("STOP")]), StopReason::EndTurn);
}

#[test]
fn an_empty_reply_is_valid() {
    let frame = json!({"candidates": [{"finishReason": "STOP"}]});
    assert_eq!((stop(std::slice::from_ref(&frame)), saved_parts(&[frame])), (StopReason::EndTurn, json!([])));
}

#[test]
fn a_reply_without_a_finish_reason_is_truncated() {
    let begun = parts(json!([{"text": "a"}]));
    let unspecified = finish("FINISH_REASON_UNSPECIFIED");
    let streams = [vec![], vec![begun.clone()], vec![begun, unspecified], vec![json!({"candidates": []})]];
    for frames in streams {
        let error = read(&frames).expect_err("no end");
        assert_eq!(
            (error.kind, error.to_string().as_str()),
            (ProviderErrorKind::Truncated, "the reply was cut off: no finish reason")
        );
        assert!(error.is_retryable());
    }
}

#[test]
fn an_error_within_the_stream_fails_the_reply() {
    let error = json!({"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}});
    for frame in [error.clone(), json!([error])] {
        let error = read(&[parts(json!([{"text": "a"}])), frame]).expect_err("an error");
        assert!(error.is_retryable(), "{error:?}");
        assert!(error.to_string().contains("The model is overloaded."), "{error}");
    }
}

#[test]
fn a_list_of_responses_is_decoded() {
    let frames = json!([parts(json!([{"text": "a"}])), parts(json!([{"text": "b"}])), finish("STOP")]);
    assert_eq!(saved_parts(&[frames]), json!([{"type": "text", "text": "ab"}]));
}

#[test]
fn missing_fields_and_snake_case_are_accepted() {
    let frames = [
        json!({"candidates": [{"content": {"parts": [{"text": "The", "functionCall": null, "inlineData": null}], "role": "model"},
            "finishReason": null, "index": 0, "safetyRatings": []}]}),
        json!({"candidates": [{"content": {"parts": [{"text": " end", "thought": null, "thoughtSignature": null}]}}]}),
        json!({"candidates": [{"content": {"parts": [{"function_call": {"name": "read_file", "args": null},
            "thought_signature": "s"}]}}], "response_id": "r", "model_version": "m"}),
        json!({"candidates": null, "promptFeedback": null, "usageMetadata": null, "error": null}),
        json!({"candidates": [{"content": {"parts": [], "role": "model"}, "finish_reason": "STOP", "index": 0}],
            "usage_metadata": {"prompt_token_count": 3.0, "candidates_token_count": -1, "thoughts_token_count": null}}),
    ];
    let reply = reply(&frames);
    let wanted = json!([
        {"type": "text", "text": "The end"},
        {"type": "tool_call", "id": "call_r_0", "name": "read file", "arguments": {}, "extra": {"thoughtSignature": "s"}},
    ]);
    assert_eq!(json!(reply.message.parts), wanted);
    assert_eq!((reply.stop, reply.usage, reply.model.as_deref()), (StopReason::ToolUse, usage(3, 0, 0, 0), Some("m")));
    let mut decoder = decoder();
    for data in ["", " \n", "[DONE]", "{}", r#"{"unknown": [1]}"#] {
        decoder.frame(data.as_bytes(), &mut Vec::new()).expect("nothing");
    }
}

#[test]
fn the_last_usage_of_each_kind_counts() {
    let counts = |counts: Value| json!({"usageMetadata": counts});
    let frames = [
        counts(json!({"promptTokenCount": 5, "candidatesTokenCount": 1})),
        counts(json!({"promptTokenCount": 5, "candidatesTokenCount": 7, "thoughtsTokenCount": 2})),
        finish("STOP"),
        counts(json!({"candidatesTokenCount": 8})),
        counts(json!({"candidatesTokenCount": 8})),
    ];
    let (reply, events) = read(&frames).expect("a reply");
    assert_eq!(reply.usage, usage(5, 10, 0, 2));
    let told = [usage(5, 1, 0, 0), usage(5, 9, 0, 2), usage(5, 10, 0, 2)].map(ReplyEvent::Usage);
    assert_eq!(events, told);
    let huge = counts(json!({"promptTokenCount": u64::MAX, "toolUsePromptTokenCount": 1e300}));
    assert_eq!(self::reply(&[huge, finish("STOP")]).usage, usage(2 * u64::from(u32::MAX), 0, 0, 0));
}

#[test]
fn arguments_that_are_not_an_object_are_invalid() {
    let problem = |arguments: &str| {
        let mut decoder = decoder();
        let frame = format!(
            r#"{{"candidates":[{{"content":{{"parts":[{{"functionCall":{{"name":"t","args":{arguments}}}}}]}},"finishReason":"STOP"}}]}}"#
        );
        decoder.frame(frame.as_bytes(), &mut Vec::new()).expect("a frame");
        let reply = decoder.end(&mut Vec::new()).expect("a reply");
        let call = reply.message.calls().next().cloned().expect("a call");
        match call.arguments {
            CallArguments::Broken { text, problem } => (text, problem),
            CallArguments::Object(arguments) => panic!("{arguments:?}"),
        }
    };
    assert_eq!(problem("[1]"), ("[1]".to_owned(), "the arguments must be a JSON object, not an array".to_owned()));
    assert_eq!(problem(r#""x""#).1, "the arguments must be a JSON object, not a string");
    // A number out of range invalidates the call, not the reply.
    assert!(json::KEEPS_DIGITS || problem(r#"{"a": 1e999}"#).1.starts_with("the arguments are not valid JSON"));
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(500), "]".repeat(500));
    assert!(problem(&deep).1.starts_with("the arguments are not valid JSON"));
}

#[test]
fn a_call_of_an_unknown_tool_is_emitted() {
    let frames = [parts(json!([{"functionCall": {"name": "nobody", "args": {}}}])), finish("STOP")];
    let wanted = json!([{"type": "tool_call", "id": "call_0", "name": "nobody", "arguments": {}}]);
    assert_eq!((saved_parts(&frames), stop(&frames)), (wanted, StopReason::ToolUse));
}

#[test]
fn a_call_without_a_name_is_ignored() {
    let frames = [parts(json!([{"functionCall": {"args": {}}}])), finish("STOP")];
    let reply = reply(&frames);
    assert_eq!((reply.stop, reply.message.parts), (StopReason::MalformedToolCall, vec![]));
    assert_eq!(reply.warnings, ["the model called a tool without a name"]);
}

#[test]
fn a_call_is_complete_even_at_the_maximum_length() {
    let frames = [parts(json!([{"functionCall": {"name": "t", "args": {"a": 1}}}])), finish("MAX_TOKENS")];
    let wanted = json!([{"type": "tool_call", "id": "call_0", "name": "t", "arguments": {"a": 1}}]);
    assert_eq!((saved_parts(&frames), stop(&frames)), (wanted, StopReason::MaxTokens));
}

#[test]
fn a_reply_is_continued_with_its_token() {
    let paused = |text: &str, token: Option<&str>| {
        json!({
            "candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": "CONTINUATION", "continuationToken": token}],
            "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2}
        })
    };
    let frame = |decoder: &mut Decoder, frame: &Value| {
        decoder.frame(frame.to_string().as_bytes(), &mut Vec::new()).expect("a frame");
    };
    let mut whole = decoder();
    frame(&mut whole, &paused("a", Some("t1")));
    assert_eq!(whole.continuation().as_deref(), Some("t1"));
    assert_eq!(whole.continuation(), None);
    frame(&mut whole, &paused("b", Some("t2")));
    assert_eq!(whole.continuation().as_deref(), Some("t2"));
    frame(&mut whole, &parts(json!([{"text": "c"}])));
    let mut last = finish("STOP");
    last["usageMetadata"] = json!({"promptTokenCount": 6, "candidatesTokenCount": 3});
    frame(&mut whole, &last);
    assert_eq!(whole.continuation(), None);
    let reply = whole.end(&mut Vec::new()).expect("a reply");
    assert_eq!((reply.message.to_text().as_str(), reply.stop), ("abc", StopReason::EndTurn));
    assert_eq!(reply.usage, usage(16, 7, 0, 0));

    let mut broken = decoder();
    frame(&mut broken, &paused("a", Some("t1")));
    assert_eq!(broken.continuation().as_deref(), Some("t1"));
    assert_eq!(broken.end(&mut Vec::new()).expect_err("no end").kind, ProviderErrorKind::Truncated);

    let mut without = decoder();
    frame(&mut without, &paused("a", None));
    assert_eq!(without.continuation(), None);
    assert_eq!(without.end(&mut Vec::new()).expect("a reply").stop, StopReason::Pause);

    let mut circle = decoder();
    frame(&mut circle, &paused("a", Some("t1")));
    assert_eq!(circle.continuation().as_deref(), Some("t1"));
    frame(&mut circle, &paused("b", Some("t1")));
    assert_eq!(circle.continuation(), None);
    assert_eq!(circle.end(&mut Vec::new()).expect("a reply").stop, StopReason::Pause);
}

#[test]
fn an_invalid_response_is_unreadable() {
    let frames: [&[u8]; 7] = [
        b"<html>",
        b"\xff\xfe",
        b"{\"candidates\":",
        b"3",
        b"null",
        br#"{"candidates": 1}"#,
        br#"{"candidates": [{"content": {"parts": [{"text": 1}]}}]}"#,
    ];
    for frame in frames {
        let error = decoder().frame(frame, &mut Vec::new()).expect_err("not understood");
        assert_eq!(
            (error.kind, error.to_string().as_str()),
            (ProviderErrorKind::Unreadable, "an event of the reply is not a gemini response")
        );
    }
}
