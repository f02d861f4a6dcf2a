//! Unix sockets: JSON lines behind a preamble, and HTTP.

use std::os::unix::net::UnixListener;
use std::path::Path;

use ropeway::config::Config;
use ropeway::gateway::Gateway;
use ropeway::testing::{Script, ScriptedServer};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::isolation::isolated;
use super::kit::{GatewayKit, MODERN, call, entry, modern_call, request};
use crate::fast_config::{SOON, until};
use crate::scene::scene;

/// A client of the socket.
struct SocketClient {
    lines: Lines<BufReader<OwnedReadHalf>>,
    output: OwnedWriteHalf,
}

impl SocketClient {
    async fn connect(path: &Path, preamble: &str) -> Self {
        let (input, output) = UnixStream::connect(path).await.expect("a connection").into_split();
        let mut client = Self { lines: BufReader::new(input).lines(), output };
        client.output.write_all(format!("{preamble}\n").as_bytes()).await.expect("a preamble");
        client
    }

    async fn send(&mut self, message: &Value) {
        self.output.write_all(format!("{message}\n").as_bytes()).await.expect("a message");
    }

    /// Returns the next response; `None` at the end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            let line = tokio::time::timeout(2 * SOON, self.lines.next_line()).await.expect("a line in time");
            let message: Value = serde_json::from_str(&line.expect("a line")?).expect("JSON");
            if message.get("method").is_none() {
                return Some(message);
            }
        }
    }

    async fn ask(&mut self, message: &Value) -> Value {
        self.send(message).await;
        self.next().await.expect("a response")
    }
}

/// Starts a gateway with two servers, and serves JSON lines on a socket.
async fn listening(path: &Path) -> (GatewayKit, tokio::task::JoinHandle<()>) {
    let (scripted, other) = (ScriptedServer::new(Script::default()), ScriptedServer::new(Script::legacy()));
    let config = Config::default().with_server(entry("a", &scripted)).with_server(entry("b", &other));
    let kit = GatewayKit::launch(scripted, Gateway::builder(config)).await;
    let listener = UnixListener::bind(path).expect("a socket");
    let gateway = kit.gateway.clone();
    let serving = tokio::spawn(async move { gateway.serve_lines(listener).await.expect("a listener") });
    (kit, serving)
}

