//! What the tests of an agent need: an agent over a scripted model, tools for it, and a look at what it remembers.

use std::collections::HashSet;
use std::sync::Arc;

use ropeway::agent::{Agent, AgentBuilder, Turn, TurnOutcome};
use ropeway::content::plain_text;
use ropeway::message::{Conversation, Dialect, Message};
use ropeway::provider::{ChatRequest, ProviderSettings, encode};
use ropeway::testing::{ScriptedReply, model};
use ropeway::tool::{Arguments, BoxError, CallContext, LocalTool, ToolDefinition, ToolOutput};
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

/// An agent in the making, over a model that says this.
pub(super) fn agent(dialect: Dialect, sayings: impl IntoIterator<Item = ScriptedReply>) -> AgentBuilder {
    Agent::builder().provider(model(dialect, sayings)).model("m")
}

/// A tool that takes whatever it is given.
pub(super) fn tool<F, R, O>(name: &str, function: F) -> LocalTool
where
    F: Fn(Arguments, CallContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, BoxError>> + Send + 'static,
    O: Into<ToolOutput>,
{
    LocalTool::new(ToolDefinition::new(name), function)
}

/// A tool that says a text back.
pub(super) fn echo() -> LocalTool {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    LocalTool::new(ToolDefinition::new("echo").with_input_schema(schema), |arguments: Arguments, _| async move {
        Ok::<_, BoxError>(arguments["text"].as_str().unwrap_or_default().to_owned())
    })
}

/// A call of [`echo`].
pub(super) fn echoing(id: &str, text: &str) -> ScriptedReply {
    ScriptedReply::call(id, "echo", json!({"text": text}))
}

/// A tool that begins, and then waits until it is let go: both are told.
pub(super) struct Gate {
    pub(super) begun: Arc<Notify>,
    pub(super) go: Arc<Notify>,
    /// Ends when a call is over, also when it was dropped.
    pub(super) over: oneshot::Receiver<()>,
}

/// A tool named `gate`, for one call, and the gate itself.
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

/// Waits for the end of a turn that has one.
pub(super) async fn done(turn: Turn) -> TurnOutcome {
    turn.finish().await.expect("an outcome")
}

/// Every result so far: the call, what the model is told, and whether that is an error.
pub(super) fn results(history: &Conversation) -> Vec<(String, String, bool)> {
    let results = history.messages.iter().flat_map(|message| match message {
        Message::Tool(message) => message.results.clone(),
        _ => Vec::new(),
    });
    let told = results.map(|result| (result.call, plain_text(&result.content).unwrap_or_default(), result.is_error));
    told.collect()
}

/// The result of a call that went well.
pub(super) fn ok(call: &str, text: &str) -> (String, String, bool) {
    (call.to_owned(), text.to_owned(), false)
}

/// The result of a call that failed.
pub(super) fn failed(call: &str, text: &str) -> (String, String, bool) {
    (call.to_owned(), text.to_owned(), true)
}

/// Who said what, in short.
pub(super) fn lines(history: &Conversation) -> Vec<String> {
    let line = |message: &Message| match message {
        Message::User(message) => format!("user: {}", plain_text(&message.content).unwrap_or_default()),
        Message::Assistant(message) => {
            let calls = message.calls().map(|call| format!(" <{}>", call.id));
            format!("model: {}{}", message.to_text(), calls.collect::<String>())
        }
        Message::Tool(message) => {
            let results = message.results.iter().map(|result| format!(" <{}>", result.call));
            format!("tools:{}", results.collect::<String>())
        }
        other => panic!("{other:?}"),
    };
    history.messages.iter().map(line).collect()
}

/// The history is complete, can be saved, and can be sent to every provider.
pub(super) fn sendable(history: &Conversation) {
    let saved = serde_json::to_string(history).expect("JSON");
    assert_eq!(&serde_json::from_str::<Conversation>(&saved).expect("a conversation"), history);
    let mut open: Vec<&str> = Vec::new();
    for message in &history.messages {
        match message {
            Message::Tool(message) => {
                let results: Vec<&str> = message.results.iter().map(|result| result.call.as_str()).collect();
                assert_eq!(results, std::mem::take(&mut open), "one result for each call, in order");
                assert!(!results.is_empty(), "there is nothing without a call to be told of");
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
        let encoded = encoded.unwrap_or_else(|error| panic!("{dialect} does not take it: {error}"));
        let body: Value = serde_json::from_slice(&encoded.request.body).expect("JSON");
        let (calls, results) = pairs(dialect, &body);
        assert_eq!(calls, results, "{dialect} hears of a result for each call, in order");
        let different: HashSet<&String> = calls.iter().collect();
        assert!(different.len() == calls.len(), "{dialect} hears of two calls of one name: {calls:?}");
    }
}

/// The calls and the results of a request, by what ties them together.
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
            // They are tied together by their order, and told apart by it.
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
        other => panic!("{other}"),
    }
    (calls, results)
}
