//! Loops that a server can drive: each has a minimum delay and backs off.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ropeway::bridge::Bridge;
use ropeway::config::{Config, EraChoice, HttpServer, ServerEntry, StdioServer};
use ropeway::mcp::Mcp;
use ropeway::tool::{Arguments, CallContext};
use serde_json::json;

use super::hostile::{Good, Hostile, legacy};
use crate::scene::scene;

const SPAN: Duration = Duration::from_secs(4);

/// Runs the good server for a while, and asserts that a method was not requested too often.
async fn rate(bad: &Hostile, what: &str, most: usize, words: &str) {
    let good = Good::start().await;
    let began = Instant::now();
    let (longest, _) = good.keep_calling(SPAN).await;
    // On a busy machine, the last call to the good server may end after the time span.
    let count = bad.count_within(what, began, SPAN);
    let rate = count as f64 / SPAN.as_secs_f64();
    println!("measured {words}: {count} in {SPAN:?}, {rate:.1} a second, longest call beside {longest:?}");
    assert!(count <= most, "{count} of `{what}` in {SPAN:?}");
    good.mcp.close().await;
}

#[test]
fn a_stream_that_ends_at_once_with_retry_0_backs_off() {
    scene(|_| async {
        let http = Hostile::start(|mut exchange| async move {
            if exchange.method == "GET" {
                exchange.events().await;
                exchange.say("retry: 0\nid: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n").await;
                return;
            }
            exchange.handshake(&json!({})).await;
        })
        .await;
        let bad = Mcp::new(legacy(HttpServer::new(http.url())));
        bad.connect().await.expect("a connection");
        rate(&http, "GET", 12, "a stream that ends at once with `retry: 0`").await;
        bad.close().await;
    });
}

#[test]
fn a_call_stream_that_ends_at_once_with_retry_0_backs_off() {
    scene(|_| async {
        let http = Hostile::start(|mut exchange| async move {
            if exchange.rpc() == "tools/call" || exchange.headers.contains_key("last-event-id") {
                exchange.events().await;
                exchange.say("retry: 0\nid: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n").await;
            } else if exchange.method == "GET" {
                exchange.answer("405 Method Not Allowed", "", "").await;
            } else {
                exchange.handshake(&json!({"tools": {}})).await;
            }
        })
        .await;
        let bad = Mcp::new(legacy(HttpServer::new(http.url())));
        bad.connect().await.expect("a connection");
        let calling = tokio::spawn({
            let bad = bad.clone();
            async move { bad.call_tool_with("x", Arguments::new(), &CallContext::default()).await }
        });
        rate(&http, "GET", 14, "a call's stream that ends at once with `retry: 0`").await;
        calling.abort();
        let _ = calling.await;
        bad.close().await;
    });
}

#[test]
fn a_list_that_changes_on_every_fetch_is_fetched_with_backoff() {
    scene(|_| async {
        let fetched = Arc::new(tokio::sync::Notify::new());
        let version = Arc::new(AtomicUsize::new(0));
        let latest = version.clone();
        let http = Hostile::start(move |mut exchange| {
            let (fetched, version) = (fetched.clone(), version.clone());
            async move {
                match exchange.rpc() {
                    _ if exchange.method == "GET" => {
                        exchange.events().await;
                        loop {
                            fetched.notified().await;
                            let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                            exchange.say(&format!("data: {changed}\n\n")).await;
                        }
                    }
                    "tools/list" => {
                        let name = format!("t{}", version.fetch_add(1, Ordering::Relaxed) + 1);
                        exchange.result(json!({"tools": [{"name": name, "inputSchema": {"type": "object"}}]})).await;
                        fetched.notify_one();
                    }
                    _ => {
                        exchange.handshake(&json!({"tools": {"listChanged": true}})).await;
                    }
                }
            }
        })
        .await;
        let bad = Mcp::new(legacy(HttpServer::new(http.url())));
        bad.connect().await.expect("a connection");
        bad.list_tools().await.expect("tools");
        rate(&http, "tools/list", 9, "`list_changed` after each list").await;
        // Callers still get the newest list.
        let before = latest.load(Ordering::Relaxed);
        let tools = bad.list_tool_definitions().await.expect("tools");
        assert!(tools[0].name[1..].parse::<usize>().expect("a number") > before.saturating_sub(1), "{}", tools[0].name);
        bad.close().await;
    });
}

