//! The tools that the scenarios call.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::call::{Asker, Call, Interrupt, Outcome, Outgoing};
use crate::content::{PNG, WAV};
use crate::rounds::Question;
use crate::server::Change;
use crate::task_methods;
use crate::wire::{Era, INTERNAL, INVALID_PARAMS, RpcError};

/// Each plain-schema tool's name, description and arguments. Arguments are written as `name:type`.
const TOOLS: &[(&str, &str, &[&str])] = &[
    ("test_simple_text", "Returns text", &[]),
    ("test_image_content", "Returns an image", &[]),
    ("test_audio_content", "Returns audio", &[]),
    ("test_embedded_resource", "Returns a resource", &[]),
    ("test_multiple_content_types", "Returns text, an image and a resource", &[]),
    ("test_tool_with_logging", "Sends three log messages", &[]),
    ("test_logging_tool", "Sends a log message", &[]),
    ("test_error_handling", "Always fails", &[]),
    ("test_tool_with_progress", "Reports progress", &[]),
    ("test_sampling", "Samples the client's model", &["prompt:string"]),
    ("test_elicitation", "Asks the user", &["message:string"]),
    ("test_elicitation_sep1034_defaults", "Asks for values with defaults", &[]),
    ("test_elicitation_sep1330_enums", "Asks for values of enums", &[]),
    ("test_reconnection", "Ends its stream before its result", &[]),
    ("test_missing_capability", "Requires sampling", &[]),
    ("test_streaming_elicitation", "Asks while it reports progress", &[]),
    ("test_trigger_tool_change", "Changes the list of tools", &[]),
    ("test_trigger_prompt_change", "Changes the list of prompts", &[]),
    ("test_trigger_resource_update", "Updates a resource", &["uri:string"]),
    ("test_input_required_result_elicitation", "Asks for a name", &[]),
    ("test_input_required_result_sampling", "Asks the model for a capital", &[]),
    ("test_input_required_result_list_roots", "Asks for the roots", &[]),
    ("test_input_required_result_request_state", "Asks for a confirmation", &[]),
    ("test_input_required_result_multiple_inputs", "Asks three questions at once", &[]),
    ("test_input_required_result_multi_round", "Asks two questions in turn", &[]),
    ("test_input_required_result_tampered_state", "Asks with a signed state", &[]),
    ("test_input_required_result_capabilities", "Asks only what the client can answer", &[]),
    ("greet", "Says hello", &["name:string"]),
    ("slow_compute", "Runs for a while, as a task if possible", &["seconds:number", "label:string"]),
    ("failing_job", "Fails, as a task", &[]),
    ("protocol_error_job", "Fails with a protocol error, as a task", &[]),
    ("confirm_delete", "Asks before it deletes, as a task if possible", &["filename:string"]),
    ("multi_input", "Asks two questions, as a task if possible", &[]),
    ("test_tool_with_task", "Asks for a name and goes on as a task", &[]),
];

/// Returns the `tools/list` result.
pub fn list(call: &Call) -> Value {
    let plain = TOOLS.iter().map(|(name, description, arguments)| {
        let properties: serde_json::Map<String, Value> = arguments
            .iter()
            .filter_map(|argument| argument.split_once(':'))
            .map(|(name, kind)| (name.to_owned(), json!({ "type": kind })))
            .collect();
        json!({ "name": name, "description": description,
            "inputSchema": { "type": "object", "properties": properties } })
    });
    let mut tools: Vec<Value> = plain.collect();
    tools.push(header_tool());
    tools.push(schema_tool());
    if call.server.extra_tool.load(Ordering::Relaxed) {
        tools.push(json!({ "name": "test_dynamic_tool", "description": "Comes and goes",
            "inputSchema": { "type": "object" } }));
    }
    json!({ "tools": tools })
}

