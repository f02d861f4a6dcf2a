//! Decoding of text, stop reasons, usage and errors.

use serde_json::{Value, json};

use super::{delta, endpoint, error_of, events, finish, parts, read, read_frames, reply};
use crate::{ProviderErrorKind, Reply, ReplyEvent, StopReason, Usage};
use ropeway_core::message::{AssistantMessage, AssistantPart, AssistantText};

fn usage(value: Value) -> Usage {
    reply(&[delta(json!({"content": "a"})), finish("stop"), json!({"choices": [], "usage": value})]).usage
}

fn stop(reason: &str) -> StopReason {
    reply(&[delta(json!({"content": "a"})), finish(reason)]).stop
}

#[test]
fn a_reply_is_streamed_and_returned() {
    let cost = Usage { input: 9, output: 2, cache_read: 4, ..Usage::default() };
    let (events, reply) = read(&[
        delta(json!({"role": "assistant", "content": "", "refusal": null})),
        delta(json!({"content": "18 °C"})),
        delta(json!({"content": " and \"clear\""})),
        finish("stop"),
        json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11,
            "prompt_tokens_details": {"cached_tokens": 4}}, "timings": {"cache_n": 7}}),
    ])
    .expect("a reply");
    let told =
        [ReplyEvent::Text("18 °C".to_owned()), ReplyEvent::Text(" and \"clear\"".to_owned()), ReplyEvent::Usage(cost)];
    assert_eq!(events, told);
    let mut message = AssistantMessage::text("18 °C and \"clear\"");
    message.from = Some(endpoint());
    let whole = Reply {
        message,
        stop: StopReason::EndTurn,
        usage: cost,
        id: Some("a1".to_owned()),
        model: Some("m-1".to_owned()),
        warnings: Vec::new(),
    };
    assert_eq!(reply, whole);
}

#[test]
fn finish_reasons_are_mapped() {
    assert_eq!(stop("stop"), StopReason::EndTurn);
    assert_eq!(stop("length"), StopReason::MaxTokens);
    assert_eq!(stop("model_length"), StopReason::ContextWindow);
    assert_eq!(stop("content_filter"), StopReason::ContentFilter);
    assert_eq!(stop("eos"), StopReason::Other("eos".to_owned()));
}

#[test]
fn the_first_finish_reason_counts() {
    let empty = json!({"choices": [{"delta": {"content": "a"}, "finish_reason": ""}]});
    let stop = reply(&[empty.clone(), finish("length"), finish("stop")]).stop;
    assert_eq!(stop, StopReason::MaxTokens);
    let unsaid = reply(&[empty]);
    assert_eq!(unsaid.warnings, ["the provider sent no finish reason"]);
}

#[test]
fn tool_calls_without_calls_is_not_tool_use() {
    assert_eq!(stop("tool_calls"), StopReason::EndTurn);
    assert_eq!(reply(&[finish("tool_calls")]).stop, StopReason::MalformedToolCall);
}

#[test]
fn an_empty_reply_is_valid() {
    let empty = reply(&[delta(json!({"role": "assistant", "content": ""})), finish("stop")]);
    assert_eq!((empty.message.parts, empty.stop), (Vec::new(), StopReason::EndTurn));
}

#[test]
fn done_may_be_missing_after_a_finish_reason() {
    let frames = [delta(json!({"content": "a"})).to_string(), finish("stop").to_string()];
    let (_, reply) = read_frames(frames.iter().map(String::as_bytes)).expect("a reply");
    assert_eq!(reply.message.to_text(), "a");
}

#[test]
fn a_finish_reason_may_be_missing_before_done() {
    let (events, reply) = read(&[delta(json!({"content": "a"}))]).expect("a reply");
    let warning = "the provider sent no finish reason".to_owned();
    assert_eq!(events, [ReplyEvent::Text("a".to_owned()), ReplyEvent::Warning(warning.clone())]);
    assert_eq!((reply.stop, reply.warnings), (StopReason::EndTurn, vec![warning]));
    let nothing = error_of(&[delta(json!({"role": "assistant"}))]);
    assert_eq!((nothing.kind, nothing.is_retryable()), (ProviderErrorKind::Truncated, true));
}

#[test]
fn a_reply_without_an_end_is_truncated() {
    let frame = delta(json!({"content": "a"})).to_string();
    for frames in [&[][..], &[frame.as_bytes()]] {
        let error = read_frames(frames.iter().copied()).expect_err("no answer");
        assert_eq!((error.kind, error.to_string().as_str()), (ProviderErrorKind::Truncated, "the reply was cut off"));
    }
}

#[test]
fn events_after_done_are_ignored() {
    let frames = [delta(json!({"content": "a"})), finish("stop")].map(|chunk| chunk.to_string());
    let mut frames: Vec<&[u8]> = frames.iter().map(String::as_bytes).collect();
    frames.extend([&b" [DONE]\n"[..], b"nonsense"]);
    assert_eq!(read_frames(frames).expect("a reply").1.message.to_text(), "a");
}

