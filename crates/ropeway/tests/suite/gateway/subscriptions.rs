//! Resource subscriptions: on the connection of the client's calls, confirmed by the server, and within limits.

use ropeway::config::{Config, GatewaySettings, Isolation};
use ropeway::gateway::Gateway;
use ropeway::testing::{Fault, FaultTrigger, Script, ScriptedServer};
use serde_json::{Value, json};
use tokio::io::BufReader;
use tokio::net::TcpStream;

use super::auth::{KeyedKit, initialize, limit, with};
use super::isolation::isolated;
use super::kit::{
    GatewayKit, Pipe, all_capabilities, bare, call, entry, modern, modern_call, next_message, post, read_until, request,
};
use crate::fast_config::{SOON, ms, until};
use crate::scene::scene;

const COUNTER: &str = "test://counter";
const UPDATED: &str = "notifications/resources/updated";

fn subscribe(id: u64) -> Value {
    request(id, "resources/subscribe", json!({"uri": COUNTER}))
}

fn unsubscribe(id: u64) -> Value {
    request(id, "resources/unsubscribe", json!({"uri": COUNTER}))
}

/// Subscribes to the counter.
async fn subscribed(kit: &GatewayKit, session: &str) {
    let reply = kit.post(session, &subscribe(3)).await;
    assert_eq!(reply.json()["result"], json!({}), "{reply:?}");
}

/// Opens the standalone stream of a session.
async fn standing(kit: &GatewayKit, session: &str) -> BufReader<TcpStream> {
    kit.open(&bare("GET", "/mcp", &format!("Host: localhost\r\n{session}"))).await
}

/// Sends a `subscriptions/listen` for resources.
async fn listen(kit: &GatewayKit, uris: &[&str]) -> BufReader<TcpStream> {
    kit.open(&modern("subscriptions/listen", json!({"notifications": {"resourceSubscriptions": uris}}))).await
}

/// Returns the URIs that the server was asked to subscribe to, in either era.
fn requested(scripted: &ScriptedServer) -> usize {
    let legacy = scripted.received_of("resources/subscribe");
    let modern = scripted.received_of("subscriptions/listen");
    legacy.iter().chain(&modern).filter(|message| message.to_string().contains(COUNTER)).count()
}

#[test]
fn a_subscription_is_on_the_isolated_connection_of_its_client() {
    scene(|scene| async move {
        for script in [Script::legacy(), Script::modern()] {
            let kit = isolated(&scene, &script, 600_000).await;
            let (first, second) = (kit.session().await, kit.session().await);
            let (mut own, mut other) = (standing(&kit, &first).await, standing(&kit, &second).await);
            for session in [&first, &second] {
                subscribed(&kit, session).await;
            }
            assert_eq!((kit.gateway.status().isolated, kit.gateway.status().subscriptions), (2, 2));
            let touch = call(4, "peer_touch", json!({"uri": COUNTER}));
            assert_eq!(kit.post(&first, &touch).await.status, 200);
            read_until(&mut own, UPDATED).await;
            // The process of the other client has not changed: the first update is its own.
            assert_eq!(kit.post(&second, &touch).await.status, 200);
            read_until(&mut other, UPDATED).await;
            assert_eq!(kit.post(&second, &request(5, "prompts/list", json!({}))).await.status, 200);
            let quiet = tokio::time::timeout(ms(300), next_message(&mut other)).await;
            assert!(quiet.is_err(), "{quiet:?}");
            drop((own, other));
            kit.stop().await;
        }
    });
}

#[test]
fn a_modern_listener_listens_on_the_isolated_connection_of_its_calls() {
    scene(|scene| async move {
        let kit = isolated(&scene, &Script::legacy(), 600_000).await;
        let mut listener = listen(&kit, &[COUNTER]).await;
        assert_eq!(
            next_message(&mut listener).await["params"]["notifications"]["resourceSubscriptions"],
            json!([COUNTER])
        );
        assert_eq!(kit.send(&modern_call("peer_touch", json!({"uri": COUNTER}))).await.status, 200);
        assert_eq!(next_message(&mut listener).await["method"], UPDATED);
        drop(listener);
        until("the end of the subscription", || kit.gateway.status().subscriptions == 0).await;
        kit.stop().await;
    });
}

