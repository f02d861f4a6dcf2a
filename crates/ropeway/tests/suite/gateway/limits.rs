//! Limits: what is over them is refused, and nothing that is in progress ends because of them.

use std::time::Duration;

use ropeway::config::{Config, GatewayLimits, GatewaySettings, ServerEntry};
use ropeway::gateway::Gateway;
use ropeway::testing::{Script, ScriptedServer};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::auth::{KeyedKit, limit, list, with};
use super::kit::{GatewayKit, bare, call, modern_call, next_message, post, read_rest, read_until};
use crate::fast_config::{SOON, fast_config, ms, until};
use crate::scene::scene;

/// The size of a body that is nearly complete.
const BODY: usize = 16_000_000;

/// The part of all bodies in memory that one of several principals may hold.
const BODY_SHARE: usize = 64 << 20;

#[test]
fn a_client_with_all_its_calls_running_loses_none_of_them() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        let session = kit.session().await;
        let mut standalone = kit.open(&bare("GET", "/mcp", &format!("Host: localhost\r\n{session}"))).await;
        read_until(&mut standalone, "retry: 1000").await;
        let mut calls = Vec::new();
        for id in 1..=64 {
            calls.push((id, kit.open(&post(&session, &call(id, "sleep", json!({"ms": 5000, "steps": 5})))).await));
        }
        for (_, stream) in &mut calls {
            // The response to a call is an event stream as soon as it has made progress.
            read_until(stream, "notifications/progress").await;
        }
        let surplus = kit.post(&session, &call(65, "echo", json!({"message": "hi"}))).await;
        assert_eq!((surplus.status, &*surplus.headers["retry-after"]), (429, "1"), "{surplus:?}");
        let refused = surplus.json();
        assert_eq!(refused["id"], 65, "{refused}");
        assert!(refused["error"]["message"].as_str().is_some_and(|text| text.contains("64 per client")), "{refused}");
        for (id, stream) in calls {
            let read = read_rest(stream).await;
            assert!(read.contains("\"result\"") && read.contains(&format!("\"id\":{id}")), "{id}: {read}");
        }
        kit.scripted.changed("prompts");
        read_until(&mut standalone, "prompts/list_changed").await;
        assert_eq!(kit.scripted.cancelled().len(), 0);
        drop(standalone);
        kit.stop().await;
    });
}

#[test]
fn an_ended_standalone_stream_is_opened_again() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        let session = kit.session().await;
        let headers = format!("Host: localhost\r\n{session}");
        let mut first = kit.open(&bare("GET", "/mcp", &headers)).await;
        let primed = read_until(&mut first, "retry: 1000").await;
        let event = primed.lines().find_map(|line| line.strip_prefix("id: ")).expect("an event id").to_owned();
        let mut second = kit.open(&bare("GET", "/mcp", &headers)).await;
        read_until(&mut second, "retry: 1000").await;
        // A session has one standalone stream: the latest.
        read_rest(first).await;
        for _ in 0..2 {
            let resumed = format!("{headers}Last-Event-ID: {event}\r\n");
            let mut again = kit.open(&bare("GET", "/mcp", &resumed)).await;
            read_until(&mut again, "\r\n\r\n").await;
            kit.scripted.changed("prompts");
            assert_eq!(next_message(&mut again).await["method"], "notifications/prompts/list_changed");
        }
        drop(second);
        kit.stop().await;
    });
}

