//! Server requests without an answer, and messages of servers after other clients have left.

use std::time::{Duration, Instant};

use ropeway::config::{Config, GatewayLimits, GatewaySettings};
use ropeway::gateway::Gateway;
use ropeway::testing::{Script, ScriptedServer};
use serde_json::{Value, json};

use super::auth::{KeyedKit, with};
use super::kit::{
    GatewayKit, Pipe, all_capabilities, bare, call, call_with, entry, input_required, modern_call, next_message,
    notification, post, read_rest, read_until, request, sleep,
};
use crate::fast_config::until;
use crate::scene::scene;

/// Writes a request of the server.
fn ask(id: &str, method: &str) -> Value {
    let schema = json!({"type": "object", "properties": {}});
    let params = match method {
        "roots/list" => json!({}),
        _ => json!({"mode": "form", "message": "Who?", "requestedSchema": schema}),
    };
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// Ends a session.
async fn end(kit: &GatewayKit, session: &str) {
    let delete = bare("DELETE", "/mcp", &format!("Host: localhost\r\n{session}"));
    assert_eq!(kit.send(&delete).await.status, 204);
}

#[test]
fn a_request_that_a_modern_client_does_not_answer_is_withdrawn_if_others_wait() {
    scene(|_| async move {
        for method in ["roots/list", "elicitation/create"] {
            let kit = GatewayKit::start(Script::legacy()).await;
            let arguments = json!({"ms": 600_000});
            let silent = async |more: Value| kit.send(&call_with(all_capabilities(), "sleep", &arguments, more)).await;
            let (reply, ()) = tokio::join!(silent(json!({})), async {
                kit.scripted.wait_for("tools/call", 1).await;
                kit.scripted.push(ask("s-1", method));
            });
            let state = input_required(&reply)["requestState"].clone();
            // Without other calls, the client may take its time.
            tokio::time::sleep(Duration::from_secs(4)).await;
            assert_eq!(kit.answers("s-1"), Vec::<Value>::new());
            let session = kit.session().await;
            let began = Instant::now();
            let other = kit.open(&post(&session, &sleep(2, 600_000))).await;
            until("the withdrawal", || kit.answers("s-1").len() == 1).await;
            assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
            let answer = kit.answers("s-1").remove(0);
            if method == "roots/list" {
                assert_eq!(answer["result"], json!({"roots": []}));
            } else {
                assert!(answer["error"]["message"].as_str().is_some_and(|text| text.contains("withdrawn")), "{answer}");
            }
            let late = silent(json!({"requestState": state, "inputResponses": {"q1": {"roots": []}}})).await;
            let error = late.json()["error"]["message"].to_string();
            assert!(error.contains("withdrawn") && error.contains("again"), "{error}");
            // From now on, the client has its own connection.
            let reply = kit.send(&call_with(all_capabilities(), "echo", &json!({"message": "hi"}), json!({}))).await;
            assert!(reply.body.contains("hi"), "{reply:?}");
            assert_eq!(kit.gateway.status().isolated, 1);
            drop(other);
            kit.cancel(&session, 2).await;
            kit.stop().await;
        }
    });
}

#[test]
fn a_request_that_a_legacy_client_does_not_answer_is_withdrawn_if_others_wait() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let (silent, other) = (kit.session_with(all_capabilities()).await, kit.session().await);
        let mut stream = kit.open(&post(&silent, &sleep(1, 600_000))).await;
        kit.scripted.wait_for("tools/call", 1).await;
        kit.scripted.push(ask("s-1", "elicitation/create"));
        let asked = next_message(&mut stream).await;
        assert_eq!(asked["method"], "elicitation/create", "{asked}");
        let waiting = kit.open(&post(&other, &sleep(2, 600_000))).await;
        let cancelled = next_message(&mut stream).await;
        assert_eq!(cancelled["params"]["requestId"], asked["id"], "{cancelled}");
        assert!(cancelled["params"]["reason"].as_str().is_some_and(|reason| reason.contains("withdrawn")));
        until("the withdrawal", || kit.answers("s-1").len() == 1).await;
        assert_eq!(kit.answers("s-1")[0]["error"]["code"], -32603);
        // A late answer does not reach the server.
        let late = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}});
        assert_eq!(kit.post(&silent, &late).await.status, 202);
        assert_eq!(kit.answers("s-1").len(), 1);
        drop((stream, waiting));
        kit.cancel(&silent, 1).await;
        kit.cancel(&other, 2).await;
        assert!(kit.post(&silent, &call(3, "echo", json!({"message": "hi"}))).await.body.contains("hi"));
        assert_eq!(kit.gateway.status().isolated, 1);
        kit.stop().await;
    });
}

