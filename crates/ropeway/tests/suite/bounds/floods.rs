//! Servers that send requests without end and never read the replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ropeway::config::{HttpServer, StdioServer, Transport};
use ropeway::event::{Event, Events};
use ropeway::mcp::{Handlers, Mcp};
use serde_json::json;

use super::hostile::{Exchange, Good, Hostile, alone, descriptors, legacy, memory};

const SPAN: Duration = Duration::from_secs(3);

/// Sends requests without end on an event stream.
async fn flood(exchange: &mut Exchange, method: &str) {
    let mut id = 0_u64;
    loop {
        let mut events = String::new();
        for _ in 0..50 {
            id += 1;
            let ask = json!({"jsonrpc": "2.0", "id": format!("s{id}"), "method": method, "params": {}});
            events.push_str(&format!("data: {ask}\n\n"));
        }
        if !exchange.say(&events).await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// An HTTP+SSE server that sends requests without end and never answers a POST with a reply.
async fn flooding_sse(method: &'static str) -> Hostile {
    let (said, _) = tokio::sync::broadcast::channel::<String>(16);
    Hostile::start(move |mut exchange| {
        let said = said.clone();
        async move {
            match (exchange.method.as_str(), exchange.rpc()) {
                ("GET", _) => {
                    let mut heard = said.subscribe();
                    exchange.events().await;
                    exchange.say("event: endpoint\ndata: /message\n\n").await;
                    let answer = heard.recv().await.unwrap_or_default();
                    exchange.say(&format!("data: {answer}\n\n")).await;
                    flood(&mut exchange, method).await;
                }
                (_, "initialize") => {
                    let result = json!({"protocolVersion": "2024-11-05", "capabilities": {},
                        "serverInfo": {"name": "hostile", "version": "1"}});
                    let _ =
                        said.send(json!({"jsonrpc": "2.0", "id": exchange.body["id"], "result": result}).to_string());
                    exchange.accept().await;
                }
                (_, rpc) if !rpc.is_empty() => exchange.accept().await,
                _ => std::future::pending().await,
            }
        }
    })
    .await
}

/// A Streamable HTTP server that sends requests without end on its standalone stream and never answers a POST with a reply.
async fn flooding_http(method: &'static str) -> Hostile {
    Hostile::start(move |mut exchange| async move {
        if exchange.method == "GET" {
            exchange.events().await;
            return flood(&mut exchange, method).await;
        }
        if !exchange.handshake(&json!({})).await {
            std::future::pending::<()>().await;
        }
    })
    .await
}

/// Asserts that the good server keeps working and the bad one uses few descriptors.
async fn is_bounded(bad: Mcp, what: &str) {
    let good = Good::start().await;
    let before = descriptors();
    bad.connect().await.expect("a connection");
    let (longest, most) = good.keep_calling(SPAN).await;
    println!(
        "measured {what}: {} more descriptors, longest call {longest:?}, {} MB",
        most.saturating_sub(before),
        memory("VmHWM") >> 20
    );
    assert!(most < before + 100, "{most} descriptors, {before} before");
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    bad.close().await;
    good.mcp.close().await;
}

#[test]
fn unread_replies_to_pings_over_sse_use_few_descriptors() {
    alone("bounds::floods::unread_replies_to_pings_over_sse_use_few_descriptors", || async {
        let http = flooding_sse("ping").await;
        let bad = Mcp::new(legacy(Transport::Sse(HttpServer::new(format!("{}/sse", http.origin)))));
        is_bounded(bad, "pings over HTTP+SSE").await;
    });
}

#[test]
fn unread_replies_to_pings_over_http_use_few_descriptors() {
    alone("bounds::floods::unread_replies_to_pings_over_http_use_few_descriptors", || async {
        let http = flooding_http("ping").await;
        is_bounded(Mcp::new(legacy(HttpServer::new(http.url()))), "pings over streamable HTTP").await;
    });
}

#[test]
fn unread_replies_to_unknown_requests_use_few_descriptors() {
    alone("bounds::floods::unread_replies_to_unknown_requests_use_few_descriptors", || async {
        let http = flooding_http("vendor/ask").await;
        is_bounded(Mcp::new(legacy(HttpServer::new(http.url()))), "unknown requests over streamable HTTP").await;
    });
}

#[test]
fn unread_replies_limit_the_running_handlers() {
    alone("bounds::floods::unread_replies_limit_the_running_handlers", || async {
        let http = flooding_http("roots/list").await;
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = runs.clone();
        let handlers = Handlers::new().on_roots(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            async { Ok(Vec::new()) }
        });
        let bad = Mcp::with_host(legacy(HttpServer::new(http.url())), handlers, Events::default());
        is_bounded(bad, "`roots/list` over streamable HTTP").await;
        let runs = runs.load(Ordering::Relaxed);
        println!("measured {runs} runs of the handler");
        assert!(runs < 1000, "{runs} runs of the handler");
    });
}

/// A program that completes the handshake, never reads again, and sends requests without end.
fn deaf(asks: &str) -> StdioServer {
    let greeting = json!({"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": "2025-06-18", "capabilities": {},
        "serverInfo": {"name": "deaf", "version": "1"}}});
    let script = format!("read line; echo '{greeting}'; exec yes '{asks}'");
    StdioServer::new("sh", ["-c", &script])
}