#[test]
fn a_stream_that_is_resumed_too_late_ends_with_an_error() {
    scene(|_| async move {
        let scripted = ScriptedServer::new(Script::default());
        let mut server = fast_config(scripted.in_process());
        server.alias = "scripted".into();
        server.timeouts.total = Duration::from_secs(600);
        let config = Config::default().with_server(ServerEntry::new(server));
        let kit = GatewayKit::launch(scripted, Gateway::builder(config)).await;
        let session = kit.session().await;
        let endless = json!({"ms": 600_000, "steps": 600});
        let mut stream = kit.open(&post(&session, &call(4711, "sleep", endless))).await;
        let read = read_until(&mut stream, "\"progress\"").await;
        let event = read.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().expect("an event id");
        drop(stream);
        // The time within which the stream can be resumed.
        tokio::time::sleep(Duration::from_secs(30)).await;
        until("the end of the call", || kit.gateway.status().requests == 0).await;
        let headers = format!("Host: localhost\r\nLast-Event-ID: {event}\r\n{session}");
        let events = kit.send(&bare("GET", "/mcp", &headers)).await.events();
        let last = events.last().expect("a response");
        assert_eq!(last["id"], 4711, "{last}");
        assert!(last["error"]["message"].as_str().is_some_and(|text| text.contains("not resumed in time")), "{last}");
        kit.stop().await;
    });
}

/// Opens a connection, and sends most of a large body.
async fn send_body(kit: &GatewayKit, key: &str, path: &str) -> BufReader<TcpStream> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nContent-Type: application/json\r\n{key}\
         Content-Length: {BODY}\r\n\r\n"
    );
    let mut stream = kit.open(&head).await;
    let piece = vec![b' '; 1 << 20];
    let mut sent = 0;
    // The gateway closes the connection of a body that it refuses.
    while sent + piece.len() < BODY && stream.get_mut().write_all(&piece).await.is_ok() {
        sent += piece.len();
    }
    stream
}

/// Returns the head of the response that a client has got; `None` while there is none.
async fn response(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut read = vec![0; 4096];
    match tokio::time::timeout(ms(300), stream.read(&mut read)).await {
        Ok(Ok(length)) => Some(String::from_utf8_lossy(&read[..length]).to_lowercase()),
        // A client that still sends may miss the response.
        Ok(Err(_)) => Some(String::new()),
        Err(_) => None,
    }
}

#[test]
fn bodies_of_one_key_take_a_bounded_part_of_memory() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let (alice, bob) = (kit.key("alice", |_| {}), kit.key("bob", |_| {}));
        let mut open = Vec::new();
        for _ in 0..7 {
            open.push(send_body(&kit, &alice, "/mcp").await);
            let held = kit.gateway.status().body_bytes;
            assert!(held <= BODY_SHARE, "{held}");
        }
        until("most bodies", || kit.gateway.status().body_bytes > BODY_SHARE / 2).await;
        let mut responses = Vec::new();
        for stream in &mut open {
            responses.push(response(stream).await);
        }
        let refused: Vec<_> = responses.iter().flatten().collect();
        assert!(refused.len() >= 3 && refused.len() < 7, "{responses:?}");
        let answered = refused.iter().filter(|response| !response.is_empty());
        for response in answered {
            assert!(response.starts_with("http/1.1 429 "), "{response}");
            assert!(response.contains("retry-after: 1") && response.contains("connection: close"), "{response}");
        }
        let large = with(&modern_call("one_echo", json!({"message": "x".repeat(1 << 20)})), &bob, "/mcp");
        assert_eq!(kit.send(&large).await.status, 200, "another key");
        drop(open);
        until("the end of the bodies", || kit.gateway.status().body_bytes == 0).await;
        kit.stop().await;
    });
}

#[test]
fn a_key_sends_as_many_large_bodies_as_it_may_make_calls() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let alice = kit.key("alice", |new| new.limits = limit(|limits| limits.calls = Some(2)));
        let _held = [send_body(&kit, &alice, "/mcp").await, send_body(&kit, &alice, "/mcp").await];
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nContent-Type: application/json\r\n{alice}\
             Content-Length: {BODY}\r\n\r\n{}",
            " ".repeat(100_000)
        );
        let reply = read_until(&mut kit.open(&head).await, "\"error\"").await.to_lowercase();
        assert!(reply.starts_with("http/1.1 429 ") && reply.contains("retry-after: 1"), "{reply}");
        assert!(reply.contains("too many large requests at once (limit: 2 per principal)"), "{reply}");
        let held = kit.gateway.status().body_bytes;
        assert!(held <= 2 * BODY, "{held}");
        // Small requests, such as the answer to a server request, are not affected.
        assert_eq!(list(&kit, &alice, "/mcp").await.status, 200);
        kit.stop().await;
    });
}