#[test]
fn a_client_that_is_gone_does_not_make_a_connection_ambiguous() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let (gone, able) = (kit.session().await, kit.session_with(all_capabilities()).await);
        assert_eq!(kit.post(&gone, &call(1, "echo", json!({"message": "hi"}))).await.status, 200);
        end(&kit, &gone).await;
        let mut stream = kit.open(&post(&able, &call(2, "elicit", json!({"message": "Who?"})))).await;
        let asked = next_message(&mut stream).await;
        assert_eq!(asked["params"]["message"], "Who?", "{asked}");
        let answer = json!({"action": "accept", "content": {"name": "Ann"}});
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": answer});
        assert_eq!(kit.post(&able, &answer).await.status, 202);
        read_until(&mut stream, "Ann").await;
        assert_eq!(kit.gateway.status().isolated, 0);
        kit.stop().await;
    });
}

#[test]
fn a_client_that_is_idle_for_seconds_does_not_make_a_connection_ambiguous() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let (idle, able) = (kit.session().await, kit.session_with(all_capabilities()).await);
        assert_eq!(kit.post(&idle, &call(1, "echo", json!({"message": "hi"}))).await.status, 200);
        tokio::time::sleep(Duration::from_secs(6)).await;
        let mut stream = kit.open(&post(&able, &call(2, "elicit", json!({"message": "Who?"})))).await;
        let asked = next_message(&mut stream).await;
        assert_eq!(asked["params"]["message"], "Who?", "{asked}");
        drop(stream);
        kit.cancel(&able, 2).await;
        kit.stop().await;
    });
}

#[test]
fn a_server_that_asks_is_known_after_a_restart() {
    scene(|scene| async move {
        let journal = scene.directory().join("state/sessions.jsonl");
        let start = async || {
            let scripted = ScriptedServer::new(Script::legacy());
            let config = Config::default().with_server(entry("scripted", &scripted));
            GatewayKit::launch(scripted, Gateway::builder(config).journal(&journal)).await
        };
        let kit = start().await;
        let (first, second) = (kit.session().await, kit.session_with(all_capabilities()).await);
        let other = kit.open(&post(&first, &sleep(1, 1500))).await;
        kit.scripted.wait_for("tools/call", 1).await;
        let reply = kit.post(&second, &call(2, "elicit", json!({}))).await;
        assert!(reply.body.contains("-32601"), "{reply:?}");
        assert!(read_rest(other).await.contains("slept"));
        let file = journal.with_extension("servers.json");
        until("the file", || std::fs::read_to_string(&file).is_ok_and(|text| text.contains("scripted"))).await;
        kit.stop().await;
        let kit = start().await;
        let able = kit.session_with(all_capabilities()).await;
        assert!(kit.post(&able, &call(1, "echo", json!({"message": "hi"}))).await.body.contains("hi"));
        assert_eq!(kit.gateway.status().isolated, 1, "before its first request");
        kit.stop().await;
    });
}

#[test]
fn a_log_message_of_a_modern_server_reaches_the_only_call_that_asked_for_it() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::modern()).await;
        let (other, logging) = (kit.session().await, kit.session().await);
        let level = request(1, "logging/setLevel", json!({"level": "debug"}));
        assert_eq!(kit.post(&logging, &level).await.status, 200);
        let busy = kit.open(&post(&other, &sleep(2, 2500))).await;
        kit.scripted.wait_for("tools/call", 1).await;
        let mut stream = kit.open(&post(&logging, &sleep(3, 600_000))).await;
        kit.scripted.wait_for("tools/call", 2).await;
        let message = |data: &str| notification("notifications/message", json!({"level": "error", "data": data}));
        kit.scripted.push(message("for the second"));
        let read = read_until(&mut stream, "for the second").await;
        assert!(read.contains("notifications/message"), "{read}");
        let read = read_rest(busy).await;
        assert!(read.contains("slept") && !read.contains("for the second"), "{read}");
        // A third client asks for messages, too.
        let third = kit.session().await;
        assert_eq!(kit.post(&third, &level).await.status, 200);
        let busy = kit.open(&post(&third, &sleep(4, 1500))).await;
        kit.scripted.wait_for("tools/call", 3).await;
        kit.scripted.push(message("private"));
        let read = read_rest(busy).await;
        assert!(read.contains("slept") && !read.contains("private"), "{read}");
        drop(stream);
        kit.cancel(&logging, 3).await;
        kit.stop().await;
    });
}