#[test]
fn changed_tools_of_an_isolated_connection_reach_its_client() {
    scene(|scene| async move {
        let kit = isolated(&scene, &Script::legacy(), 600_000).await;
        let (first, second) = (kit.session().await, kit.session().await);
        let (mut own, mut other) = (standing(&kit, &first).await, standing(&kit, &second).await);
        let grow = call(1, "peer_grow", json!({"name": "grown"}));
        assert_eq!(kit.post(&first, &grow).await.status, 200);
        read_until(&mut own, "notifications/tools/list_changed").await;
        let quiet = tokio::time::timeout(ms(300), next_message(&mut other)).await;
        assert!(quiet.is_err(), "{quiet:?}");
        drop((own, other));
        kit.stop().await;
    });
}

#[test]
fn an_idle_isolated_connection_with_subscriptions_stays_open() {
    scene(|scene| async move {
        let kit = isolated(&scene, &Script::legacy(), 500).await;
        let session = kit.session().await;
        let mut stream = standing(&kit, &session).await;
        subscribed(&kit, &session).await;
        tokio::time::sleep(ms(2000)).await;
        assert_eq!(kit.gateway.status().isolated, 1);
        assert_eq!(kit.post(&session, &call(4, "peer_touch", json!({"uri": COUNTER}))).await.status, 200);
        read_until(&mut stream, UPDATED).await;
        assert_eq!(kit.post(&session, &unsubscribe(5)).await.json()["result"], json!({}));
        until("the end of the connection", || kit.gateway.status().isolated == 0).await;
        drop(stream);
        kit.stop().await;
    });
}

#[test]
fn subscriptions_move_when_their_server_becomes_isolated() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let session = kit.session_with(all_capabilities()).await;
        let mut stream = standing(&kit, &session).await;
        subscribed(&kit, &session).await;
        assert_eq!(kit.gateway.status().isolated, 0);
        let mut own = entry("scripted", &kit.scripted);
        own.isolation = Isolation::Client;
        kit.gateway.reload(Config::default().with_server(own)).await.expect("a reload");
        assert_eq!(kit.post(&session, &call(4, "touch", json!({"uri": COUNTER}))).await.status, 200);
        read_until(&mut stream, UPDATED).await;
        assert_eq!((kit.gateway.status().isolated, kit.gateway.status().subscriptions), (1, 1));
        drop(stream);
        kit.stop().await;
    });
}

#[test]
fn subscriptions_survive_a_reload_of_their_server() {
    scene(|_| async move {
        for script in [Script::legacy(), Script::modern()] {
            let kit = GatewayKit::start(script).await;
            let session = kit.session().await;
            let mut stream = standing(&kit, &session).await;
            let mut listener = listen(&kit, &[COUNTER]).await;
            next_message(&mut listener).await;
            subscribed(&kit, &session).await;
            let before = (kit.scripted.connections(), requested(&kit.scripted));
            // Settings with another function of the transport are other settings.
            let replaced = entry("scripted", &kit.scripted);
            kit.gateway.reload(Config::default().with_server(replaced)).await.expect("a reload");
            until("another connection", || kit.scripted.connections() > before.0).await;
            until("the subscription again", || requested(&kit.scripted) > before.1).await;
            // Changes may have gone unnoticed.
            for stream in [&mut stream, &mut listener] {
                read_until(stream, UPDATED).await;
            }
            subscribed(&kit, &session).await;
            kit.scripted.touched(COUNTER);
            for stream in [&mut stream, &mut listener] {
                read_until(stream, UPDATED).await;
            }
            drop((stream, listener));
            kit.stop().await;
        }
    });
}

