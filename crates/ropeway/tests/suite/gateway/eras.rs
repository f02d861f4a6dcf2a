//! Clients and servers of different eras: questions, results, errors, progress and cancellation.

use ropeway::config::GatewaySettings;
use ropeway::testing::{Fault, FaultTrigger, Script};
use serde_json::{Value, json};

use super::kit::{
    GatewayKit, HttpReply, MODERN, Pipe, all_capabilities, bare, call, call_with, input_required, modern, next_message,
    post, read_rest, read_until, request,
};
use crate::fast_config::{SOON, ms, until};
use crate::scene::scene;

const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// A tool that asks, and the answer of the client.
struct Case {
    tool: &'static str,
    arguments: Value,
    method: &'static str,
    answer: Value,
    rounds: usize,
}

fn cases() -> Vec<Case> {
    let form = json!({"action": "accept", "content": {"name": "Ann"}});
    let elicit = |arguments: Value, answer: Value, rounds| Case {
        tool: "elicit",
        arguments,
        method: "elicitation/create",
        answer,
        rounds,
    };
    let reply = json!({"role": "assistant", "content": {"type": "text", "text": "Hello."}, "model": "m"});
    let roots = json!({"roots": [{"uri": "file:///tmp", "name": "tmp"}]});
    vec![
        elicit(json!({}), form.clone(), 1),
        elicit(json!({"mode": "url"}), json!({"action": "accept"}), 1),
        elicit(json!({"rounds": 2}), form, 2),
        elicit(json!({"message": "And?"}), json!({"action": "decline"}), 1),
        Case { tool: "sample", arguments: json!({}), method: "sampling/createMessage", answer: reply, rounds: 1 },
        Case { tool: "roots", arguments: json!({}), method: "roots/list", answer: roots, rounds: 1 },
    ]
}

/// Calls a tool as a modern client that answers each question. Returns the result.
async fn answered_by_modern(kit: &GatewayKit, case: &Case) -> Value {
    let mut more = json!({});
    for _ in 0..case.rounds {
        let reply = kit.send(&call_with(all_capabilities(), case.tool, &case.arguments, more)).await;
        let result = input_required(&reply);
        let requests = result["inputRequests"].as_object().expect("questions");
        let (key, request) = requests.iter().next().expect("a question");
        assert_eq!((requests.len(), &request["method"]), (1, &json!(case.method)), "{result}");
        assert_eq!(request["params"].get("elicitationId"), None, "{result}");
        assert_eq!(request["params"]["url"].is_string(), case.arguments["mode"] == "url", "{result}");
        more = json!({"inputResponses": {key: case.answer}, "requestState": result["requestState"]});
    }
    let reply = kit.send(&call_with(all_capabilities(), case.tool, &case.arguments, more)).await;
    let result = reply.json()["result"].clone();
    assert_eq!((reply.status, &result["resultType"]), (200, &json!("complete")), "{reply:?}");
    result
}

/// Calls a tool as a legacy client that answers each question. Returns the result.
async fn answered_by_legacy(kit: &GatewayKit, session: &str, case: &Case) -> Value {
    let mut stream = kit.open(&post(session, &call(5, case.tool, case.arguments.clone()))).await;
    for _ in 0..case.rounds {
        let question = next_message(&mut stream).await;
        assert_eq!(question["method"], case.method, "{question}");
        let is_url = case.arguments["mode"] == "url";
        assert_eq!(question["params"]["elicitationId"].is_string(), is_url, "{question}");
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": case.answer});
        assert_eq!(kit.post(session, &answer).await.status, 202);
    }
    let response = next_message(&mut stream).await;
    assert_eq!(response["id"], 5, "{response}");
    response["result"].clone()
}

/// Returns the text of a result, which is the answer as JSON.
fn echoed(result: &Value) -> Value {
    serde_json::from_str(result["content"][0]["text"].as_str().expect("a text")).expect("JSON")
}

fn error_code(reply: &HttpReply) -> i64 {
    reply.json()["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {reply:?}"))
}

/// Runs all cases with modern clients.
fn modern_clients_answer(script: Script) {
    scene(|_| async move {
        let kit = GatewayKit::start(script).await;
        for case in cases() {
            let result = answered_by_modern(&kit, &case).await;
            assert_eq!(echoed(&result), case.answer);
            assert_eq!(result["_meta"][SERVER_INFO]["name"], "scripted");
            kit.idle().await;
        }
        kit.stop().await;
    });
}

