//! Roots: a server gets those of its only client, also if it asked before the client came, or those of each client.

use ropeway::config::{Config, GatewaySettings, Isolation};
use ropeway::gateway::Gateway;
use ropeway::testing::{Fault, FaultTrigger, Script, ScriptedServer};
use serde_json::{Value, json};
use tokio::io::BufReader;
use tokio::net::TcpStream;

use super::auth::KeyedKit;
use super::kit::{
    GatewayKit, Pipe, all_capabilities, bare, call, call_with, entry, input_required, next_message, post, read_rest,
    request,
};
use crate::fast_config::until;
use crate::scene::scene;

/// A server that requests roots once it is initialized and whenever they change, and keeps them.
fn caching_roots() -> Script {
    let ask = |id: &str| Fault::Before(vec![json!({"jsonrpc": "2.0", "id": id, "method": "roots/list"})]);
    Script::legacy()
        .fault(FaultTrigger::method("notifications/initialized"), ask("first"))
        .fault(FaultTrigger::method("notifications/roots/list_changed"), ask("again"))
}

fn roots(uri: &str) -> Value {
    json!({"roots": [{"uri": uri}]})
}

fn no_roots() -> Value {
    json!({"roots": []})
}

/// Returns the roots that the server got, in their order.
fn received(kit: &GatewayKit) -> Vec<Value> {
    let is_answer = |message: &Value| message.get("method").is_none();
    kit.scripted.received().into_iter().filter(is_answer).map(|message| message["result"].clone()).collect()
}

/// Returns whether the server got the first call before its roots.
fn overtook(kit: &GatewayKit, roots: &Value) -> bool {
    let messages = kit.scripted.received();
    let of_roots = messages.iter().position(|message| message["result"] == *roots).expect("the roots");
    let of_call = messages.iter().position(|message| message["method"] == "tools/call").expect("a call");
    of_call < of_roots
}

fn echo(id: u64) -> Value {
    call(id, "echo", json!({"message": "hi"}))
}

/// Starts a gateway whose clients have their own connections to a server.
async fn isolated(script: Script) -> GatewayKit {
    let scripted = ScriptedServer::new(script);
    let mut own = entry("scripted", &scripted);
    own.isolation = Isolation::Client;
    let builder = Gateway::builder(Config::default().with_server(own)).settings(GatewaySettings::default());
    GatewayKit::launch(scripted, builder).await
}

/// Answers a request for roots that arrives on the stream of a legacy client's call.
async fn answer_on(kit: &GatewayKit, session: &str, stream: &mut BufReader<TcpStream>, uri: &str) {
    let asked = next_message(stream).await;
    assert_eq!(asked["method"], "roots/list", "{asked}");
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": roots(uri)});
    assert_eq!(kit.post(session, &answer).await.status, 202);
}

/// Connects a client with roots on a pipe.
async fn pipe_with_roots(kit: &GatewayKit) -> Pipe {
    let mut pipe = Pipe::open(kit);
    let info = json!({"name": "kit", "version": "0"});
    let params =
        json!({"protocolVersion": "2025-11-25", "capabilities": {"roots": {"listChanged": true}}, "clientInfo": info});
    pipe.send(&request(0, "initialize", params)).await;
    assert_eq!(pipe.receive().await["id"], 0);
    pipe.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    pipe
}

async fn answer_pipe(pipe: &mut Pipe, uri: &str) {
    let asked = pipe.receive().await;
    assert_eq!(asked["method"], "roots/list", "{asked}");
    pipe.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": roots(uri)})).await;
}