#[test]
fn the_completion_of_a_url_elicitation_reaches_the_client_that_got_it() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let mut pipe = Pipe::open(&kit);
        let info = json!({"name": "kit", "version": "0"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": all_capabilities(), "clientInfo": info});
        pipe.send(&request(0, "initialize", params)).await;
        assert_eq!(pipe.receive().await["id"], 0);
        // Without a progress token.
        pipe.send(&request(1, "tools/call", json!({"name": "sleep", "arguments": {"ms": 1000}}))).await;
        kit.scripted.wait_for("tools/call", 1).await;
        let params = json!({"mode": "url", "message": "Pay", "url": "https://example.com", "elicitationId": "e-1"});
        kit.scripted.push(json!({"jsonrpc": "2.0", "id": "s-1", "method": "elicitation/create", "params": params}));
        let asked = pipe.receive().await;
        assert_eq!(asked["params"]["elicitationId"], "e-1", "{asked}");
        pipe.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}})).await;
        assert_eq!(pipe.receive().await["id"], 1, "the call has ended");
        // Another client uses the connection.
        let session = kit.session().await;
        let other = kit.open(&post(&session, &sleep(2, 1000))).await;
        kit.scripted.wait_for("tools/call", 2).await;
        kit.scripted.push(notification("notifications/elicitation/complete", json!({"elicitationId": "e-1"})));
        let completed = pipe.receive().await;
        assert_eq!(completed["method"], "notifications/elicitation/complete", "{completed}");
        assert_eq!(completed["params"]["elicitationId"], "e-1");
        assert!(!read_rest(other).await.contains("e-1"));
        drop(pipe);
        kit.stop().await;
    });
}

#[test]
fn all_aliases_of_a_shared_process_get_its_notifications() {
    scene(|scene| async move {
        let server = crate::fast_config::child(&scene, &Script::legacy());
        let named = |alias: &str| {
            let mut config = crate::fast_config::fast_config(server.clone());
            config.alias = alias.into();
            ropeway::config::ServerEntry::new(config)
        };
        // The kit needs a server within this process.
        let scripted = ScriptedServer::new(Script::default());
        let config =
            Config::default().with_server(named("aa")).with_server(named("bb")).with_server(entry("other", &scripted));
        let kit = GatewayKit::launch(scripted, Gateway::builder(config)).await;
        let processes = || scene.processes().iter().filter(|(_, command)| command.contains("scripted-server")).count();
        assert_eq!(processes(), 1, "the aliases share a process");
        let mut streams = Vec::new();
        for alias in ["aa", "bb"] {
            let path = format!("/mcp/{alias}");
            let info = json!({"name": "kit", "version": "0"});
            let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
            let reply = kit.send(&with(&post("", &request(0, "initialize", params)), "", &path)).await;
            let session = format!("Mcp-Session-Id: {}\r\n", reply.headers["mcp-session-id"]);
            let mut stream = kit.open(&bare("GET", &path, &format!("Host: localhost\r\n{session}"))).await;
            read_until(&mut stream, "text/event-stream").await;
            let subscribe = request(1, "resources/subscribe", json!({"uri": "test://hello"}));
            let subscribed = kit.send(&with(&post(&session, &subscribe), "", &path)).await;
            assert!(subscribed.body.contains("result"), "{subscribed:?}");
            streams.push((stream, session, path));
        }
        let (_, session, path) = &streams[0];
        let touch = call(2, "touch", json!({"uri": "test://hello"}));
        let touched = kit.send(&with(&post(session, &touch), "", path)).await;
        assert!(touched.body.contains("result"), "{touched:?}");
        for (mut stream, ..) in streams {
            read_until(&mut stream, "notifications/resources/updated").await;
        }
        kit.stop().await;
    });
}

#[test]
fn one_principal_cannot_take_all_parked_calls_and_isolated_connections() {
    scene(|_| async move {
        let mut limits = GatewayLimits::default();
        (limits.isolated, limits.parked) = (8, 8);
        let kit = KeyedKit::start_with(Script::legacy(), GatewaySettings::default().with_limits(limits)).await;
        let (alice, bob) = (kit.key("alice", |_| {}), kit.key("bob", |_| {}));
        let elicit = |name: &str| {
            let info = json!({"name": name, "version": "0"});
            let meta = json!({"io.modelcontextprotocol/clientInfo": info,
                "io.modelcontextprotocol/clientCapabilities": all_capabilities()});
            let params = json!({"name": "one_elicit", "arguments": {}, "_meta": meta});
            super::kit::modern("tools/call", params)
        };
        let results = async |key: &str| {
            let mut parked = 0;
            for number in 0..6 {
                let reply = kit.send(&with(&elicit(&format!("client {number}")), key, "/mcp")).await;
                parked += usize::from(reply.body.contains("input_required"));
            }
            parked
        };
        // A quarter of 8, and no more.
        assert!(results(&alice).await >= 2);
        let status = kit.gateway.status();
        assert!(status.parked <= 2 && status.isolated <= 2, "{status:?}");
        assert!(results(&bob).await >= 2, "another principal is not affected");
        let status = kit.gateway.status();
        assert!((2..=4).contains(&status.parked) && status.isolated <= 4, "{status:?}");
        let echo = with(&modern_call("two_echo", json!({"message": "hi"})), &bob, "/mcp");
        assert_eq!(kit.send(&echo).await.status, 200);
        kit.gateway.drain(Duration::ZERO).await;
    });
}
