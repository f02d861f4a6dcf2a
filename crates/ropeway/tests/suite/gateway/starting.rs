//! Clients that come while servers are still starting.

use std::time::{Duration, Instant};

use ropeway::config::{Config, GatewaySettings, PrefixMode, ProfileSettings};
use ropeway::gateway::Gateway;
use ropeway::testing::{Fault, FaultTrigger, Script, ScriptedServer};
use serde_json::{Value, json};

use super::kit::{GatewayKit, HttpReply, Pipe, bare, entry, modern, next_message, read_until, request};
use crate::fast_config::{ms, until};
use crate::scene::scene;

/// A server that takes a while to start.
fn slow(delay: u64) -> ScriptedServer {
    ScriptedServer::new(Script::legacy().fault(FaultTrigger::method("initialize"), Fault::late(delay)))
}

/// Serves a gateway whose servers are being started.
fn start(servers: &[(&str, &ScriptedServer)], settings: GatewaySettings) -> GatewayKit {
    let config =
        servers.iter().fold(Config::default(), |config, (alias, server)| config.with_server(entry(alias, server)));
    let unused = ScriptedServer::new(Script::default());
    let kit = GatewayKit::serve(unused, Gateway::builder(config).settings(settings).bridge(|bridge| bridge.no_cache()));
    let gateway = kit.gateway.clone();
    // Ends with the gateway.
    tokio::spawn(async move { gateway.start().await });
    kit
}

fn waiting(timeout: u64) -> GatewaySettings {
    GatewaySettings::default().with_list_timeout(ms(timeout))
}

fn names(reply: &HttpReply, key: &str) -> Vec<String> {
    let entries = reply.json()["result"][key].as_array().cloned().unwrap_or_else(|| panic!("{reply:?}"));
    entries.iter().filter_map(|entry| Some(entry["name"].as_str()?.to_owned())).collect()
}

async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let begun = Instant::now();
    (work.await, begun.elapsed())
}

#[test]
fn a_list_counts_its_wait_from_the_request() {
    scene(|_| async move {
        let (good, late) = (ScriptedServer::new(Script::modern()), slow(3_000));
        let kit = start(&[("good", &good), ("late", &late)], waiting(2_000));
        tokio::time::sleep(ms(1_500)).await;
        let names = names(&kit.modern("tools/list", json!({})).await, "tools");
        assert!(names.contains(&"good_echo".to_owned()) && names.contains(&"late_echo".to_owned()), "{names:?}");
        kit.stop().await;
    });
}

#[test]
fn an_empty_list_waits_for_the_first_server() {
    scene(|_| async move {
        for (method, key, name) in [
            ("tools/list", "tools", "late_echo"),
            ("prompts/list", "prompts", "late_greet"),
            ("resources/list", "resources", "hello"),
        ] {
            let (late, stuck) = (slow(1_500), slow(600_000));
            let kit = start(&[("late", &late), ("stuck", &stuck)], waiting(200));
            let reply = kit.modern(method, json!({})).await;
            assert!(names(&reply, key).contains(&name.to_owned()), "{reply:?}");
            assert_eq!(reply.json()["result"]["_meta"]["dev.ropeway/servers"][0]["alias"], "stuck", "{reply:?}");
            // Later lists are not delayed by a server that takes minutes.
            let (_, took) = timed(kit.modern(method, json!({}))).await;
            assert!(took < ms(1_000), "{method}: {took:?}");
            kit.stop().await;
        }
    });
}

