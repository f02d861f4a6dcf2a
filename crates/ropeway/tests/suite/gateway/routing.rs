//! Several servers behind one gateway: names, profiles, pages, missing servers and isolation.

use std::net::TcpListener;

use ropeway::config::{Config, GatewaySettings, HttpServer, Isolation, ProfileSettings, ServerEntry};
use ropeway::gateway::Gateway;
use ropeway::testing::{Fault, FaultTrigger, Script, ScriptedServer};
use serde_json::{Value, json};

use super::kit::{GatewayKit, HttpReply, call, entry, modern, post, read_rest, read_until, request};
use crate::fast_config::{fast_config, ms, until};
use crate::scene::scene;

/// Starts a gateway with the servers `one` and `two`. The second one is returned.
async fn two_servers(settings: GatewaySettings) -> (GatewayKit, ScriptedServer) {
    let (one, two) = (ScriptedServer::new(Script::legacy()), ScriptedServer::new(Script::modern()));
    let config = Config::default().with_server(entry("one", &one)).with_server(entry("two", &two));
    (GatewayKit::launch(one, Gateway::builder(config).settings(settings)).await, two)
}

async fn modern_at(kit: &GatewayKit, path: &str, method: &str, params: Value) -> HttpReply {
    kit.send(&modern(method, params).replacen("/mcp", path, 1)).await
}

fn names(reply: &HttpReply) -> Vec<String> {
    let tools = reply.json()["result"]["tools"].as_array().expect("tools").clone();
    tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect()
}

fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|known| known == name)
}

#[test]
fn two_servers_have_prefixes_and_addresses_of_their_own() {
    scene(|_| async move {
        let (kit, two) = two_servers(GatewaySettings::default()).await;
        let all = names(&kit.modern("tools/list", json!({})).await);
        assert!(has(&all, "one_echo") && has(&all, "two_echo") && !has(&all, "echo"), "{all:?}");
        let echo = json!({"name": "two_echo", "arguments": {"message": "hi"}});
        let reply = kit.modern("tools/call", echo).await.json();
        assert_eq!(reply["result"]["content"][0]["text"], "hi", "{reply}");
        assert_eq!(two.received_of("tools/call")[0]["params"]["name"], "echo");
        assert!(kit.scripted.received_of("tools/call").is_empty());
        // The address of one server has its own names.
        let own = names(&modern_at(&kit, "/mcp/one", "tools/list", json!({})).await);
        assert!(has(&own, "echo") && !has(&own, "one_echo"), "{own:?}");
        assert_eq!(modern_at(&kit, "/mcp/three", "tools/list", json!({})).await.status, 404);
        kit.stop().await;
    });
}

#[test]
fn one_server_is_transparent() {
    scene(|_| async move {
        let script = Script { name: "own-name".into(), instructions: Some("Be kind.".into()), ..Script::default() };
        let kit = GatewayKit::start(script).await;
        let reply = kit.modern("server/discover", json!({})).await.json();
        assert_eq!(reply["result"]["instructions"], "Be kind.", "{reply}");
        assert_eq!(reply["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "own-name", "{reply}");
        let info = json!({"name": "kit", "version": "0"});
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info});
        let reply = kit.post("", &request(0, "initialize", params)).await.json();
        assert_eq!(reply["result"]["serverInfo"]["name"], "own-name", "{reply}");
        assert_eq!(reply["result"]["instructions"], "Be kind.", "{reply}");
        assert_eq!(reply["result"]["protocolVersion"], "2025-06-18", "{reply}");
        assert!(has(&names(&kit.modern("tools/list", json!({})).await), "echo"));
        kit.stop().await;
    });
}

