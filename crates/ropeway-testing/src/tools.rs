//! The tools that every scripted server has.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::call::{CallOutcome, ClientCall, ClientRequest, ScriptedError};
use super::scripted::ScriptedServer;
use super::task::{Task, TaskState};
use ropeway_mcp::protocol::Era;

/// Returns the definitions for an era and a version.
pub(super) fn definitions(era: Era, version: &str) -> Vec<Value> {
    let number = json!({ "type": "number" });
    let mut task = define(
        "task",
        "Works on after the call",
        json!({
        "ms": { "type": "integer" }, "fail": { "type": "boolean" }, "ask": { "type": "boolean" } }),
        &[],
    );
    if era == Era::Legacy && version == "2025-11-25" {
        task["execution"] = json!({ "taskSupport": "required" });
    }
    let mut add = define("add", "Adds two numbers", json!({ "a": number, "b": number }), &["a", "b"]);
    add["outputSchema"] = json!({ "type": "object", "properties": { "sum": number }, "required": ["sum"] });
    let mut echo = define("echo", "Says it back", json!({ "message": { "type": "string" } }), &["message"]);
    echo["annotations"] = json!({ "title": "Echo", "readOnlyHint": true, "idempotentHint": true });
    let region = json!({ "region": { "type": "string", "x-mcp-header": "Region" } });
    vec![
        echo,
        add,
        define("sleep", "Takes its time", json!({ "ms": { "type": "integer" }, "steps": { "type": "integer" } }), &[]),
        define(
            "blob",
            "Answers with much",
            json!({
            "bytes": { "type": "integer" },
            "kind": { "type": "string", "enum": ["text", "image", "structured"] } }),
            &["bytes"],
        ),
        define("fail", "Fails", json!({ "message": { "type": "string" } }), &[]),
        define("refuse", "Answers with a protocol error", json!({}), &[]),
        define("crash", "Ends the server", json!({}), &[]),
        define(
            "elicit",
            "Asks the person",
            json!({
            "message": { "type": "string" }, "rounds": { "type": "integer" },
            "mode": { "type": "string", "enum": ["form", "url"] } }),
            &[],
        ),
        define("sample", "Asks the model", json!({ "prompt": { "type": "string" } }), &[]),
        define("roots", "Asks for the roots", json!({}), &[]),
        task,
        define(
            "log",
            "Writes to the log",
            json!({
            "level": { "type": "string" }, "message": { "type": "string" } }),
            &[],
        ),
        define("touch", "Changes a resource", json!({ "uri": { "type": "string" } }), &["uri"]),
        define("grow", "Adds a tool", json!({ "name": { "type": "string" } }), &["name"]),
        define("locate", "Says where", region, &["region"]),
        define("pid", "Says which processes these are", json!({}), &[]),
    ]
}

fn define(name: &str, description: &str, properties: Value, required: &[&str]) -> Value {
    json!({ "name": name, "description": description,
        "inputSchema": { "type": "object", "properties": properties, "required": required } })
}

/// Calls a tool.
pub(super) fn call(scripted: &ScriptedServer, call: &ClientCall) -> CallOutcome {
    let name = call.params.get("name").and_then(Value::as_str).unwrap_or_default();
    let nothing = Map::new();
    let arguments = call.params.get("arguments").and_then(Value::as_object).unwrap_or(&nothing);
    if let Some(result) = scripted.extra_result(name) {
        return CallOutcome::Raw(result);
    }
    if !scripted.script().builtin_tools {
        return ScriptedError::new(-32602, format!("unknown tool `{name}`")).into();
    }
    let text_of = |key: &str| arguments.get(key).and_then(Value::as_str);
    let number_of = |key: &str| arguments.get(key).and_then(Value::as_u64);
    match name {
        "echo" => match text_of("message") {
            Some(message) => CallOutcome::Answer(text(message)),
            None => CallOutcome::Answer(failure("`message` is missing")),
        },
        "add" => match (arguments.get("a").and_then(Value::as_f64), arguments.get("b").and_then(Value::as_f64)) {
            (Some(a), Some(b)) => {
                let sum = json!({ "sum": a + b });
                let mut result = text(&sum.to_string());
                result["structuredContent"] = sum;
                CallOutcome::Answer(result)
            }
            _ => CallOutcome::Answer(failure("`a` and `b` must be numbers")),
        },
        "sleep" => sleep(call, number_of("ms").unwrap_or(100), number_of("steps").unwrap_or(1)),
        "blob" => {
            let bytes = usize::try_from(number_of("bytes").unwrap_or(1024)).unwrap_or(1024);
            CallOutcome::Answer(blob(bytes, text_of("kind").unwrap_or("text")))
        }
        "fail" => CallOutcome::Answer(failure(text_of("message").unwrap_or("it did not work"))),
        "refuse" => ScriptedError::new(-32000, "the tool refuses").into(),
        "crash" => CallOutcome::Exit(1),
        "elicit" => {
            let message = text_of("message").unwrap_or("What is your name?");
            let params = if text_of("mode") == Some("url") {
                let mut params = json!({ "mode": "url", "message": message, "url": "https://example.com/form" });
                if call.era == Era::Legacy {
                    params["elicitationId"] = json!("elicitation-1");
                }
                params
            } else {
                json!({ "mode": "form", "message": message, "requestedSchema": { "type": "object",
                    "properties": { "name": { "type": "string", "default": "nobody" } }, "required": ["name"] } })
            };
            let rounds = number_of("rounds").unwrap_or(1);
            CallOutcome::ClientRequest(ClientRequest {
                capability: "elicitation",
                method: "elicitation/create",
                params,
                rounds,
            })
        }
        "sample" => {
            let prompt = text_of("prompt").unwrap_or("Say hello.");
            let params = json!({ "maxTokens": 100, "messages": [
                { "role": "user", "content": { "type": "text", "text": prompt } }] });
            CallOutcome::ClientRequest(ClientRequest {
                capability: "sampling",
                method: "sampling/createMessage",
                params,
                rounds: 1,
            })
        }
        "roots" => CallOutcome::ClientRequest(ClientRequest {
            capability: "roots",
            method: "roots/list",
            params: json!({}),
            rounds: 1,
        }),
        "task" => start_task(scripted, call, arguments),
        "log" => log(call, text_of("level").unwrap_or("info"), text_of("message").unwrap_or("a line")),
        "touch" => {
            let uri = text_of("uri").unwrap_or_default();
            scripted.touched(uri);
            CallOutcome::Answer(text(uri))
        }
        "grow" => {
            let name = text_of("name").unwrap_or("grown").to_owned();
            // A definition may replace one with the same name.
            let definition = arguments.get("definition").cloned();
            let definition = definition.unwrap_or_else(|| json!({ "name": name, "inputSchema": { "type": "object" } }));
            scripted.set(|script| {
                script.extra_tools.retain(|tool| tool.definition["name"] != definition["name"]);
                script.extra_tools.push(super::script::ExtraTool::new(definition, text("grown")));
            });
            scripted.changed("tools");
            CallOutcome::Answer(text(&name))
        }
        "locate" => CallOutcome::Answer(text(text_of("region").unwrap_or("nowhere"))),
        "pid" => {
            let pids = json!({ "server": std::process::id(), "grandchild": scripted.grandchild() });
            let mut result = text(&pids.to_string());
            result["structuredContent"] = pids;
            CallOutcome::Answer(result)
        }
        _ => ScriptedError::new(-32602, format!("unknown tool `{name}`")).into(),
    }
}

