//! Requests of clients that are answered, retried or cancelled, and what they may not change.

use std::time::Duration;

use ropeway::config::GatewaySettings;
use ropeway::testing::{Fault, FaultTrigger, Script};
use serde_json::{Value, json};

use super::kit::{
    GatewayKit, MODERN, Pipe, all_capabilities, call, call_with, input_required, next_message, post, read_rest, request,
};
use crate::fast_config::{SOON, ms, until};
use crate::scene::scene;

/// Writes the modern call of a tool on a pipe.
fn pipe_call(id: u64, capabilities: Value, tool: &str, arguments: Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": capabilities});
    request(id, "tools/call", json!({"name": tool, "arguments": arguments, "_meta": meta}))
}

/// Writes the call of `elicit`.
fn elicit(id: u64) -> Value {
    pipe_call(id, all_capabilities(), "elicit", json!({}))
}

/// Adds the state and the answer to a call.
fn answered(mut call: Value, asked: &Value) -> Value {
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    call["params"]["requestState"] = asked["result"]["requestState"].clone();
    call["params"]["inputResponses"] = json!({"q1": {"action": "accept", "content": {"name": "Ann"}}});
    call
}

fn cancellation(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
}

/// Sends a call that asks for input, and returns the question.
async fn ask(pipe: &mut Pipe, id: u64) -> Value {
    pipe.send(&elicit(id)).await;
    let asked = pipe.receive().await;
    assert_eq!((&asked["id"], &asked["result"]["resultType"]), (&json!(id), &json!("input_required")), "{asked}");
    asked
}

#[test]
fn the_cancellation_of_an_answered_request_has_no_effect() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let mut pipe = Pipe::open(&kit);
        let asked = ask(&mut pipe, 3).await;
        pipe.send(&cancellation(3)).await;
        pipe.send(&answered(elicit(4), &asked)).await;
        let reply = pipe.receive().await;
        assert_eq!((&reply["id"], &reply["result"]["resultType"]), (&json!(4), &json!("complete")), "{reply}");
        assert_eq!(kit.scripted.cancelled(), Vec::<Value>::new());
        drop(pipe);
        kit.stop().await;
    });
}

#[test]
fn a_retry_may_have_the_id_of_the_answered_request() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let mut pipe = Pipe::open(&kit);
        let asked = ask(&mut pipe, 3).await;
        // A retry without an answer is answered with the question.
        let mut without = answered(elicit(3), &asked);
        without["params"]["inputResponses"] = json!({});
        pipe.send(&without).await;
        let asked = pipe.receive().await;
        pipe.send(&answered(elicit(3), &asked)).await;
        let reply = pipe.receive().await;
        assert_eq!((&reply["id"], &reply["result"]["resultType"]), (&json!(3), &json!("complete")), "{reply}");
        drop(pipe);
        kit.stop().await;
    });
}

#[test]
fn a_call_that_waits_for_input_ends_with_its_pipe() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let mut pipe = Pipe::open(&kit);
        ask(&mut pipe, 1).await;
        assert_eq!(kit.gateway.status().parked, 1);
        drop(pipe);
        until("the end of the call", || kit.gateway.status().parked == 0).await;
        kit.stop().await;
    });
}

#[test]
fn requests_of_a_pipe_are_known_whatever_its_client_declares() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let mut pipe = Pipe::open(&kit);
        pipe.send(&pipe_call(1, json!({}), "sleep", json!({"ms": 600_000}))).await;
        kit.scripted.wait_for("tools/call", 1).await;
        pipe.send(&pipe_call(2, all_capabilities(), "echo", json!({"message": "hi"}))).await;
        assert_eq!(pipe.receive().await["id"], 2);
        pipe.send(&pipe_call(1, all_capabilities(), "echo", json!({"message": "hi"}))).await;
        let reply = pipe.receive().await;
        assert_eq!((&reply["id"], &reply["error"]["code"]), (&json!(1), &json!(-32600)), "{reply}");
        pipe.send(&cancellation(1)).await;
        until("the cancellation", || kit.scripted.cancelled().len() == 1).await;
        kit.idle().await;
        drop(pipe);
        kit.stop().await;
    });
}

