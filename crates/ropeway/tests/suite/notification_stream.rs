//! The standalone stream of a legacy HTTP session: which errors end it, and which are retried.

use std::time::Duration;

use ropeway::config::EraChoice;
use ropeway::event::Event;
use ropeway::mcp::Mcp;
use ropeway::testing::{Fault, FaultTrigger, HttpScriptedServer, Script};
use ropeway_testing::{HttpFault, HttpScript};
use serde_json::json;

use crate::fast_config::{at, call, connect, event, in_era, listening, ms, names, still_works, until};
use crate::scene::scene;

fn gets(http: &HttpScriptedServer) -> usize {
    http.requests().iter().filter(|request| request.method == "GET").count()
}

fn status(status: u16) -> Fault {
    HttpFault::Status { status, headers: Vec::new(), body: "no".to_owned() }.into()
}

/// Connects to a server that answers the first `GET` requests with a fault.
async fn connected(count: u32, fault: impl Into<Fault>) -> (HttpScriptedServer, Mcp) {
    let script = Script::default().fault(FaultTrigger::method("GET").first(count), fault);
    let http = listening(script).await;
    let server = connect(in_era(EraChoice::Legacy, at(http.url()))).await;
    (http, server)
}

/// Asserts that a notification outside of a request arrives.
async fn hears(http: &HttpScriptedServer, server: &Mcp) {
    let mut events = server.events();
    http.touched("test://static/1");
    let log = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "hi"}});
    http.push(log);
    event(&mut events, |event| matches!(event, Event::Log { .. }).then_some(())).await;
}

#[test]
fn a_busy_server_is_asked_again_for_its_notification_stream() {
    scene(|_| async {
        for fault in [status(503), status(500), status(429), HttpFault::Reset.into()] {
            let (http, server) = connected(2, fault).await;
            until("the third request", || gets(&http) == 3).await;
            tokio::time::sleep(ms(100)).await;
            hears(&http, &server).await;
            server.close().await;
        }
    });
}

#[test]
fn more_failures_than_a_call_allows_do_not_end_the_notification_stream() {
    scene(|_| async {
        let refusal = HttpFault::Status {
            status: 503,
            headers: vec![("Retry-After".to_owned(), "0".to_owned())],
            body: String::new(),
        };
        let (http, server) = connected(5, refusal).await;
        // At most 1 + 2 + 4 + 8 + 16 seconds.
        tokio::time::timeout(Duration::from_secs(60), until("the sixth request", || gets(&http) == 6))
            .await
            .expect("6");
        tokio::time::sleep(ms(100)).await;
        hears(&http, &server).await;
        server.close().await;
    });
}

#[test]
fn retry_after_delays_the_notification_stream() {
    scene(|_| async {
        let headers = vec![("Retry-After".to_owned(), "4".to_owned())];
        let (http, server) = connected(1, HttpFault::Status { status: 429, headers, body: String::new() }).await;
        tokio::time::sleep(ms(3000)).await;
        assert_eq!(gets(&http), 1);
        until("the second request", || gets(&http) == 2).await;
        server.close().await;
    });
}

#[test]
fn a_server_without_a_notification_stream_is_asked_once() {
    scene(|_| async {
        let (http, server) = connected(1, status(405)).await;
        tokio::time::sleep(ms(3000)).await;
        assert_eq!(gets(&http), 1);
        still_works(&server).await;
        server.close().await;
    });
}

#[test]
fn a_session_that_is_lost_at_the_notification_stream_is_renewed() {
    scene(|_| async {
        let http = listening(Script::default()).await;
        let server = connect(in_era(EraChoice::Legacy, at(http.url()))).await;
        names(&server).await;
        // A restarted server closes its streams and knows no session. No call is made.
        http.restart().await.expect("a restart");
        until("another session", || http.received_of("initialize").len() == 2).await;
        until("its stream", || http.sessions() == 1 && gets(&http) >= 3).await;
        tokio::time::sleep(ms(100)).await;
        hears(&http, &server).await;
        server.close().await;
    });
}

#[test]
fn a_missing_route_for_the_notification_stream_is_not_a_lost_session() {
    scene(|_| async {
        for code in [404, 400] {
            let (http, server) = connected(100, status(code)).await;
            tokio::time::sleep(ms(2500)).await;
            still_works(&server).await;
            assert_eq!(http.received_of("initialize").len(), 1, "status {code}");
            assert!(gets(&http) <= 3, "{}", gets(&http));
            server.close().await;
        }
    });
}

#[test]
fn the_stream_of_a_call_is_resumed_through_a_busy_server() {
    scene(|_| async {
        let cut = HttpFault::CutStream { after: 0, retry_ms: 10, resumable: true };
        for code in [503, 429, 502] {
            let script = Script {
                http: HttpScript { event_ids: true, get_stream: true, ..HttpScript::default() },
                ..Script::default()
            };
            let script = script.fault(FaultTrigger::tool("echo").nth(1), cut.clone());
            let http = listening(script).await;
            let server = connect(in_era(EraChoice::Legacy, at(http.url()))).await;
            until("the notification stream", || gets(&http) == 1).await;
            http.set(|script| {
                *script = script.clone().fault(FaultTrigger::method("GET").first(2), status(code));
            });
            let output = call(&server, "echo", json!({"message": "hi"})).await.expect("an answer");
            assert_eq!(output.plain_text().as_deref(), Some("hi"), "status {code}");
            server.close().await;
        }
    });
}

#[test]
fn a_subscribed_resource_counts_as_changed_once_the_notification_stream_is_open() {
    scene(|_| async {
        let (http, server) = connected(2, status(503)).await;
        let mut events = server.events();
        server.subscribe("test://hello");
        until("the third request", || gets(&http) == 3).await;
        event(&mut events, |event| matches!(event, Event::ResourceUpdated { .. }).then_some(())).await;
        server.close().await;
    });
}