/// Returns the tool with an argument that is mirrored in a header.
pub fn header_tool() -> Value {
    json!({ "name": "test_custom_header", "description": "Has an argument that is mirrored in a header",
        "inputSchema": { "type": "object",
            "properties": { "region": { "type": "string", "x-mcp-header": "Region" } } } })
}

/// Returns the tool with JSON Schema 2020-12 keywords.
fn schema_tool() -> Value {
    json!({ "name": "json_schema_2020_12_tool", "description": "Tool with JSON Schema 2020-12 features",
        "inputSchema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": { "address": { "$anchor": "addressDef", "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } } } },
            "properties": {
                "name": { "type": "string" }, "address": { "$ref": "#/$defs/address" },
                "contactMethod": { "type": "string", "enum": ["phone", "email"] },
                "phone": { "type": "string" }, "email": { "type": "string" },
            },
            "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
            "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
            "then": { "required": ["phone"] }, "else": { "required": ["email"] },
            "additionalProperties": false,
        } })
}

/// Returns the `tools/call` result.
pub async fn run(call: &Call) -> Outcome {
    let done = match call.text("name") {
        "slow_compute"
        | "failing_job"
        | "protocol_error_job"
        | "confirm_delete"
        | "multi_input"
        | "test_tool_with_task" => job(call).await,
        name if name.starts_with("test_input_required_result_") => rounds(call, name).await,
        name if name.starts_with("test_trigger_") => trigger(call, name),
        name => plain(call, name).await,
    };
    match (call.era, done) {
        // Tools report their own failures as results in the legacy era, as the SDKs' tools do.
        (Era::Legacy, Err(Interrupt::Error(error))) if error.code != INVALID_PARAMS => {
            Ok(failure(&error.to_value()["message"].to_string()))
        }
        (_, done) => done,
    }
}

async fn plain(call: &Call, name: &str) -> Outcome {
    let resource = |uri: &str, kind: &str, text: &str| json!({ "type": "resource", "resource": { "uri": uri, "mimeType": kind, "text": text } });
    let image = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
    let pause = || sleep(Duration::from_millis(50));
    Ok(match name {
        "test_simple_text" => text("This is a simple text response for testing."),
        "test_image_content" => json!({ "content": [image] }),
        "test_audio_content" => json!({ "content": [{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }] }),
        "test_embedded_resource" => {
            let content = "This is an embedded resource content.";
            json!({ "content": [resource("test://embedded-resource", "text/plain", content)] })
        }
        "test_multiple_content_types" => json!({ "content": [
            { "type": "text", "text": "Multiple content types test:" },
            image,
            resource("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#),
        ] }),
        "test_tool_with_logging" => {
            call.log("info", "Tool execution started");
            pause().await;
            call.log("info", "Tool processing data");
            pause().await;
            call.log("info", "Tool execution completed");
            text("Tool with logging executed successfully")
        }
        "test_logging_tool" => {
            call.log("info", "A log message");
            text("Logged")
        }
        "test_error_handling" => failure("This tool intentionally returns an error for testing"),
        "test_tool_with_progress" => {
            call.progress(0, 100);
            pause().await;
            call.progress(50, 100);
            pause().await;
            call.progress(100, 100);
            text("Tool with progress executed successfully")
        }
        "test_sampling" => {
            let prompt = call.argument("prompt").as_str().unwrap_or_default();
            let answer = call.ask(Question::sampling("answer", prompt, 100)).await?;
            text(&format!("LLM response: {}", answer["content"]["text"].as_str().unwrap_or_default()))
        }
        "test_elicitation" => {
            let field = |description: &str| json!({ "type": "string", "description": description });
            let schema = json!({ "type": "object", "required": ["username", "email"],
                "properties": { "username": field("User's response"), "email": field("User's email address") } });
            let message = call.argument("message").as_str().unwrap_or_default();
            let answer = call.ask(Question::elicitation("answer", message, schema)).await?;
            text(&format!("User response: action={}, content={}", answer["action"], answer["content"]))
        }
        "test_elicitation_sep1034_defaults" => elicited(call, defaults()).await?,
        "test_elicitation_sep1330_enums" => elicited(call, enums()).await?,
        "test_reconnection" => {
            // Fails if the client is gone.
            let _ = call.outlet.send(Outgoing::EndStream);
            sleep(Duration::from_millis(100)).await;
            text("Reconnection test completed successfully")
        }
        "test_missing_capability" => {
            if call.capabilities.get("sampling").is_none() {
                return Err(RpcError::missing_capability(json!({ "sampling": {} })).into());
            }
            text("The client declared sampling")
        }
        "test_streaming_elicitation" => {
            call.progress(1, 2);
            let answer = call.ask(Question::form("user_name", "What is your name?", "name", "string")).await?;
            text(&format!("Hello, {}!", answer["content"]["name"].as_str().unwrap_or_default()))
        }
        "test_custom_header" => text(&format!("region={}", call.argument("region"))),
        "json_schema_2020_12_tool" => text("JSON Schema 2020-12 tool called"),
        "test_dynamic_tool" => text("A tool that comes and goes"),
        "greet" => text(&format!("Hello, {}!", call.argument("name").as_str().unwrap_or_default())),
        _ => return Err(RpcError::new(INVALID_PARAMS, format!("unknown tool `{name}`")).into()),
    })
}

fn trigger(call: &Call, name: &str) -> Outcome {
    let change = match name {
        "test_trigger_tool_change" => {
            call.server.extra_tool.fetch_xor(true, Ordering::Relaxed);
            Change::Tools
        }
        "test_trigger_prompt_change" => {
            call.server.extra_prompt.fetch_xor(true, Ordering::Relaxed);
            Change::Prompts
        }
        "test_trigger_resource_update" => {
            let uri = call.argument("uri").as_str().unwrap_or("test://watched-resource");
            Change::Resource(uri.to_owned())
        }
        _ => return Err(RpcError::new(INVALID_PARAMS, format!("unknown tool `{name}`")).into()),
    };
    call.server.announce(change);
    Ok(text("changed"))
}

/// Runs a tool that asks questions; in the modern era, it runs once per round.
async fn rounds(call: &Call, name: &str) -> Outcome {
    let name_form = |key| Question::form(key, "What is your name?", "name", "string");
    Ok(match name.trim_start_matches("test_input_required_result_") {
        "elicitation" => {
            let answer = call.ask(name_form("user_name")).await?;
            text(&format!("Hello, {}!", answer["content"]["name"].as_str().unwrap_or_default()))
        }
        "sampling" => {
            let question = Question::sampling("capital_question", "What is the capital of France?", 100);
            text(call.ask(question).await?["content"]["text"].as_str().unwrap_or_default())
        }
        "list_roots" => text(&call.ask(Question::roots("client_roots")).await?["roots"].to_string()),
        "request_state" | "tampered_state" => {
            call.ask(Question::form("confirm", "Please confirm", "ok", "boolean")).await?;
            text("state-ok")
        }
        "multiple_inputs" => {
            let greeting = Question::sampling("greeting", "Generate a greeting", 50);
            let questions = vec![name_form("user_name"), greeting, Question::roots("client_roots")];
            text(&Value::Object(call.ask_all(questions).await?).to_string())
        }
        "multi_round" => {
            let first = Question::form("step1", "Step 1: What is your name?", "name", "string");
            let first = call.ask(first).await?;
            let second = Question::form("step2", "Step 2: What is your favorite color?", "color", "string");
            let second = call.ask(second).await?;
            text(&format!("{} likes {}", first["content"]["name"], second["content"]["color"]))
        }
        "capabilities" => {
            let mut questions = vec![
                name_form("user_name"),
                Question::sampling("greeting", "Generate a greeting", 50),
                Question::roots("client_roots"),
            ];
            questions.retain(|question| call.can_answer(question));
            text(&Value::Object(call.ask_all(questions).await?).to_string())
        }
        _ => return Err(RpcError::new(INVALID_PARAMS, format!("unknown tool `{name}`")).into()),
    })
}

/// Runs a tool from the tasks extension: as a task if the client can, otherwise to its end.
async fn job(call: &Call) -> Outcome {
    let name = call.text("name").to_owned();
    let is_required = matches!(name.as_str(), "failing_job" | "protocol_error_job" | "test_tool_with_task");
    if call.era == Era::Legacy {
        return work(call.clone()).await;
    }
    if !call.has_tasks() {
        return if is_required { Err(task_methods::missing_extension().into()) } else { work(call.clone()).await };
    }
    if name == "test_tool_with_task" {
        // The questions come before the task.
        call.ask(Question::form("user_name", "What is your name?", "name", "string")).await?;
    }
    Ok(task_methods::spawn(call, work))
}

async fn work(call: Call) -> Outcome {
    Ok(match call.text("name") {
        "slow_compute" => {
            let seconds = call.argument("seconds").as_f64().unwrap_or_default().clamp(0.0, 600.0);
            sleep(Duration::from_secs_f64(seconds)).await;
            text(&format!("computed {}", call.argument("label").as_str().unwrap_or_default()))
        }
        "failing_job" => {
            sleep(Duration::from_millis(500)).await;
            failure("the job failed")
        }
        "protocol_error_job" => return Err(RpcError::new(INTERNAL, "the job broke").into()),
        "confirm_delete" => {
            let message = format!("Delete {}?", call.argument("filename"));
            let answer = call.ask(Question::form("confirm", &message, "confirm", "boolean")).await?;
            text(&format!("confirmed: {}", answer["content"]["confirm"]))
        }
        "multi_input" => {
            let name = Question::form("name", "What is your name?", "name", "string");
            let confirm = Question::form("confirm", "Go on?", "confirm", "boolean");
            text(&Value::Object(call.ask_all(vec![name, confirm]).await?).to_string())
        }
        // In a task, the answer from the rounds before it is in the request.
        _ => {
            let question = Question::form("user_name", "What is your name?", "name", "string");
            let asker = if call.era == Era::Modern { Asker::Rounds(Arc::default()) } else { call.asker.clone() };
            let answer = Call { asker, ..call }.ask(question).await?;
            text(&format!("Hello, {}!", answer["content"]["name"].as_str().unwrap_or_default()))
        }
    })
}

async fn elicited(call: &Call, properties: Value) -> Outcome {
    let schema = json!({ "type": "object", "properties": properties, "required": [] });
    let answer = call.ask(Question::elicitation("answer", "Please review these values", schema)).await?;
    Ok(text(&format!("Elicitation completed: action={}, content={}", answer["action"], answer["content"])))
}

fn defaults() -> Value {
    json!({
        "name": { "type": "string", "description": "User name", "default": "John Doe" },
        "age": { "type": "integer", "description": "User age", "default": 30 },
        "score": { "type": "number", "description": "User score", "default": 95.5 },
        "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
        "verified": { "type": "boolean", "description": "Verification status", "default": true },
    })
}

fn enums() -> Value {
    let titled = |names: [&str; 3]| {
        let values = names.iter().enumerate();
        values.map(|(at, title)| json!({ "const": format!("value{}", at + 1), "title": title })).collect::<Vec<_>>()
    };
    json!({
        "untitledSingle": { "type": "string", "enum": ["option1", "option2", "option3"] },
        "titledSingle": { "type": "string", "oneOf": titled(["First Option", "Second Option", "Third Option"]) },
        "legacyEnum": { "type": "string", "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"] },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": ["option1", "option2", "option3"] } },
        "titledMulti": { "type": "array",
            "items": { "anyOf": titled(["First Choice", "Second Choice", "Third Choice"]) } },
    })
}

fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

fn failure(message: &str) -> Value {
    json!({ "isError": true, "content": [{ "type": "text", "text": message }] })
}