#[test]
fn the_calls_of_a_pipe_are_counted_whatever_its_client_declares() {
    scene(|_| async move {
        let mut settings = GatewaySettings::default();
        settings.limits.calls_per_client = 1;
        let kit = GatewayKit::start_with(Script::legacy(), settings).await;
        let mut pipe = Pipe::open(&kit);
        pipe.send(&pipe_call(1, json!({}), "sleep", json!({"ms": 600_000}))).await;
        kit.scripted.wait_for("tools/call", 1).await;
        pipe.send(&pipe_call(2, all_capabilities(), "echo", json!({"message": "hi"}))).await;
        let reply = pipe.receive().await;
        assert!(reply["error"]["message"].as_str().is_some_and(|text| text.contains("1 per client")), "{reply}");
        drop(pipe);
        kit.stop().await;
    });
}

#[test]
fn a_stopping_gateway_withdraws_the_questions_of_legacy_clients() {
    scene(|_| async move {
        for script in [Script::legacy(), Script::modern()] {
            let kit = GatewayKit::start(script).await;
            let session = kit.session_with(all_capabilities()).await;
            let mut stream = kit.open(&post(&session, &call(5, "elicit", json!({})))).await;
            let asked = next_message(&mut stream).await;
            assert_eq!(asked["method"], "elicitation/create", "{asked}");
            let drained = tokio::time::timeout(SOON, kit.gateway.drain(Duration::from_secs(600)));
            drained.await.expect("the gateway stops in time");
            let rest = read_rest(stream).await;
            assert!(rest.contains("notifications/cancelled") && rest.contains(r#""id":5"#), "{rest}");
            assert_eq!(kit.gateway.status().requests, 0);
        }
    });
}

#[test]
fn a_retry_sets_the_log_level_for_the_messages_after_it() {
    scene(|_| async move {
        let log =
            json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "late"}});
        let script = Script::legacy().fault(FaultTrigger::tool("elicit"), Fault::Before(vec![log]));
        let kit = GatewayKit::start(script).await;
        let mut pipe = Pipe::open(&kit);
        let leveled = |mut call: Value, level: Option<&str>| {
            if let Some(level) = level {
                call["params"]["_meta"]["io.modelcontextprotocol/logLevel"] = level.into();
            }
            call
        };
        for (first, retried, has_log) in
            [(None, Some("debug"), true), (Some("debug"), None, false), (Some("debug"), Some("error"), false)]
        {
            pipe.send(&leveled(elicit(1), first)).await;
            let asked = pipe.receive().await;
            pipe.send(&leveled(answered(elicit(2), &asked), Some("verbose"))).await;
            let refused = pipe.receive().await;
            assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(2), &json!(-32602)), "{refused}");
            pipe.send(&leveled(answered(elicit(3), &asked), retried)).await;
            let mut reply = pipe.receive().await;
            assert_eq!(reply["method"] == "notifications/message", has_log, "{first:?} {retried:?}: {reply}");
            if has_log {
                reply = pipe.receive().await;
            }
            assert_eq!((&reply["id"], &reply["result"]["resultType"]), (&json!(3), &json!("complete")), "{reply}");
        }
        drop(pipe);
        kit.stop().await;
    });
}

