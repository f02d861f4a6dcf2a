//! Scripted replies in Anthropic Messages format.

use serde_json::{Value, json};

use super::encoded::{EncodedReply, named, words};
use super::reply::{Call, Part, SIGNATURE, ScriptedReply};
use ropeway_providers::StopReason;

const MODEL: &str = "claude-opus-5-5";

pub(super) fn write(reply: &ScriptedReply) -> EncodedReply {
    let usage = json!({"input_tokens": reply.usage.input, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
        "output_tokens": 1, "service_tier": "standard"});
    let message = json!({"model": MODEL, "id": format!("msg_{}", reply.name()), "type": "message", "role": "assistant",
        "content": [], "container": null, "stop_reason": null, "stop_sequence": null, "stop_details": null, "usage": usage});
    let mut content = named(&json!({"type": "message_start", "message": message}));
    for (index, part) in reply.parts.iter().enumerate() {
        let (block, deltas) = block(part);
        content += &named(&json!({"type": "content_block_start", "index": index, "content_block": block}));
        for delta in deltas {
            content += &named(&json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        content += &named(&json!({"type": "content_block_stop", "index": index}));
    }
    let stop = reply.stop();
    let details = match stop {
        StopReason::Refusal => json!({"type": "refusal", "category": null, "explanation": null}),
        _ => Value::Null,
    };
    let delta = json!({"stop_reason": word(&stop), "stop_sequence": null, "stop_details": details, "container": null});
    let usage = json!({"output_tokens": reply.usage.output});
    let end = named(&json!({"type": "message_delta", "delta": delta, "usage": usage}))
        + &named(&json!({"type": "message_stop"}));
    EncodedReply { content, end }
}

fn block(part: &Part) -> (Value, Vec<Value>) {
    match part {
        Part::Text(text) => {
            let deltas = words(text).map(|text| json!({"type": "text_delta", "text": text}));
            (json!({"type": "text", "text": "", "citations": null}), deltas.collect())
        }
        Part::Reasoning(text) => {
            let thoughts = words(text).map(|text| json!({"type": "thinking_delta", "thinking": text}));
            let signature = json!({"type": "signature_delta", "signature": SIGNATURE});
            (json!({"type": "thinking", "thinking": "", "signature": ""}), thoughts.chain([signature]).collect())
        }
        Part::Call(Call { id, name, arguments }) => {
            let pieces = [""].into_iter().chain(words(arguments));
            let deltas = pieces.map(|json| json!({"type": "input_json_delta", "partial_json": json}));
            (json!({"type": "tool_use", "id": id, "name": name, "input": {}}), deltas.collect())
        }
    }
}

fn word(stop: &StopReason) -> &str {
    match stop {
        StopReason::EndTurn => "end_turn",
        StopReason::ToolUse => "tool_use",
        StopReason::StopSequence => "stop_sequence",
        StopReason::MaxTokens => "max_tokens",
        StopReason::ContextWindow => "model_context_window_exceeded",
        StopReason::Pause => "pause_turn",
        StopReason::Refusal | StopReason::ContentFilter => "refusal",
        StopReason::MalformedToolCall => "malformed_tool_call",
        StopReason::Other(word) => word,
    }
}
