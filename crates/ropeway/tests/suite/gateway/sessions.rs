//! Sessions and subscriptions, also across restarts of the gateway.

use std::path::Path;

use ropeway::config::{Config, GatewaySettings};
use ropeway::gateway::{Gateway, GatewayError};
use ropeway::testing::{Script, ScriptedServer};
use serde_json::{Value, json};

use super::kit::{GatewayKit, bare, entry, modern, next_message, read_until, request};
use crate::fast_config::{ms, until};
use crate::scene::scene;

const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// Starts a gateway whose sessions survive a restart.
async fn durable(directory: &Path, script: Script, settings: GatewaySettings) -> GatewayKit {
    let scripted = ScriptedServer::new(script);
    let config = Config::default().with_server(entry("scripted", &scripted));
    let builder = Gateway::builder(config).settings(settings).session_key_file(directory.join("keys"));
    GatewayKit::launch(scripted, builder.journal(directory.join("sessions.jsonl"))).await
}

async fn ping(kit: &GatewayKit, session: &str) -> (u16, Value) {
    let reply = kit.post(session, &request(1, "ping", json!({}))).await;
    (reply.status, reply.json()["error"]["code"].clone())
}

#[test]
fn a_session_survives_a_restart() {
    scene(|_| async move {
        let directory = tempfile::tempdir().expect("a directory");
        for (script, is_legacy) in [(Script::legacy(), true), (Script::modern(), false)] {
            let kit = durable(directory.path(), script.clone(), GatewaySettings::default()).await;
            let session = kit.session().await;
            let level = request(2, "logging/setLevel", json!({"level": "error"}));
            assert_eq!(kit.post(&session, &level).await.status, 200);
            let subscribe = request(3, "resources/subscribe", json!({"uri": "test://counter"}));
            assert_eq!(kit.post(&session, &subscribe).await.json()["result"], json!({}));
            kit.stop().await;

            let kit = durable(directory.path(), script, GatewaySettings::default()).await;
            assert_eq!(ping(&kit, &session).await, (200, Value::Null));
            // The log level and the subscription are restored.
            until("the level", || !is_legacy || !kit.scripted.received_of("logging/setLevel").is_empty()).await;
            let log = json!({"name": "log", "arguments": {"level": "warning", "message": "careful"}});
            let reply = kit.post(&session, &request(4, "tools/call", log)).await;
            assert!(!reply.body.contains("careful"), "{reply:?}");
            let mut stream = kit.open(&bare("GET", "/mcp", &format!("Host: localhost\r\n{session}"))).await;
            until("the subscription", || kit.gateway.status().subscriptions == 1).await;
            tokio::time::sleep(ms(300)).await;
            kit.scripted.touched("test://counter");
            read_until(&mut stream, "notifications/resources/updated").await;
            drop(stream);
            kit.stop().await;
        }
    });
}

#[test]
fn the_session_keys_of_the_settings_are_used() {
    scene(|_| async move {
        let start = async || {
            let scripted = ScriptedServer::new(Script::default());
            let config = Config::default().with_server(entry("scripted", &scripted));
            let mut settings = GatewaySettings::default();
            settings.keys = vec!["00".repeat(32).into()];
            GatewayKit::launch(scripted, Gateway::builder(config).settings(settings)).await
        };
        let kit = start().await;
        let session = kit.session().await;
        kit.stop().await;
        let kit = start().await;
        assert_eq!(ping(&kit, &session).await, (200, Value::Null));
        kit.stop().await;
        let mut settings = GatewaySettings::default();
        settings.missing_keys = vec!["SESSION_KEY".to_owned()];
        let error = Gateway::builder(Config::default()).settings(settings).build().err().expect("an error");
        assert!(matches!(error, GatewayError::Keys(_)), "{error}");
    });
}

#[test]
fn a_restored_session_gets_the_changes_that_it_missed() {
    scene(|_| async move {
        let directory = tempfile::tempdir().expect("a directory");
        let kit = durable(directory.path(), Script::default(), GatewaySettings::default()).await;
        let session = kit.session().await;
        let subscribe = request(2, "resources/subscribe", json!({"uri": "test://counter"}));
        assert_eq!(kit.post(&session, &subscribe).await.json()["result"], json!({}));
        kit.stop().await;
        let kit = durable(directory.path(), Script::default(), GatewaySettings::default()).await;
        assert_eq!(ping(&kit, &session).await, (200, Value::Null));
        let stream = || async { kit.open(&bare("GET", "/mcp", &format!("Host: localhost\r\n{session}"))).await };
        let mut first = stream().await;
        for list in ["tools", "prompts", "resources"] {
            read_until(&mut first, &format!("notifications/{list}/list_changed")).await;
        }
        read_until(&mut first, "notifications/resources/updated").await;
        // Later changes reach it as before, and those of the revival come once.
        drop(first);
        let mut second = stream().await;
        kit.scripted.changed("prompts");
        let read = read_until(&mut second, "notifications/prompts/list_changed").await;
        assert!(!read.contains("notifications/tools/list_changed"), "{read}");
        drop(second);
        kit.stop().await;
    });
}

