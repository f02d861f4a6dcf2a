//! A call is repeated only if it was certainly not started, regardless of the server's response.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ropeway::config::{HttpServer, StdioServer};
use ropeway::mcp::Mcp;
use serde_json::json;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::hostile::{Exchange, Hostile, legacy, read};
use crate::fast_config::{call, chain, until};
use crate::scene::scene;

/// The reaction of a server to the first call, after executing it.
#[derive(Clone, Copy, Debug)]
enum First {
    /// Answers with a status, headers and a body. `{id}` is replaced by the request id.
    Answer(&'static str, &'static str, &'static str),
    /// Closes the connection without a response.
    Close,
    /// Closes the connection with a reset.
    Reset,
    /// Starts an event stream and closes it.
    CutStream,
}

/// A server that executes and counts every received call.
async fn executing(first: First) -> (Hostile, Arc<AtomicUsize>) {
    let executed = Arc::new(AtomicUsize::new(0));
    let count = executed.clone();
    let http = Hostile::start(move |mut exchange: Exchange| {
        let count = count.clone();
        async move {
            match exchange.rpc() {
                "tools/call" if count.fetch_add(1, Ordering::SeqCst) == 0 => match first {
                    First::Answer(status, headers, body) => {
                        let body = body.replace("{id}", &exchange.body["id"].to_string());
                        exchange.answer(status, headers, &body).await;
                    }
                    First::Close => {}
                    First::Reset => {
                        let _ = exchange.stream.set_zero_linger();
                    }
                    First::CutStream => exchange.events().await,
                },
                "tools/call" => exchange.result(json!({"content": [{"type": "text", "text": "done"}]})).await,
                "ping" => exchange.result(json!({})).await,
                _ if exchange.method == "GET" => exchange.answer("405 Method Not Allowed", "", "").await,
                _ => {
                    exchange.handshake(&json!({"tools": {}})).await;
                }
            }
        }
    })
    .await;
    (http, executed)
}

#[test]
fn a_call_that_may_have_been_executed_is_not_repeated() {
    scene(|_| async {
        let json = "Content-Type: application/json\r\n";
        for first in [
            First::Answer("400 Bad Request", "", "the session budget of this tool is used up"),
            First::Answer("400 Bad Request", json, r#"{"error": "session not initialized upstream"}"#),
            First::Answer(
                "400 Bad Request",
                json,
                r#"{"jsonrpc":"2.0","id":{id},"error":{"code":-32603,"message":"login session expired"}}"#,
            ),
            First::Answer(
                "404 Not Found",
                json,
                r#"{"jsonrpc":"2.0","id":{id},"error":{"code":-32602,"message":"no such file"}}"#,
            ),
            First::Answer("404 Not Found", json, r#"{"detail": "no such customer"}"#),
            First::Answer("401 Unauthorized", "", "session expired"),
            First::Answer("403 Forbidden", "WWW-Authenticate: Bearer\r\n", "session"),
            First::Answer("410 Gone", "", "session"),
            First::Answer("500 Internal Server Error", "", "session"),
            First::Answer("502 Bad Gateway", "", "session"),
            First::Answer("503 Service Unavailable", "", "upstream connect error or disconnect/reset before headers"),
            First::Answer("504 Gateway Timeout", "", "session"),
            First::Close,
            First::Reset,
            First::CutStream,
        ] {
            let (http, executed) = executing(first).await;
            let server = Mcp::new(legacy(HttpServer::new(http.url())));
            server.connect().await.expect("a connection");
            let outcome = call(&server, "pay", json!({})).await;
            let error = outcome.err().map(|error| chain(&error)).unwrap_or_default();
            println!("measured {first:?}: {} executions, {error}", executed.load(Ordering::SeqCst));
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!(executed.load(Ordering::SeqCst), 1, "{first:?}: {error}");
            assert!(!error.is_empty(), "{first:?}");
            server.close().await;
        }
    });
}

/// A server that drops its sessions on demand, and rejects them with a given response.
async fn forgetting(status: &'static str, body: &'static str) -> (Hostile, Arc<AtomicUsize>) {
    let forgotten = Arc::new(AtomicUsize::new(0));
    let state = forgotten.clone();
    let http = Hostile::start(move |mut exchange: Exchange| {
        let state = state.clone();
        async move {
            let rpc = exchange.rpc().to_owned();
            match rpc.as_str() {
                "initialize" => {
                    state.store(0, Ordering::SeqCst);
                    exchange.handshake(&json!({"tools": {}})).await;
                }
                _ if exchange.method == "GET" => exchange.answer("405 Method Not Allowed", "", "").await,
                _ if state.load(Ordering::SeqCst) == 1 => exchange.answer(status, "", body).await,
                "tools/call" => exchange.result(json!({"content": [{"type": "text", "text": "done"}]})).await,
                "tools/list" => exchange.result(json!({"tools": []})).await,
                "ping" => exchange.result(json!({})).await,
                _ => {
                    exchange.handshake(&json!({"tools": {}})).await;
                }
            }
        }
    })
    .await;
    (http, forgotten)
}

#[test]
fn an_unknown_session_error_renews_it_for_the_next_call_only() {
    scene(|_| async {
        let (http, forgotten) = forgetting("400 Bad Request", "I do not know this session").await;
        let server = Mcp::new(legacy(HttpServer::new(http.url())));
        server.connect().await.expect("a connection");
        forgotten.store(1, Ordering::SeqCst);
        let error = call(&server, "pay", json!({})).await.expect_err("no answer");
        assert!(chain(&error).contains("I do not know this session"), "{}", chain(&error));
        assert_eq!(http.count("tools/call"), 1);
        call(&server, "pay", json!({})).await.expect("an answer on a new session");
        assert_eq!((http.count("initialize"), http.count("tools/call")), (2, 2));
        // A list may be requested twice.
        forgotten.store(1, Ordering::SeqCst);
        server.list_tools().await.expect("a list on a new session");
        assert_eq!((http.count("initialize"), http.count("tools/list")), (3, 2));
        server.close().await;
    });
}

#[test]
fn a_session_error_of_an_sdk_renews_it_for_this_call() {
    scene(|_| async {
        for (status, body) in [
            ("404 Not Found", ""),
            ("404 Not Found", r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#),
            ("400 Bad Request", "Bad Request: No valid session ID provided"),
            (
                "400 Bad Request",
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}"#,
            ),
        ] {
            let (http, forgotten) = forgetting(status, body).await;
            let server = Mcp::new(legacy(HttpServer::new(http.url())));
            server.connect().await.expect("a connection");
            forgotten.store(1, Ordering::SeqCst);
            call(&server, "pay", json!({})).await.expect("an answer on a new session");
            assert_eq!((http.count("initialize"), http.count("tools/call")), (2, 2), "{body}");
            server.close().await;
        }
    });
}

#[test]
fn an_error_about_another_session_is_not_an_expiry() {
    scene(|_| async {
        let first = First::Answer("400 Bad Request", "", "your shopping session has expired");
        let (http, executed) = executing(first).await;
        let server = Mcp::new(legacy(HttpServer::new(http.url())));
        server.connect().await.expect("a connection");
        assert!(call(&server, "pay", json!({})).await.is_err());
        call(&server, "pay", json!({})).await.expect("an answer");
        assert_eq!((http.count("initialize"), executed.load(Ordering::SeqCst)), (1, 2));
        server.close().await;
    });
}

#[test]
fn a_call_on_a_closing_pooled_connection_is_sent_once() {
    scene(|_| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
        let executed = Arc::new(AtomicUsize::new(0));
        let count = executed.clone();
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let count = count.clone();
                connections.spawn(async move {
                    let mut stream = Some(stream);
                    while let Some(mut exchange) = read(stream.take().expect("a connection")).await {
                        let result = match exchange.rpc() {
                            "initialize" => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                                "serverInfo": {"name": "kept", "version": "1"}}),
                            "tools/call" => {
                                count.fetch_add(1, Ordering::SeqCst);
                                return;
                            }
                            _ => json!({}),
                        };
                        let body = json!({"jsonrpc": "2.0", "id": exchange.body["id"], "result": result}).to_string();
                        let head = format!(
                            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                            body.len()
                        );
                        let _ = exchange.stream.write_all((head + &body).as_bytes()).await;
                        stream = Some(exchange.stream);
                    }
                });
            }
        });
        let server = Mcp::new(legacy(HttpServer::new(url)));
        server.connect().await.expect("a connection");
        server.ping().await.expect("an answer on the kept connection");
        let error = call(&server, "pay", json!({})).await.expect_err("no answer");
        assert_eq!(executed.load(Ordering::SeqCst), 1, "{}", chain(&error));
        server.close().await;
        serving.abort();
    });
}

#[test]
fn a_call_that_kills_the_program_is_sent_once() {
    scene(|scene| async move {
        let log = scene.directory().join("executed");
        let greeting = json!({"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}}, "serverInfo": {"name": "mortal", "version": "1"}}});
        let script = format!(
            "read line; echo '{greeting}'; while read line; do case $line in *tools/call*) echo x >> {}; exit 1;; esac; done",
            log.display()
        );
        let server = Mcp::new(legacy(StdioServer::new("sh", ["-c", &script])));
        server.connect().await.expect("a connection");
        let error = call(&server, "pay", json!({})).await.expect_err("no answer");
        until("the next start", || server.is_connected()).await;
        let executed = std::fs::read_to_string(&log).expect("a log").lines().count();
        assert_eq!(executed, 1, "{}", chain(&error));
        server.close().await;
    });
}