/// Returns a result with one text.
pub(super) fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

fn failure(message: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": message }], "isError": true })
}

fn sleep(call: &ClientCall, ms: u64, steps: u64) -> CallOutcome {
    let steps = steps.max(1);
    let step = Duration::from_millis(ms) / u32::try_from(steps).unwrap_or(1);
    let before = (1..=steps)
        .map(|n| {
            let progress = call.progress_token().map(|token| {
                json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": {
                    "progressToken": token, "progress": n, "total": steps, "message": format!("step {n} of {steps}") } })
            });
            (step, progress)
        })
        .collect();
    CallOutcome::Steps { before, answer: text(&format!("slept {ms} ms")) }
}

fn log(call: &ClientCall, level: &str, message: &str) -> CallOutcome {
    let line = json!({ "jsonrpc": "2.0", "method": "notifications/message",
        "params": { "level": level, "logger": "scripted", "data": message } });
    // Modern clients request log messages per request.
    let wanted = call.era == Era::Legacy || call.meta("io.modelcontextprotocol/logLevel").is_some();
    CallOutcome::Steps { before: vec![(Duration::ZERO, wanted.then_some(line))], answer: text("logged") }
}

fn blob(bytes: usize, kind: &str) -> Value {
    match kind {
        "image" => {
            let data = STANDARD.encode(vec![0x5a_u8; bytes]);
            json!({ "content": [{ "type": "image", "data": data, "mimeType": "image/png" }] })
        }
        "structured" => {
            let rows: Vec<Value> = (0..bytes / 32).map(|n| json!({ "row": n, "text": "structured" })).collect();
            json!({ "content": [], "structuredContent": { "rows": rows } })
        }
        _ => text(&"x".repeat(bytes)),
    }
}

fn start_task(scripted: &ScriptedServer, call: &ClientCall, arguments: &Map<String, Value>) -> CallOutcome {
    let takes = Duration::from_millis(arguments.get("ms").and_then(Value::as_u64).unwrap_or(50));
    let asks = arguments.get("ask") == Some(&Value::Bool(true));
    let fails = arguments.get("fail") == Some(&Value::Bool(true));
    let result = text("the task is done");
    let core_tasks = call.era == Era::Legacy && call.version == "2025-11-25";
    if core_tasks && !call.params.contains_key("task") {
        return ScriptedError::new(-32601, "`task` can only be called as a task").into();
    }
    if call.era == Era::Legacy && !core_tasks {
        return CallOutcome::Steps { before: vec![(takes, None)], answer: result };
    }
    if call.era == Era::Modern && call.capabilities["extensions"].get(super::call::TASKS).is_none() {
        let required = json!({ "requiredCapabilities": { "extensions": { super::call::TASKS: {} } } });
        return ScriptedError::new(-32021, "the client does not take tasks").with(required).into();
    }
    let state = match (call.era, asks, fails) {
        (Era::Modern, true, _) => TaskState::Asking,
        (_, _, true) => TaskState::Failing,
        _ => TaskState::Running,
    };
    let task = scripted.tasks(|tasks| {
        let id = format!("task-{}", tasks.len() + 1);
        let task = Task { id: id.clone(), started: Instant::now(), takes, state, result };
        tasks.insert(id, task.clone());
        task
    });
    match call.era {
        Era::Legacy => CallOutcome::Answer(json!({ "task": task.legacy() })),
        Era::Modern => {
            let mut result = task.modern();
            result["resultType"] = json!("task");
            CallOutcome::Answer(result)
        }
    }
}
