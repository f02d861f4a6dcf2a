//! Clients that share a connection: none gets questions, log messages or failures of another.

use ropeway::testing::Script;
use serde_json::{Value, json};

use super::kit::{
    GatewayKit, all_capabilities, call, call_with, input_required, next_message, notification, post, read_rest,
    read_until, request, sleep,
};
use crate::fast_config::until;
use crate::scene::scene;

/// Writes a question of the server.
fn question(id: &str) -> Value {
    let params = json!({"mode": "form", "message": "private", "requestedSchema": {"type": "object", "properties": {}}});
    json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params})
}

/// Answers a question of a client's own call, on a connection of its own.
async fn elicits_alone(kit: &GatewayKit, session: &str) {
    let mut stream = kit.open(&post(session, &call(90, "elicit", json!({"message": "Who?"})))).await;
    let asked = next_message(&mut stream).await;
    assert_eq!(asked["params"]["message"], "Who?", "{asked}");
    assert!(kit.gateway.status().isolated >= 1);
    let answer = json!({"action": "accept", "content": {"name": "Ann"}});
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": answer});
    assert_eq!(kit.post(session, &answer).await.status, 202);
    read_until(&mut stream, "Ann").await;
}

#[test]
fn a_question_does_not_go_to_another_client_that_could_answer_it() {
    scene(|_| async move {
        for tool in ["elicit", "sample", "roots"] {
            let kit = GatewayKit::start(Script::legacy()).await;
            let (unable, able) = (kit.session().await, kit.session_with(all_capabilities()).await);
            let other = kit.open(&post(&able, &sleep(1, 1500))).await;
            kit.scripted.wait_for("tools/call", 1).await;
            let reply = kit.post(&unable, &call(2, tool, json!({}))).await;
            let expected = if tool == "roots" { "roots" } else { "-32601" };
            assert!(reply.body.contains(expected), "{reply:?}");
            let read = read_rest(other).await;
            assert!(read.contains("slept") && !read.contains("rw-"), "{read}");
            elicits_alone(&kit, &able).await;
            kit.stop().await;
        }
    });
}

#[test]
fn late_messages_of_an_ended_call_reach_no_other_client() {
    scene(|_| async move {
        for is_cancelled in [false, true] {
            let kit = GatewayKit::start(Script::legacy()).await;
            let capabilities = all_capabilities();
            let (first, second) = (kit.session_with(capabilities.clone()).await, kit.session_with(capabilities).await);
            let level = request(1, "logging/setLevel", json!({"level": "debug"}));
            assert_eq!(kit.post(&second, &level).await.status, 200);
            if is_cancelled {
                let call = kit.open(&post(&first, &sleep(2, 600_000))).await;
                kit.scripted.wait_for("tools/call", 1).await;
                kit.cancel(&first, 2).await;
                drop(call);
                kit.idle().await;
            } else {
                assert_eq!(kit.post(&first, &call(2, "echo", json!({"message": "hi"}))).await.status, 200);
            }
            let other = kit.open(&post(&second, &sleep(3, 1500))).await;
            kit.scripted.wait_for("tools/call", 2).await;
            kit.scripted.push(notification("notifications/message", json!({"level": "error", "data": "private"})));
            kit.scripted.push(notification("notifications/odd", json!({"x": "private"})));
            kit.scripted.push(notification("notifications/elicitation/complete", json!({"elicitationId": "private"})));
            kit.scripted.push(question("late"));
            until("the refusal", || kit.answers("late").len() == 1).await;
            assert_eq!(kit.answers("late")[0]["error"]["code"], -32601);
            let read = read_rest(other).await;
            assert!(read.contains("slept") && !read.contains("private"), "{read}");
            elicits_alone(&kit, &second).await;
            elicits_alone(&kit, &first).await;
            assert_eq!(kit.gateway.status().isolated, 2);
            kit.stop().await;
        }
    });
}