#[test]
fn a_call_waits_for_the_server_that_its_tool_belongs_to() {
    scene(|_| async move {
        let (good, late) = (ScriptedServer::new(Script::modern()), slow(2_000));
        let search = ProfileSettings::new("search").with_search(true);
        let kit = start(&[("good", &good), ("late", &late)], waiting(100).with_profile(search));
        kit.modern("tools/list", json!({})).await;
        let call = |name: &str| kit.modern("tools/call", json!({"name": name, "arguments": {"message": "hello"}}));
        // The name of another server does not wait.
        let (unknown, took) = timed(call("good_nothing")).await;
        assert!(took < ms(1_000) && unknown.body.contains("Unknown tool: good_nothing"), "{took:?} {unknown:?}");
        assert!(!unknown.body.contains("starting"), "{unknown:?}");
        let reply = call("late_echo").await;
        assert_eq!(reply.json()["result"]["content"][0]["text"], "hello", "{reply:?}");
        let prompt = kit.modern("prompts/get", json!({"name": "late_plain"})).await;
        assert!(prompt.json()["result"]["messages"].is_array(), "{prompt:?}");
        kit.stop().await;
    });
}

#[test]
fn an_unknown_name_names_the_servers_that_are_still_starting() {
    scene(|_| async move {
        let (good, stuck) = (ScriptedServer::new(Script::modern()), slow(600_000));
        let kit = start(&[("good", &good), ("stuck", &stuck)], waiting(200).with_prefix(PrefixMode::Never));
        let cases = [
            ("tools/call", json!({"name": "nothing"})),
            ("prompts/get", json!({"name": "nothing"})),
            ("resources/read", json!({"uri": "other:nothing"})),
        ];
        for (method, params) in cases {
            let (reply, took) = timed(kit.modern(method, params)).await;
            let message = reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
            assert!(message.ends_with("; server `stuck` is still starting, try again later"), "{method}: {message}");
            assert!(took < ms(8_000), "{method}: {took:?}");
        }
        kit.stop().await;
    });
}

#[test]
fn a_subscription_waits_for_the_server_of_its_resource() {
    scene(|_| async move {
        // It accepts a subscription to any URI.
        let missing = || Fault::Error(json!({"code": -32002, "message": "no such resource"}));
        let methods = ["resources/list", "resources/templates/list", "resources/read"];
        let good = methods
            .into_iter()
            .fold(Script::modern(), |script, method| script.fault(FaultTrigger::method(method), missing()));
        let uri = "test://counter";
        for is_listed in [true, false] {
            let mut script = Script::legacy().fault(FaultTrigger::method("initialize"), Fault::late(1_500));
            if !is_listed {
                let hidden = ["resources/list", "resources/templates/list"];
                script = hidden
                    .into_iter()
                    .fold(script, |script, method| script.fault(FaultTrigger::method(method), missing()));
            }
            let (good, late) = (ScriptedServer::new(good.clone()), ScriptedServer::new(script));
            let kit = start(&[("good", &good), ("late", &late)], waiting(100));
            until("the first server", || !good.received_of("tools/list").is_empty()).await;
            let listen = modern("subscriptions/listen", json!({"notifications": {"resourceSubscriptions": [uri]}}));
            let mut listener = kit.open(&listen).await;
            let session = kit.session().await;
            let mut stream = kit.open(&bare("GET", "/mcp", &format!("Host: localhost\r\n{session}"))).await;
            let reply = kit.post(&session, &request(2, "resources/subscribe", json!({"uri": uri}))).await;
            assert_eq!(reply.json()["result"], json!({}), "{reply:?}");
            read_until(&mut listener, "notifications/subscriptions/acknowledged").await;
            let touched = kit.modern("tools/call", json!({"name": "late_touch", "arguments": {"uri": uri}})).await;
            assert_eq!(touched.json()["result"]["isError"], Value::Null, "{touched:?}");
            for client in [&mut listener, &mut stream] {
                read_until(client, "notifications/resources/updated").await;
            }
            drop((listener, stream));
            kit.stop().await;
        }
    });
}