#[test]
fn a_task_with_a_poll_interval_of_0_is_polled_with_backoff() {
    scene(|_| async {
        let http = Hostile::start(|mut exchange| async move {
            let task = json!({"resultType": "task", "taskId": "t", "status": "working", "pollIntervalMs": 0});
            match exchange.rpc() {
                "server/discover" => {
                    let versions = json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}});
                    exchange.result(versions).await;
                }
                "tools/call" => exchange.result(task).await,
                "tasks/get" => {
                    let task =
                        json!({"resultType": "complete", "taskId": "t", "status": "working", "pollIntervalMs": 0});
                    exchange.result(task).await;
                }
                "tools/list" => {
                    exchange.result(json!({"tools": [{"name": "x", "inputSchema": {"type": "object"}}]})).await;
                }
                _ => exchange.result(json!({})).await,
            }
        })
        .await;
        let mut config = legacy(HttpServer::new(http.url()));
        config.era = EraChoice::Modern;
        let bad = Mcp::new(config);
        bad.connect().await.expect("a connection");
        let calling = tokio::spawn({
            let bad = bad.clone();
            async move { bad.call_tool_with("x", Arguments::new(), &CallContext::default()).await }
        });
        rate(&http, "tasks/get", 16, "a task with `pollIntervalMs: 0`").await;
        calling.abort();
        let _ = calling.await;
        bad.close().await;
    });
}

#[test]
fn a_subscription_that_ends_at_once_is_renewed_with_backoff() {
    scene(|_| async {
        let http = Hostile::start(|mut exchange| async move {
            match exchange.rpc() {
                "server/discover" => {
                    let capabilities = json!({"tools": {"listChanged": true}});
                    exchange.result(json!({"supportedVersions": ["2026-07-28"], "capabilities": capabilities})).await;
                }
                _ => exchange.result(json!({"tools": []})).await,
            }
        })
        .await;
        let mut config = legacy(HttpServer::new(http.url()));
        config.era = EraChoice::Modern;
        config.reconnect.initial_delay = Duration::ZERO;
        let bad = Mcp::new(config);
        bad.connect().await.expect("a connection");
        bad.list_tools().await.expect("tools");
        rate(&http, "subscriptions/listen", 8, "`subscriptions/listen` that ends at once").await;
        bad.close().await;
    });
}

