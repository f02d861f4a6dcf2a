//! Servers over HTTP behind the gateway, also broken and hostile ones: calls of other servers go on.

use std::time::Duration;

use ropeway::config::{Config, EraChoice, ServerConfig, ServerEntry, Transport};
use ropeway::gateway::Gateway;
use ropeway::testing::{Fault, FaultTrigger, HttpScriptedServer, Script, ScriptedServer};
use ropeway_testing::{HttpFault, HttpScript, ResponseFormat};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::kit::{GatewayKit, HttpReply, call, entry, modern_call, post};
use crate::fast_config::{SOON, at, connect, fast_config, in_era, listening, ms, still_works};
use crate::scene::scene;

const BOTH: [EraChoice; 2] = [EraChoice::Legacy, EraChoice::Modern];

/// Time limit of a call of the server that is attacked with.
const LIMIT: Duration = Duration::from_secs(3);

/// Starts a gateway in front of a server at a URL, named `web`, and of one within this process, named `ok`.
async fn behind(era: EraChoice, url: String) -> GatewayKit {
    let mut web: ServerConfig = in_era(era, at(url));
    web.alias = "web".into();
    web.timeouts.idle = LIMIT;
    web.timeouts.total = LIMIT;
    web.limits.message_bytes = 1 << 20;
    let ok = ScriptedServer::new(Script::default());
    let config = Config::default().with_server(ServerEntry::new(web)).with_server(entry("ok", &ok));
    GatewayKit::launch(ok, Gateway::builder(config)).await
}

fn echo(kind: &str) -> Value {
    json!({"message": "hi", "kind": kind})
}

/// Calls the server that is attacked with, while clients call the other one. Returns the response.
async fn attacked(kit: &GatewayKit, session: Option<&str>, kind: &str) -> Value {
    let attack = match session {
        Some(session) => post(session, &call(7, "web_echo", echo(kind))),
        None => modern_call("web_echo", echo(kind)),
    };
    let others = async {
        for _ in 0..10 {
            let reply = kit.send(&modern_call("ok_echo", json!({"message": "fine"}))).await;
            assert_eq!(reply.json()["result"]["content"][0]["text"], "fine", "{kind}: {reply:?}");
            tokio::time::sleep(ms(20)).await;
        }
    };
    let (reply, ()) = tokio::join!(kit.send(&attack), others);
    response_of(&reply)
}

/// Returns the response of a call, which may come after notifications.
fn response_of(reply: &HttpReply) -> Value {
    let is_stream = reply.headers.get("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
    let messages = if is_stream { reply.events() } else { vec![reply.json()] };
    let responses: Vec<Value> = messages.into_iter().filter(|message| message.get("method").is_none()).collect();
    assert_eq!((responses.len(), &responses[0]["id"]), (1, &json!(7)), "{reply:?}");
    responses[0].clone()
}

/// Waits until the server answers again, after a new connection if necessary.
async fn recovers(kit: &GatewayKit, what: &str) {
    let began = Instant::now();
    loop {
        // Notifications of an earlier call may still arrive on the standalone stream of the server.
        let reply = response_of(&kit.send(&modern_call("web_echo", echo("none"))).await);
        if reply["result"]["content"][0]["text"] == "hi" {
            return;
        }
        assert!(began.elapsed() < 2 * SOON, "{what}: {reply}");
        tokio::time::sleep(ms(100)).await;
    }
}

/// What a call ends with.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Result,
    /// An error with this code, of which `data.server` names the server.
    Error(i64),
    /// The error of the server, with this code.
    Refusal(i64),
    /// A result, or an error that names the server.
    Any,
}

fn check(reply: &Value, ending: Ending, what: &str) {
    let is_named = reply["error"]["data"]["server"] == "web"
        || reply["error"]["message"].as_str().is_some_and(|text| text.contains("`web`"));
    let is_right = match ending {
        Ending::Result => reply["result"]["content"][0]["text"] == "hi",
        Ending::Error(code) => reply["error"]["code"] == code && is_named,
        Ending::Refusal(code) => reply["error"]["code"] == code,
        Ending::Any => reply["result"].is_object() || is_named,
    };
    assert!(is_right, "{what}: expected {ending:?}, found {reply}");
}

