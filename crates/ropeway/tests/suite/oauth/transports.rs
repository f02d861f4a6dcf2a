//! The authorization of every kind of request: POST, the standalone stream, DELETE, and HTTP+SSE.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ropeway::config::{EraChoice, HttpServer, ServerConfig, TokenCommand};
use ropeway::event::Events;
use ropeway::mcp::{Handlers, Mcp};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::wire::{Answer, Request};

/// A server that accepts one token and records its requests. It speaks Streamable HTTP with sessions, and HTTP+SSE.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    token: String,
    /// Method, path, and whether the token was accepted.
    seen: Vec<(String, String, bool)>,
    events: Option<mpsc::UnboundedSender<String>>,
}

impl Server {
    async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(server.clone().serve(stream));
            }
        });
        format!("http://{address}")
    }

    fn set_token(&self, token: &str) {
        self.0.lock().unwrap().token = token.to_owned();
    }

    fn seen(&self) -> Vec<(String, String, bool)> {
        self.0.lock().unwrap().seen.clone()
    }

    async fn serve(self, mut stream: TcpStream) {
        let Some(request) = Request::read(&mut stream).await else { return };
        let is_accepted = {
            let mut state = self.0.lock().unwrap();
            let is_accepted = request.header("authorization") == format!("Bearer {}", state.token);
            state.seen.push((request.method.clone(), request.path.clone(), is_accepted));
            is_accepted
        };
        if !is_accepted {
            return Answer::json(401, &json!({})).with("www-authenticate", "Bearer").write(stream).await;
        }
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/sse") => self.send_events(stream).await,
            ("POST", "/messages") => {
                let events = self.0.lock().unwrap().events.clone();
                if let (Some(events), Some(answer)) = (events, answer(&request.json())) {
                    let _ = events.send(answer.to_string());
                }
                Answer::text(202, "text/plain", "").write(stream).await;
            }
            ("POST", _) => {
                let answer = match answer(&request.json()) {
                    Some(answer) => Answer::json(200, &answer).with("mcp-session-id", "session-1"),
                    None => Answer::text(202, "text/plain", ""),
                };
                answer.write(stream).await;
            }
            ("DELETE", _) => Answer::text(204, "text/plain", "").write(stream).await,
            _ => Answer::text(405, "text/plain", "").write(stream).await,
        }
    }

    async fn send_events(&self, mut stream: TcpStream) {
        let (sender, mut events) = mpsc::unbounded_channel();
        self.0.lock().unwrap().events = Some(sender);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: endpoint\ndata: /messages\n\n";
        let _ = stream.write_all(head.as_bytes()).await;
        while let Some(event) = events.recv().await {
            let _ = stream.write_all(format!("event: message\ndata: {event}\n\n").as_bytes()).await;
        }
    }
}

fn answer(message: &Value) -> Option<Value> {
    let id = message.get("id")?;
    let result = match message["method"].as_str()? {
        "initialize" => json!({"protocolVersion": "2025-03-26", "capabilities": {"tools": {}},
            "serverInfo": {"name": "s", "version": "1"}}),
        "tools/list" => json!({"tools": []}),
        _ => json!({}),
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// Connects with the token in a file.
fn connection(server: HttpServer, token: &Path) -> Mcp {
    let command = TokenCommand::new("cat", [token.to_str().expect("a path")]);
    let mut config = ServerConfig::new("web", server.with_auth(command));
    config.era = EraChoice::Legacy;
    Mcp::with_host(config, Handlers::new(), Events::default())
}

#[tokio::test]
async fn every_request_of_a_session_is_authorized() {
    let (server, folder) = (Server::default(), tempfile::tempdir().expect("a folder"));
    let (url, token) = (server.start().await, folder.path().join("token"));
    server.set_token("first-t0ken");
    std::fs::write(&token, "first-t0ken").expect("a file");
    let mcp = connection(HttpServer::new(format!("{url}/mcp")), &token);
    mcp.connect().await.expect("connected");
    mcp.refresh_tools().await.expect("a list");
    mcp.close().await;
    let seen = server.seen();
    assert!(seen.iter().all(|(.., is_accepted)| *is_accepted), "{seen:?}");
    for method in ["POST", "GET", "DELETE"] {
        assert!(seen.iter().any(|(own, ..)| own == method), "{method}: {seen:?}");
    }
}

#[tokio::test]
async fn the_stream_and_the_messages_of_http_sse_are_authorized() {
    let (server, folder) = (Server::default(), tempfile::tempdir().expect("a folder"));
    let (url, token) = (server.start().await, folder.path().join("token"));
    server.set_token("first-t0ken");
    std::fs::write(&token, "first-t0ken").expect("a file");
    let mcp = connection(HttpServer::sse(format!("{url}/sse")), &token);
    mcp.connect().await.expect("connected");
    mcp.refresh_tools().await.expect("a list");
    // The message is refused, and sent again with the next token.
    server.set_token("second-t0ken");
    std::fs::write(&token, "second-t0ken").expect("a file");
    tokio::time::timeout(Duration::from_secs(10), mcp.refresh_tools()).await.expect("in time").expect("a list");
    let refused: Vec<_> = server.seen().into_iter().filter(|(.., is_accepted)| !is_accepted).collect();
    assert_eq!(refused, [("POST".to_owned(), "/messages".to_owned(), false)]);
}
