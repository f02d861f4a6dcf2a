//! All sent messages conform to the specification.

use std::collections::BTreeSet;
use std::path::PathBuf;

use ropeway::config::{EraChoice, ServerConfig, Transport};
use ropeway::mcp::{ClientRoot, ElicitationAnswer, Handlers, Mcp};
use ropeway::testing::{Fault, FaultTrigger, HttpScriptedServer, RecordedHttpRequest, Script, ScriptedServer};
use ropeway::tool::{CallContext, CancelToken};
use serde_json::{Map, Value, json};

use crate::fast_config::{
    arguments, at, call, call_in, child, connect_with, fast_config, in_era, listening, names, text, until,
};
use crate::scene::scene;
use crate::specification::Specification;

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

fn handlers() -> Handlers {
    Handlers::new()
        .on_elicitation(|_| async { Ok(ElicitationAnswer::Accept(Map::new())) })
        .on_sampling(|_| async {
            Ok(json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hello."}}))
        })
        .on_roots(|| async { Ok(vec![ClientRoot { uri: "file:///project".to_owned(), name: None }]) })
}

/// A record of the messages that the server has received.
enum Witness<'a> {
    Server(&'a ScriptedServer),
    /// The record file of a server process.
    Record(PathBuf),
}

impl Witness<'_> {
    fn received(&self) -> Vec<Value> {
        match self {
            Self::Server(scripted) => scripted.received(),
            Self::Record(path) => {
                let record = std::fs::read_to_string(path).unwrap_or_default();
                // The last line may be incomplete.
                record.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
            }
        }
    }

    fn count(&self, method: &str) -> usize {
        self.received().iter().filter(|message| message["method"] == method).count()
    }

    async fn wait_for(&self, method: &str, count: usize) {
        until(method, || self.count(method) >= count).await;
    }

    async fn heard_of_the_end(&self) {
        let is_closed = || matches!(self, Self::Server(scripted) if !scripted.cancelled().is_empty());
        until("the cancellation", || self.count("notifications/cancelled") > 0 || is_closed()).await;
    }
}

/// Calls a tool and drops the call once the server has received this message.
async fn give_up(server: &Mcp, witness: &Witness<'_>, tool: &str, heard: &str) {
    let cancel = CancelToken::new();
    let cx = CallContext::default().with_cancel(cancel.clone());
    let before = witness.count(heard);
    let calling = async {
        call_in(server, tool, json!({"ms": 60_000}), &cx).await.expect_err("no answer");
    };
    tokio::join!(calling, async {
        witness.wait_for(heard, before + 1).await;
        cancel.cancel();
    });
}

/// Uses every kind of request once.
async fn do_everything(server: &Mcp, witness: &Witness<'_>) {
    let version = server.server_info().expect("a connected server").protocol_version.clone();
    let modern = version == "2026-07-28";
    names(server).await;
    server.subscribe("test://hello");
    witness.wait_for(if modern { "subscriptions/listen" } else { "resources/subscribe" }, 1).await;
    let cx = CallContext::default().with_meta("traceparent", json!("00-1-2-01"));
    call_in(server, "echo", json!({"message": "hi \"you\" \u{0}\u{2028} ä 😀"}), &cx).await.expect("an answer");
    for tool in QUESTIONS.map(|(tool, _)| tool) {
        call(server, tool, json!({})).await.expect("an answer");
    }
    text(server, "task", json!({"ms": 30})).await;
    text(server, "locate", json!({"region": "eu"})).await;
    give_up(server, witness, "sleep", "tools/call").await;
    witness.heard_of_the_end().await;
    if modern || version == "2025-11-25" {
        give_up(server, witness, "task", "tasks/get").await;
        witness.wait_for("tasks/cancel", 1).await;
    }
    if modern {
        text(server, "task", json!({"ms": 30, "ask": true})).await;
    }
    for (method, params) in [
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({"uri": "test://hello"})),
        ("prompts/list", json!({})),
        ("prompts/get", json!({"name": "plain", "_meta": {"own": 1}})),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "a"}}),
        ),
    ] {
        server.request(method, arguments(params), &CallContext::default()).await.expect("an answer");
    }
    server.unsubscribe("test://hello");
    if modern {
        return;
    }
    witness.wait_for("resources/unsubscribe", 1).await;
    for (method, params) in [("ping", json!({})), ("logging/setLevel", json!({"level": "info"}))] {
        server.request(method, arguments(params), &CallContext::default()).await.expect("an answer");
    }
    if let Witness::Server(scripted) = witness {
        for (id, method) in PUSHED {
            scripted.push(json!({"jsonrpc": "2.0", "id": id, "method": method}));
            until("the answer", || witness.received().iter().any(|message| message["id"] == id)).await;
        }
    }
}