#[test]
fn a_change_before_the_acknowledgement_of_a_listener_follows_it() {
    scene(|_| async move {
        let on = FaultTrigger { name: Some("test://hello".to_owned()), ..FaultTrigger::method("resources/subscribe") };
        let kit = GatewayKit::start(Script::legacy().fault(on, Fault::late(800))).await;
        let mut listener = listen(&kit, &[COUNTER, "test://hello"]).await;
        until("both requests", || kit.scripted.received_of("resources/subscribe").len() == 2).await;
        tokio::time::sleep(ms(100)).await;
        kit.scripted.touched(COUNTER);
        assert_eq!(next_message(&mut listener).await["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(next_message(&mut listener).await["params"]["uri"], COUNTER);
        drop(listener);
        kit.stop().await;
    });
}

#[test]
fn a_subscription_is_answered_once_its_server_has_confirmed_it() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::modern()).await;
        for round in 0..5 {
            let session = kit.session().await;
            let listens = requested(&kit.scripted);
            subscribed(&kit, &session).await;
            assert!(requested(&kit.scripted) > listens, "round {round}");
            assert_eq!(kit.post(&session, &unsubscribe(4)).await.json()["result"], json!({}));
            until("the end", || kit.gateway.status().subscriptions == 0).await;
        }
        kit.stop().await;
        let late = Fault::late(600);
        let kit = GatewayKit::start(Script::legacy().fault(FaultTrigger::method("resources/subscribe"), late)).await;
        let session = kit.session().await;
        let begun = std::time::Instant::now();
        subscribed(&kit, &session).await;
        assert!(begun.elapsed() >= ms(600), "{:?}", begun.elapsed());
        kit.stop().await;
    });
}

#[test]
fn a_refused_subscription_is_an_error_to_the_client() {
    scene(|_| async move {
        let refusal = Fault::Error(json!({"code": -32002, "message": "no such resource"}));
        let on = FaultTrigger::method("resources/subscribe").first(2);
        let kit = GatewayKit::start(Script::legacy().fault(on, refusal)).await;
        let session = kit.session().await;
        let reply = kit.post(&session, &subscribe(1)).await.json();
        assert_eq!((&reply["error"]["code"], &reply["error"]["message"]), (&json!(-32002), &json!("no such resource")));
        let mut listener = listen(&kit, &[COUNTER]).await;
        let acknowledged = next_message(&mut listener).await;
        assert_eq!(acknowledged["params"]["notifications"], json!({}), "{acknowledged}");
        drop(listener);
        assert_eq!(kit.gateway.status().subscriptions, 0);
        // The next attempt is a new request to the server.
        subscribed(&kit, &session).await;
        kit.stop().await;
    });
}

#[test]
fn a_server_that_does_not_answer_a_subscription_fails_it() {
    scene(|_| async move {
        let script = Script::legacy().fault(FaultTrigger::method("resources/subscribe"), Fault::Hang);
        let scripted = ScriptedServer::new(script);
        let mut slow = entry("scripted", &scripted);
        if let ropeway_config::ServerSettings::Known(config) = &mut slow.settings {
            config.timeouts.idle = ms(800);
        }
        let builder = Gateway::builder(Config::default().with_server(slow));
        let kit = GatewayKit::launch(scripted, builder).await;
        let session = kit.session().await;
        let reply = kit.post(&session, &subscribe(1)).await.json();
        assert_eq!(reply["error"]["code"], -32001, "{reply}");
        assert_eq!(kit.gateway.status().subscriptions, 0);
        // It may still have subscribed.
        until("the end at the server", || !kit.scripted.received_of("resources/unsubscribe").is_empty()).await;
        kit.stop().await;
    });
}

