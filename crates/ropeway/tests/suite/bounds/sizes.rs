//! Oversized lists and texts of a server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ropeway::bridge::Bridge;
use ropeway::config::{Config, HttpServer, ServerEntry};
use ropeway::mcp::Mcp;
use serde_json::{Value, json};

use super::hostile::{Exchange, Good, Hostile, alone, legacy, memory};
use crate::fast_config::{cannot_connect, warnings};
use crate::scene::scene;

/// Answers a list request with pages of one entry each.
async fn page(exchange: &mut Exchange, key: &str, entry: &str, pages: usize) {
    let cursor: usize = exchange.body["params"]["cursor"].as_str().and_then(|it| it.parse().ok()).unwrap_or(0);
    let entry = entry.replace("{n}", &cursor.to_string());
    let next = if cursor + 1 < pages { format!(r#","nextCursor":"{}""#, cursor + 1) } else { String::new() };
    let body = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"{key}":[{entry}]{next}}}}}"#, exchange.body["id"]);
    exchange.answer("200 OK", "Content-Type: application/json\r\n", &body).await;
}

/// A server whose lists have a number of pages with these entries.
async fn listing(entry: String, pages: usize) -> Hostile {
    let entry = Arc::new(entry);
    Hostile::start(move |mut exchange| {
        let entry = entry.clone();
        async move {
            let capabilities = json!({"tools": {}, "resources": {}, "prompts": {}});
            match exchange.rpc() {
                "tools/list" => page(&mut exchange, "tools", &entry, pages).await,
                "resources/list" => page(&mut exchange, "resources", &entry, pages).await,
                "resources/templates/list" => page(&mut exchange, "resourceTemplates", &entry, pages).await,
                "prompts/list" => page(&mut exchange, "prompts", &entry, pages).await,
                "ping" => exchange.result(json!({})).await,
                _ if exchange.method == "GET" => exchange.answer("405 Method Not Allowed", "", "").await,
                _ => {
                    exchange.handshake(&capabilities).await;
                }
            }
        }
    })
    .await
}

fn entry(description: usize) -> String {
    let text = "d".repeat(description);
    format!(
        r#"{{"name":"t{{n}}","uri":"r:{{n}}","uriTemplate":"r:{{n}}/{{x}}","description":"{text}","inputSchema":{{"type":"object"}}}}"#
    )
}

#[test]
fn a_list_of_a_thousand_large_pages_is_truncated() {
    alone("bounds::sizes::a_list_of_a_thousand_large_pages_is_truncated", || async {
        let good = Good::start().await;
        let http = listing(entry(1 << 20), 1000).await;
        let bad = Mcp::new(legacy(HttpServer::new(http.url())));
        let mut events = bad.events();
        bad.connect().await.expect("a connection");
        let before = memory("VmRSS");
        let began = Instant::now();
        let (listed, (longest, _)) = tokio::join!(bad.list_tools(), good.keep_calling(Duration::from_millis(1500)));
        let listed = listed.expect("what there is so far");
        let most = memory("VmHWM").saturating_sub(before);
        println!(
            "measured 1,000 pages of 1 MB: {} tools, {} MB more memory, {:?}, longest call beside {longest:?}",
            listed.len(),
            most >> 20,
            began.elapsed()
        );
        assert!(most < 300 << 20, "{most} bytes");
        assert!(!listed.is_empty());
        let warnings = warnings(&mut events);
        assert!(warnings.iter().any(|it| it.contains("list_bytes")), "{warnings:?}");
        bad.close().await;
        good.mcp.close().await;
    });
}

