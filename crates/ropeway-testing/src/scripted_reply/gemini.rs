//! Scripted replies in Gemini format.

use serde_json::{Value, json};

use super::encoded::{EncodedReply, data, words};
use super::reply::{Call, Part, SIGNATURE, ScriptedReply};
use ropeway_providers::StopReason;

pub(super) fn write(reply: &ScriptedReply) -> EncodedReply {
    let usage = reply.usage;
    let frame = |parts: Value, finish: Option<&str>, output: u64| {
        let mut candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
        if let Some(finish) = finish {
            candidate["finishReason"] = finish.into();
        }
        let counts = json!({"promptTokenCount": usage.input, "candidatesTokenCount": output,
            "totalTokenCount": usage.input + output});
        data(&json!({"candidates": [candidate], "usageMetadata": counts, "modelVersion": "gemini-3.8-flash",
            "responseId": reply.name()}))
    };
    let mut content = String::new();
    let mut calls = Vec::new();
    for part in &reply.parts {
        // Consecutive calls share one frame.
        if !matches!(part, Part::Call(_)) && !calls.is_empty() {
            content += &frame(std::mem::take(&mut calls).into(), None, 1);
        }
        match part {
            Part::Text(text) => content.extend(words(text).map(|word| frame(json!([{"text": word}]), None, 1))),
            Part::Reasoning(text) => {
                content.extend(words(text).map(|word| frame(json!([{"text": word, "thought": true}]), None, 1)));
            }
            Part::Call(call) => {
                let mut part = json!({"functionCall": function(call)});
                // The first of several calls has the signature.
                if calls.is_empty() {
                    part["thoughtSignature"] = SIGNATURE.into();
                }
                calls.push(part);
            }
        }
    }
    if !calls.is_empty() {
        content += &frame(calls.into(), None, 1);
    }
    let end = frame(json!([{"text": ""}]), Some(word(&reply.stop())), usage.output);
    EncodedReply { content, end }
}

fn function(Call { id, name, arguments }: &Call) -> Value {
    let arguments = match serde_json::from_str(arguments) {
        Ok(arguments) => arguments,
        Err(_) => Value::from(arguments.as_str()),
    };
    match id.as_str() {
        "" => json!({"name": name, "args": arguments}),
        id => json!({"name": name, "args": arguments, "id": id}),
    }
}

fn word(stop: &StopReason) -> &str {
    match stop {
        // Gemini has no stop reason for tool calls.
        StopReason::EndTurn | StopReason::ToolUse | StopReason::StopSequence => "STOP",
        StopReason::MaxTokens | StopReason::ContextWindow => "MAX_TOKENS",
        // Gemini has no refusal; the reply is blocked instead.
        StopReason::Refusal | StopReason::ContentFilter => "SAFETY",
        StopReason::Pause => "CONTINUATION",
        StopReason::MalformedToolCall => "MALFORMED_FUNCTION_CALL",
        StopReason::Other(word) => word,
    }
}
