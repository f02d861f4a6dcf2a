//! A YAML writer with a compact and readable style.

use serde_json::{Map, Value};

use super::node::{PlainScalar, parse_plain};

/// Maximum list length on one line.
const MAX_LINE: usize = 80;

/// Maximum key length on the same line as its value. YAML limits it to 1024 characters
/// (<https://yaml.org/spec/1.2.2/#742-flow-mappings>).
const MAX_KEY: usize = 1_000;

/// YAML 1.1 booleans.
const BOOLEANS: [&str; 8] = ["y", "n", "yes", "no", "on", "off", "true", "false"];

/// Formats a map as lines. Its own keys are not indented.
pub(super) fn map_lines(map: &Map<String, Value>) -> Vec<String> {
    map.iter().flat_map(|(key, value)| entry_lines(&scalar(key), value)).collect()
}

fn entry_lines(key: &str, value: &Value) -> Vec<String> {
    let (own, label) = match key.chars().count() {
        ..=MAX_KEY => (None, format!("{key}:")),
        _ => (Some(format!("? {key}")), ":".to_owned()),
    };
    let lines: Vec<String> = match value {
        Value::Object(map) if !map.is_empty() => std::iter::once(label).chain(indented(map_lines(map))).collect(),
        Value::Array(items) if !items.is_empty() => {
            match flow(items).filter(|flow| label.len() + flow.len() <= MAX_LINE) {
                Some(flow) => vec![format!("{label} {flow}")],
                None => std::iter::once(label).chain(indented(list_lines(items))).collect(),
            }
        }
        value => vec![format!("{label} {}", inline(value))],
    };
    own.into_iter().chain(lines).collect()
}

fn list_lines(items: &[Value]) -> Vec<String> {
    let item = |item: &Value| match item {
        Value::Object(map) if !map.is_empty() => list_item(map_lines(map)),
        Value::Array(items) if !items.is_empty() => list_item(list_lines(items)),
        value => vec![format!("- {}", inline(value))],
    };
    items.iter().flat_map(item).collect()
}

/// Formats lines as a list item.
pub(super) fn list_item(lines: Vec<String>) -> Vec<String> {
    let dash = |(index, line): (usize, String)| if index == 0 { format!("- {line}") } else { format!("  {line}") };
    lines.into_iter().enumerate().map(dash).collect()
}

fn indented(lines: Vec<String>) -> impl Iterator<Item = String> {
    lines.into_iter().map(|line| format!("  {line}"))
}

/// Formats a scalar list on one line.
fn flow(items: &[Value]) -> Option<String> {
    let all_short = items.iter().all(|item| !item.is_array() && !item.is_object());
    all_short.then(|| format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")))
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        // Empty lists and maps, numbers and booleans are written as in JSON.
        value => value.to_string(),
    }
}

/// Formats a string, with quotes where YAML requires them.
pub(super) fn scalar(text: &str) -> String {
    let begins_well = text.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '/' | '.'))
        || (text.starts_with('-')
            && text[1..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-')
            && text.len() > 3)
        || (text.len() == 2 && text.starts_with('-') && text.as_bytes()[1].is_ascii_alphabetic());
    let is_safe =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-' | ':' | '=' | '+' | '@' | '*' | '~');
    let is_plain = begins_well
        && text.chars().all(is_safe)
        && !text.ends_with(':')
        && !text.starts_with("---")
        && !text.starts_with("...")
        && parse_plain(text) == PlainScalar::String
        && !BOOLEANS.contains(&text.to_lowercase().as_str());
    if is_plain { text.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    // The same as in JSON, except for line breaks and characters that YAML considers non-printable.
    let mut quoted = String::new();
    for c in Value::from(text).to_string().chars() {
        match c {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' => {
                quoted.push_str(&format!("\\u{:04x}", c as u32))
            }
            c => quoted.push(c),
        }
    }
    quoted
}