#[test]
fn only_notifications_for_clients_reach_the_only_client() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let session = kit.session().await;
        // Without a progress token.
        let sleep = request(5, "tools/call", json!({"name": "sleep", "arguments": {"ms": 1000}}));
        let (reply, ()) = tokio::join!(kit.post(&session, &sleep), async {
            kit.scripted.wait_for("tools/call", 1).await;
            for method in ["message", "resources/updated", "initialized", "tasks/status"] {
                kit.scripted.push(json!({"jsonrpc": "2.0", "method": format!("notifications/{method}")}));
            }
            kit.scripted.push(notification("notifications/message", json!([1])));
            kit.scripted.push(notification("notifications/tasks/status", json!({"taskId": "t", "status": "working"})));
            kit.scripted.push(notification("tools/call", json!({"name": "echo"})));
            kit.scripted.push(notification("notifications/odd", json!([1])));
            kit.scripted.push(notification("notifications/odd", json!({"is": "passed on"})));
        });
        let methods: Vec<Value> = reply.events().iter().map(|event| event["method"].clone()).collect();
        assert_eq!(methods, [json!("notifications/odd"), json!(null)], "{reply:?}");
        kit.stop().await;
    });
}

#[test]
fn too_many_questions_fail_only_the_call_that_asks_them() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let session = kit.session_with(all_capabilities()).await;
        let older = kit.open(&post(&session, &sleep(1, 2500))).await;
        kit.scripted.wait_for("tools/call", 1).await;
        let newer = kit.open(&post(&session, &sleep(2, 600_000))).await;
        kit.scripted.wait_for("tools/call", 2).await;
        for number in 0..11 {
            kit.scripted.push(question(&format!("s-{number}")));
        }
        let read = read_rest(newer).await;
        assert!(read.contains("it asked the user more than 10 questions"), "{read}");
        let read = read_rest(older).await;
        assert!(read.contains("slept 2500 ms"), "{read}");
        kit.stop().await;
    });
}

#[test]
fn abandoned_questions_do_not_count_for_other_calls() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        for number in 1..=20 {
            let reply = kit.send(&call_with(all_capabilities(), "elicit", &json!({}), json!({}))).await;
            input_required(&reply);
            assert_eq!(kit.gateway.status().questions, number);
        }
        kit.gateway.drain(std::time::Duration::ZERO).await;
    });
}

#[test]
fn the_questions_of_a_call_end_with_it() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let arguments = json!({"ms": 1500});
        let ask = async |more: Value| kit.send(&call_with(all_capabilities(), "sleep", &arguments, more)).await;
        let (reply, ()) = tokio::join!(ask(json!({})), async {
            kit.scripted.wait_for("tools/call", 1).await;
            kit.scripted.push(question("s-1"));
        });
        let state = &input_required(&reply)["requestState"];
        // The server does not wait for the answer.
        until("the end of the question", || kit.answers("s-1").len() == 1).await;
        assert_eq!(kit.answers("s-1")[0]["result"], json!({"action": "cancel"}));
        let status = kit.gateway.status();
        assert_eq!((status.questions, status.parked), (0, 1));
        let reply = ask(json!({"requestState": state, "inputResponses": {"q1": {"action": "decline"}}})).await;
        assert_eq!(reply.json()["result"]["resultType"], "complete", "{reply:?}");
        kit.stop().await;
    });
}

#[test]
fn a_question_with_the_id_of_an_open_one_is_refused() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let session = kit.session_with(all_capabilities()).await;
        let mut stream = kit.open(&post(&session, &sleep(1, 600_000))).await;
        kit.scripted.wait_for("tools/call", 1).await;
        for _ in 0..3 {
            kit.scripted.push(question("s-1"));
        }
        next_message(&mut stream).await;
        until("the refusals", || kit.answers("s-1").len() == 2).await;
        assert!(kit.answers("s-1").iter().all(|answer| answer["error"]["code"] == -32600));
        assert_eq!(kit.gateway.status().questions, 1);
        drop(stream);
        kit.cancel(&session, 1).await;
        kit.stop().await;
    });
}
