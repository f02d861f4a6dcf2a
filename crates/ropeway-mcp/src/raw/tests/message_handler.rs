//! Tests of the message handler.

use std::collections::VecDeque;

use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::Notify;

use super::*;
use crate::message_handler::{MessageHandler, ServerRequest, ServerRequestMethod};
use crate::protocol::RpcError;
use crate::raw_caller::Callers;
use ropeway_testing::HttpScriptedServer;

/// A message handler that records everything.
#[derive(Default)]
struct Listener {
    server_requests: Mutex<VecDeque<ServerRequest>>,
    asked: Notify,
    withdrawn: Mutex<Vec<String>>,
    notifications: Mutex<Vec<(String, Callers)>>,
}

impl MessageHandler for Listener {
    fn own_id(&self) -> &str {
        "1"
    }

    fn capabilities(&self, _: Era) -> Value {
        json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}})
    }

    fn on_request(&self, server_request: ServerRequest) {
        lock(&self.server_requests).push_back(server_request);
        self.asked.notify_one();
    }

    fn on_withdrawn(&self, _: LinkKey, id: &RawValue) {
        lock(&self.withdrawn).push(id.get().to_owned());
    }

    fn on_closed(&self, _: LinkKey) {}

    fn on_notification(&self, _: LinkKey, method: &str, _: Option<&RawValue>, callers: Callers) {
        lock(&self.notifications).push((method.to_owned(), callers));
    }
}

impl Listener {
    fn handlers(self: &Arc<Self>) -> Handlers {
        Handlers::new().with_message_handler(self.clone())
    }

    async fn server_request(&self) -> ServerRequest {
        in_time(async {
            loop {
                if let Some(server_request) = lock(&self.server_requests).pop_front() {
                    return server_request;
                }
                self.asked.notified().await;
            }
        })
        .await
    }
}

fn call(mcp: &Mcp, key: u64, tool: &str, arguments: Value) -> tokio::task::JoinHandle<Result<RawReply, CallError>> {
    tokio::spawn(mcp.forward(tool_call(tool, &arguments), Recorder::new(key), CallContext::default()))
}

/// Starts a call that sleeps and one that asks a server request. Returns the server request.
async fn ask_during_two_calls(mcp: &Mcp, handler: &Listener, scripted: &ScriptedServer) -> ServerRequest {
    let _sleeping = call(mcp, 1, "sleep", json!({"ms": 60_000}));
    in_time(scripted.wait_for("tools/call", 1)).await;
    let asking = call(mcp, 2, "elicit", json!({"message": "Who?"}));
    let server_request = handler.server_request().await;
    assert_eq!((server_request.link, server_request.method), (mcp.link(), ServerRequestMethod::Elicit { url: false }));
    let params: Value = serde_json::from_str(server_request.params.get()).expect("JSON");
    assert_eq!(params["message"], "Who?");
    assert!(!asking.is_finished());
    server_request
}

