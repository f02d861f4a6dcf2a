//! Redacts secrets that are written out in arguments, headers and variables.

use serde_json::Value;

use super::token::{is_token, names_command, names_secret, redact_token};
use super::url::redact_url;

/// Redacts secrets in a JSON value, by its key names.
pub(super) fn redact_json(name: &str, value: &mut Value, salt: &str) {
    match value {
        Value::String(text) => *text = redact_value(name, text, salt),
        Value::Array(items) => items.iter_mut().for_each(|item| redact_json(name, item, salt)),
        Value::Object(entries) => entries.iter_mut().for_each(|(name, value)| redact_json(name, value, salt)),
        _ => {}
    }
}

/// Redacts the secret in a command-line argument. `before` is the previous argument.
pub(super) fn redact_argument(before: &str, argument: &str, salt: &str) -> String {
    let is_option = |text: &str| text.starts_with('-');
    // Only options with two dashes: `python3 -Xtoken evil.py` runs `evil.py`. An option such as `--no-auth` has no value.
    let takes_value = |text: &str| text.starts_with("--") && !text.starts_with("--no-") && !text.contains('=');
    let is_value = takes_value(before) && !is_option(argument);
    // A shell runs `x` in `TOKEN=basic x`.
    let is_word = |text: &str| !text.contains(char::is_whitespace);
    if is_value && is_word(argument) && names_secret(before, argument) {
        return redact_value(before, argument, salt);
    }
    let has_value = |name: &str| is_name(name) && (!is_option(name) || name.starts_with("--"));
    if let Some((name, value)) = argument.split_once('=').filter(|(name, _)| has_value(name)) {
        let line = if is_option(name) && name.ends_with("header") { redact_header_line(value, salt) } else { None };
        let value = match line {
            Some(line) => line,
            None if is_word(value) => redact_value(name, value, salt),
            None => value.to_owned(),
        };
        return format!("{name}={value}");
    }
    redact_header_line(argument, salt).unwrap_or_else(|| redact_value("", argument, salt))
}

/// Redacts a line such as `Authorization: Bearer x`.
fn redact_header_line(line: &str, salt: &str) -> Option<String> {
    let (name, value) = line.split_once(": ").filter(|(name, _)| is_name(name))?;
    let is_hidden = names_secret(name, value) && !names_command(name);
    let value = if is_hidden { redact_token(value, salt, is_token) } else { redact_value("", value, salt) };
    Some(format!("{name}: {value}"))
}

/// Redacts a header value. It cannot be a command, so the whole value may be redacted.
pub(super) fn redact_header(name: &str, value: &str, salt: &str) -> String {
    if names_secret(name, value) { redact_token(value, salt, |_| true) } else { redact_value("", value, salt) }
}

/// Redacts a value: the secrets in a URL, or a token if the name indicates a secret.
pub(super) fn redact_value(name: &str, value: &str, salt: &str) -> String {
    if value.contains("://") {
        if value.contains(char::is_whitespace) { value.to_owned() } else { redact_url(value, salt) }
    } else if names_secret(name, value) && !names_command(name) {
        redact_token(value, salt, is_token)
    } else {
        value.to_owned()
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}
