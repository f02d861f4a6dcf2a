//! Test kit: agents over scripted models, tools for them, and views of their history.

use std::collections::HashSet;
use std::sync::Arc;

use ropeway::agent::{Agent, AgentBuilder, Turn, TurnOutcome};
use ropeway::content::plain_text;
use ropeway::message::{Conversation, Dialect, Message};
use ropeway::provider::{ChatRequest, ProviderSettings};
use ropeway::testing::{ScriptedReply, model};
use ropeway::tool::{Arguments, BoxError, CallContext, LocalTool, ToolDefinition, ToolOutput};
use ropeway_providers::encode;
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

/// Returns a builder of an agent over a scripted model.
pub(super) fn agent(dialect: Dialect, replies: impl IntoIterator<Item = ScriptedReply>) -> AgentBuilder {
    Agent::builder().provider(model(dialect, replies)).model("m")
}

/// Returns a tool that accepts any arguments.
pub(super) fn tool<F, R, O>(name: &str, function: F) -> LocalTool
where
    F: Fn(Arguments, CallContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, BoxError>> + Send + 'static,
    O: Into<ToolOutput>,
{
    LocalTool::new(ToolDefinition::new(name), function)
}

/// Returns a tool that echoes a text.
pub(super) fn echo() -> LocalTool {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    LocalTool::new(ToolDefinition::new("echo").with_input_schema(schema), |arguments: Arguments, _| async move {
        Ok(arguments["text"].as_str().unwrap_or_default().to_owned())
    })
}

/// Returns a reply that calls [`echo`].
pub(super) fn echoing(id: &str, text: &str) -> ScriptedReply {
    ScriptedReply::call(id, "echo", json!({"text": text}))
}

/// Controls a tool that starts and then waits until it may end.
pub(super) struct Gate {
    pub(super) begun: Arc<Notify>,
    pub(super) go: Arc<Notify>,
    /// Closes when the call ends or is dropped.
    pub(super) over: oneshot::Receiver<()>,
}

/// Returns a tool named `gate`, for one call, and its control.
pub(super) fn gate() -> (LocalTool, Gate) {
    let (guard, over) = oneshot::channel::<()>();
    let guard = std::sync::Mutex::new(Some(guard));
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let gate = Gate { begun: begun.clone(), go: go.clone(), over };
    let tool = tool("gate", move |_, _| {
        let guard = guard.lock().expect("no poison").take();
        let (begun, go) = (begun.clone(), go.clone());
        async move {
            let _guard = guard;
            begun.notify_one();
            go.notified().await;
            Ok("open")
        }
    });
    (tool, gate)
}

/// Waits for the outcome of a turn that succeeds.
pub(super) async fn done(turn: Turn) -> TurnOutcome {
    turn.finish().await.expect("an outcome")
}

/// Returns all results so far: the id of the call, the text, and whether it is an error.
pub(super) fn results(history: &Conversation) -> Vec<(String, String, bool)> {
    let results = history.messages.iter().flat_map(|message| match message {
        Message::Tool { results } => results.clone(),
        _ => Vec::new(),
    });
    results.map(|result| (result.call, plain_text(&result.content).unwrap_or_default(), result.is_error)).collect()
}

/// Returns the result of a successful call.
pub(super) fn ok(call: &str, text: &str) -> (String, String, bool) {
    (call.to_owned(), text.to_owned(), false)
}

/// Returns the result of a failed call.
pub(super) fn failed(call: &str, text: &str) -> (String, String, bool) {
    (call.to_owned(), text.to_owned(), true)
}

/// Returns one short line per message.
pub(super) fn lines(history: &Conversation) -> Vec<String> {
    let line = |message: &Message| match message {
        Message::User { content } => format!("user: {}", plain_text(content).unwrap_or_default()),
        Message::Assistant(message) => {
            let calls = message.calls().map(|call| format!(" <{}>", call.id));
            format!("model: {}{}", message.to_text(), calls.collect::<String>())
        }
        Message::Tool { results } => {
            let results = results.iter().map(|result| format!(" <{}>", result.call));
            format!("tools:{}", results.collect::<String>())
        }
    };
    history.messages.iter().map(line).collect()
}

/// Asserts that the history is complete, and can be saved and sent to every provider.
pub(super) fn sendable(history: &Conversation) {
    let saved = serde_json::to_string(history).expect("JSON");
    assert_eq!(&serde_json::from_str::<Conversation>(&saved).expect("a conversation"), history);
    let mut open: Vec<&str> = Vec::new();
    for message in &history.messages {
        match message {
            Message::Tool { results } => {
                let results: Vec<&str> = results.iter().map(|result| result.call.as_str()).collect();
                assert_eq!(results, std::mem::take(&mut open), "one result for each call, in order");
                assert!(!results.is_empty(), "a tool message has results");
            }
            Message::Assistant(message) => {
                assert_eq!(open, [""; 0], "calls without results");
                open = message.calls().map(|call| call.id.as_str()).collect();
            }
            _ => assert_eq!(open, [""; 0], "calls without results"),
        }
    }
    assert_eq!(open, [""; 0], "calls without results");
    if history.messages.is_empty() {
        return;
    }
    for dialect in Dialect::ALL {
        let settings = ProviderSettings::new(dialect).with_base_url(format!("https://{dialect}.example.com/v1"));
        let encoded = encode(&settings, &ChatRequest::new("m", history));
        let encoded = encoded.unwrap_or_else(|error| panic!("{dialect} rejects it: {error}"));
        let body: Value = serde_json::from_slice(&encoded.request.body).expect("JSON");
        let (calls, results) = pairs(dialect, &body);
        assert_eq!(calls, results, "{dialect} receives one result for each call, in order");
        let different: HashSet<&String> = calls.iter().collect();
        assert!(different.len() == calls.len(), "{dialect} receives two calls with one id: {calls:?}");
    }
}

/// Returns the ids of the calls and of the results of a request.
fn pairs(dialect: Dialect, body: &Value) -> (Vec<String>, Vec<String>) {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().expect("a name").to_owned();
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    match dialect {
        Dialect::Anthropic => {
            for block in list(&body["messages"]).iter().flat_map(|message| list(&message["content"])) {
                match block["type"].as_str() {
                    Some("tool_use") => calls.push(text(&block["id"])),
                    Some("tool_result") => results.push(text(&block["tool_use_id"])),
                    _ => {}
                }
            }
        }
        Dialect::Responses => {
            for item in list(&body["input"]) {
                match item["type"].as_str() {
                    Some("function_call") => calls.push(text(&item["call_id"])),
                    Some("function_call_output") => results.push(text(&item["call_id"])),
                    _ => {}
                }
            }
        }
        Dialect::Gemini => {
            // Gemini matches calls and results by their order.
            let named = |value: &Value, place: usize| format!("{} {place}", text(&value["name"]));
            for part in list(&body["contents"]).iter().flat_map(|content| list(&content["parts"])) {
                if let Some(call) = part.get("functionCall") {
                    calls.push(named(call, calls.len()));
                }
                if let Some(result) = part.get("functionResponse") {
                    results.push(named(result, results.len()));
                }
            }
        }
        Dialect::Chat => {
            for message in list(&body["messages"]) {
                calls.extend(list(&message["tool_calls"]).iter().map(|call| text(&call["id"])));
                if message["role"] == "tool" {
                    results.push(text(&message["tool_call_id"]));
                }
            }
        }
    }
    (calls, results)
}
