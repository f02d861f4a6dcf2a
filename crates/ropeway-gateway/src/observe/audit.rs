//! Audit log lines.

use std::sync::Arc;

use bytes::Bytes;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;

use super::record::CallRecord;
use super::refusals::RefusalLine;
use super::restarts::RestartRecord;
use super::sign_ins::SignInRecord;
use ropeway_core::secret::{Redactor, names_secret};

/// Maximum bytes of arguments in a line.
const MAX_ARGUMENTS: usize = 16 << 10;

pub(super) enum AuditLine {
    Call(CallLine),
    Refusal(RefusalLine),
    SignIn(SignInRecord),
    Restart(RestartRecord),
}

/// A request's line.
pub(super) struct CallLine {
    pub(super) record: Arc<CallRecord>,
    /// The arguments as JSON text.
    pub(super) arguments: Option<Bytes>,
    pub(super) redactor: Redactor,
}

/// Returns a line's arguments. Large ones are replaced by their size.
pub(super) fn bounded_arguments(arguments: &str) -> Bytes {
    if arguments.len() <= MAX_ARGUMENTS {
        Bytes::copy_from_slice(arguments.as_bytes())
    } else {
        format!("\"({} bytes)\"", arguments.len()).into()
    }
}

/// Appends a line's JSON.
pub(super) fn encode(line: &AuditLine, text: &mut Vec<u8>) {
    let before = text.len();
    let written = match line {
        AuditLine::Call(line) => serde_json::to_writer(&mut *text, line),
        AuditLine::Refusal(line) => serde_json::to_writer(&mut *text, line),
        AuditLine::SignIn(record) => serde_json::to_writer(&mut *text, record),
        AuditLine::Restart(record) => serde_json::to_writer(&mut *text, record),
    };
    if written.is_err() {
        // Only a type that cannot be JSON fails, and the record has none.
        text.truncate(before);
        text.extend_from_slice(b"{}");
    }
}

impl Serialize for CallLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.record.write_members(&mut map)?;
        if let Some(arguments) = &self.arguments {
            // Arguments that cannot be parsed, such as those with lone surrogates, are left out.
            let mut arguments: Value = ropeway_core::json::from_slice(arguments).unwrap_or_default();
            hide_secret_names(&mut arguments);
            self.redactor.redact_json(&mut arguments);
            map.serialize_entry("arguments", &arguments)?;
        }
        map.end()
    }
}

/// Replaces the values of secret members such as `password` and `api_key`, whatever their types are.
fn hide_secret_names(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                if names_secret(name) {
                    *value = Value::from("***");
                } else {
                    hide_secret_names(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide_secret_names),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::record::tests::record;
    use super::*;
    use ropeway_core::secret::Secret;

    fn line(arguments: Option<&str>) -> Value {
        let redactor = Redactor::new(&[Secret::new("s3cret-value")]);
        let arguments = arguments.map(bounded_arguments);
        let mut text = Vec::new();
        encode(&AuditLine::Call(CallLine { record: Arc::new(record()), arguments, redactor }), &mut text);
        assert!(!text.contains(&b'\n'));
        serde_json::from_slice(&text).expect("JSON")
    }

    #[test]
    fn arguments_are_redacted() {
        let shown = line(Some(r#"{"path":"/a\nb","url":"x?s3cret-value","nested":[{"api_key":"k","Password":7}]}"#));
        let expected = json!({"path": "/a\nb", "url": "x?***", "nested": [{"api_key": "***", "Password": "***"}]});
        assert_eq!(shown["arguments"], expected);
        let shown = line(Some(r#"{"passwords":["p1"],"token":{"v":"t"},"rows":[{"secrets":[{"a":"b"}]}]}"#));
        let expected = json!({"passwords": "***", "token": "***", "rows": [{"secrets": "***"}]});
        assert_eq!(shown["arguments"], expected);
        assert_eq!(line(None).get("arguments"), None);
    }

    #[test]
    fn large_and_malformed_arguments_do_not_break_the_line() {
        let large = format!(r#"{{"text":"{}"}}"#, "x".repeat(MAX_ARGUMENTS));
        assert_eq!(line(Some(&large))["arguments"], format!("({} bytes)", large.len()));
        assert_eq!(line(Some("{\"a\":"))["arguments"], Value::Null);
    }
}
