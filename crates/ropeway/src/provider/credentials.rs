//! Credentials in the body of a request: what a provider is told so that it can ask others in our name.

use std::borrow::Cow;

use serde_json::Value;

use crate::secret::{self, Redactor, Secret};

/// The fields of a body that hold what is said: a conversation is not searched for secrets.
const SAID: [&str; 6] = ["messages", "input", "contents", "system", "systemInstruction", "instructions"];

/// The fields that hold the schema of a tool: its names are those of arguments.
const SCHEMAS: [&str; 3] = ["parameters", "input_schema", "parametersJsonSchema"];

/// Finds the secrets in a value of this name.
type Signs = fn(&str, &str) -> Vec<Secret>;

/// Hides what is a secret by its name, outside of the conversation.
pub(super) fn hide(body: &mut Value) {
    let Value::Object(fields) = body else { return };
    for (name, value) in fields.iter_mut().filter(|(name, _)| !SAID.contains(&name.as_str())) {
        hide_named(name, value, secret::in_named);
    }
}

fn hide_named(name: &str, value: &mut Value, signs: Signs) {
    let signs = if name == "headers" { secret::in_header } else { signs };
    match value {
        Value::String(text) => {
            if let Cow::Owned(hidden) = Redactor::new(&signs(name, text)).hide(text) {
                *text = hidden;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| hide_named(name, item, signs)),
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut().filter(|(name, _)| !SCHEMAS.contains(&name.as_str())) {
                hide_named(name, value, signs);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_provider_is_trusted_with_is_hidden_and_what_is_said_is_not() {
        let schema = json!({"type": "object", "properties": {"token": {"type": "string", "default": "abcdefgh"}}, "token": "abcdefgh"});
        let body = |secret: &str, bearer: &str| {
            json!({
                "model": "m",
                "messages": [{"role": "user", "content": "x", "authorization": "abcdefgh"}],
                "input": {"token": "abcdefgh"},
                "max_tokens": 100,
                "tools": [
                    {"type": "mcp", "server_url": "https://a.example/mcp", "authorization": secret},
                    {"type": "mcp", "headers": {"Authorization": bearer, "Accept": "text/html"}},
                    {"type": "function", "name": "token", "parameters": schema},
                    {"name": "a", "input_schema": schema},
                    {"functionDeclarations": [{"name": "b", "parametersJsonSchema": schema}]},
                ],
                "mcp_servers": [{"type": "url", "authorization_token": secret}],
            })
        };
        let mut found = body("ya29.abcdefgh", "Bearer abcdefgh");
        hide(&mut found);
        assert_eq!(found, body("***", "***"));
        // What is hidden already stays so: a recording is compared with what is asked.
        hide(&mut found);
        assert_eq!(found, body("***", "***"));
    }
}
