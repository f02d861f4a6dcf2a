//! Redacts tool, resource and prompt list entries.

use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use ropeway_core::secret::Redactor;

/// Schema keywords whose values a call depends on.
const FUNCTIONAL_KEYWORDS: [&str; 11] = [
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$id",
    "$ref",
    "$schema",
    "const",
    "enum",
    "format",
    "pattern",
    "required",
];

/// Redacts a list entry. Returns `None` if it contains a secret and cannot be rewritten.
///
/// Names and URIs are kept, because calls need them. Schema values that calls depend on, such as argument names and allowed
/// values, are redacted only if the secret is too long to be an ordinary word.
pub fn redact_entry<'a>(redactor: &Redactor, entry: &'a RawValue) -> Option<Cow<'a, RawValue>> {
    if !redactor.contains_secret(entry.get()) {
        return Some(Cow::Borrowed(entry));
    }
    let mut value: Value = ropeway_core::json::from_str(entry.get()).ok()?;
    match &mut value {
        Value::Object(fields) => {
            for (key, field) in fields.iter_mut() {
                match key.as_str() {
                    "name" | "uri" | "uriTemplate" => {}
                    "arguments" => redact_arguments(redactor, field),
                    _ => redact(redactor, field),
                }
            }
            redactor.redact_field_names(fields);
        }
        other => redact(redactor, other),
    }
    to_raw_value(&value).ok().map(Cow::Owned)
}

/// Redacts a prompt's arguments, except for their names.
fn redact_arguments(redactor: &Redactor, arguments: &mut Value) {
    match arguments {
        Value::Array(arguments) => {
            for argument in arguments.iter_mut().filter_map(Value::as_object_mut) {
                argument.iter_mut().filter(|(key, _)| *key != "name").for_each(|(_, field)| redact(redactor, field));
            }
        }
        other => redact(redactor, other),
    }
}

fn redact(redactor: &Redactor, value: &mut Value) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(_) => redactor.redact_number(value),
        Value::String(text) => redactor.redact_in_place(text),
        Value::Array(items) => items.iter_mut().for_each(|item| redact(redactor, item)),
        Value::Object(fields) => {
            let certain = redactor.only_long_secrets();
            for (key, field) in fields.iter_mut() {
                // An object is the schema for an argument whose name is a keyword.
                if FUNCTIONAL_KEYWORDS.contains(&key.as_str()) && !field.is_object() {
                    certain.redact_document(field);
                } else {
                    redact(redactor, field);
                }
            }
            redactor.redact_field_names(fields);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ropeway_core::secret::Secret;

    fn redacted(redactor: &Redactor, value: &Value) -> Value {
        let raw = to_raw_value(value).expect("JSON");
        serde_json::from_str(redact_entry(redactor, &raw).expect("an entry").get()).expect("JSON")
    }

    #[test]
    fn values_that_calls_depend_on_are_redacted_only_for_long_secrets() {
        let token = "ghp_0123456789abcdef";
        let redactor = Redactor::new([&Secret::new("admin"), &Secret::new(token), &Secret::new("1234")]);
        let tool = json!({"name": "admin", "title": "as admin", "description": format!("uses {token}"), "inputSchema": {
            "type": "object", "required": ["admin"],
            "properties": {
                "admin": {"type": "string", "enum": ["admin", "user", token], "default": "admin", "description": "the admin"},
                "enum": {"type": "integer", "default": 1234, "minimum": 12345},
                token: {"const": token}}}});
        let expected = json!({"name": "admin", "title": "as ***", "description": "uses ***", "inputSchema": {
            "type": "object", "required": ["admin"],
            "properties": {
                "admin": {"type": "string", "enum": ["admin", "user", "***"], "default": "***", "description": "the ***"},
                "enum": {"type": "integer", "default": "***", "minimum": 12345},
                "***": {"const": "***"}}}});
        assert_eq!(redacted(&redactor, &tool), expected);
        let prompt = json!({"name": "admin", "arguments": [{"name": "admin", "description": "admin"}]});
        let expected = json!({"name": "admin", "arguments": [{"name": "admin", "description": "***"}]});
        assert_eq!(redacted(&redactor, &prompt), expected);
    }

    #[test]
    fn an_entry_without_a_secret_is_unchanged_and_a_deep_one_rejected() {
        let redactor = Redactor::new([&Secret::new("s3cret")]);
        let raw: Box<RawValue> = serde_json::from_str("{\"a\" :  1e400}").expect("JSON");
        assert!(matches!(redact_entry(&redactor, &raw), Some(Cow::Borrowed(_))));
        let deep = format!("{}\"s3cret\"{}", "[".repeat(200), "]".repeat(200));
        let raw = RawValue::from_string(deep);
        assert!(raw.is_err() || redact_entry(&redactor, &raw.expect("JSON")).is_none());
    }
}