#[test]
fn usage_is_read_in_every_position() {
    let on_the_last = json!({"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3, "completion_tokens": 1}});
    let expected = Usage { input: 3, output: 1, ..Usage::default() };
    assert_eq!(reply(&[on_the_last]).usage, expected);
    let in_the_choice = json!({"choices": [{"delta": {"content": "a"}, "finish_reason": "stop", "usage": {"prompt_tokens": 3, "completion_tokens": 1}}]});
    assert_eq!(reply(&[in_the_choice]).usage, expected);
    assert_eq!(usage(Value::Null), Usage::default());
    let nulls = json!({"prompt_tokens": null, "completion_tokens": 1.0, "prompt_tokens_details": null, "completion_tokens_details": {"reasoning_tokens": null}});
    assert_eq!(usage(nulls), Usage { output: 1, ..Usage::default() });
    assert_eq!(usage(json!("a lot")), Usage::default());
}

#[test]
fn usage_is_read_under_every_name() {
    let openai = json!({"prompt_tokens": 10, "completion_tokens": 8, "total_tokens": 18,
        "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 5}});
    assert_eq!(usage(openai), Usage { input: 10, output: 8, cache_read: 4, reasoning: 5, ..Usage::default() });
    let deepseek = json!({"prompt_tokens": 10, "completion_tokens": 8, "prompt_cache_hit_tokens": 6});
    assert_eq!(usage(deepseek), Usage { input: 10, output: 8, cache_read: 6, ..Usage::default() });
    let gateway = json!({"prompt_tokens": 10, "completion_tokens": 8, "cache_creation_input_tokens": 7});
    assert_eq!(usage(gateway), Usage { input: 10, output: 8, cache_write: 7, ..Usage::default() });
    let reasoning_beside = json!({"prompt_tokens": 10, "completion_tokens": 8, "total_tokens": 23, "completion_tokens_details": {"reasoning_tokens": 5}});
    assert_eq!(usage(reasoning_beside), Usage { input: 10, output: 13, reasoning: 5, ..Usage::default() });
    let charged = json!({"prompt_tokens": 10, "completion_tokens": 8, "cost": 0.0012});
    assert_eq!(usage(charged).cost.map(|cost| cost.to_string()).as_deref(), Some("$0.0012"));
}

#[test]
fn repeated_usage_is_emitted_when_it_changes() {
    let chunk = |text: &str, output: u64| json!({"choices": [{"delta": {"content": text}}], "usage": {"prompt_tokens": 1, "completion_tokens": output}});
    let costs = events(&[chunk("a", 1), chunk("b", 1), chunk("c", 2), finish("stop")]);
    let costs = costs.into_iter().filter(|event| matches!(event, ReplyEvent::Usage(_))).collect::<Vec<_>>();
    let cost = |output| ReplyEvent::Usage(Usage { input: 1, output, ..Usage::default() });
    assert_eq!(costs, [cost(1), cost(2)]);
}

#[test]
fn a_refusal_is_text_with_a_stop_reason() {
    let chunks = [delta(json!({"refusal": "I can"})), delta(json!({"refusal": "not."})), finish("stop")];
    assert_eq!(events(&chunks), [ReplyEvent::Text("I can".to_owned()), ReplyEvent::Text("not.".to_owned())]);
    let refused = reply(&chunks);
    assert_eq!((refused.message.to_text().as_str(), refused.stop), ("I cannot.", StopReason::Refusal));
}

#[test]
fn empty_chunks_are_ignored() {
    let chunks = [
        json!({"id": "", "choices": [], "prompt_filter_results": []}),
        json!({"choices": null}),
        json!({}),
        json!({"choices": [{"index": 0, "delta": null, "finish_reason": null}]}),
        json!({"choices": [{"finish_reason": null}]}),
        json!({"object": "something.new", "data": {"deep": [1]}}),
        delta(json!({"content": "a", "tool_calls": null, "function_call": null, "reasoning": null})),
        Value::Null,
        finish("stop"),
    ];
    let reply = reply(&chunks);
    assert_eq!((reply.message.to_text().as_str(), reply.id.as_deref()), ("a", Some("a1")));
    assert!(reply.message.extra.is_empty(), "{:?}", reply.message.extra);
    let frames = [b"".as_slice(), b"  ", b"[DONE]"];
    assert_eq!(read_frames(frames).expect_err("no answer").kind, ProviderErrorKind::Truncated);
}

#[test]
fn malformed_and_repeated_fields_are_tolerated() {
    let frame = br#"{"id":7,"id":8,"model":["m"],"choices":[{"index":"0","delta":{"content":"a","content":"b"},"finish_reason":"stop"}]}"#;
    let (_, reply) = read_frames([frame.as_slice()]).expect("a reply");
    assert_eq!((reply.message.to_text().as_str(), reply.id, reply.model), ("b", None, None));
}

#[test]
fn only_the_first_of_several_choices_is_read() {
    let chunk = json!({"choices": [
        {"index": 1, "delta": {"content": "other"}, "finish_reason": "length"},
        {"index": 0, "delta": {"content": "mine"}, "finish_reason": "stop"},
    ]});
    let reply = reply(&[chunk]);
    assert_eq!((reply.message.to_text().as_str(), reply.stop), ("mine", StopReason::EndTurn));
}

#[test]
fn a_complete_message_is_decoded() {
    let whole = json!({"id": "a1", "object": "chat.completion", "model": "m-1", "choices": [{
        "index": 0, "finish_reason": "tool_calls",
        "message": {"role": "assistant", "content": "Wait.", "reasoning_content": "hm", "audio": {"id": "x"}, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{\"a\":1}"}},
            {"id": "c2", "type": "function", "function": {"name": "look", "arguments": ""}},
        ]},
    }], "usage": {"prompt_tokens": 3, "completion_tokens": 1}});
    let (_, reply) = read_frames([whole.to_string().as_bytes()]).expect("a reply");
    let expected = json!([
        {"type": "reasoning", "text": "hm", "extra": {"fields": ["reasoning_content"]}},
        {"type": "text", "text": "Wait."},
        {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"a": 1}},
        {"type": "tool_call", "id": "c2", "name": "look", "arguments": {}},
    ]);
    assert_eq!(json!(reply.message.parts), expected);
    assert_eq!(json!(reply.message.extra), json!({"audio": {"id": "x"}}));
    assert_eq!((reply.stop, reply.usage.input), (StopReason::ToolUse, 3));
}

#[test]
fn a_message_after_deltas_is_ignored() {
    let last = json!({"choices": [{"delta": {}, "message": {"content": "ab"}, "finish_reason": "stop"}]});
    let chunks = [delta(json!({"content": "a"})), delta(json!({"content": "b"})), last];
    assert_eq!(parts(&chunks), json!([{"type": "text", "text": "ab"}]));
}

#[test]
fn content_parts_are_text_reasoning_or_opaque() {
    let chunks = [
        delta(json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "h"}]}]})),
        delta(json!({"content": [{"type": "thinking", "thinking": "m"}, {"type": "text", "text": "a"}]})),
        delta(json!({"content": ["b", {"type": "reference", "reference_ids": [1]}, {"type": "text", "text": "c"}]})),
        delta(json!({"content": 5})),
        finish("stop"),
    ];
    let expected = json!([
        {"type": "reasoning", "text": "hm", "extra": {"fields": ["content"]}},
        {"type": "text", "text": "ab"},
        {"type": "private", "json": {"type": "reference", "reference_ids": [1]}},
        {"type": "text", "text": "c"},
    ]);
    assert_eq!(parts(&chunks), expected);
}