#[test]
fn all_four_lists_are_truncated_at_the_entry_limit() {
    alone("bounds::sizes::all_four_lists_are_truncated_at_the_entry_limit", || async {
        let many: Vec<Value> = (0..2500)
            .map(|n| {
                let name = format!("t{n}-{{n}}");
                json!({"name": name, "uri": name, "uriTemplate": name, "inputSchema": {"type": "object"}})
            })
            .collect();
        let many = Value::from(many).to_string();
        let http = listing(many.trim_matches(['[', ']']).to_owned(), 40).await;
        let bad = Mcp::new(legacy(HttpServer::new(http.url())));
        let mut events = bad.events();
        bad.connect().await.expect("a connection");
        let before = memory("VmRSS");
        let began = Instant::now();
        let tools = bad.list_tools().await.expect("tools").len();
        let resources = bad.list_resources().await.expect("resources").len();
        let templates = bad.list_resource_templates().await.expect("templates").len();
        let prompts = bad.list_prompts().await.expect("prompts").len();
        println!(
            "measured 40 pages of 2,500 entries: {tools} tools, {resources} resources, {templates} templates, {prompts} prompts, {} MB more memory, {:?}",
            memory("VmHWM").saturating_sub(before) >> 20,
            began.elapsed()
        );
        assert_eq!([tools, resources, templates, prompts], [10_000; 4]);
        let warnings = warnings(&mut events);
        assert_eq!(warnings.iter().filter(|it| it.contains("list_entries")).count(), 4, "{warnings:?}");
        bad.close().await;
    });
}

#[test]
fn the_server_status_names_a_truncated_list() {
    scene(|_| async {
        let http = listing(entry(10), 5).await;
        let mut config = legacy(HttpServer::new(http.url()));
        config.limits.list_entries = 3;
        let bridge = Bridge::new(Config::default().with_server(ServerEntry::new(config))).expect("a bridge");
        bridge.start().await.expect("a start");
        let expected = "server `bad` is ready with 3 tools; truncated the tool list: it has reached the limit of 3 entries (`list_entries`)";
        assert_eq!(bridge.tools().statuses[0].to_string(), expected);
        assert_eq!(bridge.tools().registry.len(), 3);
        assert_eq!(http.count("tools/list"), 3);
        bridge.stop().await;
    });
}

#[test]
fn a_list_at_its_limits_is_complete() {
    scene(|_| async {
        let http = listing(entry(10), 3).await;
        let mut config = legacy(HttpServer::new(http.url()));
        config.limits.list_entries = 3;
        let server = Mcp::new(config);
        let mut events = server.events();
        server.connect().await.expect("a connection");
        assert_eq!(server.list_tools().await.expect("tools").len(), 3);
        assert_eq!(warnings(&mut events), [""; 0]);
        server.close().await;
    });
}

#[test]
fn an_oversized_entry_is_skipped() {
    scene(|_| async {
        let large = entry(600).replace("t{n}", "large");
        let http = listing(format!("{large},{},7", entry(10)), 1).await;
        let mut config = legacy(HttpServer::new(http.url()));
        config.limits.list_bytes = 4000;
        let server = Mcp::new(config);
        let mut events = server.events();
        server.connect().await.expect("a connection");
        let names: Vec<String> =
            server.list_tool_definitions().await.expect("tools").into_iter().map(|tool| tool.name).collect();
        assert_eq!(names, ["t0"]);
        let warnings = warnings(&mut events);
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].ends_with("the limit is 500 bytes"), "{warnings:?}");
        server.close().await;
    });
}

#[test]
fn warnings_about_invalid_entries_are_limited() {
    scene(|_| async {
        let http = listing(vec!["7"; 500].join(","), 2).await;
        let server = Mcp::new(legacy(HttpServer::new(http.url())));
        let mut events = server.events();
        server.connect().await.expect("a connection");
        assert!(server.list_tools().await.expect("tools").is_empty());
        let warnings = warnings(&mut events);
        assert_eq!(warnings.len(), 11, "{warnings:?}");
        assert_eq!(warnings[10], "990 more invalid entries");
        server.close().await;
    });
}

/// A server that answers `initialize` with a given result and headers.
async fn greeting(result: Value, headers: String) -> Hostile {
    let (result, headers) = (Arc::new(result), Arc::new(headers));
    Hostile::start(move |mut exchange| {
        let (result, headers) = (result.clone(), headers.clone());
        async move {
            match exchange.rpc() {
                "initialize" => {
                    let body = json!({"jsonrpc": "2.0", "id": exchange.body["id"], "result": *result}).to_string();
                    let headers = format!("Content-Type: application/json\r\n{headers}");
                    exchange.answer("200 OK", &headers, &body).await;
                }
                _ if exchange.method == "GET" => exchange.answer("405 Method Not Allowed", "", "").await,
                _ => exchange.accept().await,
            }
        }
    })
    .await
}