#[test]
fn an_unsubscription_ends_a_pending_subscription() {
    scene(|_| async move {
        let late = Fault::late(1000);
        let kit = GatewayKit::start(Script::legacy().fault(FaultTrigger::method("resources/subscribe"), late)).await;
        let session = kit.session().await;
        let pending = subscribe(1);
        let (_, ()) = tokio::join!(kit.post(&session, &pending), async {
            kit.scripted.wait_for("resources/subscribe", 1).await;
            assert_eq!(kit.post(&session, &unsubscribe(2)).await.json()["result"], json!({}));
            assert_eq!(kit.gateway.status().subscriptions, 0);
        });
        until("the end at the server", || kit.scripted.received_of("resources/unsubscribe").len() == 1).await;
        assert_eq!(kit.scripted.received_of("resources/subscribe").len(), 1);
        kit.stop().await;
    });
}

#[test]
fn a_cancelled_subscription_leaves_nothing_behind() {
    scene(|_| async move {
        let script = Script::legacy().fault(FaultTrigger::method("resources/subscribe"), Fault::Hang);
        let kit = GatewayKit::start(script).await;
        let listener = listen(&kit, &[COUNTER]).await;
        kit.scripted.wait_for("resources/subscribe", 1).await;
        drop(listener);
        until("the end", || kit.gateway.status().subscriptions == 0).await;
        kit.stop().await;
    });
}

#[test]
fn a_listening_client_can_call_with_a_limit_of_one_call() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let key = kit.key("alice", |new| new.limits = limit(|limits| limits.calls = Some(1)));
        let request = modern("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
        let mut listener = kit.open(&with(&request, &key, "/mcp")).await;
        read_until(&mut listener, "acknowledged").await;
        let echo = kit.send(&with(&modern_call("one_echo", json!({"message": "hi"})), &key, "/mcp")).await;
        assert_eq!(echo.status, 200, "{echo:?}");
        drop(listener);
        kit.stop().await;
    });
}

#[test]
fn listeners_of_a_principal_are_bounded_like_streams() {
    scene(|_| async move {
        let mut settings = GatewaySettings::default();
        settings.limits.streams_per_client = 2;
        let kit = KeyedKit::start(settings).await;
        let key = kit.key("alice", |new| new.limits = limit(|limits| limits.sessions = Some(1)));
        let request =
            with(&modern("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}})), &key, "/mcp");
        let mut listeners = Vec::new();
        for _ in 0..2 {
            let mut listener = kit.open(&request).await;
            read_until(&mut listener, "acknowledged").await;
            listeners.push(listener);
        }
        let refused = kit.send(&request).await;
        assert_eq!((refused.status, refused.headers.contains_key("retry-after")), (429, true), "{refused:?}");
        assert_eq!(kit.gateway.status().listeners, 2);
        drop(listeners);
        until("the end", || kit.gateway.status().listeners == 0).await;
        drop(kit.open(&request).await);
        kit.stop().await;
    });
}

#[test]
fn subscriptions_with_too_many_bytes_are_refused() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let mut kept = listen(&kit, &[COUNTER]).await;
        next_message(&mut kept).await;
        for (count, size) in [(1000, 8000), (100, 4000)] {
            let uris: Vec<String> = (0..count).map(|number| format!("test://{number}/{}", "x".repeat(size))).collect();
            let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
            let params = json!({"notifications": {"resourceSubscriptions": uris}});
            let refused = kit.send(&modern("subscriptions/listen", params)).await;
            assert_eq!(
                (refused.status, refused.headers.contains_key("retry-after")),
                (429, true),
                "{}",
                refused.status
            );
            assert!(refused.body.contains("too many bytes of subscriptions (limit: 262144 per client)"));
        }
        let session = kit.session().await;
        let mut outcomes = Vec::new();
        for number in 0..40 {
            let uri = format!("test://{number}/{}", "x".repeat(8000));
            let reply = kit.post(&session, &request(number, "resources/subscribe", json!({"uri": uri}))).await;
            outcomes.push((reply.status, reply.headers.contains_key("retry-after")));
        }
        assert_eq!(outcomes.iter().filter(|outcome| **outcome == (200, false)).count(), 32, "{outcomes:?}");
        assert_eq!(outcomes.iter().filter(|outcome| **outcome == (429, true)).count(), 8, "{outcomes:?}");
        kit.scripted.touched(COUNTER);
        assert_eq!(next_message(&mut kept).await["method"], UPDATED);
        drop(kept);
        kit.stop().await;
    });
}