/// Runs all cases with a legacy client.
fn legacy_clients_answer(script: Script) {
    scene(|_| async move {
        let kit = GatewayKit::start(script).await;
        let session = kit.session_with(all_capabilities()).await;
        for case in cases() {
            let result = answered_by_legacy(&kit, &session, &case).await;
            assert_eq!(echoed(&result), case.answer);
            assert_eq!(result.get("resultType"), None, "{result}");
            kit.idle().await;
        }
        kit.stop().await;
    });
}

#[test]
fn a_legacy_servers_question_becomes_an_input_round_for_a_modern_client() {
    modern_clients_answer(Script::legacy());
}

#[test]
fn a_modern_servers_input_round_becomes_a_question_to_a_legacy_client() {
    legacy_clients_answer(Script::modern());
}

#[test]
fn a_modern_client_answers_a_modern_server() {
    modern_clients_answer(Script::modern());
}

#[test]
fn a_legacy_client_answers_a_legacy_server() {
    legacy_clients_answer(Script::legacy());
}

#[test]
fn a_client_without_the_capability_gets_the_servers_fallback() {
    scene(|_| async move {
        for script in [Script::legacy(), Script::modern()] {
            let kit = GatewayKit::start(script).await;
            let session = kit.session().await;
            for tool in ["elicit", "sample"] {
                // Each of them ends: with an error of the server, or with its result for a client that cannot answer.
                let reply = kit.send(&call_with(json!({}), tool, &json!({}), json!({}))).await.json();
                let is_refused = reply["error"]["code"] == -32021 || reply["result"]["isError"] == true;
                assert!(is_refused, "{tool}: {reply}");
                let reply = kit.post(&session, &call(3, tool, json!({}))).await.json();
                assert!(reply["error"].is_object() || reply["result"]["isError"] == true, "{tool}: {reply}");
            }
            kit.stop().await;
        }
    });
}

#[test]
fn a_request_state_is_valid_once() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let arguments = json!({});
        let ask = async |more: Value| kit.send(&call_with(all_capabilities(), "elicit", &arguments, more)).await;
        let result = input_required(&ask(json!({})).await);
        let state = result["requestState"].as_str().expect("a state").to_owned();
        let answers = json!({"q1": {"action": "decline"}});
        // A changed state and the state of another request are refused, and the call goes on waiting.
        let mut changed = state.clone().into_bytes();
        let middle = changed.len() / 2;
        changed[middle] = if changed[middle] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).expect("ASCII");
        assert_eq!(error_code(&ask(json!({"requestState": changed, "inputResponses": answers})).await), -32602);
        assert_eq!(error_code(&ask(json!({"requestState": "x", "inputResponses": answers})).await), -32602);
        let more = json!({"requestState": state, "inputResponses": answers});
        let other = json!({"message": "other"});
        let reply = kit.send(&call_with(all_capabilities(), "elicit", &other, more.clone())).await;
        assert_eq!(error_code(&reply), -32602, "{reply:?}");
        let reply = ask(more.clone()).await;
        assert_eq!(echoed(&reply.json()["result"])["action"], "decline", "{reply:?}");
        assert_eq!(error_code(&ask(more).await), -32602);
        assert_eq!(kit.scripted.received_of("tools/call").len(), 1, "a refused retry does not reach the server");
        kit.stop().await;
    });
}

#[test]
fn missing_wrong_and_extra_answers_are_distinguished() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let ask = async |more: Value| kit.send(&call_with(all_capabilities(), "elicit", &json!({}), more)).await;
        let mut result = input_required(&ask(json!({})).await);
        for answers in [json!(null), json!({}), json!({"other": {"action": "accept"}})] {
            let mut more = json!({"requestState": result["requestState"]});
            if !answers.is_null() {
                more["inputResponses"] = answers;
            }
            let again = input_required(&ask(more).await);
            assert_eq!(again["inputRequests"], result["inputRequests"]);
            assert_ne!(again["requestState"], result["requestState"]);
            result = again;
        }
        for wrong in [json!("yes"), json!({}), json!({"action": "perhaps"}), json!({"action": "accept", "content": 1})]
        {
            let more = json!({"requestState": result["requestState"], "inputResponses": {"q1": wrong}});
            assert_eq!(error_code(&ask(more).await), -32602);
        }
        let answers = json!({"q1": {"action": "cancel"}, "extra": {"action": "accept"}});
        let reply = ask(json!({"requestState": result["requestState"], "inputResponses": answers})).await.json();
        assert_eq!(echoed(&reply["result"]), json!({"action": "cancel"}), "{reply}");
        kit.stop().await;
    });
}

