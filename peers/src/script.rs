//! Scripts: the benchmark model's replies, derived from each request alone.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use memchr::memmem;

/// Duration of each [`Script::Parallel`] call.
pub const WAIT_MS: u64 = 1000;

/// A model's behaviour in a turn, given by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// `steps-N`: N replies with one call each, then text.
    Steps(usize),
    /// `parallel-N`: N calls in one reply, then text.
    Parallel(usize),
}

impl Script {
    /// Returns a model's script.
    pub fn from_model(name: &str) -> Result<Self> {
        let (kind, size) = name.split_once('-').with_context(|| format!("unknown model `{name}`"))?;
        let size = size.parse().with_context(|| format!("unknown model `{name}`"))?;
        match kind {
            "steps" => Ok(Self::Steps(size)),
            "parallel" => Ok(Self::Parallel(size)),
            _ => bail!("unknown model `{name}`"),
        }
    }

    /// Returns how many calls a turn makes.
    pub fn calls(self) -> usize {
        match self {
            Self::Steps(calls) | Self::Parallel(calls) => calls,
        }
    }

    /// Returns the next calls after `results` results; none for the final reply.
    fn next(self, results: usize) -> Vec<Call> {
        match self {
            Self::Steps(calls) if results < calls => vec![Call::echo(results)],
            Self::Parallel(calls) if results == 0 => (0..calls).map(Call::wait).collect(),
            _ => Vec::new(),
        }
    }
}

/// Returns the final reply's text. It proves that no result and no tool was lost.
pub fn final_text(results: usize, tools: usize) -> String {
    format!("done: {results} results, {tools} tools")
}

/// A tool call of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The call's id.
    pub id: String,
    /// The tool's name.
    pub tool: &'static str,
    /// The arguments as JSON.
    pub arguments: String,
}

impl Call {
    /// Returns a step's call.
    pub fn echo(number: usize) -> Self {
        let arguments = format!(r#"{{"message":"hello {number}"}}"#);
        Self { id: format!("call_{number}"), tool: "echo", arguments }
    }

    /// Returns a slow call.
    fn wait(number: usize) -> Self {
        let arguments = format!(r#"{{"milliseconds":{WAIT_MS}}}"#);
        Self { id: format!("call_{number}"), tool: "wait", arguments }
    }
}

/// A reply of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// As an event stream.
    Events(String),
    /// As one JSON document.
    Json(String),
}

/// Answers a Chat Completions request. Searches the body instead of parsing it, so that the model costs little.
pub fn answer(body: &[u8]) -> Result<Answer> {
    let model = field(body, b"\"model\"").and_then(|value| value.strip_prefix(b"\""));
    let model = model.and_then(|value| value.split(|byte| *byte == b'"').next()).context("the request has no model")?;
    let script = Script::from_model(std::str::from_utf8(model)?)?;
    let is_streamed = field(body, b"\"stream\"").is_some_and(|value| value.starts_with(b"true"));
    // Each result has exactly one.
    let results = memmem::find_iter(body, b"\"tool_call_id\"").count();
    let calls = script.next(results);
    let words = if calls.is_empty() {
        final_text(results, memmem::find_iter(body, b"\"parameters\"").count())
    } else {
        String::new()
    };
    Ok(if is_streamed { Answer::Events(events(&calls, &words)) } else { Answer::Json(json(&calls, &words)) })
}

/// Returns the text after the first field with this name.
fn field<'a>(body: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let rest = &body[memmem::find(body, name)? + name.len()..];
    let colon = rest.trim_ascii_start().strip_prefix(b":")?;
    Some(colon.trim_ascii_start())
}

const HEAD: &str =
    r#""id":"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT","created":1794700000,"model":"scripted","service_tier":"default""#;
const USAGE: &str = r#"{"prompt_tokens":9000,"completion_tokens":7,"total_tokens":9007}"#;

