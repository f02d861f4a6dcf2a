//! A gateway behind a gateway.

use ropeway::config::{Config, EraChoice, GatewaySettings, HttpServer, Isolation, ServerEntry};
use ropeway::gateway::Gateway;
use ropeway::testing::{Script, ScriptedServer};
use serde_json::{Value, json};

use super::kit::{GatewayKit, HttpReply, all_capabilities, call_with, entry, input_required};
use crate::fast_config::fast_config;
use crate::scene::scene;

/// Gateways of one user have the same key file.
fn same_keys() -> GatewaySettings {
    let mut settings = GatewaySettings::default();
    settings.keys = vec!["07".repeat(32).into()];
    settings
}

/// Starts a gateway in front of a scripted server, whose clients have connections of their own.
async fn inner() -> GatewayKit {
    let scripted = ScriptedServer::new(Script::legacy());
    let mut server = entry("scripted", &scripted);
    server.isolation = Isolation::Client;
    let config = Config::default().with_server(server);
    GatewayKit::launch(scripted, Gateway::builder(config).settings(same_keys())).await
}

/// Starts a gateway in front of another one.
async fn outer(inner: &GatewayKit) -> GatewayKit {
    let mut server = fast_config(HttpServer::new(format!("http://{}/mcp", inner.address)));
    server.alias = "scripted".into();
    server.era = EraChoice::Modern;
    let config = Config::default().with_server(ServerEntry::new(server));
    let unused = ScriptedServer::new(Script::default());
    GatewayKit::launch(unused, Gateway::builder(config).settings(same_keys())).await
}

async fn ask(kit: &GatewayKit, tool: &str, more: Value) -> HttpReply {
    kit.send(&call_with(all_capabilities(), tool, &json!({}), more)).await
}

fn answer(asked: &Value, answer: &Value) -> Value {
    let key = asked["inputRequests"].as_object().and_then(|requests| requests.keys().next()).expect("a server request");
    json!({"inputResponses": {key: answer}, "requestState": asked["requestState"]})
}

#[test]
fn a_request_state_of_an_inner_gateway_with_the_same_keys_is_passed_on() {
    scene(|_| async move {
        let inner = inner().await;
        let outer = outer(&inner).await;
        let reply = json!({"role": "assistant", "content": {"type": "text", "text": "Hello."}, "model": "m"});
        for (tool, given) in [
            ("elicit", json!({"action": "accept", "content": {"name": "Ann"}})),
            ("sample", reply),
            ("roots", json!({"roots": [{"uri": "file:///tmp", "name": "tmp"}]})),
        ] {
            let asked = input_required(&ask(&outer, tool, json!({})).await);
            let retried = answer(&asked, &given);
            let reply = ask(&outer, tool, retried.clone()).await;
            let text = reply.json()["result"]["content"][0]["text"].as_str().map(str::to_owned);
            let text = text.unwrap_or_else(|| panic!("{tool}: {reply:?}"));
            assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), given);
            // The inner gateway accepts its state once.
            let again = ask(&outer, tool, retried).await.json();
            assert!(again["error"]["message"].as_str().is_some_and(|text| text.contains("requestState")), "{again}");
        }
        outer.stop().await;
        inner.stop().await;
    });
}

#[test]
fn a_request_state_of_a_replica_is_not_passed_on() {
    scene(|_| async move {
        let replica = async || {
            let scripted = ScriptedServer::new(Script::legacy());
            let config = Config::default().with_server(entry("scripted", &scripted));
            GatewayKit::launch(scripted, Gateway::builder(config).settings(same_keys())).await
        };
        let (first, second) = (replica().await, replica().await);
        let asked = input_required(&ask(&first, "elicit", json!({})).await);
        let retried = answer(&asked, &json!({"action": "decline"}));
        let refused = ask(&second, "elicit", retried.clone()).await.json();
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert_eq!(second.scripted.received_of("tools/call").len(), 0);
        assert_eq!(ask(&first, "elicit", retried).await.json()["result"]["resultType"], "complete");
        first.stop().await;
        second.stop().await;
    });
}
