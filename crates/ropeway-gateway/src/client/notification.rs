//! Notifications for clients, as text without line breaks.

use serde_json::Value;

/// Writes a notification. `params` is JSON text; valid JSON has line breaks only between tokens.
pub(crate) fn notification(method: &str, params: &str) -> String {
    let method = Value::from(method);
    single_line(format!(r#"{{"jsonrpc":"2.0","method":{method},"params":{params}}}"#))
}

/// Replaces line breaks by spaces.
pub(crate) fn single_line(text: String) -> String {
    if memchr::memchr2(b'\n', b'\r', text.as_bytes()).is_none() {
        return text;
    }
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_has_one_line() {
        let text = notification("notifications/a\"b", "{\n  \"x\": \"y\\n\"\r\n}");
        assert_eq!(text.lines().count(), 1);
        let json: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(json["params"]["x"], "y\n");
        assert_eq!(json["method"], "notifications/a\"b");
    }
}