#[test]
fn subscriptions_of_a_revoked_key_end() {
    scene(|_| async move {
        let mut settings = GatewaySettings::default();
        settings.limits.isolated_idle = ms(200);
        let kit = KeyedKit::start(settings).await;
        let (alice, bob) = (kit.key("alice", |_| {}), kit.key("bob", |_| {}));
        for key in [&alice, &bob] {
            let session = initialize(&kit, key).await.headers["mcp-session-id"].clone();
            subscribed(&kit, &format!("{key}Mcp-Session-Id: {session}\r\n")).await;
        }
        for name in ["alice", "bob"] {
            // The other client of the resource keeps it.
            tokio::time::sleep(ms(500)).await;
            assert_eq!(kit.gateway.status().subscriptions, 1, "{name}");
            kit.file.revoke(name).expect("a key");
            // Keys are read again at a request.
            kit.send(&with(&modern("tools/list", json!({})), &alice, "/mcp")).await;
        }
        until("the end of both", || kit.gateway.status().subscriptions == 0).await;
        kit.stop().await;
    });
}

#[test]
fn clients_on_pipes_and_of_legacy_sse_are_notified() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let info = json!({"name": "kit", "version": "0"});
        let params = json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": info});
        let mut pipe = Pipe::open(&kit);
        pipe.send(&request(0, "initialize", params.clone())).await;
        pipe.receive().await;
        pipe.send(&subscribe(1)).await;
        assert_eq!(pipe.receive().await["result"], json!({}));
        let mut events = kit.open(&bare("GET", "/sse", "Host: localhost\r\n")).await;
        let endpoint = read_until(&mut events, "data: /messages").await;
        let path = endpoint.lines().find_map(|line| line.strip_prefix("data: ")).expect("an endpoint").to_owned();
        for message in [request(0, "initialize", params), subscribe(1)] {
            assert_eq!(kit.send(&post("", &message).replacen("/mcp", &path, 1)).await.status, 202);
            read_until(&mut events, &format!("\"id\":{}", message["id"])).await;
        }
        kit.scripted.touched(COUNTER);
        assert_eq!(pipe.receive().await["method"], UPDATED);
        read_until(&mut events, UPDATED).await;
        drop(events);
        drop(pipe);
        until("the end", || kit.gateway.status().subscriptions == 0).await;
        until("the end at the server", || kit.scripted.received_of("resources/unsubscribe").len() == 1).await;
        kit.stop().await;
    });
}

#[test]
fn a_thousand_subscriptions_of_one_session_take_linear_time() {
    scene(|_| async move {
        let directory = tempfile::tempdir().expect("a directory");
        let scripted = ScriptedServer::new(Script::legacy());
        let config = Config::default().with_server(entry("scripted", &scripted));
        let builder = Gateway::builder(config).journal(directory.path().join("sessions.jsonl"));
        let kit = GatewayKit::launch(scripted, builder).await;
        let session = kit.session().await;
        let mut times = Vec::new();
        for part in 0..4 {
            let begun = std::time::Instant::now();
            for number in 0..250 {
                let uri = format!("test://{part}/{number}/{}", "x".repeat(200));
                let reply = kit.post(&session, &request(1, "resources/subscribe", json!({"uri": uri}))).await;
                assert_eq!(reply.status, 200, "{reply:?}");
            }
            times.push(begun.elapsed());
        }
        // The first part includes what is done once.
        assert!(times[3] < 4 * times[1] + SOON / 10, "{times:?}");
        assert_eq!(kit.gateway.status().subscriptions, 1000);
        kit.stop().await;
    });
}