#[test]
fn an_expired_parked_call_cancels_upstream() {
    scene(|_| async move {
        let mut settings = GatewaySettings::default();
        settings.limits.parked_for = ms(1000);
        let kit = GatewayKit::start_with(Script::legacy(), settings).await;
        let arguments = json!({"rounds": 2});
        let ask = async |more: Value| kit.send(&call_with(all_capabilities(), "elicit", &arguments, more)).await;
        let result = input_required(&ask(json!({})).await);
        assert_eq!(kit.gateway.status().parked, 1);
        until("the end of the call", || kit.gateway.status().parked == 0).await;
        until("the cancellation", || kit.scripted.cancelled().len() == 1).await;
        tokio::time::sleep(ms(1500)).await;
        let more = json!({"requestState": result["requestState"], "inputResponses": {"q1": {"action": "decline"}}});
        let reply = ask(more).await;
        assert_eq!(error_code(&reply), -32602, "{reply:?}");
        assert_eq!(kit.scripted.received_of("tools/call").len(), 1, "the call is not repeated");
        kit.stop().await;
    });
}

#[test]
fn a_question_of_two_clients_is_refused_and_then_isolated() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let (first, second) = (kit.session_with(all_capabilities()).await, kit.session_with(all_capabilities()).await);
        let waiting = kit.open(&post(&first, &call(1, "sleep", json!({"ms": 600_000})))).await;
        until("the call", || kit.scripted.received_of("tools/call").len() == 1).await;
        let reply = kit.post(&second, &call(2, "elicit", json!({}))).await.json();
        assert_eq!(reply["result"]["isError"], true, "{reply}");
        assert_eq!(kit.gateway.status().isolated, 0);
        // From now on, the clients have connections of their own, and questions are certain.
        let connections = kit.scripted.connections();
        let case = &cases()[0];
        assert_eq!(echoed(&answered_by_legacy(&kit, &second, case).await), case.answer);
        assert_eq!((kit.gateway.status().isolated, kit.scripted.connections()), (1, connections + 1));
        drop(waiting);
        kit.stop().await;
    });
}

#[test]
fn a_result_is_translated_and_keeps_unknown_fields() {
    scene(|_| async move {
        let result = json!({"content": [{"type": "text", "text": "hi", "x-part": [1.50]}], "x-result": {"a": null},
            "_meta": {"example.com/trace": "t"}});
        let definition = json!({"name": "odd", "inputSchema": {"type": "object"}});
        for script in [Script::legacy(), Script::modern()] {
            let is_modern = script == Script::modern();
            let mut result = result.clone();
            if is_modern {
                result["resultType"] = json!("complete");
            }
            let kit = GatewayKit::start(script.tool(definition.clone(), result)).await;
            let session = kit.session().await;
            let meta = json!({"example.com/id": 9, "progressToken": "p"});
            let params = json!({"name": "odd", "arguments": {}, "x-param": {"b": [true]}, "_meta": meta});
            let legacy = kit.post(&session, &request(1, "tools/call", params.clone())).await.json();
            let modern = kit.modern("tools/call", params).await.json();
            for reply in [&legacy["result"], &modern["result"]] {
                assert_eq!(reply["x-result"], json!({"a": null}), "{reply}");
                assert_eq!(reply["content"][0]["x-part"], json!([1.5]), "{reply}");
                assert_eq!(reply["_meta"]["example.com/trace"], "t", "{reply}");
            }
            assert_eq!(legacy["result"].get("resultType"), None, "{legacy}");
            assert_eq!(modern["result"]["resultType"], "complete", "{modern}");
            for received in kit.scripted.received_of("tools/call") {
                assert_eq!(received["params"]["x-param"], json!({"b": [true]}), "{received}");
                assert_eq!(received["params"]["_meta"]["example.com/id"], 9, "{received}");
            }
            // Lists and resources say how long they are valid to modern clients only.
            for (method, params) in [("tools/list", json!({})), ("resources/read", json!({"uri": "test://hello"}))] {
                let reply = kit.modern(method, params.clone()).await.json();
                assert!(reply["result"]["ttlMs"].is_u64() && reply["result"]["cacheScope"] == "private", "{reply}");
                assert!(reply["result"]["_meta"][SERVER_INFO]["name"].is_string(), "{reply}");
                let reply = kit.post(&session, &request(2, method, params)).await.json();
                assert_eq!(reply["result"].get("resultType"), None, "{reply}");
            }
            kit.stop().await;
        }
    });
}