#[test]
fn servers_over_http_are_called_in_both_eras() {
    scene(|_| async move {
        for era in BOTH {
            let http = listening(Script::default()).await;
            let kit = behind(era, http.url()).await;
            let session = kit.session().await;
            for session in [None, Some(&*session)] {
                check(&attacked(&kit, session, "none").await, Ending::Result, "no attack");
            }
            // Progress reaches the client.
            let reply = kit.post(&session, &call(8, "web_sleep", json!({"ms": 200, "steps": 3}))).await;
            let progress = reply.events().iter().filter(|event| event["method"] == "notifications/progress").count();
            assert!(progress > 0, "{reply:?}");
            // A disconnect cancels the call of a server over HTTP.
            let stream = kit.open(&modern_call("web_sleep", json!({"ms": 600_000}))).await;
            http.wait_for("tools/call", 4).await;
            drop(stream);
            crate::fast_config::until("the cancellation", || http.cancelled().len() == 1).await;
            kit.stop().await;
        }
    });
}

#[test]
fn a_broken_http_server_does_not_affect_others() {
    let cut = HttpFault::CutStream { after: 0, retry_ms: 10, resumable: false };
    let attacks: Vec<(&str, Fault, Ending)> = vec![
        ("no response", Fault::Hang, Ending::Error(-32001)),
        ("a huge event", Fault::Giant { bytes: 3 << 20 }, Ending::Error(-32603)),
        ("a huge notification", Fault::GiantUnasked { bytes: 3 << 20 }, Ending::Any),
        ("many notifications", Fault::storm("notifications/odd", 5000), Ending::Result),
        ("malformed JSON", Fault::Body(r#""result":{broken"#.to_owned()), Ending::Any),
        ("unbalanced JSON", Fault::Body(r#""result":{"content":[}"#.to_owned()), Ending::Any),
        ("a wrong id", Fault::set("/id", 987_654), Ending::Any),
        ("an id of a wrong type", Fault::set("/id", json!({"a": 1})), Ending::Any),
        ("no id", Fault::remove("/id"), Ending::Any),
        ("status 500", Fault::status(500, "<h1>Sorry</h1>"), Ending::Error(-32603)),
        (
            "status 500 with an error",
            Fault::status(500, r#"{"jsonrpc":"2.0","id":1,"error":{"code":1}}"#),
            Ending::Refusal(1),
        ),
        ("a truncated response", HttpFault::Truncate.into(), Ending::Any),
        ("a reset in the middle", HttpFault::ResetAfterHead.into(), Ending::Any),
        ("the end of the stream", cut.into(), Ending::Any),
        ("another content type", HttpFault::ContentType("text/html".to_owned()).into(), Ending::Any),
        ("202 without a result", HttpFault::Accepted.into(), Ending::Any),
    ];
    scene(|_| async move {
        for era in BOTH {
            for answers in [ResponseFormat::Sse, ResponseFormat::Json] {
                let http = HttpScript { answers, comment_every_ms: Some(50), ..HttpScript::default() };
                let server: HttpScriptedServer = listening(Script { http, ..Script::default() }).await;
                let kit = behind(era, server.url()).await;
                let session = kit.session().await;
                for (at, (what, fault, ending)) in attacks.iter().enumerate() {
                    let what = format!("{what} ({era:?}, {answers:?})");
                    server.set(|script| {
                        script.faults.clear();
                        *script = script.clone().fault(FaultTrigger::tool("echo").nth(1), fault.clone());
                    });
                    let session = (at % 2 == 0).then_some(&*session);
                    let began = Instant::now();
                    let reply = attacked(&kit, session, "none").await;
                    check(&reply, *ending, &what);
                    assert!(began.elapsed() < SOON, "{what}: {:?}", began.elapsed());
                    server.set(|script| script.faults.clear());
                    recovers(&kit, &what).await;
                }
                kit.stop().await;
            }
        }
    });
}

/// A server whose responses to calls do not end.
struct EndlessServer {
    url: String,
    _serving: JoinSet<()>,
}

impl EndlessServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve_endlessly(stream));
            }
        });
        Self { url, _serving: serving }
    }
}