#[test]
fn a_profile_filters_and_a_search_profile_finds_and_calls() {
    scene(|_| async move {
        let mut reading = ProfileSettings::new("reading");
        reading.tools.allow = vec!["e*".into()];
        reading.tools.deny = vec!["elicit".into()];
        let mut search = ProfileSettings::new("search");
        search.search = true;
        let settings = GatewaySettings::default().with_profile(reading).with_profile(search);
        let (kit, two) = two_servers(settings).await;
        let listed = names(&modern_at(&kit, "/mcp/reading", "tools/list", json!({})).await);
        assert_eq!(listed, ["one_echo", "two_echo"]);
        let hidden = json!({"name": "one_add", "arguments": {"a": 1, "b": 2}});
        let reply = modern_at(&kit, "/mcp/reading", "tools/call", hidden).await.json();
        assert_eq!(reply["error"]["code"], -32602, "{reply}");
        let listed = names(&modern_at(&kit, "/mcp/search", "tools/list", json!({})).await);
        assert_eq!(listed, ["find_tools", "call_tool"]);
        let find = json!({"name": "find_tools", "arguments": {"query": "adds two numbers"}});
        let reply = modern_at(&kit, "/mcp/search", "tools/call", find).await;
        assert!(reply.body.contains("two_add"), "{reply:?}");
        let inner = json!({"name": "two_add", "arguments": {"a": 1, "b": 2}});
        let reply =
            modern_at(&kit, "/mcp/search", "tools/call", json!({"name": "call_tool", "arguments": inner})).await;
        assert_eq!(reply.json()["result"]["structuredContent"], json!({"sum": 3.0}), "{reply:?}");
        assert_eq!(two.received_of("tools/call").len(), 1);
        kit.stop().await;
    });
}

#[test]
fn a_cursor_of_another_profile_is_refused() {
    scene(|_| async move {
        let mut settings = GatewaySettings::default();
        settings.page_size = 5;
        let (kit, _two) = two_servers(settings).await;
        let mut all = Vec::new();
        let mut params = json!({});
        loop {
            let reply = kit.modern("tools/list", params.clone()).await;
            let page = names(&reply);
            assert!(page.len() <= 5, "{page:?}");
            all.extend(page);
            match reply.json()["result"].get("nextCursor") {
                Some(cursor) => params = json!({"cursor": cursor}),
                None => break,
            }
        }
        assert_eq!(all.len(), 32, "{all:?}");
        assert!(has(&all, "one_echo") && has(&all, "two_pid"));
        for cursor in [params["cursor"].clone(), json!("page-1"), json!("")] {
            let reply = modern_at(&kit, "/mcp/one", "tools/list", json!({"cursor": cursor})).await.json();
            assert_eq!(reply["error"]["code"], -32602, "{reply}");
        }
        kit.stop().await;
    });
}

#[test]
fn a_server_that_dies_fails_its_calls_and_others_go_on() {
    scene(|_| async move {
        let (kit, two) = two_servers(GatewaySettings::default()).await;
        let session = kit.session().await;
        let mut waiting = Vec::new();
        for id in 1..=5 {
            waiting.push(kit.open(&post(&session, &call(id, "two_sleep", json!({"ms": 600_000})))).await);
        }
        until("the calls", || two.received_of("tools/call").len() == 5).await;
        // The server ends during the calls.
        let reply = kit.post(&session, &call(6, "two_crash", json!({}))).await.json();
        assert_eq!(reply["error"]["code"], -32603, "{reply}");
        assert_eq!(reply["error"]["data"]["server"], "two", "{reply}");
        for mut stream in waiting {
            read_until(&mut stream, "-32603").await;
        }
        let echo = call(7, "one_echo", json!({"message": "hi"}));
        assert!(kit.post(&session, &echo).await.json()["result"].is_object());
        kit.stop().await;
    });
}