/// The tools that send requests, in call order, and the methods of these requests.
const QUESTIONS: [(&str, &str); 3] =
    [("elicit", "elicitation/create"), ("sample", "sampling/createMessage"), ("roots", "roots/list")];

/// Requests of the server outside of calls, by id. The second has an unknown method.
const PUSHED: [(&str, &str); 2] = [("p", "ping"), ("q", "no/such")];

/// Checks all sent messages against the schema of the specification.
fn judge(messages: &[Value], version: &str) {
    let specification = Specification::of(version);
    let mut questions = QUESTIONS.iter().chain(&PUSHED);
    for message in messages {
        let question = if message.get("method").is_none() { questions.next().map(|(_, method)| *method) } else { None };
        let faults = specification.faults(message, question);
        assert!(faults.is_empty(), "{version}: {message}\n{}", faults.join("\n"));
    }
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().map(|object| object.keys().map(String::as_str).collect()).unwrap_or_default()
}

/// Checks one message against the rules of JSON-RPC and of its era.
fn check(message: &Value, modern: bool) {
    assert_eq!(message["jsonrpc"], "2.0", "{message}");
    let Some(method) = message.get("method") else {
        let outcome = if message.get("result").is_some() { "result" } else { "error" };
        assert_eq!(keys(message), BTreeSet::from(["jsonrpc", "id", outcome]), "{message}");
        assert!(!modern, "the modern era has no answers of the client: {message}");
        return;
    };
    let method = method.as_str().expect("a method");
    let params = &message["params"];
    assert!(params.is_object(), "{message}");
    if message.get("id").is_none() {
        assert_eq!(keys(message), BTreeSet::from(["jsonrpc", "method", "params"]), "{message}");
        assert!(["notifications/initialized", "notifications/cancelled"].contains(&method), "{message}");
        return;
    }
    assert_eq!(keys(message), BTreeSet::from(["jsonrpc", "id", "method", "params"]), "{message}");
    assert!(message["id"].is_u64(), "{message}");
    let meta = &params["_meta"];
    assert_eq!(meta["progressToken"], message["id"], "{message}");
    let era: Vec<&str> = keys(meta).into_iter().filter(|key| key.starts_with("io.modelcontextprotocol/")).collect();
    if modern {
        assert_eq!(era, [CAPABILITIES, CLIENT, VERSION], "{message}");
        assert_eq!(meta[VERSION], "2026-07-28");
        assert_eq!(meta[CLIENT]["name"], "ropeway");
        assert_eq!(keys(&meta[CAPABILITIES]), BTreeSet::from(["elicitation", "extensions", "roots", "sampling"]));
        assert!(!["initialize", "ping", "logging/setLevel", "resources/subscribe"].contains(&method), "{message}");
    } else {
        assert!(era.is_empty(), "{message}");
        assert!(!["server/discover", "subscriptions/listen"].contains(&method), "{message}");
    }
    match method {
        "initialize" => {
            assert_eq!(params["protocolVersion"], "2025-11-25", "{message}");
            assert_eq!(keys(&params["clientInfo"]), BTreeSet::from(["name", "version"]), "{message}");
            assert_eq!(params["clientInfo"]["name"], "ropeway");
            assert_eq!(keys(&params["capabilities"]), BTreeSet::from(["elicitation", "roots", "sampling"]));
        }
        "tools/call" => assert!(params["name"].is_string() && params["arguments"].is_object(), "{message}"),
        _ => {}
    }
}