#[test]
fn a_subscription_to_a_resource_that_does_not_exist_yet_is_made() {
    scene(|_| async move {
        let servers = [Script::modern(), Script::legacy()].map(ScriptedServer::new);
        let kit = start(&[("one", &servers[0]), ("two", &servers[1])], waiting(2_000));
        let session = kit.session().await;
        let reply = kit.post(&session, &request(2, "resources/subscribe", json!({"uri": "other:later"}))).await;
        assert_eq!(reply.json()["result"], json!({}), "{reply:?}");
        kit.stop().await;
    });
}

#[test]
fn many_subscriptions_to_unknown_resources_cost_few_requests_to_servers() {
    scene(|_| async move {
        let servers = [Script::modern(), Script::legacy()].map(ScriptedServer::new);
        let kit = start(&[("one", &servers[0]), ("two", &servers[1])], waiting(2_000));
        let uris: Vec<String> = (0..200).map(|number| format!("other:{number}")).collect();
        let params = json!({"notifications": {"resourceSubscriptions": uris}});
        let mut listener = kit.open(&modern("subscriptions/listen", params)).await;
        let acknowledged = next_message(&mut listener).await;
        assert_eq!(acknowledged["params"]["notifications"]["resourceSubscriptions"], json!(uris), "{acknowledged}");
        let reads: usize = servers.iter().map(|server| server.received_of("resources/read").len()).sum();
        assert!((2..=32).contains(&reads), "{reads}");
        drop(listener);
        kit.stop().await;
    });
}

#[test]
fn a_search_waits_for_servers_that_are_starting() {
    scene(|_| async move {
        let late = slow(1_000);
        let search = ProfileSettings::new("search").with_search(true);
        let kit = start(&[("late", &late)], waiting(200).with_profile(search));
        let params = json!({"name": "find_tools", "arguments": {"query": "says it back"}});
        let message = modern("tools/call", params).replacen("/mcp ", "/mcp/search ", 1);
        let reply = kit.send(&message).await;
        assert!(reply.body.contains("echo"), "{reply:?}");
        kit.stop().await;
    });
}

#[test]
fn clients_learn_about_the_lists_of_a_late_server() {
    scene(|_| async move {
        let (good, late) = (ScriptedServer::new(Script::modern()), slow(1_500));
        let kit = start(&[("good", &good), ("late", &late)], waiting(50));
        // Its changes are announced before the session begins.
        until("the first server", || !kit.gateway.bridge().registry().is_empty()).await;
        tokio::time::sleep(ms(200)).await;
        let session = kit.session().await;
        let mut stream = kit.open(&bare("GET", "/mcp", &format!("Host: localhost\r\n{session}"))).await;
        let listed = kit.post(&session, &request(1, "prompts/list", json!({}))).await;
        assert!(!names(&listed, "prompts").contains(&"late_greet".to_owned()), "{listed:?}");
        let read = read_until(&mut stream, "notifications/resources/list_changed").await;
        assert!(read.contains("notifications/prompts/list_changed"), "{read}");
        let listed = kit.post(&session, &request(3, "prompts/list", json!({}))).await;
        assert!(names(&listed, "prompts").contains(&"late_greet".to_owned()), "{listed:?}");
        drop(stream);
        kit.stop().await;
    });
}

#[test]
fn initialize_on_a_pipe_waits_for_the_description_only() {
    scene(|_| async move {
        let script = Script::legacy().fault(FaultTrigger::method("tools/list"), Fault::late(4_000));
        let server = ScriptedServer::new(script.fault(FaultTrigger::method("initialize"), Fault::late(500)));
        let kit = start(&[("only", &server)], GatewaySettings::default());
        let mut pipe = Pipe::open(&kit);
        let info = json!({"name": "kit", "version": "0"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
        let (reply, took): (Value, _) = timed(async {
            pipe.send(&request(1, "initialize", params)).await;
            pipe.receive().await
        })
        .await;
        assert_eq!(reply["result"]["serverInfo"]["name"], "scripted", "{reply}");
        assert!(took < ms(3_000), "{took:?}");
        drop(pipe);
        kit.stop().await;
    });
}