#[test]
fn server_info_is_truncated() {
    scene(|_| async {
        let long = "é".repeat(1 << 20);
        let many: serde_json::Map<String, Value> =
            (0..1000).map(|n| (format!("c{n}"), json!({"deep": {"long": long.get(..20_000)}}))).collect();
        let mut capabilities = json!({"tools": {"listChanged": true}});
        capabilities["experimental"] = many.into();
        let result = json!({"protocolVersion": "2025-06-18", "capabilities": capabilities,
            "serverInfo": {"name": long, "version": long}, "instructions": long});
        let http = greeting(result, String::new()).await;
        let server = Mcp::new(legacy(HttpServer::new(http.url())));
        let mut events = server.events();
        server.connect().await.expect("a connection");
        let info = server.server_info().expect("what it says");
        assert!(info.has_capability(&["tools", "listChanged"]));
        assert_eq!((info.name.len(), info.version.len()), (1024, 1024));
        assert_eq!(info.instructions.as_ref().map(String::len), Some(64 << 10));
        let kept = Value::from(info.capabilities.clone()).to_string().len();
        assert!(kept < 400_000, "{kept} bytes of capabilities");
        let warnings = warnings(&mut events);
        assert_eq!(warnings, ["instructions of 2097152 bytes were truncated to 65536"]);
        server.close().await;
    });
}

#[test]
fn an_oversized_session_id_is_rejected() {
    scene(|_| async {
        let result = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}});
        let http = greeting(result, format!("Mcp-Session-Id: {}\r\n", "s".repeat(5000))).await;
        let mut config = legacy(HttpServer::new(http.url()));
        config.reconnect.enabled = false;
        let server = Mcp::new(config);
        let told = cannot_connect(&server).await;
        assert!(told.ends_with("invalid response: a session id of 5000 bytes"), "{told}");
        server.close().await;
    });
}

#[test]
fn a_small_definition_does_not_retain_a_large_page() {
    alone("bounds::sizes::a_small_definition_does_not_retain_a_large_page", || async {
        let filler = format!(r#"{{"name":"{{n}}-junk","junk":"{}"}}"#, "j".repeat(15 << 20));
        let http = listing(format!("{},{filler}", entry(10)), 1).await;
        let mut servers = Vec::new();
        let mut before = 0;
        for round in 0..16 {
            // The first rounds show how much the allocator retains.
            if round == 4 {
                before = memory("VmRSS");
            }
            let server = Mcp::new(legacy(HttpServer::new(http.url())));
            server.connect().await.expect("a connection");
            // The entry of 15 MB is skipped.
            assert_eq!(server.list_tools().await.expect("tools").len(), 1);
            servers.push(server);
        }
        let more = memory("VmRSS").saturating_sub(before);
        println!("measured 12 lists with a page of 15 MB each: {} MB more memory held", more >> 20);
        // Twelve pages would be 180 MB.
        assert!(more < 100 << 20, "{more} bytes are held for 12 small definitions");
        for server in servers {
            server.close().await;
        }
    });
}

#[test]
fn a_full_list_is_registered_and_searched_in_time() {
    alone("bounds::sizes::a_full_list_is_registered_and_searched_in_time", || async {
        let many: Vec<Value> = (0..10_000)
            .map(|n| json!({"name": format!("tool_{n}"), "description": format!("Reads the number {n} of a list. {}", "word ".repeat(50)),
                "inputSchema": {"type": "object", "properties": {"path": {"type": "string", "description": "where it is"}}}}))
            .collect();
        let many = Value::from(many).to_string();
        let http = listing(many.trim_matches(['[', ']']).to_owned(), 1).await;
        let config = Config::default().with_server(ServerEntry::new(legacy(HttpServer::new(http.url()))));
        let bridge = Bridge::new(config).expect("a bridge");
        let began = Instant::now();
        bridge.start().await.expect("a start");
        let listing = bridge.tools();
        let (listed, began) = (began.elapsed(), Instant::now());
        let found = listing.registry.search("number 777", 5);
        println!(
            "measured {} tools: listed in {listed:?}, searched in {:?}, {} MB",
            listing.registry.len(),
            began.elapsed(),
            memory("VmHWM") >> 20
        );
        assert_eq!(listing.registry.len(), 10_000);
        assert!(!found.is_empty());
        assert!(listed + began.elapsed() < Duration::from_secs(60));
        bridge.stop().await;
    });
}
