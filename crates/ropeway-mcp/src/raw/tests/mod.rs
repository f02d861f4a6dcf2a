//! Tests of raw requests and of the message handler.

mod message_handler;

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::*;
use crate::Handlers;
use crate::raw_caller::RequestTag;
use ropeway_config::{EraChoice, ServerConfig, Transport};
use ropeway_core::event::{Event, Events};
use ropeway_core::sync::lock;
use ropeway_testing::{Script, ScriptedServer};

const SOON: Duration = Duration::from_secs(30);

/// A caller that records its progress.
pub(super) struct Recorder {
    key: u64,
    progress: Mutex<Vec<(String, String)>>,
}

impl Recorder {
    pub(super) fn new(key: u64) -> Arc<Self> {
        Arc::new(Self { key, progress: Mutex::default() })
    }
}

impl RawCaller for Recorder {
    fn key(&self) -> RequestTag {
        RequestTag(self.key)
    }

    fn on_progress(&self, params: &str, token: Range<usize>) {
        lock(&self.progress).push((params.to_owned(), params[token].to_owned()));
    }
}

/// A call of a tool by a client that declares elicitation.
pub(super) fn tool_call(tool: &str, arguments: &Value) -> RawRequest {
    RawRequest {
        method: Cow::Borrowed("tools/call"),
        params: json!({"name": tool, "arguments": arguments}).to_string().into(),
        name: Some(tool.to_owned()),
        meta: String::new(),
        modern_meta: r#""io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}"#.into(),
        arguments: Some(arguments.to_string().into()),
        as_task: false,
    }
}

pub(super) fn config(era: EraChoice, transport: impl Into<Transport>) -> ServerConfig {
    let mut config = ServerConfig::new("s", transport);
    config.era = era;
    config.timeouts.close = Duration::from_millis(300);
    config
}

pub(super) async fn connect(config: ServerConfig, handlers: Handlers) -> Mcp {
    let mcp = Mcp::with_host(config, handlers, Events::default());
    mcp.connect().await.expect("a connection");
    mcp
}

pub(super) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, work).await.expect("an outcome in time")
}