#[test]
fn unread_replies_to_a_program_use_little_memory() {
    alone("bounds::floods::unread_replies_to_a_program_use_little_memory", || async {
        let good = Good::start().await;
        // A long id makes the replies large.
        let ask = json!({"jsonrpc": "2.0", "id": "x".repeat(1000), "method": "ping"}).to_string();
        let bad = Mcp::new(legacy(deaf(&ask)));
        let before = memory("VmRSS");
        bad.connect().await.expect("a connection");
        let (longest, _) = good.keep_calling(SPAN).await;
        let most = memory("VmHWM").saturating_sub(before);
        println!("measured pings over stdio: {} MB more memory, longest call {longest:?}", most >> 20);
        assert!(most < 24 << 20, "{most} bytes");
        assert!(longest < Duration::from_secs(5), "{longest:?}");
        bad.close().await;
        good.mcp.close().await;
    });
}

/// A server that sends one message, and then another without end, on its standalone stream.
async fn chattering(first: serde_json::Value, then: serde_json::Value) -> Hostile {
    let (first, then) = (Arc::new(format!("data: {first}\n\n")), Arc::new(format!("data: {then}\n\n").repeat(20)));
    Hostile::start(move |mut exchange| {
        let (first, then) = (first.clone(), then.clone());
        async move {
            if exchange.method != "GET" {
                exchange.handshake(&json!({"logging": {}})).await;
                return;
            }
            exchange.events().await;
            exchange.say(&first).await;
            while exchange.say(&then).await {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    })
    .await
}

#[test]
fn a_flood_of_one_server_evicts_no_events_of_others() {
    alone("bounds::floods::a_flood_of_one_server_evicts_no_events_of_others", || async {
        let log = |size: usize| {
            let params = json!({"level": "info", "data": "x".repeat(size)});
            json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
        };
        let http = chattering(log(10_000_000), log(100)).await;
        let events = Events::new(4096);
        let mut heard = events.subscribe();
        let before = memory("VmRSS");
        let began = Instant::now();
        let bad = Mcp::with_host(legacy(HttpServer::new(http.url())), Handlers::new(), events.clone());
        bad.connect().await.expect("a connection");
        let good = Good::start().await;
        let (mut longest, mut logs, mut missed, mut told, mut largest) = (Duration::ZERO, 0, 0, false, 0);
        // A busy machine needs more time to read the large message and to reach the limit.
        while began.elapsed() < SPAN || (!told && began.elapsed() < 20 * SPAN) {
            longest = longest.max(good.keep_calling(SPAN / 10).await.0);
            while let Some(event) = heard.try_next() {
                match event {
                    Event::Log { data, .. } => {
                        logs += 1;
                        largest = largest.max(data.as_str().unwrap_or_default().len());
                    }
                    Event::Lagged { missed: count } => missed += count,
                    Event::Warning { message, .. } => told |= message.contains("too many notifications"),
                    _ => {}
                }
            }
        }
        // A burst of 1000, and then 200 a second.
        let most_logs = 1000 + 200 * (began.elapsed().as_secs() + 1);
        let most = memory("VmHWM").saturating_sub(before);
        println!(
            "measured log storm: {logs} events kept of at most {largest} bytes, {missed} lost, {} MB more memory, longest call beside {longest:?}",
            most >> 20
        );
        assert_eq!(missed, 0, "events of others would be lost");
        assert!(
            told && (900..=most_logs).contains(&logs) && (60_000..70_000).contains(&largest),
            "{logs} logs of up to {largest} bytes"
        );
        bad.close().await;
        good.mcp.close().await;
    });
}