#[test]
fn a_request_over_the_rate_is_refused_without_reading_its_body() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let alice = kit.key("alice", |new| new.limits = limit(|limits| limits.rate = "1/h".parse().ok()));
        assert_eq!(list(&kit, &alice, "/mcp").await.status, 200);
        let refused = list(&kit, &alice, "/mcp").await;
        assert_eq!((refused.status, &refused.json()["id"]), (429, &json!(7)), "{refused:?}");
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nContent-Type: application/json\r\n{alice}\
             Content-Length: {BODY}\r\n\r\n"
        );
        let reply = kit.send(&head).await;
        assert_eq!((reply.status, &*reply.headers["connection"]), (429, "close"), "{reply:?}");
        assert!(reply.headers.contains_key("retry-after"), "{reply:?}");
        assert_eq!(kit.gateway.status().body_bytes, 0);
        kit.stop().await;
    });
}

#[test]
fn a_call_gives_back_its_body_at_its_end_at_the_latest() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        let arguments = json!({"ms": 600_000, "padding": "x".repeat(1 << 20)});
        let stream = kit.open(&modern_call("sleep", arguments)).await;
        kit.scripted.wait_for("tools/call", 1).await;
        let held = kit.gateway.status().body_bytes;
        assert!(held < 2 << 20, "{held}");
        drop(stream);
        until("the end of the body", || kit.gateway.status().body_bytes == 0).await;
        kit.stop().await;
    });
}

#[test]
fn a_large_body_that_stalls_is_cut_off_early() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        let began = Instant::now();
        let mut stream = send_body(&kit, "", "/mcp").await;
        let reply = tokio::time::timeout(Duration::from_secs(20), read_until(&mut stream, "\r\n")).await;
        let reply = reply.expect("a response before the timeout of all bodies");
        assert!(reply.starts_with("HTTP/1.1 408 ") && began.elapsed() > Duration::from_secs(5), "{reply}");
        until("the end of the body", || kit.gateway.status().body_bytes == 0).await;
        kit.stop().await;
    });
}

#[test]
fn one_principal_takes_a_part_of_all_calls() {
    scene(|_| async move {
        let limits = GatewayLimits::default().with_calls(8_usize);
        let kit = KeyedKit::start(GatewaySettings::default().with_limits(limits)).await;
        let (alice, bob) = (kit.key("alice", |_| {}), kit.key("bob", |_| {}));
        let sleep = modern_call("one_sleep", json!({"ms": 600_000}));
        let mut running = Vec::new();
        for _ in 0..2 {
            running.push(kit.open(&with(&sleep, &alice, "/mcp")).await);
        }
        until("the calls", || kit.gateway.status().requests == 2).await;
        let refused = list(&kit, &alice, "/mcp").await;
        assert_eq!((refused.status, &*refused.headers["retry-after"]), (429, "1"), "{refused:?}");
        assert_eq!(refused.json()["error"]["message"], "too many calls in flight (limit: 2 per principal)");
        assert_eq!(list(&kit, &bob, "/mcp").await.status, 200);
        drop(running);
        kit.stop().await;
    });
}

