//! `isolation: client`: connections of one client, and their end.

use ropeway::config::{Config, GatewaySettings, Isolation, ServerEntry, StdioServer};
use ropeway::gateway::Gateway;
use ropeway::testing::{Fault, FaultTrigger, Script, ScriptedServer};
use serde_json::{Value, json};

use super::kit::{GatewayKit, bare, call, entry, post, request};
use crate::fast_config::{child, fast_config, ms, until};
use crate::scene::{Scene, scene};

/// Starts a gateway in front of a process that each client gets for itself. Unused ones end after `idle` milliseconds.
pub(super) async fn isolated(scene: &Scene, script: &Script, idle: u64) -> GatewayKit {
    let mut settings = GatewaySettings::default();
    settings.limits.isolated_idle = ms(idle);
    let mut own = ServerEntry::new(fast_config(child(scene, script)));
    own.isolation = Isolation::Client;
    // The kit needs a server within this process; its names show that there are several.
    let scripted = ScriptedServer::new(Script::default());
    let config = Config::default().with_server(own).with_server(entry("other", &scripted));
    GatewayKit::launch(scripted, Gateway::builder(config).settings(settings)).await
}

/// Returns the number of processes of the server.
fn processes(scene: &Scene) -> usize {
    scene.processes().iter().filter(|(_, command)| command.contains("scripted-server")).count()
}

fn echo(id: u64) -> Value {
    call(id, "peer_echo", json!({"message": "hi"}))
}

async fn echoes(kit: &GatewayKit, session: &str) {
    let reply = kit.post(session, &echo(1)).await;
    assert_eq!(reply.json()["result"]["content"][0]["text"], "hi", "{reply:?}");
}

#[test]
fn unused_connections_of_a_client_end() {
    scene(|scene| async move {
        for script in [Script::legacy(), Script::modern()] {
            let kit = isolated(&scene, &script, 1500).await;
            until("the shared process", || processes(&scene) == 1).await;
            let (first, second) = (kit.session().await, kit.session().await);
            // A call that takes longer than unused connections live is not ended.
            let long = call(2, "peer_sleep", json!({"ms": 4000}));
            let (long, ()) = tokio::join!(kit.post(&first, &long), async {
                echoes(&kit, &second).await;
                assert!(kit.gateway.status().isolated >= 1);
            });
            assert!(long.body.contains("slept 4000 ms"), "{long:?}");
            until("the end of the connections", || kit.gateway.status().isolated == 0).await;
            until("the end of the processes", || processes(&scene) == 1).await;
            // The client gets another one.
            echoes(&kit, &first).await;
            assert_eq!(kit.gateway.status().isolated, 1);
            kit.stop().await;
            until("the end of all processes", || processes(&scene) == 0).await;
        }
    });
}

#[test]
fn connections_of_a_client_end_with_its_session() {
    scene(|scene| async move {
        let kit = isolated(&scene, &Script::legacy(), 600_000).await;
        let (first, second) = (kit.session().await, kit.session().await);
        echoes(&kit, &first).await;
        echoes(&kit, &first).await;
        echoes(&kit, &second).await;
        until("a process of each client", || processes(&scene) == 3).await;
        assert_eq!(kit.gateway.status().isolated, 2);
        let delete = bare("DELETE", "/mcp", &format!("Host: localhost\r\n{first}"));
        assert_eq!(kit.send(&delete).await.status, 204);
        until("the end of its process", || processes(&scene) == 2).await;
        assert_eq!(kit.gateway.status().isolated, 1);
        echoes(&kit, &second).await;
        kit.stop().await;
    });
}

#[test]
fn clients_of_isolated_servers_share_no_state() {
    scene(|scene| async move {
        // The server counts the calls of a process: the second one fails.
        use ropeway::testing::{Fault, FaultTrigger};
        let refusal = Fault::Error(json!({"code": -32000, "message": "the second call"}));
        let script = Script::legacy().fault(FaultTrigger::tool("echo").nth(2), refusal);
        let kit = isolated(&scene, &script, 600_000).await;
        let (first, second) = (kit.session().await, kit.session().await);
        echoes(&kit, &first).await;
        echoes(&kit, &second).await;
        for session in [&first, &second] {
            let reply = kit.send(&post(session, &echo(2))).await.json();
            assert_eq!(reply["error"]["message"], "the second call", "{reply}");
        }
        assert_eq!(kit.post(&first, &request(3, "ping", json!({}))).await.status, 200);
        kit.stop().await;
    });
}

#[test]
fn an_isolated_client_lists_the_resources_of_its_own_process() {
    scene(|_| async move {
        let own = FaultTrigger::method("resources/list").connection(2);
        let scripted = ScriptedServer::new(Script::legacy().fault(own, Fault::set("/result/resources/0/name", "own")));
        let mut server = entry("scripted", &scripted);
        server.isolation = Isolation::Client;
        let config = Config::default().with_server(server);
        let kit = GatewayKit::launch(scripted, Gateway::builder(config)).await;
        let session = kit.session().await;
        let name = async || {
            let reply = kit.post(&session, &request(9, "resources/list", json!({}))).await;
            reply.json()["result"]["resources"][0]["name"].clone()
        };
        assert_eq!(name().await, "hello");
        kit.post(&session, &call(1, "echo", json!({"message": "hi"}))).await;
        assert_eq!(name().await, "own");
        kit.stop().await;
    });
}

#[test]
fn a_restart_ends_the_connections_of_all_aliases_of_a_process() {
    scene(|scene| async move {
        let (shared, apart) = (child(&scene, &Script::legacy()), child(&scene, &Script::modern()));
        let named = |alias: &str, server: &StdioServer| {
            let mut config = fast_config(server.clone());
            config.alias = alias.into();
            let mut entry = ServerEntry::new(config);
            entry.isolation = Isolation::Client;
            entry
        };
        let scripted = ScriptedServer::new(Script::default());
        let config = Config::default()
            .with_server(named("one", &shared))
            .with_server(named("two", &shared))
            .with_server(named("three", &apart))
            .with_server(entry("other", &scripted));
        let kit = GatewayKit::launch(scripted, Gateway::builder(config)).await;
        let session = kit.session().await;
        for (id, tool) in [(1, "one_echo"), (2, "two_echo"), (3, "three_echo")] {
            let reply = kit.post(&session, &call(id, tool, json!({"message": "hi"}))).await;
            assert_eq!(reply.json()["result"]["content"][0]["text"], "hi", "{reply:?}");
        }
        assert_eq!(kit.gateway.status().isolated, 3);
        assert!(kit.gateway.restart_server(&"one".into(), "its files have changed").await);
        assert_eq!(kit.gateway.status().isolated, 1, "the server with another command keeps its connection");
        kit.stop().await;
    });
}