pub(super) async fn until(mut so: impl FnMut() -> bool) {
    in_time(async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

pub(super) fn text(reply: &RawReply) -> String {
    let result: Value = serde_json::from_slice(&reply.result).expect("JSON");
    result["content"][0]["text"].as_str().expect("text").to_owned()
}

/// A legacy server that answers every call with this text as the result.
fn answering(result: &'static str) -> Transport {
    Transport::in_process(move || {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        tokio::spawn(async move {
            let (read, mut write) = tokio::io::split(ours);
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let message: Value = serde_json::from_str(&line).expect("JSON");
                let Some(id) = message.get("id") else { continue };
                let result = match message["method"].as_str() {
                    Some("tools/call") => result,
                    _ => {
                        r#"{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}"#
                    }
                };
                let response = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n");
                if write.write_all(response.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        theirs
    })
}

async fn call_answered_with(result: &'static str) -> Result<RawReply, CallError> {
    let mcp = connect(config(EraChoice::Legacy, answering(result)), Handlers::new()).await;
    in_time(mcp.forward(tool_call("any", &json!({})), Recorder::new(1), CallContext::default())).await
}

#[tokio::test]
async fn a_raw_call_returns_the_bytes_of_the_result() {
    let result = r#"{ "n":123456789012345678901234567890, "e" :1.50e+3,"s":"\u00e9\/","isError":true,"a":[ 1,{}] }"#;
    let reply = call_answered_with(result).await.expect("a reply");
    assert_eq!(reply.result, result);
    assert_eq!((reply.is_error, &reply.result_type, reply.info.era), (true, &None, Era::Legacy));
}

#[tokio::test]
async fn a_raw_result_ends_where_its_object_ends() {
    let reply = call_answered_with(r#"{"a":1},"x":{"b":2}"#).await.expect("a reply");
    assert_eq!(reply.result, r#"{"a":1}"#);
    for invalid in [r#"{"a":1},"id":7,"result":{}"#, r#"{"a":[}"#, "[1]", "null"] {
        assert!(matches!(call_answered_with(invalid).await, Err(CallError::Protocol { .. })), "{invalid}");
    }
}

#[tokio::test]
async fn a_dropped_raw_call_cancels_upstream() {
    for era in [EraChoice::Legacy, EraChoice::Modern] {
        let scripted = ScriptedServer::new(Script::default());
        let mcp = connect(config(era, scripted.in_process()), Handlers::new()).await;
        let call = mcp.forward(tool_call("sleep", &json!({"ms": 60_000})), Recorder::new(1), CallContext::default());
        let call = tokio::spawn(call);
        let sent = in_time(scripted.wait_for("tools/call", 1)).await;
        call.abort();
        until(|| scripted.cancelled() == [sent["id"].clone()]).await;
    }
}

#[tokio::test]
async fn progress_reaches_a_raw_caller() {
    let scripted = ScriptedServer::new(Script::default());
    let mcp = connect(config(EraChoice::Legacy, scripted.in_process()), Handlers::new()).await;
    let caller = Recorder::new(1);
    let call = tool_call("sleep", &json!({"ms": 30, "steps": 3}));
    in_time(mcp.forward(call, caller.clone(), CallContext::default())).await.expect("a reply");
    let progress = lock(&caller.progress).clone();
    let sent = scripted.received_of("tools/call").remove(0);
    let messages: Vec<String> = progress
        .iter()
        .map(|(params, token)| {
            assert_eq!(*token, sent["params"]["_meta"]["progressToken"].to_string());
            serde_json::from_str::<Value>(params).expect("JSON")["message"].as_str().expect("text").to_owned()
        })
        .collect();
    assert_eq!(messages, ["step 1 of 3", "step 2 of 3", "step 3 of 3"]);
}

#[tokio::test]
async fn a_modern_server_gets_the_meta_of_the_client() {
    for era in [EraChoice::Legacy, EraChoice::Modern] {
        let scripted = ScriptedServer::new(Script::default());
        let mcp = connect(config(era, scripted.in_process()), Handlers::new()).await;
        let mut call = tool_call("echo", &json!({"message": "a\nb"}));
        call.params = Bytes::from_static(b"{\n\"name\":\"echo\",\r\n\"arguments\":{\"message\":\"a\\nb\"}\n}");
        call.meta = "\"traceparent\":\n\"00-1\"".to_owned();
        let reply = in_time(mcp.forward(call, Recorder::new(1), CallContext::default())).await.expect("a reply");
        assert_eq!(text(&reply), "a\nb");
        let mut meta = scripted.received_of("tools/call").remove(0)["params"]["_meta"].take();
        meta.as_object_mut().expect("an object").remove("progressToken");
        let expected = match era {
            EraChoice::Modern => json!({"traceparent": "00-1", "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}),
            _ => json!({"traceparent": "00-1"}),
        };
        assert_eq!(meta, expected);
    }
}

#[tokio::test]
async fn a_raw_call_emits_its_outcome() {
    let events = Events::default().with_payloads();
    let mut stream = events.subscribe();
    let mcp = Mcp::with_host(config(EraChoice::Legacy, answering(r#"{"isError":true}"#)), Handlers::new(), events);
    mcp.connect().await.expect("a connection");
    let call = mcp.forward(tool_call("any", &json!({"a": 1})), Recorder::new(1), CallContext::default());
    in_time(call).await.expect("a reply");
    let called = async {
        loop {
            if let Event::ToolCalled { tool, is_error, arguments, result, .. } = stream.next().await.expect("an event")
            {
                return (tool, is_error, arguments.expect("arguments"), result.expect("a result"));
            }
        }
    };
    let (tool, is_error, arguments, result) = in_time(called).await;
    assert_eq!((tool.as_str(), is_error), ("any", true));
    assert_eq!((&*arguments, &*result), (&json!({"a": 1}), &json!({"isError": true})));
}

#[tokio::test]
async fn a_required_task_is_polled_for_a_raw_caller() {
    let scripted = ScriptedServer::new(Script::legacy());
    let mcp = connect(config(EraChoice::Legacy, scripted.in_process()), Handlers::new()).await;
    let call = RawRequest { as_task: true, ..tool_call("task", &json!({"ms": 20})) };
    let call = mcp.forward(call, Recorder::new(1), CallContext::default());
    assert_eq!(text(&in_time(call).await.expect("a reply")), "the task is done");
    assert!(!scripted.received_of("tasks/get").is_empty());
}

#[tokio::test]
async fn the_log_level_is_set_again_after_a_reconnect() {
    let scripted = ScriptedServer::new(Script::legacy());
    let mcp = connect(config(EraChoice::Legacy, scripted.in_process()), Handlers::new()).await;
    mcp.set_log_level("debug");
    assert_eq!(in_time(scripted.wait_for("logging/setLevel", 1)).await["params"]["level"], "debug");
    let crash = mcp.forward(tool_call("crash", &json!({})), Recorder::new(1), CallContext::default());
    in_time(crash).await.expect_err("no reply");
    assert_eq!(in_time(scripted.wait_for("logging/setLevel", 2)).await["params"]["level"], "debug");
}

#[tokio::test]
async fn a_subscription_that_is_released_and_held_again_at_once_is_confirmed() {
    for (era, script) in [(EraChoice::Legacy, Script::legacy()), (EraChoice::Modern, Script::default())] {
        let scripted = ScriptedServer::new(script);
        let mcp = connect(config(era, scripted.in_process()), Handlers::new()).await;
        let uri: Arc<str> = "test://numbers".into();
        let hold = mcp.hold_subscription(&uri);
        in_time(hold.confirmed()).await.expect("a subscription");
        drop(hold);
        let hold = mcp.hold_subscription(&uri);
        in_time(hold.confirmed()).await.expect("the same subscription");
    }
}