#[test]
fn a_list_names_the_missing_servers() {
    scene(|_| async move {
        let one = ScriptedServer::new(Script::legacy());
        let absent = ropeway::config::StdioServer::command("/nowhere/no-such-server");
        let absent = ropeway::config::ServerConfig::new("absent", absent);
        let config = Config::default().with_server(entry("one", &one)).with_server(absent);
        let kit = GatewayKit::launch(one, Gateway::builder(config)).await;
        let reply = kit.modern("tools/list", json!({})).await;
        let missing = &reply.json()["result"]["_meta"]["dev.ropeway/servers"];
        assert_eq!((missing.as_array().map(Vec::len), &missing[0]["alias"]), (Some(1), &json!("absent")), "{reply:?}");
        // Names do not depend on which servers are there.
        assert!(has(&names(&reply), "one_echo"));
        kit.stop().await;
    });
}

#[test]
fn a_tool_that_was_renamed_is_unknown_under_its_old_name() {
    scene(|_| async move {
        let old = json!({"name": "old_name", "inputSchema": {"type": "object"}});
        let kit = GatewayKit::start(Script::legacy().tool(old, json!({"content": []}))).await;
        let session = kit.session().await;
        assert!(kit.post(&session, &call(1, "old_name", json!({}))).await.json()["result"].is_object());
        kit.scripted.set(|script| script.extra_tools[0].definition["name"] = "new_name".into());
        kit.scripted.changed("tools");
        let mut listed = Vec::new();
        for _ in 0..100 {
            listed = names(&kit.modern("tools/list", json!({})).await);
            if has(&listed, "new_name") {
                break;
            }
            tokio::time::sleep(crate::fast_config::ms(50)).await;
        }
        assert!(has(&listed, "new_name") && !has(&listed, "old_name"), "{listed:?}");
        let reply = kit.post(&session, &call(2, "old_name", json!({}))).await.json();
        assert_eq!(reply["error"]["code"], -32602, "{reply}");
        assert!(kit.post(&session, &call(3, "new_name", json!({}))).await.json()["result"].is_object());
        kit.stop().await;
    });
}

#[test]
fn isolated_clients_have_bounded_connections_of_their_own() {
    scene(|_| async move {
        let scripted = ScriptedServer::new(Script::legacy());
        let mut isolated = entry("scripted", &scripted);
        isolated.isolation = Isolation::Client;
        let mut settings = GatewaySettings::default();
        settings.limits.isolated = 2;
        let builder = Gateway::builder(Config::default().with_server(isolated)).settings(settings);
        let kit = GatewayKit::launch(scripted, builder).await;
        let before = kit.scripted.connections();
        let echo = |id| call(id, "echo", json!({"message": "hi"}));
        let mut sessions = Vec::new();
        for expected in 1..=2 {
            let session = kit.session().await;
            for id in 1..=3 {
                assert_eq!(kit.post(&session, &echo(id)).await.status, 200);
            }
            assert_eq!(kit.scripted.connections(), before + expected);
            sessions.push(session);
        }
        // The third client takes the place of the one that was idle for the longest time.
        let third = kit.session().await;
        assert!(kit.post(&third, &echo(1)).await.json()["result"].is_object());
        assert_eq!((kit.gateway.status().isolated, kit.scripted.connections()), (2, before + 3));
        let ended = super::kit::bare("DELETE", "/mcp", &format!("Host: localhost\r\n{third}"));
        assert_eq!(kit.send(&ended).await.status, 204);
        until("the end of its connection", || kit.gateway.status().isolated == 1).await;
        kit.stop().await;
    });
}

#[test]
fn isolated_clients_get_the_log_messages_of_their_own_processes() {
    scene(|_| async move {
        let scripted = ScriptedServer::new(Script::legacy());
        let mut isolated = entry("scripted", &scripted);
        isolated.isolation = Isolation::Client;
        let builder = Gateway::builder(Config::default().with_server(isolated));
        let kit = GatewayKit::launch(scripted, builder).await;
        let sessions = [kit.session().await, kit.session().await];
        for session in &sessions {
            let set = request(1, "logging/setLevel", json!({"level": "debug"}));
            assert_eq!(kit.post(session, &set).await.status, 200);
        }
        // Both have calls in progress, which would be ambiguous on a shared connection.
        let other = kit.open(&post(&sessions[1], &call(2, "sleep", json!({"ms": 1500})))).await;
        until("the call", || kit.scripted.received_of("tools/call").len() == 1).await;
        let log = json!({"level": "warning", "message": "private"});
        let reply = kit.post(&sessions[0], &call(2, "log", log)).await;
        assert!(reply.body.contains("private"), "{reply:?}");
        let read = read_rest(other).await;
        assert!(read.contains("slept") && !read.contains("private"), "{read}");
        // The servers of both clients, which start after the level was set, know it like the shared one.
        until("the levels", || kit.scripted.received_of("logging/setLevel").len() == 3).await;
        kit.stop().await;
    });
}