#[tokio::test]
async fn a_question_names_the_calls_in_flight() {
    let (handler, scripted) = (Arc::new(Listener::default()), ScriptedServer::new(Script::legacy()));
    let mcp = connect(config(EraChoice::Legacy, scripted.in_process()), handler.handlers()).await;
    let server_request = ask_during_two_calls(&mcp, &handler, &scripted).await;
    let keys = vec![RequestTag(1), RequestTag(2)];
    assert_eq!(server_request.callers, Callers { keys, is_certain: false });
    assert_eq!(server_request.id.get(), r#""question-1""#);
}

#[tokio::test]
async fn a_question_over_http_names_the_call_of_its_stream() {
    let handler = Arc::new(Listener::default());
    let scripted = HttpScriptedServer::start(Script::legacy()).await.expect("a free port");
    let server = ropeway_config::HttpServer::new(scripted.url());
    let mcp = connect(config(EraChoice::Legacy, server), handler.handlers()).await;
    let server_request = ask_during_two_calls(&mcp, &handler, &scripted).await;
    assert_eq!(server_request.callers, Callers { keys: vec![RequestTag(2)], is_certain: true });
}

#[tokio::test]
async fn the_answer_to_a_question_reaches_the_server() {
    let (handler, scripted) = (Arc::new(Listener::default()), ScriptedServer::new(Script::legacy()));
    let mcp = connect(config(EraChoice::Legacy, scripted.in_process()), handler.handlers()).await;
    for (tool, method, answer) in [
        ("elicit", ServerRequestMethod::Elicit { url: false }, json!({"action": "accept", "content": {"name": "Ada"}})),
        (
            "sample",
            ServerRequestMethod::Sample,
            json!({"role": "assistant", "content": {"type": "text", "text": "hi"}}),
        ),
        ("roots", ServerRequestMethod::Roots, json!({"roots": []})),
    ] {
        let calling = call(&mcp, 1, tool, json!({}));
        let server_request = handler.server_request().await;
        assert_eq!(server_request.method, method);
        server_request.answer(Ok(&to_raw_value(&answer).expect("JSON")));
        let reply = in_time(calling).await.expect("no panic").expect("a reply");
        assert_eq!(serde_json::from_str::<Value>(&text(&reply)).expect("JSON"), answer);
    }
}

#[tokio::test]
async fn dropping_a_question_answers_it_with_an_error() {
    let (handler, scripted) = (Arc::new(Listener::default()), ScriptedServer::new(Script::legacy()));
    let mcp = connect(config(EraChoice::Legacy, scripted.in_process()), handler.handlers()).await;
    let calling = call(&mcp, 1, "sample", json!({}));
    drop(handler.server_request().await);
    let reply = in_time(calling).await.expect("no panic").expect("a reply");
    assert_eq!(text(&reply), r#"{"code":-32603,"message":"`sampling/createMessage` was not answered"}"#);
    let calling = call(&mcp, 1, "elicit", json!({}));
    let error = RpcError { code: -1, message: "no".to_owned(), data: Some(json!({"a": 1})) };
    handler.server_request().await.answer(Err(error));
    let reply = in_time(calling).await.expect("no panic").expect("a reply");
    assert_eq!(text(&reply), r#"{"code":-1,"message":"no","data":{"a":1}}"#);
}

#[tokio::test]
async fn a_withdrawn_question_is_reported() {
    let (handler, scripted) = (Arc::new(Listener::default()), ScriptedServer::new(Script::legacy()));
    let mcp = connect(config(EraChoice::Legacy, scripted.in_process()), handler.handlers()).await;
    let _calling = call(&mcp, 1, "elicit", json!({}));
    let server_request = handler.server_request().await;
    scripted
        .push(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "question-1"}}));
    until(|| *lock(&handler.withdrawn) == [r#""question-1""#]).await;
    drop(server_request);
    let _calling = call(&mcp, 1, "elicit", json!({}));
    let server_request = handler.server_request().await;
    mcp.close().await;
    assert_eq!(*lock(&handler.withdrawn), [r#""question-1""#, r#""question-2""#], "its link is closed");
    drop(server_request);
    assert!(scripted.received().iter().all(|message| message.get("method").is_some()), "a question was answered");
}

#[tokio::test]
async fn a_call_is_not_idle_while_its_question_is_open() {
    let (handler, scripted) = (Arc::new(Listener::default()), ScriptedServer::new(Script::legacy()));
    let mut config = config(EraChoice::Legacy, scripted.in_process());
    config.timeouts.idle = Duration::from_millis(200);
    let mcp = connect(config, handler.handlers()).await;
    let calling = call(&mcp, 1, "roots", json!({}));
    let server_request = handler.server_request().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    server_request.answer(Ok(&to_raw_value(&json!({"roots": []})).expect("JSON")));
    in_time(calling).await.expect("no panic").expect("a reply");
}

#[tokio::test]
async fn a_flood_of_questions_is_bounded() {
    let (handler, scripted) = (Arc::new(Listener::default()), ScriptedServer::new(Script::legacy()));
    let mcp = connect(config(EraChoice::Legacy, scripted.in_process()), handler.handlers()).await;
    for number in 0..1060 {
        scripted.push(json!({"jsonrpc": "2.0", "id": number, "method": "roots/list"}));
    }
    until(|| scripted.received().iter().filter(|message| message.get("error").is_some()).count() == 36).await;
    assert_eq!(lock(&handler.server_requests).len(), 1024);
    lock(&handler.server_requests).clear();
    scripted.push(json!({"jsonrpc": "2.0", "id": 2000, "method": "roots/list"}));
    drop(handler.server_request().await);
    scripted.push(json!({"jsonrpc": "2.0", "id": 2001, "method": "unknown/method"}));
    until(|| scripted.received().iter().any(|message| message["id"] == 2001 && message["error"]["code"] == -32601))
        .await;
    drop(mcp);
}

#[tokio::test]
async fn a_notification_names_the_calls_in_flight() {
    let (handler, scripted) = (Arc::new(Listener::default()), ScriptedServer::new(Script::legacy()));
    let mcp = connect(config(EraChoice::Legacy, scripted.in_process()), handler.handlers()).await;
    in_time(call(&mcp, 7, "log", json!({"message": "a line"}))).await.expect("no panic").expect("a reply");
    scripted.changed("prompts");
    until(|| lock(&handler.notifications).len() == 2).await;
    let expected = [
        ("notifications/message".to_owned(), Callers { keys: vec![RequestTag(7)], is_certain: false }),
        ("notifications/prompts/list_changed".to_owned(), Callers::default()),
    ];
    assert_eq!(*lock(&handler.notifications), expected);
}