/// Answers one request after the other, and the call of a tool without an end.
async fn serve_endlessly(mut stream: TcpStream) {
    while let Some(message) = read_message(&mut stream).await {
        let id = &message["id"];
        let kind = message["params"]["arguments"]["kind"].as_str().unwrap_or_default().to_owned();
        let info = json!({"name": "endless", "version": "0"});
        let tool = json!({"name": "echo", "inputSchema": {"type": "object"}});
        let result = match message["method"].as_str() {
            Some("initialize") => {
                json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
            }
            Some("server/discover") => json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private",
                "_meta": {"io.modelcontextprotocol/serverInfo": info}}),
            Some("tools/list") => {
                json!({"resultType": "complete", "tools": [tool], "ttlMs": 0, "cacheScope": "private"})
            }
            Some("tools/call") if kind == "none" => {
                json!({"resultType": "complete", "content": [{"type": "text", "text": "hi"}]})
            }
            Some("tools/call") => return pour(&mut stream, &kind).await,
            _ if id.is_null() => {
                let _ = stream.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n").await;
                continue;
            }
            _ => json!({"resultType": "complete"}),
        };
        let body = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        if stream.write_all((head + &body).as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads the next POST request; other methods are refused.
async fn read_message(stream: &mut TcpStream) -> Option<Value> {
    let mut read = Vec::new();
    loop {
        if let Some(end) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            let length: usize = length.unwrap_or_default();
            if !head.starts_with("post ") {
                read.drain(..end + 4 + length);
                let refusal = b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(refusal).await.ok()?;
            } else if read.len() >= end + 4 + length {
                return serde_json::from_slice(&read[end + 4..end + 4 + length]).ok();
            }
        }
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    }
}

/// Sends a response that does not end, until the client disconnects.
async fn pour(stream: &mut TcpStream, kind: &str) {
    let content = if kind == "endless JSON" { "application/json" } else { "text/event-stream" };
    let (head, piece, pause) = match kind {
        "endless event" => ("data: ", "x".repeat(64 << 10), 0),
        "endless lines" => ("", "data: x\n".repeat(1000), 0),
        "endless comments" => ("", ": nothing\n\n".to_owned(), 20),
        "endless notifications" => {
            let notification = r#"data: {"jsonrpc":"2.0","method":"notifications/odd","params":{}}"#;
            ("", format!("{notification}\n\n"), 1)
        }
        "endless responses" => ("", "data: {\"jsonrpc\":\"2.0\",\"id\":999999,\"result\":{}}\n\n".to_owned(), 1),
        "endless garbage" => ("", "data: {broken\n\n".to_owned(), 1),
        "endless JSON" => ("{\"jsonrpc\": ", " ".repeat(64 << 10), 0),
        _ => ("", String::new(), 1000),
    };
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {content}\r\nConnection: close\r\n\r\n{head}");
    let mut result = stream.write_all(head.as_bytes()).await;
    while result.is_ok() {
        result = stream.write_all(piece.as_bytes()).await;
        tokio::time::sleep(ms(pause)).await;
    }
}

#[test]
fn endless_responses_are_bounded() {
    scene(|_| async move {
        for era in BOTH {
            let server = EndlessServer::start().await;
            let kit = behind(era, server.url.clone()).await;
            let session = kit.session().await;
            for (at, kind) in [
                "endless event",
                "endless lines",
                "endless comments",
                "endless notifications",
                "endless responses",
                "endless garbage",
                "endless JSON",
            ]
            .into_iter()
            .enumerate()
            {
                let what = format!("{kind} ({era:?})");
                let began = Instant::now();
                let reply = attacked(&kit, (at % 2 == 0).then_some(&*session), kind).await;
                assert!(began.elapsed() < SOON, "{what}: {:?}", began.elapsed());
                assert!(reply["error"]["code"].is_i64(), "{what}: {reply}");
                check(&reply, Ending::Any, &what);
                recovers(&kit, &what).await;
            }
            kit.stop().await;
        }
    });
}

#[test]
fn a_client_of_this_library_uses_both_endpoints() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        for config in [
            in_era(EraChoice::Legacy, at(format!("http://{}/mcp", kit.address))),
            in_era(EraChoice::Modern, at(format!("http://{}/mcp/scripted", kit.address))),
            fast_config(Transport::Sse(at(format!("http://{}/sse", kit.address)))),
            fast_config(Transport::Sse(at(format!("http://{}/sse/scripted", kit.address)))),
        ] {
            let server = connect(config).await;
            still_works(&server).await;
            still_works(&server).await;
            server.close().await;
        }
        kit.stop().await;
    });
}