#[test]
fn restored_sessions_with_one_description_keep_their_own_subscriptions() {
    scene(|_| async move {
        let directory = tempfile::tempdir().expect("a directory");
        let kit = durable(directory.path(), Script::default(), GatewaySettings::default()).await;
        let (first, second) = (kit.session().await, kit.session().await);
        for (session, uri) in [(&first, "test://counter"), (&second, "test://hello")] {
            let subscribe = request(2, "resources/subscribe", json!({"uri": uri}));
            assert_eq!(kit.post(session, &subscribe).await.json()["result"], json!({}));
        }
        kit.stop().await;
        let kit = durable(directory.path(), Script::default(), GatewaySettings::default()).await;
        for (session, count) in [(&first, 1), (&second, 2)] {
            assert_eq!(ping(&kit, session).await, (200, Value::Null));
            until("the subscription", || kit.gateway.status().subscriptions == count).await;
        }
        kit.stop().await;
    });
}

#[test]
fn a_restored_session_tells_no_other_session_of_changes() {
    scene(|_| async move {
        let directory = tempfile::tempdir().expect("a directory");
        let kit = durable(directory.path(), Script::default(), GatewaySettings::default()).await;
        let (first, second) = (kit.session().await, kit.session().await);
        let subscribe = request(2, "resources/subscribe", json!({"uri": "test://counter"}));
        for session in [&first, &second] {
            assert_eq!(kit.post(session, &subscribe).await.json()["result"], json!({}));
        }
        kit.stop().await;
        let kit = durable(directory.path(), Script::default(), GatewaySettings::default()).await;
        let mut streams = Vec::new();
        for session in [&first, &second] {
            assert_eq!(ping(&kit, session).await, (200, Value::Null));
            let mut stream = kit.open(&bare("GET", "/mcp", &format!("Host: localhost\r\n{session}"))).await;
            read_until(&mut stream, "notifications/resources/updated").await;
            streams.push(stream);
        }
        let again = read_until(&mut streams[0], "notifications/resources/updated");
        let quiet = tokio::time::timeout(ms(500), again).await;
        assert!(quiet.is_err(), "{quiet:?}");
        drop(streams);
        kit.stop().await;
    });
}

#[test]
fn a_deleted_session_stays_deleted_after_a_restart() {
    scene(|_| async move {
        let directory = tempfile::tempdir().expect("a directory");
        let kit = durable(directory.path(), Script::default(), GatewaySettings::default()).await;
        let (ended, kept) = (kit.session().await, kit.session().await);
        let headers = format!("Host: localhost\r\n{ended}");
        assert_eq!(kit.send(&bare("DELETE", "/mcp", &headers)).await.status, 204);
        kit.stop().await;
        let kit = durable(directory.path(), Script::default(), GatewaySettings::default()).await;
        assert_eq!(ping(&kit, &ended).await, (404, json!(-32001)));
        assert_eq!(ping(&kit, &kept).await, (200, Value::Null));
        kit.stop().await;
    });
}

#[test]
fn an_end_that_cannot_be_stored_is_not_confirmed() {
    scene(|_| async move {
        let directory = tempfile::tempdir().expect("a directory");
        let kit = durable(directory.path(), Script::default(), GatewaySettings::default()).await;
        let session = kit.session().await;
        let journal = directory.path().join("sessions.jsonl");
        std::fs::remove_file(&journal).expect("a file");
        std::fs::create_dir(&journal).expect("a folder in its place");
        let delete = bare("DELETE", "/mcp", &format!("Host: localhost\r\n{session}"));
        let reply = kit.send(&delete).await;
        assert_eq!(reply.status, 503, "{reply:?}");
        assert!(reply.body.contains("the end of the session could not be stored"), "{reply:?}");
        assert_eq!(ping(&kit, &session).await, (404, json!(-32001)), "it has ended here");
        assert_eq!(kit.send(&delete).await.status, 503, "and may come back after a restart");
        std::fs::remove_dir(&journal).expect("a folder");
        assert_eq!(kit.send(&delete).await.status, 204);
        assert_eq!(kit.send(&delete).await.status, 404);
        kit.stop().await;
        let kit = durable(directory.path(), Script::default(), GatewaySettings::default()).await;
        assert_eq!(ping(&kit, &session).await, (404, json!(-32001)));
        kit.stop().await;
    });
}