#[test]
fn errors_keep_their_code_and_data() {
    scene(|_| async move {
        for script in [Script::legacy(), Script::modern()] {
            let kit = GatewayKit::start(script).await;
            let session = kit.session().await;
            let refused = [
                kit.post(&session, &call(7, "refuse", json!({}))).await,
                kit.modern("tools/call", json!({"name": "refuse", "arguments": {}})).await,
            ];
            for reply in refused {
                let message = reply.json();
                assert_eq!((reply.status, &message["id"]), (200, &json!(7)), "{message}");
                assert_eq!(message["error"], json!({"code": -32000, "message": "the tool refuses"}));
            }
            let unknown = json!({"uri": "test://unknown"});
            let reply = kit.modern("resources/read", unknown.clone()).await.json();
            assert_eq!((&reply["error"]["code"], &reply["error"]["data"]), (&json!(-32602), &unknown), "{reply}");
            let reply = kit.post(&session, &request(7, "resources/read", unknown.clone())).await.json();
            assert_eq!(reply["error"]["data"], unknown, "{reply}");
            kit.stop().await;
        }
    });
}

#[test]
fn progress_arrives_before_the_result_and_in_order() {
    scene(|_| async move {
        for script in [Script::legacy(), Script::modern()] {
            let kit = GatewayKit::start(script).await;
            let session = kit.session().await;
            let slow = json!({"ms": 500, "steps": 5});
            let params = json!({"name": "sleep", "arguments": slow, "_meta": {"progressToken": "token-1"}});
            for sent in [post(&session, &request(7, "tools/call", params.clone())), modern("tools/call", params)] {
                let reply = kit.send(&sent).await;
                assert_eq!(reply.headers["content-type"], "text/event-stream", "{reply:?}");
                let events = reply.events();
                let progress: Vec<_> = events.iter().filter_map(|event| event["params"]["progress"].as_u64()).collect();
                assert!(progress.is_sorted() && progress.last() == Some(&5), "{reply:?}");
                let tokens = events.iter().filter(|event| event["params"]["progressToken"] == "token-1");
                assert_eq!(tokens.count(), progress.len(), "{reply:?}");
                assert_eq!(events.last().map(|event| &event["id"]), Some(&json!(7)), "{reply:?}");
            }
            kit.stop().await;
        }
    });
}

#[test]
fn a_call_that_a_legacy_client_cancels_is_cancelled_upstream() {
    scene(|_| async move {
        for script in [Script::legacy(), Script::modern()] {
            let kit = GatewayKit::start(script).await;
            let session = kit.session().await;
            let stream = kit.open(&post(&session, &call(4, "sleep", json!({"ms": 600_000})))).await;
            until("the call", || kit.scripted.received_of("tools/call").len() == 1).await;
            let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 4}});
            // Another client cannot cancel it.
            let other = kit.session().await;
            assert_eq!(kit.post(&other, &cancelled).await.status, 202);
            tokio::time::sleep(ms(100)).await;
            assert!(kit.scripted.cancelled().is_empty());
            assert_eq!(kit.post(&session, &cancelled).await.status, 202);
            until("the cancellation", || kit.scripted.cancelled().len() == 1).await;
            kit.idle().await;
            drop(stream);
            kit.stop().await;
        }
    });
}

