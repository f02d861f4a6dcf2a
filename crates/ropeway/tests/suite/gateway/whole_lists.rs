//! Lists with odd entries, their pages, and calls of what they list.

use std::collections::HashSet;

use ropeway::config::{Config, GatewaySettings, ProfileSettings, ServerEntry};
use ropeway::gateway::Gateway;
use ropeway::testing::{Fault, FaultTrigger, Script, ScriptedServer};
use serde_json::{Value, json};

use super::kit::{GatewayKit, HttpReply, bare, entry, modern, next_message, post, read_rest, request};
use crate::fast_config::{fast_config, ms, until};
use crate::scene::scene;

/// A server with tools that clients refuse together with the whole list.
fn odd() -> Script {
    let result = json!({"content": [{"type": "text", "text": "called"}]});
    // `@modelcontextprotocol/server-gitlab` 2025.4.25 lists such schemas.
    let untyped = json!({"$schema": "http://json-schema.org/draft-07/schema#"});
    Script { builtin_tools: false, ..Script::legacy() }
        .tool(json!({"name": "untyped", "inputSchema": untyped, "outputSchema": {"properties": {}}}), result.clone())
        .tool(json!({"name": "text", "inputSchema": {"type": "string"}}), result.clone())
        .tool(json!({"name": "fine", "inputSchema": {"type": "object", "b": 1, "a": 2}}), result)
}