#[test]
fn foreign_changed_and_expired_sessions_are_unknown() {
    scene(|_| async move {
        let directory = tempfile::tempdir().expect("a directory");
        let foreign = GatewayKit::start(Script::default()).await;
        let foreign_session = foreign.session().await;
        foreign.stop().await;
        let mut settings = GatewaySettings::default();
        settings.session_life = ms(1000);
        let kit = durable(directory.path(), Script::default(), settings).await;
        let session = kit.session().await;
        let middle = session.len() / 2;
        let other = if session.as_bytes()[middle] == b'A' { "B" } else { "A" };
        let changed = format!("{}{other}{}", &session[..middle], &session[middle + 1..]);
        let long = format!("Mcp-Session-Id: {}\r\n", "x".repeat(5000));
        for unknown in [&foreign_session, &changed, &long] {
            assert_eq!(ping(&kit, unknown).await, (404, json!(-32001)), "{unknown}");
        }
        assert_eq!(ping(&kit, &session).await, (200, Value::Null));
        tokio::time::sleep(ms(2500)).await;
        kit.stop().await;
        let kit = durable(directory.path(), Script::default(), GatewaySettings::default()).await;
        assert_eq!(ping(&kit, &session).await, (404, json!(-32001)), "an expired session is not revived");
        kit.stop().await;
    });
}

#[test]
fn one_upstream_subscription_serves_many_clients() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let mut streams = Vec::new();
        let mut sessions = Vec::new();
        for _ in 0..2 {
            let session = kit.session().await;
            let subscribe = request(3, "resources/subscribe", json!({"uri": "test://counter"}));
            assert_eq!(kit.post(&session, &subscribe).await.json()["result"], json!({}));
            streams.push(kit.open(&bare("GET", "/mcp", &format!("Host: localhost\r\n{session}"))).await);
            sessions.push(session);
        }
        let listen = json!({"notifications": {"resourceSubscriptions": ["test://counter"]}});
        let mut listener = kit.open(&modern("subscriptions/listen", listen)).await;
        assert_eq!(next_message(&mut listener).await["method"], "notifications/subscriptions/acknowledged");
        until("the subscription", || !kit.scripted.received_of("resources/subscribe").is_empty()).await;
        tokio::time::sleep(ms(200)).await;
        assert_eq!(kit.scripted.received_of("resources/subscribe").len(), 1);
        kit.scripted.touched("test://counter");
        for stream in streams.iter_mut().chain([&mut listener]) {
            read_until(stream, "notifications/resources/updated").await;
        }
        drop((streams, listener));
        let unsubscribe = request(4, "resources/unsubscribe", json!({"uri": "test://counter"}));
        for session in &sessions {
            assert!(kit.scripted.received_of("resources/unsubscribe").is_empty());
            assert_eq!(kit.post(session, &unsubscribe).await.json()["result"], json!({}));
        }
        until("the end", || kit.scripted.received_of("resources/unsubscribe").len() == 1).await;
        kit.stop().await;
    });
}

#[test]
fn list_changes_reach_both_eras() {
    scene(|_| async move {
        for script in [Script::legacy(), Script::modern()] {
            let kit = GatewayKit::start(script).await;
            let session = kit.session().await;
            let mut stream = kit.open(&bare("GET", "/mcp", &format!("Host: localhost\r\n{session}"))).await;
            let listen = json!({"notifications": {"toolsListChanged": true}});
            let mut listener = kit.open(&modern("subscriptions/listen", listen.clone())).await;
            let first = next_message(&mut listener).await;
            assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
            assert_eq!(first["params"]["notifications"], listen["notifications"], "{first}");
            assert_eq!(first["params"]["_meta"][SUBSCRIPTION_ID], 7, "{first}");
            // A kind that the listener did not ask for does not reach it.
            kit.scripted.changed("prompts");
            read_until(&mut stream, "notifications/prompts/list_changed").await;
            let grow = json!({"name": "grow", "arguments": {"name": "grown"}});
            assert_eq!(kit.post(&session, &request(2, "tools/call", grow)).await.status, 200);
            read_until(&mut stream, "notifications/tools/list_changed").await;
            let change = next_message(&mut listener).await;
            assert_eq!(change["method"], "notifications/tools/list_changed", "{change}");
            assert_eq!(change["params"]["_meta"][SUBSCRIPTION_ID], 7, "{change}");
            drop((stream, listener));
            kit.stop().await;
        }
    });
}

#[test]
fn ten_thousand_idle_sessions_fit() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        let before = resident_bytes();
        for _ in 0..10_000 {
            let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "kit", "version": "0"}});
            assert_eq!(kit.post("", &request(0, "initialize", params)).await.status, 200);
        }
        assert_eq!(kit.gateway.status().sessions, 10_000);
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 10_000 * (64 << 10), "{} bytes per session", grown / 10_000);
        kit.stop().await;
    });
}

/// Returns the memory of this process.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").expect("the status of this process");
    let pages: usize = status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}