#[test]
fn each_client_gets_the_log_messages_that_it_asked_for() {
    scene(|_| async move {
        let log = json!({"level": "warning", "message": "careful"});
        for script in [Script::legacy(), Script::modern()] {
            // Each client has a gateway of its own: on a connection that others use, messages without a request are dropped.
            for (level, is_delivered) in [("error", false), ("debug", true)] {
                let kit = GatewayKit::start(script.clone()).await;
                let session = kit.session().await;
                let set = async |level: &str| {
                    kit.post(&session, &request(1, "logging/setLevel", json!({"level": level}))).await.json()
                };
                assert_eq!(set(level).await["result"], json!({}));
                assert_eq!(set("loud").await["error"]["code"], -32602);
                let reply = kit.post(&session, &call(2, "log", log.clone())).await;
                assert_eq!(reply.body.contains("careful"), is_delivered, "{reply:?}");
                kit.stop().await;
            }
            let kit = GatewayKit::start(script).await;
            let mut params = json!({"name": "log", "arguments": log});
            assert!(!kit.modern("tools/call", params.clone()).await.body.contains("careful"));
            params["_meta"] = json!({"io.modelcontextprotocol/logLevel": "info"});
            let reply = kit.modern("tools/call", params).await;
            assert!(reply.body.contains("careful"), "{reply:?}");
            kit.stop().await;
        }
    });
}

#[test]
fn the_log_level_of_a_modern_request_reaches_a_legacy_server() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        for level in ["warning", "error", "info"] {
            let meta = json!({"io.modelcontextprotocol/logLevel": level});
            kit.modern("tools/call", json!({"name": "log", "arguments": {"level": "info"}, "_meta": meta})).await;
        }
        let levels = || {
            let received = kit.scripted.received_of("logging/setLevel");
            received.iter().map(|request| request["params"]["level"].clone()).collect::<Vec<_>>()
        };
        until("the level of the last request", || levels().last() == Some(&json!("info"))).await;
        assert!(!levels().contains(&json!("error")), "a less verbose level is not set: {:?}", levels());
        kit.stop().await;
    });
}

#[test]
fn a_client_gets_no_log_messages_of_other_clients() {
    scene(|_| async move {
        for script in [Script::legacy(), Script::modern()] {
            let kit = GatewayKit::start(script).await;
            let sessions = [kit.session().await, kit.session().await];
            let set = request(1, "logging/setLevel", json!({"level": "debug"}));
            for session in &sessions {
                assert_eq!(kit.post(session, &set).await.status, 200);
            }
            let mut standalone = kit.open(&bare("GET", "/mcp", &format!("Host: localhost\r\n{}", sessions[1]))).await;
            read_until(&mut standalone, "retry: 1000").await;
            // While the second client has a call in progress, the first one writes to the log.
            let other = kit.open(&post(&sessions[1], &call(2, "sleep", json!({"ms": 1500})))).await;
            until("the call", || kit.scripted.received_of("tools/call").len() == 1).await;
            let log = json!({"level": "warning", "message": "private"});
            let reply = kit.post(&sessions[0], &call(2, "log", log.clone())).await;
            assert_eq!(reply.status, 200, "{reply:?}");
            let read = read_rest(other).await;
            assert!(read.contains("slept") && !read.contains("private"), "{read}");
            // Between calls, and after the call of a client that did not ask.
            let line = json!({"level": "error", "data": "private"});
            kit.scripted.push(json!({"jsonrpc": "2.0", "method": "notifications/message", "params": line}));
            let silent = kit.session().await;
            let reply = kit.post(&silent, &call(2, "log", log)).await;
            assert!(!reply.body.contains("private"), "{reply:?}");
            kit.scripted.changed("prompts");
            let read = read_until(&mut standalone, "prompts/list_changed").await;
            assert!(!read.contains("private"), "{read}");
            drop(standalone);
            kit.stop().await;
        }
    });
}

#[test]
fn identical_modern_clients_get_no_log_messages_of_each_other() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let call = |tool: &str, arguments: Value| {
            let level = json!({"io.modelcontextprotocol/logLevel": "debug"});
            modern("tools/call", json!({"name": tool, "arguments": arguments, "_meta": level}))
        };
        let other = kit.open(&call("sleep", json!({"ms": 1500}))).await;
        until("the call", || kit.scripted.received_of("tools/call").len() == 1).await;
        kit.send(&call("log", json!({"level": "warning", "message": "private"}))).await;
        let read = read_rest(other).await;
        assert!(read.contains("slept") && !read.contains("private"), "{read}");
        kit.stop().await;
    });
}

