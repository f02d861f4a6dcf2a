//! Restarts of servers by operators.

use ropeway::config::{AuditSettings, Config, GatewaySettings, ServerConfig, ServerEntry, StdioServer};
use ropeway::gateway::Gateway;
use ropeway::testing::{Script, ScriptedServer};
use serde_json::{Value, json};

use super::auth::KeyedKit;
use super::kit::{GatewayKit, HttpReply, bare, entry, modern_call};
use crate::fast_config::until;
use crate::scene::scene;

const HEAD: &str = "Host: localhost\r\nContent-Type: application/json\r\n";

/// Sends a request of the page.
async fn restart(kit: &GatewayKit, headers: &str, body: &Value) -> HttpReply {
    let body = body.to_string();
    let head = bare("POST", "/api/restart", &format!("{headers}Content-Length: {}\r\n", body.len()));
    kit.send(&format!("{head}{body}")).await
}

#[test]
fn an_operator_restarts_a_server_once_per_interval() {
    scene(|_| async move {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        let settings = GatewaySettings::default().with_audit(AuditSettings::new(path.clone()));
        let kit = GatewayKit::start_with(Script::default(), settings).await;
        let before = kit.scripted.connections();
        let body = json!({"server": "scripted"});
        let (one, two) = tokio::join!(restart(&kit, HEAD, &body), restart(&kit, HEAD, &body));
        let (done, refused) = if one.status == 200 { (one, two) } else { (two, one) };
        assert_eq!((done.status, done.json()), (200, json!({"restarted": true})), "{done:?}");
        assert_eq!((refused.status, refused.headers.contains_key("retry-after")), (429, true), "{refused:?}");
        assert_eq!(kit.scripted.connections(), before + 1);
        let call = kit.send(&modern_call("echo", json!({"message": "hi"}))).await;
        assert_eq!(call.json()["result"]["content"][0]["text"], "hi", "{call:?}");
        kit.stop().await;
        let text = std::fs::read_to_string(&path).expect("a log");
        let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let mut restarts: Vec<Value> = lines.iter().filter(|line| line["action"] == "restart").cloned().collect();
        restarts.iter_mut().for_each(|line| drop(line["time"].take()));
        let expected = json!({"time": null, "principal": "", "action": "restart", "server": "scripted",
            "decision": "allow", "outcome": "ok"});
        assert_eq!(restarts, [expected]);
        assert!(lines.iter().any(|line| line["rule"] == "restart"), "the refused one is in the log: {text}");
    });
}

#[test]
fn a_call_in_flight_ends_with_an_error_when_its_server_restarts() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        let call = modern_call("sleep", json!({"ms": 600_000}));
        let (reply, ()) = tokio::join!(kit.send(&call), async {
            until("a call in progress", || kit.gateway.status().requests == 1).await;
            assert_eq!(restart(&kit, HEAD, &json!({"server": "scripted"})).await.status, 200);
        });
        assert!(reply.json()["error"]["message"].is_string() || reply.json()["result"]["isError"] == true, "{reply:?}");
        kit.stop().await;
    });
}

#[test]
fn only_operators_and_only_the_page_itself_restart_servers() {
    scene(|_| async move {
        let kit = KeyedKit::start(GatewaySettings::default()).await;
        let (alice, ops) = (kit.key("alice", |_| {}), kit.key("ops", |new| new.operator = true));
        let before = kit.scripted.connections();
        let one = json!({"server": "one"});
        for (headers, body, status) in [
            (format!("{HEAD}{alice}"), &one, 403),
            (HEAD.to_owned(), &one, 401),
            (format!("{HEAD}{ops}Origin: https://evil.example\r\n"), &one, 403),
            (format!("{HEAD}{ops}Origin: http://localhost:6274\r\n"), &one, 403),
            (format!("{HEAD}{ops}Sec-Fetch-Site: cross-site\r\n"), &one, 403),
            (format!("Host: localhost\r\nContent-Type: text/plain\r\n{ops}"), &one, 415),
            (format!("{HEAD}{ops}"), &json!({"server": "unknown"}), 404),
            (format!("{HEAD}{ops}"), &json!(["one"]), 400),
            (format!("{HEAD}{ops}"), &json!({"server": "x".repeat(10_000)}), 413),
        ] {
            let reply = restart(&kit, &headers, body).await;
            assert_eq!(reply.status, status, "{headers}: {reply:?}");
        }
        assert_eq!(kit.send(&bare("GET", "/api/restart", &format!("{HEAD}{ops}"))).await.status, 405);
        assert_eq!(kit.scripted.connections(), before);
        assert_eq!(restart(&kit, &format!("{HEAD}{ops}"), &one).await.status, 200);
        kit.stop().await;
    });
}

#[test]
fn a_server_that_cannot_be_started_reports_why() {
    scene(|_| async move {
        let scripted = ScriptedServer::new(Script::default());
        let broken = ServerEntry::new(ServerConfig::new("broken", StdioServer::command("/nonexistent/server")));
        let config = Config::default().with_server(entry("one", &scripted)).with_server(broken);
        let kit = GatewayKit::launch(scripted, Gateway::builder(config)).await;
        let reply = restart(&kit, HEAD, &json!({"server": "broken"})).await;
        assert_eq!(reply.status, 502, "{reply:?}");
        let message = reply.json()["error"]["message"].to_string();
        assert!(message.contains("could not start `/nonexistent/server`"), "{message}");
        kit.stop().await;
    });
}