/// Makes a request on a connection that stays open, and returns its status.
async fn keep(kit: &GatewayKit, key: &str) -> (u16, BufReader<TcpStream>) {
    let request = bare("GET", "/api/calls", &format!("Host: localhost\r\n{key}")).replace("Connection: close\r\n", "");
    let mut stream = kit.open(&request).await;
    let head = read_until(&mut stream, "\r\n\r\n").await;
    (head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status"), stream)
}

#[test]
fn one_key_takes_at_most_half_of_all_connections() {
    scene(|_| async move {
        let limits = GatewayLimits::default().with_connections(8_usize);
        let kit = KeyedKit::start(GatewaySettings::default().with_limits(limits)).await;
        let (alice, bob) = (kit.key("alice", |_| {}), kit.key("bob", |_| {}));
        let mut open = Vec::new();
        for _ in 0..4 {
            let (status, stream) = keep(&kit, &alice).await;
            assert_eq!(status, 200);
            open.push(stream);
        }
        let refused = list(&kit, &alice, "/mcp").await;
        assert_eq!((refused.status, &*refused.headers["connection"]), (429, "close"), "{refused:?}");
        assert_eq!(refused.headers["retry-after"], "1");
        assert_eq!(refused.json()["error"]["message"], "too many connections (limit: 4 per principal)");
        assert_eq!(list(&kit, &bob, "/mcp").await.status, 200);
        open.pop();
        until("a free connection", || kit.gateway.status().connections == 3).await;
        assert_eq!(list(&kit, &alice, "/mcp").await.status, 200);
        drop(open);
        kit.stop().await;
    });
}

#[test]
fn probes_are_answered_while_all_connections_are_busy() {
    scene(|_| async move {
        let limits = GatewayLimits::default().with_connections(4_usize);
        let kit = KeyedKit::start(GatewaySettings::default().with_limits(limits)).await;
        let keys = ["a", "b", "c", "d"].map(|name| kit.key(name, |_| {}));
        let mut streams = Vec::new();
        for key in &keys {
            let mut stream = kit.open(&bare("GET", "/sse", &format!("Host: localhost\r\n{key}"))).await;
            read_until(&mut stream, "data: /messages").await;
            streams.push(stream);
        }
        for path in ["/health", "/ready"] {
            let request = bare("GET", path, "Host: localhost\r\n").replace("Connection: close\r\n", "");
            let reply = kit.send(&request).await;
            assert_eq!((reply.status, &*reply.headers["connection"]), (200, "close"), "{path}: {reply:?}");
        }
        let refused = list(&kit, &keys[0], "/mcp").await;
        assert_eq!((refused.status, &*refused.headers["retry-after"]), (503, "1"), "{refused:?}");
        assert_eq!(refused.json()["error"]["message"], "too many connections (limit: 4); try again later");
        assert_eq!(list(&kit, "", "/mcp").await.status, 401);
        streams.pop();
        until("a free connection", || kit.gateway.status().connections == 3).await;
        assert_eq!(list(&kit, &keys[3], "/mcp").await.status, 200);
        drop(streams);
        kit.stop().await;
    });
}

#[test]
fn an_idle_connection_makes_room_for_a_new_one() {
    scene(|_| async move {
        let limits = GatewayLimits::default().with_connections(4_usize);
        let kit = KeyedKit::start(GatewaySettings::default().with_limits(limits)).await;
        let (alice, bob) = (kit.key("alice", |_| {}), kit.key("bob", |_| {}));
        let mut known = Vec::new();
        for _ in 0..2 {
            known.push(keep(&kit, &alice).await.1);
        }
        let mut unknown = vec![kit.open("").await, kit.open("GET /hea").await];
        until("all connections", || kit.gateway.status().connections == 4).await;
        // Clients that are not authenticated make room first, the longest idle one before the others.
        let began = Instant::now();
        let mut kept = vec![keep(&kit, &bob).await.1];
        read_rest(unknown.remove(0)).await;
        kept.push(keep(&kit, &bob).await.1);
        read_rest(unknown.remove(0)).await;
        assert!(began.elapsed() < SOON);
        // Then those of the principal with the most connections, once they are idle for a second.
        let carol = kit.key("carol", |_| {});
        tokio::time::sleep(ms(1100)).await;
        assert_eq!(list(&kit, &carol, "/mcp").await.status, 200);
        read_rest(known.remove(0)).await;
        drop((known, kept));
        kit.stop().await;
    });
}