/// Returns a reply as Chat Completions events, with the same fields as real providers.
pub fn events(calls: &[Call], words: &str) -> String {
    let mut events = String::with_capacity(2048);
    let mut event = |delta: &str, finish: &str| {
        // Writing to a `String` does not fail.
        let _ = write!(
            events,
            "data: {{{HEAD},\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\
             \"finish_reason\":{finish}}}],\"usage\":null}}\n\n"
        );
    };
    event(r#"{"role":"assistant","content":null}"#, "null");
    for (index, Call { id, tool, arguments }) in calls.iter().enumerate() {
        event(
            &format!(
                r#"{{"tool_calls":[{{"index":{index},"id":"{id}","type":"function","function":{{"name":"{tool}","arguments":""}}}}]}}"#
            ),
            "null",
        );
        let (one, other) = arguments.split_at(arguments.len() / 2);
        for piece in [one, other] {
            let piece = quoted(piece);
            event(&format!(r#"{{"tool_calls":[{{"index":{index},"function":{{"arguments":{piece}}}}}]}}"#), "null");
        }
    }
    for word in words.split_inclusive(' ') {
        event(&format!(r#"{{"content":{}}}"#, quoted(word)), "null");
    }
    event("{}", if calls.is_empty() { r#""stop""# } else { r#""tool_calls""# });
    let _ = write!(
        events,
        "data: {{{HEAD},\"object\":\"chat.completion.chunk\",\"choices\":[],\"usage\":{USAGE}}}\n\ndata: [DONE]\n\n"
    );
    events
}

/// Returns a reply as one JSON document.
fn json(calls: &[Call], words: &str) -> String {
    let message = match calls {
        [] => format!(r#"{{"role":"assistant","content":{}}}"#, quoted(words)),
        calls => {
            let calls = calls.iter().map(|Call { id, tool, arguments }| {
                let arguments = quoted(arguments);
                format!(r#"{{"id":"{id}","type":"function","function":{{"name":"{tool}","arguments":{arguments}}}}}"#)
            });
            let calls: Vec<String> = calls.collect();
            format!(r#"{{"role":"assistant","content":null,"tool_calls":[{}]}}"#, calls.join(","))
        }
    };
    let finish = if calls.is_empty() { "stop" } else { "tool_calls" };
    format!(
        r#"{{{HEAD},"object":"chat.completion","choices":[{{"index":0,"message":{message},"logprobs":null,"finish_reason":"{finish}"}}],"usage":{USAGE}}}"#
    )
}

/// Returns a text as a JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request(model: &str, stream: Option<bool>, results: usize) -> String {
        let mut body = json!({
            "messages": (0..results).map(|at| json!({"role": "tool", "tool_call_id": at.to_string(), "content": "x"})).collect::<Vec<_>>(),
            "model": model,
            "stream_options": {},
            "tools": [{"function": {"name": "a", "parameters": {}}}, {"function": {"name": "b", "parameters": {}}}],
        });
        if let Some(stream) = stream {
            body["stream"] = stream.into();
        }
        serde_json::to_string_pretty(&body).expect("text")
    }

    fn said(request: &str) -> Value {
        match answer(request.as_bytes()).expect("an answer") {
            Answer::Json(json) => serde_json::from_str::<Value>(&json).expect("JSON")["choices"][0].take(),
            Answer::Events(events) => panic!("not one JSON document: {events}"),
        }
    }

    #[test]
    fn a_steps_model_makes_one_call_per_reply() {
        let call = |number: usize| {
            let Call { id, tool, arguments } = Call::echo(number);
            json!([{"id": id, "type": "function", "function": {"name": tool, "arguments": arguments}}])
        };
        for results in 0..2 {
            let said = said(&request("steps-2", None, results));
            assert_eq!(
                (&said["message"]["tool_calls"], &said["finish_reason"]),
                (&call(results), &json!("tool_calls"))
            );
        }
        let said = said(&request("steps-2", Some(false), 2));
        assert_eq!(
            (&said["message"], &said["finish_reason"]),
            (&json!({"role": "assistant", "content": "done: 2 results, 2 tools"}), &json!("stop"))
        );
    }

    #[test]
    fn a_parallel_model_makes_all_calls_in_one_reply() {
        assert_eq!(said(&request("parallel-3", None, 0))["message"]["tool_calls"].as_array().map(Vec::len), Some(3));
        assert_eq!(said(&request("parallel-3", None, 3))["message"]["content"], json!("done: 3 results, 2 tools"));
    }

    #[test]
    fn a_streamed_reply_has_the_same_content() {
        let Answer::Events(events) = answer(request("parallel-2", Some(true), 0).as_bytes()).expect("an answer") else {
            panic!("not a stream");
        };
        let mut calls = [String::new(), String::new()];
        let frames: Vec<&str> =
            events.split_terminator("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
        assert_eq!(frames.last(), Some(&"[DONE]"));
        for frame in &frames[..frames.len() - 1] {
            let frame: Value = serde_json::from_str(frame).expect("JSON");
            let call = &frame["choices"][0]["delta"]["tool_calls"][0];
            if let (Some(index), Some(piece)) = (call["index"].as_u64(), call["function"]["arguments"].as_str()) {
                calls[index as usize] += piece;
            }
        }
        assert_eq!(calls, [r#"{"milliseconds":1000}"#; 2]);
    }

    #[test]
    fn an_unknown_model_is_refused() {
        for model in ["gpt-5", "steps-", "parallel"] {
            assert!(answer(request(model, None, 0).as_bytes()).is_err(), "{model}");
        }
        assert!(answer(b"{}").is_err());
    }
}