fn initialize() -> Value {
    let info = json!({"name": "kit", "version": "0"});
    request(0, "initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}))
}

fn modern(id: u64, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    request(id, method, params)
}

#[test]
fn a_socket_serves_both_eras_of_all_servers_or_one() {
    scene(|scene| async move {
        let path = scene.directory().join("gateway.sock");
        let (kit, serving) = listening(&path).await;
        for (preamble, tool) in [
            (r#"{"ropeway":1}"#, "b_echo"),
            (r#"{"ropeway":1,"server":null}"#, "a_echo"),
            (r#"{"ropeway":1,"server":"a","later":true}"#, "echo"),
            (r#"{"ropeway":1,"server":"b"}"#, "echo"),
        ] {
            let mut client = SocketClient::connect(&path, preamble).await;
            let params = json!({"name": tool, "arguments": {"message": "modern"}});
            let reply = client.ask(&modern(1, "tools/call", params)).await;
            assert_eq!(reply["result"]["content"][0]["text"], "modern", "{preamble}: {reply}");
            // Before `initialize`, there is no legacy session.
            let early = client.ask(&call(2, tool, json!({"message": "early"}))).await;
            assert_eq!(early["error"]["code"], -32600, "{early}");
            assert_eq!(client.ask(&initialize()).await["result"]["protocolVersion"], "2025-11-25");
            let reply = client.ask(&call(3, tool, json!({"message": "legacy"}))).await;
            assert_eq!(reply["result"]["content"][0]["text"], "legacy", "{preamble}: {reply}");
        }
        kit.gateway.drain(SOON).await;
        tokio::time::timeout(SOON, serving).await.expect("the socket ends").expect("the socket");
        kit.stop().await;
    });
}

#[test]
fn a_command_continues_with_the_isolated_server_of_the_one_before() {
    scene(|scene| async move {
        let path = scene.directory().join("gateway.sock");
        let kit = isolated(&scene, &Script::default(), 600_000).await;
        let listener = UnixListener::bind(&path).expect("a socket");
        let gateway = kit.gateway.clone();
        let serving = tokio::spawn(async move { gateway.serve_lines(listener).await.expect("a listener") });
        let mut processes = Vec::new();
        for _ in 0..3 {
            let mut client = SocketClient::connect(&path, r#"{"ropeway":1}"#).await;
            let reply = client.ask(&modern(1, "tools/call", json!({"name": "peer_pid", "arguments": {}}))).await;
            processes.push(reply["result"]["content"][0]["text"].clone());
            drop(client);
            until("the end of the command", || kit.gateway.status().connections == 0).await;
        }
        assert!(processes[0].is_string(), "{processes:?}");
        assert!(processes.iter().all(|process| *process == processes[0]), "{processes:?}");
        kit.gateway.drain(SOON).await;
        tokio::time::timeout(SOON, serving).await.expect("the socket ends").expect("the socket");
        kit.stop().await;
    });
}

#[test]
fn a_wrong_preamble_is_refused() {
    scene(|scene| async move {
        let path = scene.directory().join("gateway.sock");
        let (kit, serving) = listening(&path).await;
        let long = "x".repeat(10_000);
        for preamble in [r#"{"ropeway":2}"#, "GET / HTTP/1.1", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, &long] {
            let mut client = SocketClient::connect(&path, preamble).await;
            let reply = client.next().await.expect("a response");
            assert_eq!((&reply["id"], &reply["error"]["code"]), (&Value::Null, &json!(-32600)), "{reply}");
            assert_eq!(client.next().await, None, "the connection ends");
        }
        let mut unknown = SocketClient::connect(&path, r#"{"ropeway":1,"server":"nothing"}"#).await;
        let reply = unknown.ask(&modern(1, "tools/list", json!({}))).await;
        assert!(reply["error"]["message"].as_str().is_some_and(|message| message.contains("nothing")), "{reply}");
        drop(unknown);
        kit.gateway.drain(SOON).await;
        tokio::time::timeout(SOON, serving).await.expect("the socket ends").expect("the socket");
        kit.stop().await;
    });
}

#[test]
fn status_and_stop_are_for_the_socket_only() {
    scene(|scene| async move {
        let path = scene.directory().join("gateway.sock");
        let (kit, serving) = listening(&path).await;
        let mut client = SocketClient::connect(&path, r#"{"ropeway":1}"#).await;
        let status = client.ask(&request(1, "ropeway/status", json!({}))).await;
        let names: Vec<&Value> = status["result"]["servers"].as_array().expect("servers").iter().collect();
        assert_eq!(names.len(), 2, "{status}");
        assert_eq!(status["result"]["connections"], 1, "{status}");
        let session = kit.session().await;
        for method in ["ropeway/status", "ropeway/stop"] {
            let reply = kit.post(&session, &request(1, method, json!({}))).await;
            assert_eq!(reply.json()["error"]["code"], -32601, "{reply:?}");
        }
        assert_eq!(client.ask(&request(2, "ropeway/stop", json!({}))).await["result"], json!({}));
        tokio::time::timeout(SOON, kit.gateway.stop_requested()).await.expect("the request to stop");
        drop(client);
        kit.gateway.drain(SOON).await;
        tokio::time::timeout(SOON, serving).await.expect("the socket ends").expect("the socket");
        kit.stop().await;
    });
}

#[test]
fn the_end_of_a_socket_cancels_its_calls() {
    scene(|scene| async move {
        let path = scene.directory().join("gateway.sock");
        let (kit, serving) = listening(&path).await;
        let mut client = SocketClient::connect(&path, r#"{"ropeway":1,"server":"a"}"#).await;
        client.send(&modern(1, "tools/call", json!({"name": "sleep", "arguments": {"ms": 600_000}}))).await;
        kit.scripted.wait_for("tools/call", 1).await;
        drop(client);
        until("the cancellation", || kit.scripted.cancelled().len() == 1).await;
        kit.gateway.drain(SOON).await;
        tokio::time::timeout(SOON, serving).await.expect("the socket ends").expect("the socket");
        kit.stop().await;
    });
}

#[test]
fn http_is_served_on_a_socket() {
    scene(|scene| async move {
        let path = scene.directory().join("http.sock");
        let kit = GatewayKit::start(Script::default()).await;
        let listener = UnixListener::bind(&path).expect("a socket");
        let gateway = kit.gateway.clone();
        let serving = tokio::spawn(async move { gateway.serve_http_unix(listener).await.expect("a listener") });
        let request = modern_call("echo", json!({"message": "over a socket"}));
        for (request, status) in [
            (request.clone(), "200 OK"),
            // Web pages cannot connect to a socket, so every name of the host is allowed.
            (request.replace("Host: localhost", "Host: gateway.example"), "200 OK"),
            (request.replace("Host: localhost", "Host: localhost\r\nOrigin: https://evil.example"), "403 Forbidden"),
        ] {
            let mut stream = UnixStream::connect(&path).await.expect("a connection");
            stream.write_all(request.as_bytes()).await.expect("a request");
            let mut reply = String::new();
            tokio::time::timeout(SOON, stream.read_to_string(&mut reply)).await.expect("a response").expect("text");
            assert!(reply.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{reply}");
            assert_eq!(reply.contains("over a socket"), status == "200 OK", "{reply}");
        }
        kit.gateway.drain(SOON).await;
        tokio::time::timeout(SOON, serving).await.expect("the socket ends").expect("the socket");
        kit.stop().await;
    });
}