fn check_all(messages: &[Value], version: &str) {
    assert!(messages.len() > 20, "{messages:?}");
    for message in messages {
        check(message, version == "2026-07-28");
    }
    let ids: Vec<u64> =
        messages.iter().filter(|it| it.get("method").is_some()).filter_map(|it| it["id"].as_u64()).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "no number is used twice: {ids:?}");
    let traced = messages.iter().filter(|it| it["params"]["_meta"]["traceparent"] == "00-1-2-01").count();
    assert_eq!(traced, 1);
    let own = messages.iter().find(|it| it["params"]["_meta"]["own"] == 1).expect("the caller's own");
    assert_eq!(own["method"], "prompts/get");
    assert!(messages.iter().any(|it| it["params"]["cursor"] == "page-1"), "a list of one page");
    let answers =
        messages.iter().filter(|it| it.get("result").is_some() || it["params"].get("inputResponses").is_some());
    assert!(answers.count() >= QUESTIONS.len(), "every question has an answer");
    judge(messages, version);
}

/// A server that supports one version and has more tools than fit on a page.
fn script(version: &str) -> Script {
    let script = Script { page_size: Some(5), ..Script::default() };
    if version == "2026-07-28" { script } else { Script { legacy_versions: vec![version.to_owned()], ..script } }
}

fn era(version: &str) -> EraChoice {
    if version == "2026-07-28" { EraChoice::Modern } else { EraChoice::Legacy }
}

const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const VERSIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];

async fn everything(config: ServerConfig, witness: Witness<'_>, version: &str) {
    let server = connect_with(handlers(), config).await;
    assert_eq!(server.server_info().expect("a connected server").protocol_version, version);
    do_everything(&server, &witness).await;
    server.close().await;
    check_all(&witness.received(), version);
}

#[test]
fn messages_on_a_pipe_follow_every_version() {
    scene(|_| async {
        for version in VERSIONS {
            let scripted = ScriptedServer::new(script(version));
            everything(in_era(era(version), scripted.in_process()), Witness::Server(&scripted), version).await;
            let first = scripted.received().remove(0);
            if era(version) == EraChoice::Modern {
                assert_eq!(first["method"], "server/discover");
            } else {
                assert_eq!(first["method"], "initialize");
                assert_eq!(scripted.received()[1]["method"], "notifications/initialized");
            }
        }
    });
}

#[test]
fn lines_to_a_process_follow_every_version() {
    scene(|scene| async move {
        for version in VERSIONS {
            let record = scene.directory().join(version);
            let script = Script { record_file: Some(record.clone()), ..script(version) };
            let server = child(&scene, &script);
            everything(in_era(era(version), server), Witness::Record(record), version).await;
        }
    });
}

#[test]
fn messages_over_sse_follow_every_version() {
    scene(|_| async {
        for version in LEGACY {
            let http = listening(script(version)).await;
            everything(fast_config(Transport::Sse(at(http.sse_url()))), Witness::Server(&http), version).await;
        }
    });
}

fn posts(http: &HttpScriptedServer) -> Vec<(RecordedHttpRequest, Value)> {
    let posts = http.requests().into_iter().filter(|request| request.method == "POST");
    posts.map(|request| (request.clone(), serde_json::from_slice(&request.body).expect("JSON"))).collect()
}

fn is_dressed(request: &RecordedHttpRequest) {
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("accept"), Some("application/json, text/event-stream"));
    assert!(request.header("user-agent").is_some_and(|agent| agent.starts_with("ropeway/")));
}

#[test]
fn messages_and_headers_over_legacy_http_follow_every_version() {
    scene(|_| async {
        for version in LEGACY {
            let http = listening(script(version)).await;
            everything(in_era(EraChoice::Legacy, at(http.url())), Witness::Server(&http), version).await;
            for (request, message) in posts(&http) {
                is_dressed(&request);
                let after = message["method"] != "initialize";
                assert_eq!(request.header("mcp-session-id").is_some(), after, "{message}");
                assert_eq!(request.header("mcp-protocol-version"), after.then_some(version), "{message}");
                assert!(request.headers.iter().all(|(name, _)| !["mcp-method", "mcp-name"].contains(&name.as_str())));
            }
            for request in http.requests().iter().filter(|request| request.method != "POST") {
                assert!(request.header("mcp-session-id").is_some() && request.body.is_empty(), "{request:?}");
                assert_eq!(request.header("mcp-protocol-version"), Some(version), "{request:?}");
            }
            let methods: Vec<String> = http.requests().into_iter().map(|request| request.method).collect();
            assert_eq!(methods.iter().filter(|method| *method == "GET").count(), 1);
            assert_eq!(methods.last().map(String::as_str), Some("DELETE"));
        }
    });
}