#[test]
fn an_error_within_the_stream_is_mapped() {
    let begun = delta(json!({"content": "Par"}));
    let kind = |frame: Value| error_of(&[begun.clone(), frame]).kind;
    assert_eq!(
        kind(json!({"error": {"message": "Provider disconnected", "type": "server_error", "code": 502}})),
        ProviderErrorKind::Server
    );
    assert_eq!(kind(json!({"error": {"message": "slow down", "code": 429}})), ProviderErrorKind::RateLimited);
    assert_eq!(kind(json!({"error": "the prompt is too long"})), ProviderErrorKind::ContextLength);
    let bare = json!({"object": "error", "message": "This model's maximum context length is 8 tokens", "code": 400});
    assert_eq!(kind(bare), ProviderErrorKind::ContextLength);
    let in_choice =
        json!({"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 429, "message": "slow down"}}]});
    assert_eq!(kind(in_choice), ProviderErrorKind::RateLimited);
    assert_eq!(kind(finish("error")), ProviderErrorKind::Server);
    assert_eq!(kind(finish("insufficient_system_resource")), ProviderErrorKind::Overloaded);
    let words = error_of(&[json!({"error": {"message": "Provider disconnected"}})]).to_string();
    assert!(words.contains("Provider disconnected"), "{words}");
    let no_error = reply(&[json!({"error": null, "choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]})]);
    assert_eq!(
        no_error.message.parts,
        [AssistantPart::Text(AssistantText { text: "a".to_owned(), ..Default::default() })]
    );
}

#[test]
fn an_invalid_chunk_is_unreadable() {
    for frame in ["<html>", "{\"choices\":[", "12", "{\"choices\":5}", "\"\\ud800\""] {
        let error = read_frames([frame.as_bytes()]).expect_err("no answer");
        let words = "an event of the reply is not a chat completion chunk";
        assert_eq!((error.kind, error.to_string().as_str()), (ProviderErrorKind::Unreadable, words), "{frame}");
        assert!(std::error::Error::source(&error).is_some(), "{frame}");
    }
}