#[test]
fn the_roots_of_a_lone_client_reach_a_server_that_asked_before_it_came() {
    scene(|_| async move {
        let kit = GatewayKit::start(caching_roots()).await;
        until("an empty list", || received(&kit) == [no_roots()]).await;
        let capabilities = kit.scripted.received_of("initialize")[0]["params"]["capabilities"].clone();
        assert_eq!(capabilities["roots"], json!({"listChanged": true}));
        let mut pipe = pipe_with_roots(&kit).await;
        // The call does not overtake the roots, although the client sends it at once.
        pipe.send(&echo(1)).await;
        answer_pipe(&mut pipe, "file:///a").await;
        assert_eq!(pipe.receive().await["id"], 1);
        assert_eq!(received(&kit), [no_roots(), roots("file:///a")]);
        assert!(!overtook(&kit, &roots("file:///a")));
        pipe.send(&json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})).await;
        answer_pipe(&mut pipe, "file:///b").await;
        until("the new roots", || received(&kit).last() == Some(&roots("file:///b"))).await;
        // The server does not keep the roots of a client that is gone.
        drop(pipe);
        until("no roots", || received(&kit).last() == Some(&no_roots())).await;
        assert_eq!(kit.gateway.status().isolated, 0);
        kit.stop().await;
    });
}

#[test]
fn the_first_call_of_a_session_without_a_stream_carries_the_roots_request() {
    scene(|_| async move {
        let kit = GatewayKit::start(caching_roots()).await;
        until("an empty list", || received(&kit) == [no_roots()]).await;
        let session = kit.session_with(all_capabilities()).await;
        kit.scripted.wait_for("notifications/roots/list_changed", 1).await;
        let mut stream = kit.open(&post(&session, &echo(1))).await;
        answer_on(&kit, &session, &mut stream, "file:///a").await;
        assert!(read_rest(stream).await.contains("hi"));
        assert_eq!(received(&kit), [no_roots(), roots("file:///a")]);
        assert!(!overtook(&kit, &roots("file:///a")));
        let delete = bare("DELETE", "/mcp", &format!("Host: localhost\r\n{session}"));
        assert_eq!(kit.send(&delete).await.status, 204);
        until("no roots", || received(&kit).last() == Some(&no_roots())).await;
        kit.stop().await;
    });
}

#[test]
fn each_of_several_clients_gives_its_own_roots_to_its_own_connection() {
    scene(|_| async move {
        let kit = GatewayKit::start(caching_roots()).await;
        until("an empty list", || received(&kit) == [no_roots()]).await;
        let first = kit.session_with(all_capabilities()).await;
        let mut stream = kit.open(&post(&first, &echo(1))).await;
        answer_on(&kit, &first, &mut stream, "file:///a").await;
        assert!(read_rest(stream).await.contains("hi"));
        let second = kit.session_with(all_capabilities()).await;
        let mut stream = kit.open(&post(&second, &echo(2))).await;
        answer_on(&kit, &second, &mut stream, "file:///b").await;
        assert!(read_rest(stream).await.contains("hi"));
        assert_eq!(received(&kit), [no_roots(), roots("file:///a"), roots("file:///b")]);
        assert_eq!(kit.gateway.status().isolated, 1, "the first client keeps its connection");
        // A client without roots shares the connection, and a modern client has its own.
        let plain = kit.session().await;
        assert_eq!(kit.post(&plain, &echo(3)).await.status, 200);
        assert_eq!(kit.gateway.status().isolated, 1);
        let ask = async |more: Value| {
            kit.send(&call_with(json!({"roots": {}}), "echo", &json!({"message": "hi"}), more)).await
        };
        let state = input_required(&ask(json!({})).await)["requestState"].clone();
        let reply = ask(json!({"requestState": state, "inputResponses": {"q1": roots("file:///c")}})).await;
        assert_eq!(reply.json()["result"]["resultType"], "complete", "{reply:?}");
        assert_eq!(received(&kit).last(), Some(&roots("file:///c")));
        assert_eq!(kit.gateway.status().isolated, 2);
        // When the first client leaves, no other client's roots take the place of its roots on the shared connection.
        let delete = bare("DELETE", "/mcp", &format!("Host: localhost\r\n{first}"));
        assert_eq!(kit.send(&delete).await.status, 204);
        until("no roots", || received(&kit).last() == Some(&no_roots())).await;
        assert_eq!(kit.post(&second, &echo(4)).await.status, 200);
        assert_eq!(kit.gateway.status().isolated, 2, "the second client keeps its connection");
        kit.stop().await;
    });
}