#[test]
fn progress_of_a_parked_call_arrives_with_its_retry() {
    scene(|_| async move {
        const STEPS: u64 = 30;
        let kit = GatewayKit::start(Script::legacy()).await;
        let arguments = json!({"ms": 3000, "steps": STEPS});
        let send = async |token: &str, mut more: Value| {
            more["_meta"] =
                json!({"progressToken": token, "io.modelcontextprotocol/clientCapabilities": all_capabilities()});
            kit.send(&call_with(all_capabilities(), "sleep", &arguments, more)).await
        };
        let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
        let params = json!({"mode": "form", "message": "Who?", "requestedSchema": schema});
        let (asking, ()) = tokio::join!(send("first", json!({})), async {
            kit.scripted.wait_for("tools/call", 1).await;
            tokio::time::sleep(ms(450)).await;
            kit.scripted.push(json!({"jsonrpc": "2.0", "id": "s-1", "method": "elicitation/create", "params": params}));
        });
        let mut events = asking.events();
        let asked = events.pop().expect("a response")["result"].clone();
        assert_eq!(asked["resultType"], "input_required", "{asking:?}");
        // The server goes on while the client thinks.
        tokio::time::sleep(ms(800)).await;
        let given = json!({"q1": {"action": "decline"}});
        let rest =
            send("second", json!({"requestState": asked["requestState"], "inputResponses": given})).await.events();
        let steps = |events: &[Value], token: &str| {
            let own = events.iter().filter(|event| event["params"]["progressToken"] == token);
            own.filter_map(|event| event["params"]["progress"].as_u64()).collect::<Vec<_>>()
        };
        let (before, after) = (steps(&events, "first"), steps(&rest, "second"));
        assert!(before.len() >= 2 && before.len() < 15, "{before:?}");
        let all: Vec<u64> = before.into_iter().chain(after).collect();
        assert_eq!(all, (1..=STEPS).collect::<Vec<_>>());
        assert_eq!(rest.last().map(|event| &event["result"]["resultType"]), Some(&json!("complete")), "{rest:?}");
        kit.stop().await;
    });
}

#[test]
fn a_request_state_is_valid_for_its_profile_only() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let elicit = |more: Value| call_with(all_capabilities(), "elicit", &json!({}), more);
        let asked = input_required(&kit.send(&elicit(json!({}))).await);
        let answers = json!({"q1": {"action": "accept", "content": {"name": "Ann"}}});
        let retry = elicit(json!({"requestState": asked["requestState"], "inputResponses": answers}));
        let reply = kit.send(&retry.replace("POST /mcp ", "POST /mcp/scripted ")).await;
        assert_eq!(reply.json()["error"]["code"], -32602, "{reply:?}");
        // The attempt does not use up the state.
        let reply = kit.send(&retry).await;
        assert_eq!(reply.json()["result"]["resultType"], "complete", "{reply:?}");
        kit.stop().await;
    });
}

#[test]
fn the_id_of_a_task_is_sealed_next_to_a_lone_surrogate() {
    scene(|_| async move {
        let body =
            r#""result":{"content":[{"type":"text","text":"\ud800"}],"task":{"taskId":"raw-1","status":"working"}}"#;
        let script = Script::legacy().fault(FaultTrigger::tool("echo"), Fault::Body(body.to_owned()));
        let kit = GatewayKit::start(script).await;
        let session = kit.session().await;
        let reply = kit.post(&session, &call(1, "echo", json!({"message": "hi"}))).await;
        assert!(reply.body.contains(r#""taskId":""#) && !reply.body.contains("raw-1"), "{reply:?}");
        kit.stop().await;
    });
}

#[test]
fn an_error_with_deeply_nested_data_keeps_its_code_and_message() {
    scene(|_| async move {
        let deep = format!("{}{}", "[".repeat(300), "]".repeat(300));
        let body = format!(r#""error":{{"code":-32042,"message":"no","data":{deep}}}"#);
        let script = Script::legacy().fault(FaultTrigger::tool("echo"), Fault::Body(body));
        let kit = GatewayKit::start(script).await;
        let session = kit.session().await;
        let reply = kit.post(&session, &call(1, "echo", json!({"message": "hi"}))).await;
        assert_eq!(reply.json()["error"], json!({"code": -32042, "message": "no"}), "{reply:?}");
        kit.stop().await;
    });
}
