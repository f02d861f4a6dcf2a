//! Scripted replies in Chat Completions format.

use serde_json::{Value, json};

use super::encoded::{EncodedReply, data, words};
use super::reply::{Call, Part, ScriptedReply};
use ropeway_providers::StopReason;

pub(super) fn write(reply: &ScriptedReply) -> EncodedReply {
    let stop = reply.stop();
    let id = format!("chatcmpl-{}", reply.name());
    let chunk = |choices: Value| {
        json!({"id": id, "object": "chat.completion.chunk", "created": 1_797_000_000, "model": "local-model",
            "choices": choices})
    };
    let choice =
        |delta: Value, finish: Value| data(&chunk(json!([{"index": 0, "delta": delta, "finish_reason": finish}])));
    // A refusal has its own field.
    let text_field = if stop == StopReason::Refusal { "refusal" } else { "content" };
    let mut content = choice(json!({"role": "assistant", "content": null}), Value::Null);
    let mut calls = 0;
    for part in &reply.parts {
        match part {
            Part::Text(text) => {
                content.extend(words(text).map(|word| choice(json!({text_field: word}), Value::Null)));
            }
            Part::Reasoning(text) => {
                content.extend(words(text).map(|word| choice(json!({"reasoning_content": word}), Value::Null)));
            }
            Part::Call(Call { id, name, arguments }) => {
                let function = json!({"name": name, "arguments": ""});
                let head = json!({"index": calls, "id": id, "type": "function", "function": function});
                let piece = |json: &str| json!({"index": calls, "function": {"arguments": json}});
                let pieces = [head].into_iter().chain(words(arguments).map(piece));
                content.extend(pieces.map(|call| choice(json!({"tool_calls": [call]}), Value::Null)));
                calls += 1;
            }
        }
    }
    let (input, output) = (reply.usage.input, reply.usage.output);
    let mut bill = chunk(json!([]));
    bill["usage"] = json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
        "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0}});
    if let Some(cost) = reply.usage.cost {
        bill["usage"]["cost"] = json!(cost);
    }
    let end = choice(json!({}), word(&stop).into()) + &data(&bill) + "data: [DONE]\n\n";
    EncodedReply { content, end }
}

fn word(stop: &StopReason) -> &str {
    match stop {
        StopReason::EndTurn | StopReason::StopSequence | StopReason::Refusal | StopReason::Pause => "stop",
        StopReason::ToolUse => "tool_calls",
        StopReason::MaxTokens | StopReason::ContextWindow => "length",
        StopReason::ContentFilter => "content_filter",
        StopReason::MalformedToolCall => "error",
        StopReason::Other(word) => word,
    }
}
