//! Values as YAML that people like to read.

use serde_json::{Map, Value};

use super::node::{Plain, plain};

/// A list on one line is at most this long.
const LINE: usize = 80;

/// A key that stands before its value on a line is at most this long; YAML takes no more than 1024 characters
/// (<https://yaml.org/spec/1.2.2/#742-flow-mappings>).
const LONGEST_KEY: usize = 1_000;

/// Words that older readers of YAML take for truths.
const TRUTHS: [&str; 8] = ["y", "n", "yes", "no", "on", "off", "true", "false"];

/// The lines of a map, without indentation for its own keys.
pub(super) fn map_lines(map: &Map<String, Value>) -> Vec<String> {
    map.iter().flat_map(|(key, value)| entry_lines(&scalar(key), value)).collect()
}

fn entry_lines(key: &str, value: &Value) -> Vec<String> {
    // A long key stands on a line of its own.
    let (own, label) = match key.chars().count() {
        ..=LONGEST_KEY => (None, format!("{key}:")),
        _ => (Some(format!("? {key}")), ":".to_owned()),
    };
    let lines: Vec<String> = match value {
        Value::Object(map) if !map.is_empty() => std::iter::once(label).chain(indented(map_lines(map))).collect(),
        Value::Array(items) if !items.is_empty() => match flow(items).filter(|flow| label.len() + flow.len() <= LINE) {
            Some(flow) => vec![format!("{label} {flow}")],
            None => std::iter::once(label).chain(indented(list_lines(items))).collect(),
        },
        value => vec![format!("{label} {}", short(value))],
    };
    own.into_iter().chain(lines).collect()
}

fn list_lines(items: &[Value]) -> Vec<String> {
    let item = |item: &Value| match item {
        Value::Object(map) if !map.is_empty() => dashed(map_lines(map)),
        Value::Array(items) if !items.is_empty() => dashed(list_lines(items)),
        value => vec![format!("- {}", short(value))],
    };
    items.iter().flat_map(item).collect()
}

/// Lines as one item of a list.
pub(super) fn dashed(lines: Vec<String>) -> Vec<String> {
    let dash = |(index, line): (usize, String)| if index == 0 { format!("- {line}") } else { format!("  {line}") };
    lines.into_iter().enumerate().map(dash).collect()
}

fn indented(lines: Vec<String>) -> impl Iterator<Item = String> {
    lines.into_iter().map(|line| format!("  {line}"))
}

/// A list of single values on one line.
fn flow(items: &[Value]) -> Option<String> {
    let all_short = items.iter().all(|item| !item.is_array() && !item.is_object());
    all_short.then(|| format!("[{}]", items.iter().map(short).collect::<Vec<_>>().join(", ")))
}

fn short(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        // Empty lists and maps, numbers and truths are the same as in JSON.
        value => value.to_string(),
    }
}

/// A text, with quotes when it would be something else without them.
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
        && plain(text) == Plain::Text
        && !TRUTHS.contains(&text.to_lowercase().as_str());
    if is_plain { text.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    // JSON's quoting is YAML's, but for what YAML takes for line breaks or does not print.
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