#[test]
fn requests_before_the_start_wait_for_the_servers() {
    scene(|_| async move {
        for (method, params) in
            [("tools/list", json!({})), ("tools/call", json!({"name": "echo", "arguments": {"message": "hello"}}))]
        {
            let scripted = ScriptedServer::new(Script::legacy());
            let config = Config::default().with_server(entry("scripted", &scripted));
            let kit = GatewayKit::serve(scripted, Gateway::builder(config));
            let start = async {
                tokio::time::sleep(ms(100)).await;
                kit.gateway.start().await.expect("a start");
            };
            let (reply, ()) = tokio::join!(kit.modern(method, params), start);
            assert!(reply.body.contains("echo") || reply.body.contains("hello"), "{method}: {reply:?}");
            kit.stop().await;
        }
    });
}

#[test]
fn a_server_that_hangs_delays_lists_only_after_the_start() {
    scene(|_| async move {
        let silent = Script::modern().fault(FaultTrigger::any(), Fault::late(600_000));
        let (good, stuck) = (ScriptedServer::new(Script::modern()), ScriptedServer::new(silent));
        let config = Config::default().with_server(entry("good", &good)).with_server(entry("stuck", &stuck));
        let settings = GatewaySettings::default().with_list_timeout(ms(1_000));
        let kit = GatewayKit::serve(good, Gateway::builder(config).settings(settings));
        let starting = tokio::spawn({
            let gateway = kit.gateway.clone();
            async move { gateway.start().await }
        });
        until("the tools of one server", || !kit.gateway.bridge().registry().is_empty()).await;
        kit.modern("tools/list", json!({})).await;
        let started = std::time::Instant::now();
        for _ in 0..20 {
            let reply = kit.modern("tools/list", json!({})).await;
            assert!(names(&reply).contains(&"good_echo".to_owned()), "{reply:?}");
            assert_eq!(reply.json()["result"]["_meta"]["dev.ropeway/servers"][0]["alias"], "stuck", "{reply:?}");
        }
        assert!(started.elapsed() < ms(10_000), "each list waits: {:?}", started.elapsed());
        starting.abort();
        kit.stop().await;
    });
}

#[test]
fn a_gateway_does_not_connect_to_itself() {
    scene(|_| async move {
        for path in ["mcp", "mcp/one", "sse"] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let url = format!("http://{}/{path}", listener.local_addr().expect("an address"));
            let http = if path == "sse" { HttpServer::sse(url) } else { HttpServer::new(url) };
            let mut own = fast_config(http);
            own.alias = "own".into();
            let scripted = ScriptedServer::new(Script::default());
            let config = Config::default().with_server(entry("one", &scripted)).with_server(ServerEntry::new(own));
            let kit = GatewayKit::serve_on(listener, scripted, Gateway::builder(config));
            let statuses = kit.gateway.start().await.expect("a start");
            let own = statuses.iter().find(|status| status.server.as_str() == "own").expect("the entry");
            assert!(format!("{own:?}").contains("this gateway itself"), "{path}: {own:?}");
            let names = names(&kit.modern("tools/list", json!({})).await);
            assert!(has(&names, "one_echo") && !names.iter().any(|name| name.starts_with("own_")), "{names:?}");
            kit.stop().await;
        }
    });
}