#[test]
fn the_first_call_on_an_isolated_connection_does_not_overtake_the_roots() {
    scene(|_| async move {
        let kit = isolated(caching_roots()).await;
        until("an empty list", || received(&kit) == [no_roots()]).await;
        let session = kit.session_with(all_capabilities()).await;
        let mut stream = kit.open(&post(&session, &echo(1))).await;
        answer_on(&kit, &session, &mut stream, "file:///a").await;
        assert!(read_rest(stream).await.contains("hi"));
        assert!(!overtook(&kit, &roots("file:///a")));
        let ask = async |more: Value| {
            kit.send(&call_with(json!({"roots": {}}), "echo", &json!({"message": "hi"}), more)).await
        };
        let asked = input_required(&ask(json!({})).await);
        assert_eq!(asked["inputRequests"]["q1"]["method"], "roots/list", "{asked}");
        let answers = json!({"requestState": asked["requestState"], "inputResponses": {"q1": roots("file:///b")}});
        assert_eq!(ask(answers).await.json()["result"]["resultType"], "complete");
        let calls = kit.scripted.received_of("tools/call");
        assert_eq!(calls.len(), 2);
        let messages = kit.scripted.received();
        let of_roots = messages.iter().position(|message| message["result"] == roots("file:///b")).expect("the roots");
        assert!(messages[of_roots..].contains(&calls[1]), "the call comes after the roots");
        kit.stop().await;
    });
}

#[test]
fn a_server_that_does_not_request_roots_is_not_delayed() {
    scene(|_| async move {
        let kit = isolated(Script::legacy()).await;
        let session = kit.session_with(all_capabilities()).await;
        let before = std::time::Instant::now();
        for id in 1..=10 {
            assert!(kit.post(&session, &echo(id)).await.body.contains("hi"));
        }
        assert!(before.elapsed() < std::time::Duration::from_secs(5), "{:?}", before.elapsed());
        kit.stop().await;
    });
}

#[test]
fn a_modern_client_that_declares_roots_later_is_asked_at_once() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let before = call_with(json!({"sampling": {}}), "echo", &json!({"message": "hi"}), json!({}));
        assert_eq!(kit.send(&before).await.status, 200);
        let ask = async |more: Value| kit.send(&call_with(json!({"roots": {}}), "roots", &json!({}), more)).await;
        let state = input_required(&ask(json!({})).await)["requestState"].clone();
        let reply = ask(json!({"requestState": state, "inputResponses": {"q1": roots("file:///c")}})).await;
        assert!(reply.body.contains("file:///c"), "{reply:?}");
        assert_eq!(kit.gateway.status().isolated, 0);
        kit.stop().await;
    });
}

#[test]
fn roots_of_one_principal_do_not_reach_the_connection_of_others() {
    scene(|_| async move {
        let kit = KeyedKit::start_with(caching_roots(), GatewaySettings::default()).await;
        until("an empty list", || received(&kit) == [no_roots()]).await;
        let alice = kit.key("alice", |_| {});
        let session = kit.session_as(&alice, json!({"roots": {}})).await;
        let mut stream = kit.open(&post(&session, &call(1, "one_echo", json!({"message": "hi"})))).await;
        answer_on(&kit, &session, &mut stream, "file:///a").await;
        assert!(read_rest(stream).await.contains("hi"));
        assert_eq!(kit.gateway.status().isolated, 1);
        assert_eq!(kit.scripted.received_of("notifications/roots/list_changed"), Vec::<Value>::new());
        kit.stop().await;
    });
}
