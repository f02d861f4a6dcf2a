//! Clients with valid keys that take more than their share.

use ropeway::config::{GatewayLimits, GatewaySettings};
use serde_json::{Value, json};
use tokio::io::BufReader;
use tokio::net::TcpStream;

use super::auth::{KeyedKit, initialize, limit, list, with};
use super::kit::{bare, call, modern, modern_call, post, read_rest, read_until, request};
use crate::fast_config::{SOON, ms, until};
use crate::scene::scene;

/// More than the buffers of a connection hold.
const LARGE: usize = 12 << 20;

#[test]
fn a_client_with_a_huge_description_is_refused() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let key = kit.key("alice", |_| {});
        let huge = "x".repeat(20_000);
        let (info, capabilities) = (json!({"name": huge, "version": "0"}), json!({"experimental": {"x": huge}}));
        for (name, value) in [("clientInfo", &info), ("clientCapabilities", &capabilities)] {
            let name = format!("io.modelcontextprotocol/{name}");
            let reply =
                kit.send(&with(&modern("server/discover", json!({"_meta": {&name: value}})), &key, "/mcp")).await;
            assert_eq!(reply.status, 400, "{name}: {}", reply.status);
            let message = format!("`{name}` is longer than 16384 bytes");
            assert_eq!(reply.json()["error"]["message"], message);
        }
        for (name, value) in [("clientInfo", &info), ("capabilities", &capabilities)] {
            let mut params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "0"}});
            params[name] = Value::clone(value);
            let reply = kit.post(&key, &request(0, "initialize", params)).await.json();
            assert_eq!(reply["error"]["message"], format!("`{name}` is longer than 16384 bytes"));
        }
        kit.stop().await;
    });
}

/// Makes a call with a large result, and reads nothing of it.
async fn unread_call(kit: &KeyedKit, key: &str) -> BufReader<TcpStream> {
    let before = kit.gateway.recent_calls(100).len();
    let echo = with(&modern_call("one_echo", json!({"message": "x".repeat(LARGE)})), key, "/mcp");
    let open = kit.open(&echo).await;
    until("the end of the call", || kit.gateway.recent_calls(100).len() > before).await;
    open
}

/// Waits until a key may make calls again.
async fn until_permitted(kit: &KeyedKit, key: &str) {
    let permitted = async {
        while list(kit, key, "/mcp").await.status == 429 {
            tokio::time::sleep(ms(20)).await;
        }
    };
    tokio::time::timeout(SOON, permitted).await.expect("calls are permitted again");
}

#[test]
fn a_result_that_is_not_read_counts_as_a_call() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let alice = kit.key("alice", |new| new.limits = limit(|limits| limits.calls = Some(2)));
        let bob = kit.key("bob", |_| {});
        let mut unread = vec![unread_call(&kit, &alice).await, unread_call(&kit, &alice).await];
        assert_eq!(kit.gateway.status().requests, 0, "the work has ended");
        let refused = list(&kit, &alice, "/mcp").await;
        assert_eq!(refused.status, 429, "{refused:?}");
        assert_eq!(refused.json()["error"]["message"], "too many calls in flight (limit: 2 per principal)");
        assert_eq!(list(&kit, &bob, "/mcp").await.status, 200);
        let read = read_rest(unread.remove(0)).await;
        assert!(read.len() > LARGE && read.starts_with("HTTP/1.1 200"), "{}", read.len());
        until_permitted(&kit, &alice).await;
        // A client that disconnects without reading gets its call back, too.
        unread.push(unread_call(&kit, &alice).await);
        assert_eq!(list(&kit, &alice, "/mcp").await.status, 429);
        drop(unread);
        until_permitted(&kit, &alice).await;
        kit.stop().await;
    });
}