#[test]
fn a_log_message_between_calls_reaches_the_only_client() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let session = kit.session().await;
        let set = request(1, "logging/setLevel", json!({"level": "info"}));
        assert_eq!(kit.post(&session, &set).await.status, 200);
        assert_eq!(kit.post(&session, &call(2, "echo", json!({"message": "hi"}))).await.status, 200);
        let mut standalone = kit.open(&bare("GET", "/mcp", &format!("Host: localhost\r\n{session}"))).await;
        let line = json!({"level": "error", "data": "own"});
        kit.scripted.push(json!({"jsonrpc": "2.0", "method": "notifications/message", "params": line}));
        read_until(&mut standalone, "\"own\"").await;
        drop(standalone);
        kit.stop().await;
    });
}

#[test]
fn modern_checks_answer_in_the_order_of_the_specification() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::default()).await;
        let valid = modern("tools/call", json!({"name": "echo", "arguments": {"message": "hi"}}));
        let without = |text: &str| valid.replace(text, "");
        let version = format!("MCP-Protocol-Version: {MODERN}\r\n");
        let other_version = modern("tools/list", json!({})).replace(MODERN, "2030-01-01");
        let region = modern("tools/call", json!({"name": "locate", "arguments": {"region": "eu"}}));
        let cases = [
            (valid.replacen("\"jsonrpc\"", "\"jsonrqc\"", 1), 400, -32600),
            (valid.replacen("{\"jsonrpc\"", "[\"jsonrpc\"", 1), 400, -32700),
            (valid.replacen("/protocolVersion", "/protocolVarsion", 1), 400, -32602),
            (valid.replacen("/clientCapabilities", "/clientCapobilities", 1), 400, -32602),
            // Without the header and without the method's header: the version comes first.
            (without(&version).replace("Mcp-Method: tools/call\r\n", ""), 400, -32020),
            (other_version, 400, -32022),
            (without("Mcp-Method: tools/call\r\n"), 400, -32020),
            (valid.replace("Mcp-Method: tools/call", "Mcp-Method: Tools/Call"), 400, -32020),
            (without("Mcp-Name: echo\r\n"), 400, -32020),
            (valid.replace("Mcp-Name: echo", "Mcp-Name: add"), 400, -32020),
            (region.clone(), 400, -32020),
            (region.replace("Mcp-Name", "Mcp-Param-Region: us\r\nMcp-Name"), 400, -32020),
            (modern("resources/subscribe", json!({"uri": "test://hello"})), 404, -32601),
            (modern("no/such", json!({})), 404, -32601),
            (modern("tools/call", json!({"name": "no-such", "arguments": {}})), 200, -32602),
        ];
        for (sent, status, code) in cases {
            let reply = kit.send(&sent).await;
            assert_eq!((reply.status, error_code(&reply)), (status, code), "{sent}: {reply:?}");
            assert!(code == -32700 || reply.json()["id"] == 7, "{sent}: {reply:?}");
        }
        assert_eq!(kit.scripted.received_of("tools/call").len(), 0);
        let with_header = region.replace("Mcp-Name", "mcp-param-region:  eu \r\nMcp-Name");
        for sent in [valid.replace("Mcp-Name: echo", "MCP-NAME: =?base64?ZWNobw==?="), with_header] {
            let reply = kit.send(&sent).await;
            assert!(reply.json()["result"].is_object(), "{sent}: {reply:?}");
        }
        let reply = kit.send(&modern("tools/list", json!({})).replace(MODERN, "2030-01-01")).await.json();
        assert_eq!(reply["error"]["data"], json!({"supported": [MODERN], "requested": "2030-01-01"}));
        kit.stop().await;
    });
}

#[test]
fn a_client_that_goes_while_a_question_is_open_ends_the_call() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let session = kit.session_with(all_capabilities()).await;
        let mut stream = kit.open(&post(&session, &call(5, "elicit", json!({"rounds": 3})))).await;
        next_message(&mut stream).await;
        assert_eq!(kit.gateway.status().questions, 1);
        let ended = kit.send(&super::kit::bare("DELETE", "/mcp", &format!("Host: localhost\r\n{session}"))).await;
        assert_eq!(ended.status, 204);
        tokio::time::timeout(SOON, kit.idle()).await.expect("an idle gateway");
        kit.stop().await;
    });
}

