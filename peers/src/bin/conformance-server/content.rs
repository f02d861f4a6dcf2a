//! Prompts, resources and completions.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::call::{Call, Outcome};
use crate::rounds::Question;
use crate::wire::{Era, INVALID_PARAMS, RpcError};

/// A red pixel.
pub const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// One silent sample.
pub const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA==";

/// Returns the `prompts/list` result.
pub fn prompts(call: &Call) -> Value {
    let argument =
        |name: &str, description: &str| json!({ "name": name, "description": description, "required": true });
    let prompt = |name: &str, description: &str| json!({ "name": name, "description": description });
    let with = |mut prompt: Value, arguments: Value| {
        prompt["arguments"] = arguments;
        prompt
    };
    let mut prompts = vec![
        prompt("test_simple_prompt", "A prompt without arguments"),
        with(
            prompt("test_prompt_with_arguments", "A prompt with arguments"),
            json!([argument("arg1", "First test argument"), argument("arg2", "Second test argument")]),
        ),
        with(
            prompt("test_prompt_with_embedded_resource", "A prompt with a resource"),
            json!([argument("resourceUri", "URI of the resource to embed")]),
        ),
        prompt("test_prompt_with_image", "A prompt with an image"),
        prompt("test_input_required_result_prompt", "A prompt that asks for its context"),
    ];
    if call.server.extra_prompt.load(Ordering::Relaxed) {
        prompts.push(prompt("test_dynamic_prompt", "A prompt that comes and goes"));
    }
    json!({ "prompts": prompts })
}

/// Returns the `prompts/get` result.
pub async fn prompt(call: &Call) -> Outcome {
    let argument = |name: &str| call.argument(name).as_str().unwrap_or_default();
    let text = |text: &str| json!({ "role": "user", "content": { "type": "text", "text": text } });
    let messages = match call.text("name") {
        "test_simple_prompt" => json!([text("This is a simple prompt for testing.")]),
        "test_prompt_with_arguments" => {
            let (first, second) = (argument("arg1"), argument("arg2"));
            json!([text(&format!("Prompt with arguments: arg1='{first}', arg2='{second}'"))])
        }
        "test_prompt_with_embedded_resource" => {
            let resource = json!({
                "uri": argument("resourceUri"), "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            });
            json!([
                { "role": "user", "content": { "type": "resource", "resource": resource } },
                text("Please process the embedded resource above."),
            ])
        }
        "test_prompt_with_image" => json!([
            { "role": "user", "content": { "type": "image", "data": PNG, "mimeType": "image/png" } },
            text("Please analyze the image above."),
        ]),
        "test_input_required_result_prompt" => {
            let question = "What context should the prompt use?";
            let answer = call.ask(Question::form("user_context", question, "context", "string")).await?;
            json!([text(&format!("Use this context: {}", answer["content"]["context"]))])
        }
        "test_dynamic_prompt" => json!([text("A prompt that comes and goes.")]),
        name => return Err(RpcError::new(INVALID_PARAMS, format!("unknown prompt `{name}`")).into()),
    };
    Ok(json!({ "messages": messages }))
}

/// Returns the `resources/list` result.
pub fn resources() -> Value {
    let resource = |uri: &str, name: &str, kind: &str| {
        let description = format!("The resource {name}");
        json!({ "uri": uri, "name": name, "description": description, "mimeType": kind })
    };
    json!({ "resources": [
        resource("test://static-text", "static-text", "text/plain"),
        resource("test://static-binary", "static-binary", "image/png"),
        resource("test://watched-resource", "watched-resource", "text/plain"),
    ] })
}

/// Returns the `resources/templates/list` result.
pub fn templates() -> Value {
    json!({ "resourceTemplates": [{
        "uriTemplate": "test://template/{id}/data", "name": "template",
        "description": "Data of an id", "mimeType": "application/json",
    }] })
}

/// Returns the `resources/read` result.
pub fn resource(call: &Call) -> Outcome {
    let uri = call.text("uri");
    let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
    let contents = match (uri, id) {
        ("test://static-text", _) => {
            let text = "This is the content of the static text resource.";
            json!({ "uri": uri, "mimeType": "text/plain", "text": text })
        }
        ("test://static-binary", _) => json!({ "uri": uri, "mimeType": "image/png", "blob": PNG }),
        ("test://watched-resource", _) => json!({ "uri": uri, "mimeType": "text/plain", "text": "Watched content." }),
        (_, Some(id)) => {
            let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            json!({ "uri": uri, "mimeType": "application/json", "text": data.to_string() })
        }
        _ => {
            let code = if call.era == Era::Modern { INVALID_PARAMS } else { -32002 };
            return Err(RpcError::new(code, "Resource not found").with_data(json!({ "uri": uri })).into());
        }
    };
    Ok(json!({ "contents": [contents] }))
}

/// Returns the `completion/complete` result.
pub fn completion(call: &Call) -> Value {
    let start = call.params.get("argument").and_then(|argument| argument["value"].as_str()).unwrap_or_default();
    let values: Vec<_> = ["paris", "park", "party", "testValue1", "testValue2"]
        .into_iter()
        .filter(|value| value.starts_with(start))
        .collect();
    json!({ "completion": { "total": values.len(), "hasMore": false, "values": values } })
}