#[test]
fn one_odd_tool_does_not_break_the_list() {
    scene(|_| async move {
        let (good, server) = (ScriptedServer::new(Script::modern()), ScriptedServer::new(odd()));
        let config = Config::default().with_server(entry("good", &good)).with_server(entry("odd", &server));
        let kit = GatewayKit::launch(server, Gateway::builder(config)).await;
        let session = kit.session().await;
        let legacy = kit.post(&session, &request(1, "tools/list", json!({}))).await;
        for (reply, is_legacy) in [(legacy, true), (kit.modern("tools/list", json!({})).await, false)] {
            let result = reply.json()["result"].clone();
            let tools = result["tools"].as_array().expect("tools");
            let find = |name: &str| tools.iter().find(|tool| tool["name"] == name);
            assert!(tools.iter().all(|tool| tool["inputSchema"]["type"] == "object"), "{result}");
            let schema = r#""inputSchema":{"type":"object","$schema":"http://json-schema.org/draft-07/schema#"}"#;
            assert!(reply.body.contains(schema), "{reply:?}");
            assert!(
                reply.body.contains(r#"{"name":"odd_fine","inputSchema":{"type":"object","b":1,"a":2}}"#),
                "{reply:?}"
            );
            let output = &find("odd_untyped").expect("a tool")["outputSchema"];
            assert_eq!(output["type"].is_string(), is_legacy, "{output}");
            assert!(find("good_echo").is_some() && find("odd_text").is_none(), "{result}");
            let left_out = json!([{"alias": "odd", "state": "ready",
                "reason": "left out: tool `text` has an `inputSchema` of the type `string`"}]);
            assert_eq!(result["_meta"]["dev.ropeway/servers"], left_out);
        }
        let page = kit.send(&bare("GET", "/api/status", "Host: localhost\r\n")).await;
        assert!(page.body.contains("left out: tool `text`"), "{page:?}");
        kit.stop().await;
    });
}

#[test]
fn one_odd_resource_or_prompt_does_not_break_the_list() {
    scene(|_| async move {
        let set =
            |method: &str, pointer: &str, value: Value| (FaultTrigger::method(method), Fault::set(pointer, value));
        let faults = [
            set("resources/list", "/result/resources/0", json!({"uri": "no scheme", "size": "7"})),
            set("resources/templates/list", "/result/resourceTemplates/0/name", json!(null)),
            set("prompts/list", "/result/prompts/0/arguments", json!({"type": "object"})),
        ];
        let script =
            faults.into_iter().fold(Script::default(), |script, (trigger, fault)| script.fault(trigger, fault));
        let kit = GatewayKit::start(script).await;
        let list = async |method: &str, key: &str| kit.modern(method, json!({})).await.json()["result"][key][0].clone();
        // The Python SDK 1 refuses a list with a URI that has no scheme.
        let uri = "ropeway://scripted/relative:no%20scheme";
        assert_eq!(list("resources/list", "resources").await, json!({"uri": uri, "name": "no scheme"}));
        let template = list("resources/templates/list", "resourceTemplates").await;
        assert_eq!(template["name"], template["uriTemplate"], "{template}");
        assert_eq!(list("prompts/list", "prompts").await.get("arguments"), None);
        kit.modern("resources/read", json!({"uri": uri})).await;
        assert_eq!(kit.scripted.received_of("resources/read")[0]["params"]["uri"], "no scheme");
        kit.stop().await;
    });
}

/// Reads all pages of a list. Fails if they do not end.
async fn all_pages(kit: &GatewayKit, method: &str, key: &str) -> Vec<Value> {
    let (mut params, mut entries, mut cursors) = (json!({}), Vec::new(), HashSet::new());
    for _ in 0..20 {
        let result = kit.modern(method, params).await.json()["result"].clone();
        entries.extend(result[key].as_array().unwrap_or_else(|| panic!("{result}")).clone());
        let Some(cursor) = result["nextCursor"].as_str() else { return entries };
        assert!(cursors.insert(cursor.to_owned()));
        params = json!({"cursor": cursor});
    }
    panic!("the pages do not end: {entries:?}");
}

#[test]
fn pages_end_although_a_server_lists_a_uri_twice() {
    scene(|_| async move {
        let entry = |name: &str, uri: &str| json!({"name": name, "uri": uri});
        let long = format!("test://{}", "x".repeat(7_000));
        let listed = json!([
            entry("a", "test://same"),
            entry("b", "test://same"),
            entry("c", "test://same"),
            entry("d", &long),
            entry("e", "test://other"),
            entry("f", "test://same")
        ]);
        let fault = Fault::set("/result/resources", listed.clone());
        let script = Script::default().fault(FaultTrigger::method("resources/list"), fault);
        for page_size in [1, 2, 4, 6] {
            let mut settings = GatewaySettings::default();
            settings.page_size = page_size;
            let kit = GatewayKit::start_with(script.clone(), settings).await;
            assert_eq!(Value::from(all_pages(&kit, "resources/list", "resources").await), listed, "{page_size}");
            kit.stop().await;
        }
    });
}

/// Sends a modern call of a tool in the search profile.
async fn in_search(kit: &GatewayKit, tool: &str, arguments: Value) -> HttpReply {
    let params = json!({"name": "call_tool", "arguments": {"name": tool, "arguments": arguments}});
    kit.send(&modern("tools/call", params).replacen("/mcp ", "/mcp/search ", 1)).await
}

#[test]
fn a_tool_with_header_params_can_be_called_through_a_search() {
    scene(|_| async move {
        let settings = GatewaySettings::default().with_profile(ProfileSettings::new("search").with_search(true));
        let kit = GatewayKit::start_with(Script::modern(), settings).await;
        let reply = in_search(&kit, "locate", json!({"region": "eu"})).await;
        assert_eq!(reply.json()["result"]["content"][0]["text"], "eu", "{reply:?}");
        // The call of the tool itself has to mirror its argument.
        let direct = kit.modern("tools/call", json!({"name": "locate", "arguments": {"region": "eu"}})).await;
        assert_eq!(direct.json()["error"]["code"], -32020, "{direct:?}");
        kit.stop().await;
    });
}

#[test]
fn a_search_names_the_tools_that_are_similar_to_an_unknown_one() {
    scene(|_| async move {
        let settings = GatewaySettings::default().with_profile(ProfileSettings::new("search").with_search(true));
        let kit = GatewayKit::start_with(Script::modern(), settings).await;
        let result = in_search(&kit, "eco", json!({})).await.json()["result"].clone();
        assert_eq!(result["isError"], true, "{result}");
        let text = result["content"][0]["text"].as_str().expect("a text");
        assert!(text.starts_with("Unknown tool: eco; did you mean `echo`"), "{text}");
        assert!(text.ends_with("Use `find_tools` to find tools."), "{text}");
        // Without search, the protocol error of the SDKs.
        let direct = kit.modern("tools/call", json!({"name": "eco"})).await;
        assert_eq!(direct.json()["error"]["code"], -32602, "{direct:?}");
        kit.stop().await;
    });
}

#[test]
fn the_task_of_a_message_has_the_id_that_the_client_knows() {
    scene(|_| async move {
        let kit = GatewayKit::start(Script::legacy()).await;
        let session = kit.session_with(json!({"tasks": {}, "elicitation": {"form": {}}})).await;
        let call = json!({"name": "task", "arguments": {"ms": 100}, "task": {}});
        let created = kit.post(&session, &request(1, "tools/call", call)).await.json()["result"].clone();
        let id = created["task"]["taskId"].as_str().unwrap_or_else(|| panic!("{created}")).to_owned();
        let result = kit.post(&session, &request(2, "tasks/result", json!({"taskId": id}))).await;
        let result = result.events().last().cloned().unwrap_or_else(|| result.json());
        let related = &result["result"]["_meta"]["io.modelcontextprotocol/related-task"];
        assert_eq!(*related, json!({"taskId": id}), "{result}");
        // A request of the server during another call.
        let own = kit.scripted.received_of("tasks/result")[0]["params"]["taskId"].clone();
        assert_ne!(own, json!(id));
        let sleep = request(3, "tools/call", json!({"name": "sleep", "arguments": {"ms": 1000}}));
        let mut stream = kit.open(&post(&session, &sleep)).await;
        kit.scripted.wait_for("tools/call", 2).await;
        let meta = json!({"io.modelcontextprotocol/related-task": {"taskId": own}});
        let schema = json!({"type": "object", "properties": {}});
        let params = json!({"mode": "form", "message": "Go on?", "requestedSchema": schema, "_meta": meta});
        kit.scripted.push(json!({"jsonrpc": "2.0", "id": "s-1", "method": "elicitation/create", "params": params}));
        let asked = next_message(&mut stream).await;
        assert_eq!(asked["params"]["_meta"]["io.modelcontextprotocol/related-task"]["taskId"], json!(id), "{asked}");
        let meta = asked["params"]["_meta"].clone();
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline", "_meta": meta}});
        assert_eq!(kit.post(&session, &answer).await.status, 202);
        let is_answer = |message: &&Value| message["id"] == "s-1" && message.get("result").is_some();
        until("the answer", || kit.scripted.received().iter().any(|message| is_answer(&message))).await;
        let answers: Vec<Value> = kit.scripted.received();
        let answer = answers.iter().find(is_answer).expect("an answer");
        assert_eq!(answer["result"]["_meta"]["io.modelcontextprotocol/related-task"]["taskId"], own, "{answer}");
        read_rest(stream).await;
        kit.stop().await;
    });
}

#[test]
fn the_result_of_a_task_has_no_idle_timeout() {
    scene(|_| async move {
        let scripted = ScriptedServer::new(Script::legacy());
        let mut server = fast_config(scripted.in_process());
        server.alias = "scripted".into();
        server.timeouts.idle = ms(500);
        let config = Config::default().with_server(ServerEntry::new(server));
        let kit = GatewayKit::launch(scripted, Gateway::builder(config)).await;
        let session = kit.session_with(json!({"tasks": {}})).await;
        let call = json!({"name": "task", "arguments": {"ms": 2000}, "task": {}});
        let created = kit.post(&session, &request(1, "tools/call", call)).await.json()["result"].clone();
        let result =
            kit.post(&session, &request(2, "tasks/result", json!({"taskId": created["task"]["taskId"]}))).await;
        assert!(result.body.contains("related-task"), "{result:?}");
        // Other requests have one.
        let sleep = request(3, "tools/call", json!({"name": "sleep", "arguments": {"ms": 5000}}));
        let late = kit.post(&session, &sleep).await;
        assert!(late.body.contains("\"error\""), "{late:?}");
        kit.stop().await;
    });
}