#[test]
fn messages_and_headers_over_modern_http_follow_the_rules() {
    scene(|_| async {
        let http = listening(script("2026-07-28")).await;
        everything(in_era(EraChoice::Modern, at(http.url())), Witness::Server(&http), "2026-07-28").await;
        assert!(http.requests().iter().all(|request| request.method == "POST"), "no GET, no DELETE");
        for (request, message) in posts(&http) {
            is_dressed(&request);
            assert_eq!(request.header("mcp-protocol-version"), Some("2026-07-28"), "{message}");
            assert_eq!(request.header("mcp-method"), message["method"].as_str(), "{message}");
            assert_eq!(request.header("mcp-session-id"), None, "{message}");
            let params = &message["params"];
            let name = match message["method"].as_str().unwrap_or_default() {
                "tools/call" | "prompts/get" => params["name"].as_str(),
                "resources/read" => params["uri"].as_str(),
                method if method.starts_with("tasks/") => params["taskId"].as_str(),
                _ => None,
            };
            assert_eq!(request.header("mcp-name"), name, "{message}");
            let region = params["arguments"]["region"].as_str();
            assert_eq!(request.header("mcp-param-region"), region, "{message}");
        }
        // Closing the stream is the only sign of a cancelled call.
        assert!(http.received_of("notifications/cancelled").is_empty());
    });
}

#[test]
fn no_meta_key_is_sent_twice() {
    scene(|_| async {
        for era in [EraChoice::Legacy, EraChoice::Modern] {
            let http = listening(Script::default()).await;
            let server = connect_with(handlers(), in_era(era, at(http.url()))).await;
            let cx = CallContext::default()
                .with_meta("progressToken", json!("theirs"))
                .with_meta(VERSION, json!("1999-01-01"))
                .with_meta("traceparent", json!("00-1-2-01"));
            let heard = std::sync::Arc::new(std::sync::Mutex::new(0));
            let sink = heard.clone();
            let cx = cx.with_progress(move |_| *sink.lock().expect("no panic") += 1);
            call_in(&server, "sleep", json!({"ms": 20, "steps": 2}), &cx).await.expect("an answer");
            assert_eq!(*heard.lock().expect("no panic"), 2);
            for (request, message) in posts(&http) {
                let body = String::from_utf8(request.body).expect("text");
                for key in ["\"progressToken\"", VERSION, "\"traceparent\""] {
                    assert!(body.matches(key).count() <= 1, "{body}");
                }
                if message["method"] == "tools/call" {
                    assert_eq!(message["params"]["_meta"]["traceparent"], "00-1-2-01");
                    assert_eq!(message["params"]["_meta"]["progressToken"], message["id"]);
                }
            }
            server.close().await;
        }
    });
}

#[test]
fn answered_and_lost_requests_are_not_cancelled() {
    scene(|_| async {
        let scripted = ScriptedServer::new(Script::default().fault(FaultTrigger::tool("echo").nth(2), Fault::exit()));
        for era in [EraChoice::Legacy, EraChoice::Modern] {
            let server = connect_with(handlers(), in_era(era, scripted.in_process())).await;
            names(&server).await;
            call(&server, "fail", json!({})).await.expect("an answer");
            call(&server, "refuse", json!({})).await.expect_err("a refusal");
            let _ = call(&server, "echo", json!({"message": "hi"})).await;
            let _ = call(&server, "echo", json!({"message": "hi"})).await;
            if era == EraChoice::Legacy {
                assert_eq!(scripted.received_of("notifications/cancelled"), Vec::<Value>::new());
                assert_eq!(scripted.cancelled(), Vec::<Value>::new());
            }
            server.close().await;
        }
    });
}
