//! A scripted server's resources, prompts and completions.

use serde_json::{Map, Value, json};

pub(super) fn resources() -> Vec<Value> {
    vec![
        json!({ "uri": "test://hello", "name": "hello", "title": "A greeting", "mimeType": "text/plain", "size": 5 }),
        json!({ "uri": "test://picture", "name": "picture", "mimeType": "image/png" }),
        json!({ "uri": "test://counter", "name": "counter", "mimeType": "application/json" }),
    ]
}

pub(super) fn templates() -> Vec<Value> {
    vec![json!({ "uriTemplate": "test://items/{id}", "name": "item", "mimeType": "text/plain" })]
}

pub(super) fn prompts() -> Vec<Value> {
    vec![
        json!({ "name": "greet", "description": "Greets a person",
            "arguments": [{ "name": "name", "description": "Who", "required": true }] }),
        json!({ "name": "plain" }),
    ]
}

/// Returns a resource's contents, if it exists.
pub(super) fn read(uri: &str) -> Option<Value> {
    let content = match uri {
        "test://hello" => json!({ "uri": uri, "mimeType": "text/plain", "text": "hello" }),
        "test://picture" => json!({ "uri": uri, "mimeType": "image/png", "blob": "iVBORw0KGgo=" }),
        "test://counter" => json!({ "uri": uri, "mimeType": "application/json", "text": "{\"count\":1}" }),
        _ => {
            let id = uri.strip_prefix("test://items/")?;
            json!({ "uri": uri, "mimeType": "text/plain", "text": format!("item {id}") })
        }
    };
    Some(json!({ "contents": [content] }))
}

/// Returns a prompt's messages, if it exists.
pub(super) fn prompt(name: &str, arguments: &Map<String, Value>) -> Option<Value> {
    let text = match name {
        "greet" => format!("Please greet {}.", arguments.get("name")?.as_str()?),
        "plain" => "Say something plain.".to_owned(),
        _ => return None,
    };
    let message = json!({ "role": "user", "content": { "type": "text", "text": text } });
    Some(json!({ "description": name, "messages": [message] }))
}

/// Returns completions for a partial argument.
pub(super) fn complete(params: &Map<String, Value>) -> Value {
    let begun = params.get("argument").and_then(|argument| argument["value"].as_str()).unwrap_or_default();
    let values: Vec<&str> = ["alice", "albert", "bob"].into_iter().filter(|name| name.starts_with(begun)).collect();
    json!({ "completion": { "total": values.len(), "hasMore": false, "values": values } })
}
