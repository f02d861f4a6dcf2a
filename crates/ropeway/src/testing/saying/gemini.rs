//! A saying as Gemini streams it.

use serde_json::{Value, json};

use super::{Call, Part, SIGNATURE, ScriptedReply, Written, data, words};
use crate::provider::StopReason;

pub(super) fn write(saying: &ScriptedReply) -> Written {
    let usage = saying.usage;
    let frame = |parts: Value, finish: Option<&str>, output: u64| {
        let mut candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
        if let Some(finish) = finish {
            candidate["finishReason"] = finish.into();
        }
        let counts = json!({"promptTokenCount": usage.input, "candidatesTokenCount": output,
            "totalTokenCount": usage.input + output});
        data(&json!({"candidates": [candidate], "usageMetadata": counts, "modelVersion": "gemini-3.8-flash",
            "responseId": saying.name()}))
    };
    let mut said = String::new();
    let mut calls = Vec::new();
    for part in &saying.parts {
        // Calls of one answer that follow each other come in one frame.
        if !matches!(part, Part::Call(_)) && !calls.is_empty() {
            said += &frame(std::mem::take(&mut calls).into(), None, 1);
        }
        match part {
            Part::Text(text) => said.extend(words(text).map(|word| frame(json!([{"text": word}]), None, 1))),
            Part::Reasoning(text) => {
                said.extend(words(text).map(|word| frame(json!([{"text": word, "thought": true}]), None, 1)));
            }
            Part::Call(call) => {
                let mut part = json!({"functionCall": function(call)});
                // Of several calls at once, the first one bears the signature.
                if calls.is_empty() {
                    part["thoughtSignature"] = SIGNATURE.into();
                }
                calls.push(part);
            }
        }
    }
    if !calls.is_empty() {
        said += &frame(calls.into(), None, 1);
    }
    let end = frame(json!([{"text": ""}]), Some(word(&saying.stop())), usage.output);
    Written { said, end }
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
        // That it waits for results is told by the calls alone.
        StopReason::EndTurn | StopReason::ToolUse | StopReason::StopSequence => "STOP",
        StopReason::MaxTokens | StopReason::ContextWindow => "MAX_TOKENS",
        // Its models do not refuse; they are stopped.
        StopReason::Refusal | StopReason::ContentFilter => "SAFETY",
        StopReason::Pause => "CONTINUATION",
        StopReason::MalformedToolCall => "MALFORMED_FUNCTION_CALL",
        StopReason::Other(word) => word,
    }
}