#[test]
fn an_unread_result_on_a_legacy_event_stream_counts_as_a_call() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let key = kit.key("alice", |new| new.limits = limit(|limits| limits.calls = Some(1)));
        let mut stream = kit.open(&bare("GET", "/sse", &format!("Host: localhost\r\n{key}"))).await;
        let opened = read_until(&mut stream, "data: /messages").await;
        let path = opened.lines().next_back().and_then(|line| line.strip_prefix("data: ")).expect("a path");
        let params =
            json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "a", "version": "0"}});
        let send = async |message: &Value| kit.send(&with(&post("", message), &key, path)).await.status;
        assert_eq!(send(&request(0, "initialize", params)).await, 202);
        assert_eq!(send(&call(1, "one_echo", json!({"message": "x".repeat(LARGE)}))).await, 202);
        until("the end of the call", || kit.gateway.recent_calls(10).len() >= 2).await;
        assert_eq!(list(&kit, &key, "/mcp").await.status, 429);
        read_until(&mut stream, "\"id\":1").await;
        until_permitted(&kit, &key).await;
        drop(stream);
        kit.stop().await;
    });
}

/// Lets a key use these tools only, and makes the gateway read the file.
async fn narrow(kit: &KeyedKit, name: &str, tools: &[&str], other: &str) {
    let text = std::fs::read_to_string(kit.file.path()).expect("a file");
    let mut keys: Value = serde_json::from_str(&text).expect("JSON");
    let all = keys["keys"].as_array_mut().expect("keys");
    all.iter_mut().find(|key| key["name"] == name).expect("the key")["tools"] = json!(tools);
    std::fs::write(kit.file.path(), keys.to_string()).expect("a file");
    assert_eq!(list(kit, other, "/mcp").await.status, 200);
}

/// Opens an event stream, and reads its first event.
async fn open_stream(kit: &KeyedKit, key: &str, path: &str) -> (u16, BufReader<TcpStream>) {
    let mut stream = kit.open(&bare("GET", path, &format!("Host: localhost\r\n{key}"))).await;
    let head = read_until(&mut stream, "\r\n").await;
    (head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status"), stream)
}

#[test]
fn the_events_of_the_page_end_with_the_rights_of_a_key() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let operator = |name: &str| kit.key(name, |new| new.operator = true);
        let (alice, bob, carol) = (operator("alice"), operator("bob"), operator("carol"));
        let (_, revoked) = open_stream(&kit, &alice, "/api/events").await;
        let (_, narrowed) = open_stream(&kit, &bob, "/api/events").await;
        let (_, mut kept) = open_stream(&kit, &carol, "/api/events").await;
        kit.file.revoke("alice").expect("a key");
        assert_eq!(list(&kit, &carol, "/mcp").await.status, 200);
        read_rest(revoked).await;
        kit.file.set_operator("bob", false).expect("a key");
        let echo = with(&modern_call("two_echo", json!({"message": "hi"})), &carol, "/mcp");
        assert_eq!(kit.send(&echo).await.status, 200);
        read_until(&mut kept, "mcp.tool_called").await;
        let read = read_rest(narrowed).await;
        assert!(!read.contains("tool_called"), "{read}");
        drop(kept);
        kit.stop().await;
    });
}

#[test]
fn event_streams_of_one_key_are_limited() {
    scene(|_| async move {
        let limits = GatewayLimits::default().with_connections(40_usize).with_streams_per_client(3_usize);
        let kit = KeyedKit::start(GatewaySettings::default().with_limits(limits)).await;
        let alice = kit.key("alice", |new| {
            (new.operator, new.limits) = (true, limit(|limits| limits.sessions = Some(1)));
        });
        let bob = kit.key("bob", |new| new.operator = true);
        let open = async |key: &str, path: &str, status: u16| {
            let (found, stream) = open_stream(&kit, key, path).await;
            assert_eq!(found, status, "{path}");
            stream
        };
        // A stream of legacy SSE is a session, and each session may have three streams.
        let mut streams = vec![open(&alice, "/sse", 200).await];
        open(&alice, "/sse", 429).await;
        streams.push(open(&alice, "/api/events", 200).await);
        streams.push(open(&alice, "/api/events", 200).await);
        let refused = read_rest(open(&alice, "/api/events", 429).await).await;
        assert!(refused.contains("too many event streams (limit: 3 per principal); close one of them"), "{refused}");
        // Without a limit, one key may use a quarter of all connections for streams, and as many for requests.
        for _ in 0..10 {
            streams.push(open(&bob, "/api/events", 200).await);
        }
        open(&bob, "/sse", 429).await;
        assert_eq!(list(&kit, &bob, "/mcp").await.status, 200);
        drop(streams);
        until("the end of the streams", || kit.gateway.status().connections == 0).await;
        drop(open(&alice, "/sse", 200).await);
        kit.stop().await;
    });
}