#[test]
fn a_program_that_exits_after_the_handshake_backs_off() {
    scene(|scene| async move {
        let log = scene.directory().join("starts");
        let greeting = json!({"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}}, "serverInfo": {"name": "short", "version": "1"}}});
        let script = format!("echo x >> {}; read line; echo '{greeting}'; read line; exit 3", log.display());
        let server = StdioServer::new("sh", ["-c", &script]);
        let mut config = legacy(server);
        config.reconnect.initial_delay = Duration::ZERO;
        let bad = Mcp::new(config);
        // The program may exit before `connect` returns, so both outcomes are allowed.
        let _ = bad.connect().await;
        let good = Good::start().await;
        let (longest, _) = good.keep_calling(SPAN).await;
        let starts = std::fs::read_to_string(&log).expect("a log").lines().count();
        println!(
            "measured a program that ends after its handshake: {starts} starts in {SPAN:?}, longest call beside {longest:?}"
        );
        assert!(starts <= 14, "{starts} starts in {SPAN:?}");
        good.mcp.close().await;
        bad.close().await;
    });
}

#[test]
fn a_bridge_fetches_constantly_changing_lists_with_backoff() {
    scene(|_| async {
        let fetched = Arc::new(tokio::sync::Notify::new());
        let version = Arc::new(AtomicUsize::new(0));
        let http = Hostile::start(move |mut exchange| {
            let (fetched, version) = (fetched.clone(), version.clone());
            async move {
                match exchange.rpc() {
                    _ if exchange.method == "GET" => {
                        exchange.events().await;
                        loop {
                            fetched.notified().await;
                            for list in ["tools", "prompts"] {
                                let method = format!("notifications/{list}/list_changed");
                                exchange
                                    .say(&format!("data: {}\n\n", json!({"jsonrpc": "2.0", "method": method})))
                                    .await;
                            }
                        }
                    }
                    "tools/list" => {
                        let name = format!("t{}", version.fetch_add(1, Ordering::Relaxed));
                        exchange.result(json!({"tools": [{"name": name, "inputSchema": {"type": "object"}}]})).await;
                        fetched.notify_one();
                    }
                    "prompts/list" => {
                        let name = format!("p{}", version.fetch_add(1, Ordering::Relaxed));
                        exchange.result(json!({"prompts": [{"name": name}]})).await;
                        fetched.notify_one();
                    }
                    _ => {
                        let changes = json!({"listChanged": true});
                        exchange.handshake(&json!({"tools": changes, "prompts": changes})).await;
                    }
                }
            }
        })
        .await;
        let mut entry = ServerEntry::new(legacy(HttpServer::new(http.url())));
        entry.prompt_tools = true;
        let bridge = Bridge::new(Config::default().with_server(entry)).expect("a bridge");
        bridge.start().await.expect("a start");
        let began = Instant::now();
        rate(&http, "prompts/list", 22, "a bridge's `prompts/list` that changes whenever it is fetched").await;
        let lists = http.count_within("tools/list", began, SPAN);
        println!("measured a bridge's `tools/list` beside it: {lists} in {SPAN:?}");
        assert!(lists <= 12, "{lists} of `tools/list` in {SPAN:?}");
        bridge.stop().await;
    });
}

#[test]
fn the_last_of_many_changes_is_never_missed() {
    scene(|_| async {
        let (said, _) = tokio::sync::broadcast::channel::<()>(64);
        let version = Arc::new(AtomicUsize::new(0));
        let (teller, latest) = (said.clone(), version.clone());
        let http = Hostile::start(move |mut exchange| {
            let (said, version) = (said.clone(), version.clone());
            async move {
                match exchange.rpc() {
                    _ if exchange.method == "GET" => {
                        let mut changes = said.subscribe();
                        exchange.events().await;
                        while changes.recv().await.is_ok() {
                            let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                            exchange.say(&format!("data: {changed}\n\n")).await;
                        }
                    }
                    "tools/list" => {
                        let name = format!("t{}", version.load(Ordering::SeqCst));
                        exchange.result(json!({"tools": [{"name": name, "inputSchema": {"type": "object"}}]})).await;
                    }
                    _ => {
                        exchange.handshake(&json!({"tools": {"listChanged": true}})).await;
                    }
                }
            }
        })
        .await;
        let bridge = Bridge::new(Config::default().with_server(ServerEntry::new(legacy(HttpServer::new(http.url())))));
        let bridge = bridge.expect("a bridge");
        bridge.start().await.expect("a start");
        for number in 1..=20 {
            latest.store(number, Ordering::SeqCst);
            let _ = teller.send(());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let newest = |listing: &ropeway_bridge::ToolListing| {
            listing.registry.definitions().any(|definition| definition.name == "mcp_bad_t20")
        };
        tokio::time::timeout(Duration::from_secs(20), bridge.until(newest)).await.expect("the newest tools in time");
        assert!(http.count("tools/list") <= 10, "{} lists", http.count("tools/list"));
        bridge.stop().await;
    });
}
