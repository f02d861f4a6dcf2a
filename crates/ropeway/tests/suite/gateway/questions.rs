//! Questions of servers: withdrawn ones, and several at once. Notifications that are not for clients.

use ropeway::testing::Script;
use serde_json::{Value, json};

use super::kit::{GatewayKit, all_capabilities, call, call_with, input_required, next_message, post, request};
use crate::fast_config::until;
use crate::scene::scene;

/// Writes a question of the server.
fn question(id: &str, message: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let params = json!({"mode": "form", "message": message, "requestedSchema": schema});
    json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params})
}

/// Writes the cancellation of a question by the server.
fn withdrawal(id: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": "too late"}})
}

fn accepted(name: &str) -> Value {
    json!({"action": "accept", "content": {"name": name}})
}

#[test]
fn a_withdrawn_question_is_cancelled_at_a_legacy_client() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let session = kit.session_with(all_capabilities()).await;
        let mut stream = kit.open(&post(&session, &call(5, "sleep", json!({"ms": 600_000})))).await;
        kit.scripted.wait_for("tools/call", 1).await;
        kit.scripted.push(question("s-1", "Who?"));
        let asked = next_message(&mut stream).await;
        assert_eq!((&asked["method"], &asked["params"]["message"]), (&json!("elicitation/create"), &json!("Who?")));
        kit.scripted.push(withdrawal("s-1"));
        let cancelled = next_message(&mut stream).await;
        assert_eq!(cancelled["method"], "notifications/cancelled", "{cancelled}");
        assert_eq!(cancelled["params"]["requestId"], asked["id"], "{cancelled}");
        until("the end of the question", || kit.gateway.status().questions == 0).await;
        // A late answer does not reach the server, and the call goes on.
        let late = json!({"jsonrpc": "2.0", "id": asked["id"], "result": accepted("Ann")});
        assert_eq!(kit.post(&session, &late).await.status, 202);
        kit.scripted.push(question("s-2", "Who else?"));
        let asked = next_message(&mut stream).await;
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": accepted("Bob")});
        assert_eq!(kit.post(&session, &answer).await.status, 202);
        until("the answer", || kit.answers("s-2").len() == 1).await;
        assert_eq!(kit.answers("s-1"), Vec::<Value>::new());
        drop(stream);
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}});
        assert_eq!(kit.post(&session, &cancel).await.status, 202);
        kit.stop().await;
    });
}

#[test]
fn a_modern_client_is_not_asked_again_for_a_withdrawn_question() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        for (number, answers_it) in [(1, false), (2, true)] {
            let id = format!("s-{number}");
            let arguments = json!({"ms": 4000});
            let ask = async |more: Value| kit.send(&call_with(all_capabilities(), "sleep", &arguments, more)).await;
            let (reply, ()) = tokio::join!(ask(json!({})), async {
                kit.scripted.wait_for("tools/call", number).await;
                kit.scripted.push(question(&id, "Who?"));
            });
            let result = input_required(&reply);
            assert_eq!(result["inputRequests"]["q1"]["params"]["message"], "Who?", "{result}");
            kit.scripted.push(withdrawal(&id));
            until("the end of the question", || kit.gateway.status().questions == 0).await;
            // The call goes on, whether the client answers or not.
            let given = if answers_it { json!({"q1": accepted("Ann")}) } else { json!({}) };
            let more = json!({"requestState": result["requestState"], "inputResponses": given});
            let reply = ask(more).await;
            assert_eq!(reply.json()["result"]["resultType"], "complete", "{reply:?}");
            assert_eq!(kit.answers(&id), Vec::<Value>::new());
            kit.idle().await;
        }
        kit.stop().await;
    });
}

#[test]
fn a_legacy_client_answers_two_questions_of_one_call() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let session = kit.session_with(all_capabilities()).await;
        let mut stream = kit.open(&post(&session, &call(5, "sleep", json!({"ms": 600_000})))).await;
        kit.scripted.wait_for("tools/call", 1).await;
        kit.scripted.push(question("s-1", "Ann"));
        kit.scripted.push(question("s-2", "Bob"));
        let asked = [next_message(&mut stream).await, next_message(&mut stream).await];
        assert_ne!(asked[0]["id"], asked[1]["id"]);
        assert_eq!(kit.gateway.status().questions, 2);
        // In reverse order.
        for question in asked.iter().rev() {
            let name = question["params"]["message"].as_str().expect("a message");
            let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": accepted(name)});
            assert_eq!(kit.post(&session, &answer).await.status, 202);
        }
        for (id, name) in [("s-1", "Ann"), ("s-2", "Bob")] {
            until("the answer", || kit.answers(id).len() == 1).await;
            assert_eq!(kit.answers(id)[0]["result"], accepted(name));
        }
        drop(stream);
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}});
        assert_eq!(kit.post(&session, &cancel).await.status, 202);
        kit.stop().await;
    });
}

#[test]
fn a_modern_client_answers_two_questions_of_one_call() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let arguments = json!({"ms": 4000});
        let ask = async |more: Value| kit.send(&call_with(all_capabilities(), "sleep", &arguments, more)).await;
        let (mut reply, ()) = tokio::join!(ask(json!({})), async {
            kit.scripted.wait_for("tools/call", 1).await;
            kit.scripted.push(question("s-1", "Ann"));
            kit.scripted.push(question("s-2", "Bob"));
        });
        let mut asked = 0;
        // On a busy machine, the second question may come with the next response.
        while asked < 2 {
            let result = input_required(&reply);
            let requests = result["inputRequests"].as_object().expect("questions");
            asked += requests.len();
            let given = requests.iter().map(|(key, request)| {
                (key.clone(), accepted(request["params"]["message"].as_str().expect("a message")))
            });
            let given = Value::Object(given.collect());
            reply = ask(json!({"requestState": result["requestState"], "inputResponses": given})).await;
        }
        assert_eq!(reply.json()["result"]["resultType"], "complete", "{reply:?}");
        for (id, name) in [("s-1", "Ann"), ("s-2", "Bob")] {
            let received: Vec<Value> = kit.answers(id).into_iter().map(|answer| answer["result"].clone()).collect();
            assert_eq!(received, [accepted(name)]);
        }
        kit.stop().await;
    });
}

#[test]
fn the_acknowledgement_of_a_subscription_does_not_reach_clients() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::modern()).await;
        let session = kit.session().await;
        let sleep = request(5, "tools/call", json!({"name": "sleep", "arguments": {"ms": 1000}}));
        let notification = |method: &str| {
            let id = json!({"io.modelcontextprotocol/subscriptionId": 2});
            json!({"jsonrpc": "2.0", "method": method, "params": {"_meta": id, "notifications": {}}})
        };
        let (reply, ()) = tokio::join!(kit.post(&session, &sleep), async {
            kit.scripted.wait_for("tools/call", 1).await;
            kit.scripted.push(notification("notifications/subscriptions/acknowledged"));
            kit.scripted.push(notification("notifications/odd"));
        });
        // Other notifications belong to the call.
        assert!(reply.body.contains("notifications/odd") && reply.body.contains("slept"), "{reply:?}");
        assert!(!reply.body.contains("acknowledged"), "{reply:?}");
        kit.stop().await;
    });
}