#[test]
fn a_rate_limit_holds_for_metrics_and_the_page() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        for path in ["/metrics", "/api/stats", "/api/status", "/api/calls", "/api/events"] {
            let key = kit.key(&path.replace('/', "-"), |new| {
                (new.operator, new.limits) = (true, limit(|limits| limits.rate = "1/h".parse().ok()));
            });
            assert_eq!(open_stream(&kit, &key, path).await.0, 200, "{path}");
            let (status, stream) = open_stream(&kit, &key, path).await;
            let refused = read_rest(stream).await.to_lowercase();
            assert_eq!(status, 429, "{path}");
            assert!(refused.contains("retry-after: ") && refused.contains("too many requests"), "{path}: {refused}");
        }
        kit.stop().await;
    });
}

#[test]
fn the_status_hides_servers_that_a_key_may_not_use() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let key = kit.key("alice", |new| new.tools = vec!["one.echo".to_owned()]);
        let status = kit.send(&bare("GET", "/api/status", &format!("Host: localhost\r\n{key}"))).await;
        assert!(status.status == 200 && !status.body.contains("two"), "{}", status.body);
        let status = status.json();
        let servers = status["servers"].as_array().expect("servers");
        assert_eq!(servers.iter().map(|server| &server["server"]).collect::<Vec<_>>(), ["one"]);
        let profiles = status["profiles"].as_array().expect("profiles").iter();
        let profiles: Vec<_> = profiles.map(|profile| (profile["name"].as_str(), profile["tools"].as_u64())).collect();
        assert_eq!(profiles, [(Some("default"), Some(1)), (Some("one"), Some(1))]);
        kit.stop().await;
    });
}

#[test]
fn a_subscription_ends_with_the_rights_to_its_server() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let (alice, bob) = (kit.key("alice", |_| {}), kit.key("bob", |_| {}));
        let (own, other) = ("test://counter", "ropeway://two/test://counter");
        let session = initialize(&kit, &alice).await.headers["mcp-session-id"].clone();
        let session = format!("{alice}Mcp-Session-Id: {session}\r\n");
        for uri in [own, other] {
            let reply = kit.post(&session, &request(1, "resources/subscribe", json!({"uri": uri}))).await;
            assert!(reply.json()["result"].is_object(), "{reply:?}");
        }
        let (_, mut standing) = open_stream(&kit, &session, "/mcp").await;
        let listen = json!({"notifications": {"resourceSubscriptions": [own, other]}});
        let mut listening = kit.open(&with(&modern("subscriptions/listen", listen), &alice, "/mcp")).await;
        read_until(&mut listening, "acknowledged").await;
        narrow(&kit, "alice", &["two.*"], &bob).await;
        kit.scripted.touched(own);
        tokio::time::sleep(ms(200)).await;
        let touch = modern_call("two_touch", json!({"uri": own}));
        assert_eq!(kit.send(&with(&touch, &bob, "/mcp")).await.status, 200);
        for stream in [&mut standing, &mut listening] {
            let read = read_until(stream, "notifications/resources/updated").await;
            assert!(read.contains(other) && !read.contains(r#""uri":"test://counter""#), "{read}");
        }
        drop((standing, listening));
        kit.stop().await;
    });
}