#[test]
fn a_gateway_that_stops_does_not_wait_for_parked_calls() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let elicit = |more: Value| call_with(all_capabilities(), "elicit", &json!({}), more);
        let result = input_required(&kit.send(&elicit(json!({}))).await);
        assert_eq!(kit.gateway.status().parked, 1);
        // Another call keeps the listener open while the gateway drains.
        let running = kit.open(&modern("tools/call", json!({"name": "sleep", "arguments": {"ms": 4000}}))).await;
        until("the call", || kit.scripted.received_of("tools/call").len() == 2).await;
        let draining = tokio::spawn({
            let gateway = kit.gateway.clone();
            async move { gateway.drain(10 * SOON).await }
        });
        until("the end of the parked call", || kit.gateway.status().parked == 0).await;
        assert_eq!(kit.gateway.status().requests, 1, "the other call goes on");
        let answers = json!({"q1": {"action": "accept", "content": {"name": "Ann"}}});
        let reply = kit.send(&elicit(json!({"inputResponses": answers, "requestState": result["requestState"]}))).await;
        assert_eq!(error_code(&reply), -32602, "{reply:?}");
        let reply = kit.send(&elicit(json!({}))).await;
        assert_eq!((reply.status, error_code(&reply)), (503, -32000), "new calls are refused: {reply:?}");
        assert!(read_rest(running).await.contains("slept"));
        tokio::time::timeout(SOON, draining).await.expect("the gateway stops in time").expect("the gateway");
        assert_eq!(kit.gateway.status().requests, 0);
    });
}

#[test]
fn a_retry_on_a_pipe_can_be_cancelled() {
    scene(|_| async move {
        // The question comes at once, and the result late.
        let script = Script::legacy().fault(FaultTrigger::tool("elicit"), Fault::late(600_000));
        let kit = GatewayKit::start(script).await;
        let mut pipe = Pipe::open(&kit);
        let params = |more: Value| {
            let mut params = json!({"name": "elicit", "arguments": {}, "_meta": {
                "io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": all_capabilities()}});
            params.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
            params
        };
        pipe.send(&request(1, "tools/call", params(json!({})))).await;
        let asked = pipe.receive().await;
        assert_eq!((&asked["id"], &asked["result"]["resultType"]), (&json!(1), &json!("input_required")), "{asked}");
        let answers = json!({"q1": {"action": "accept", "content": {"name": "Ann"}}});
        let more = json!({"inputResponses": answers, "requestState": asked["result"]["requestState"]});
        pipe.send(&request(2, "tools/call", params(more))).await;
        until("the retry", || kit.gateway.status().parked == 0).await;
        let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}});
        pipe.send(&cancelled).await;
        until("the cancellation", || kit.scripted.cancelled().len() == 1).await;
        tokio::time::timeout(SOON, kit.idle()).await.expect("an idle gateway");
        // The cancelled request has no response.
        pipe.send(&request(3, "server/discover", params(json!({})))).await;
        assert_eq!(pipe.receive().await["id"], 3);
        drop(pipe);
        kit.stop().await;
    });
}

#[test]
fn a_malformed_result_of_a_server_is_not_forwarded() {
    scene(|_| async move {
        let body = r#""result":{"content":[{"type":"text" "text":"x"}]}"#.to_owned();
        let script = Script::legacy().fault(FaultTrigger::tool("echo"), Fault::Body(body));
        let kit = GatewayKit::start(script).await;
        let session = kit.session().await;
        let reply = kit.post(&session, &call(1, "echo", json!({"message": "hi"}))).await;
        assert_eq!((&reply.json()["id"], error_code(&reply)), (&json!(1), -32603), "{reply:?}");
        kit.stop().await;
    });
}

#[test]
fn a_request_that_is_nested_too_deeply_does_not_reach_a_server() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let session = kit.session().await;
        let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
        for arguments in [&*deep, "[1 2]"] {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{"x":{arguments}}}}}}}"#
            );
            let head = post(&session, &json!({})).replace("Content-Length: 2\r\n\r\n{}", "");
            let reply = kit.send(&format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).await;
            assert_eq!(reply.status, 400, "{reply:?}");
        }
        assert_eq!(kit.scripted.received_of("tools/call").len(), 0);
        kit.stop().await;
    });
}
