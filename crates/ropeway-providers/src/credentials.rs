//! Redacts credentials in a request body. A provider uses them to call other services.

use std::borrow::Cow;

use serde_json::Value;

use ropeway_core::secret::{self, Redactor, Secret};

/// Fields with the conversation, which is not searched for secrets.
const CONVERSATION: [&str; 6] = ["messages", "input", "contents", "system", "systemInstruction", "instructions"];

/// Fields that hold a tool's schema, whose keys are argument names.
const SCHEMAS: [&str; 3] = ["parameters", "input_schema", "parametersJsonSchema"];

/// Finds the secrets in a field's value.
type FindSecrets = fn(&str, &str) -> Vec<Secret>;

/// Redacts values whose field name indicates a secret, outside the conversation.
pub(super) fn redact(body: &mut Value) {
    let Value::Object(fields) = body else { return };
    for (name, value) in fields.iter_mut().filter(|(name, _)| !CONVERSATION.contains(&name.as_str())) {
        redact_field(name, value, secret::in_named);
    }
}

fn redact_field(name: &str, value: &mut Value, find: FindSecrets) {
    let find = if name == "headers" { secret::in_header } else { find };
    match value {
        Value::String(text) => {
            if let Cow::Owned(redacted) = Redactor::new(&find(name, text)).redact(text) {
                *text = redacted;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| redact_field(name, item, find)),
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut().filter(|(name, _)| !SCHEMAS.contains(&name.as_str())) {
                redact_field(name, value, find);
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
    fn credentials_are_redacted_outside_of_the_conversation() {
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
        redact(&mut found);
        assert_eq!(found, body("***", "***"));
        // Redaction is idempotent: a recording is compared with a new request.
        redact(&mut found);
        assert_eq!(found, body("***", "***"));
    }
}
