//! Scripted replies in OpenAI Responses format.

use serde_json::{Value, json};

use super::encoded::{EncodedReply, named, words};
use super::reply::{Call, Part, SIGNATURE, ScriptedReply};
use ropeway_providers::StopReason;

/// Numbers the events and collects the finished items.
struct Writer<'a> {
    reply: &'a ScriptedReply,
    stop: StopReason,
    text: String,
    events: u64,
    output: Vec<Value>,
}

pub(super) fn write(reply: &ScriptedReply) -> EncodedReply {
    let mut writer = Writer { reply, stop: reply.stop(), text: String::new(), events: 0, output: Vec::new() };
    let response = writer.response("in_progress");
    writer.event("response.created", json!({"response": response}));
    writer.event("response.in_progress", json!({"response": response}));
    for (place, part) in reply.parts.iter().enumerate() {
        let is_last = place + 1 == reply.parts.len();
        match part {
            Part::Text(text) => writer.message(place, text, is_last),
            Part::Reasoning(text) => writer.thoughts(place, text),
            Part::Call(call) => writer.call(place, call, is_last),
        }
    }
    let content = std::mem::take(&mut writer.text);
    let status = match incomplete(&writer.stop) {
        Some(_) => "incomplete",
        None => "completed",
    };
    let response = writer.response(status);
    writer.event(&format!("response.{status}"), json!({"response": response}));
    EncodedReply { content, end: writer.text }
}

impl Writer<'_> {
    fn event(&mut self, kind: &str, fields: Value) {
        let mut event = json!({"type": kind, "sequence_number": self.events});
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        self.text += &named(&event);
        self.events += 1;
    }

    fn done(&mut self, place: usize, item: Value) {
        self.event("response.output_item.done", json!({"output_index": place, "item": item}));
        self.output.push(item);
    }

    /// Returns an item's status; an incomplete reply's last item is incomplete.
    fn status(&self, is_last: bool) -> &'static str {
        match incomplete(&self.stop) {
            Some(_) if is_last => "incomplete",
            _ => "completed",
        }
    }

    fn message(&mut self, place: usize, text: &str, is_last: bool) {
        let id = format!("msg_{}_{place}", self.reply.name());
        let (kind, field) = match self.stop {
            StopReason::Refusal => ("refusal", "refusal"),
            _ => ("output_text", "text"),
        };
        let part = |text: &str| match kind {
            "refusal" => json!({"type": kind, "refusal": text}),
            _ => json!({"type": kind, "annotations": [], "logprobs": [], "text": text}),
        };
        let item = |status: &str, content: Value| json!({"id": id, "type": "message", "status": status, "content": content, "role": "assistant"});
        let at = json!({"item_id": id, "output_index": place, "content_index": 0});
        let with = |name: &str, value: Value| {
            let mut fields = at.clone();
            fields[name] = value;
            fields
        };
        let added = json!({"output_index": place, "item": item("in_progress", json!([]))});
        self.event("response.output_item.added", added);
        self.event("response.content_part.added", with("part", part("")));
        for word in words(text) {
            self.event(&format!("response.{kind}.delta"), with("delta", word.into()));
        }
        self.event(&format!("response.{kind}.done"), with(field, text.into()));
        self.event("response.content_part.done", with("part", part(text)));
        self.done(place, item(self.status(is_last), json!([part(text)])));
    }

    fn thoughts(&mut self, place: usize, text: &str) {
        let id = format!("rs_{}_{place}", self.reply.name());
        let item =
            |summary: Value| json!({"id": id, "type": "reasoning", "encrypted_content": SIGNATURE, "summary": summary});
        let part = |text: &str| json!({"type": "summary_text", "text": text});
        let at = json!({"item_id": id, "output_index": place, "summary_index": 0});
        let with = |name: &str, value: Value| {
            let mut fields = at.clone();
            fields[name] = value;
            fields
        };
        self.event("response.output_item.added", json!({"output_index": place, "item": item(json!([]))}));
        self.event("response.reasoning_summary_part.added", with("part", part("")));
        for word in words(text) {
            self.event("response.reasoning_summary_text.delta", with("delta", word.into()));
        }
        self.event("response.reasoning_summary_text.done", with("text", text.into()));
        self.event("response.reasoning_summary_part.done", with("part", part(text)));
        self.done(place, item(json!([part(text)])));
    }

    fn call(&mut self, place: usize, Call { id: call_id, name, arguments }: &Call, is_last: bool) {
        let id = format!("fc_{}_{place}", self.reply.name());
        let item = |status: &str, arguments: &str| {
            json!({"id": id, "type": "function_call", "call_id": call_id, "name": name, "status": status,
                "arguments": arguments})
        };
        let added = json!({"output_index": place, "item": item("in_progress", "")});
        self.event("response.output_item.added", added);
        for piece in words(arguments) {
            let delta = json!({"item_id": id, "output_index": place, "delta": piece});
            self.event("response.function_call_arguments.delta", delta);
        }
        let status = self.status(is_last);
        if status == "completed" {
            let whole = json!({"item_id": id, "output_index": place, "arguments": arguments});
            self.event("response.function_call_arguments.done", whole);
        }
        self.done(place, item(status, arguments));
    }

    fn response(&self, status: &str) -> Value {
        let reason = incomplete(&self.stop).filter(|_| status == "incomplete");
        let details = reason.map_or(Value::Null, |reason| json!({"reason": reason}));
        let usage = self.reply.usage;
        let usage = match status {
            "in_progress" => Value::Null,
            _ => json!({"input_tokens": usage.input, "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": usage.output, "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.input + usage.output}),
        };
        json!({"id": format!("resp_{}", self.reply.name()), "object": "response", "created_at": 1_797_000_000,
            "status": status, "error": null, "incomplete_details": details, "model": "gpt-6-sol", "output": self.output,
            "parallel_tool_calls": true, "store": false, "tool_choice": "auto", "tools": [], "usage": usage, "metadata": {}})
    }
}

/// Returns why the reply is incomplete, if it is.
fn incomplete(stop: &StopReason) -> Option<&str> {
    match stop {
        StopReason::MaxTokens | StopReason::ContextWindow => Some("max_output_tokens"),
        StopReason::ContentFilter => Some("content_filter"),
        StopReason::Other(word) => Some(word),
        _ => None,
    }
}
