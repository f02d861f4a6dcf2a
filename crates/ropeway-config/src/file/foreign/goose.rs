//! Goose's extensions, with keys from the common format
//! (<https://github.com/block/goose/blob/main/crates/goose/src/agents/extension.rs>).

use super::values::map_values;
use crate::file::node::{Entry, Node, NodeKind};
use crate::file::reference;

/// Extension types.
const TYPES: [&str; 7] = ["builtin", "frontend", "inline_python", "platform", "sse", "stdio", "streamable_http"];

/// The types that are MCP servers. Goose runs the others itself.
const SERVER_TYPES: [&str; 3] = ["sse", "stdio", "streamable_http"];

/// Returns `true` for an extension map.
pub(super) fn is_extensions(map: &Node) -> bool {
    map.entries().iter().any(|entry| has_type(&entry.value, &TYPES))
}

/// Returns the extensions that are MCP servers.
pub(super) fn servers(extensions: &Node) -> Node {
    let servers = extensions.entries().iter().filter(|entry| has_type(&entry.value, &SERVER_TYPES));
    let entries = servers.map(|entry| Entry { value: server(&entry.value), ..entry.clone() });
    Node::map(extensions.position, entries.collect())
}

fn has_type(extension: &Node, types: &[&str]) -> bool {
    extension.get("type").and_then(Node::as_str).is_some_and(|kind| types.contains(&kind))
}

fn server(extension: &Node) -> Node {
    let is_remote = extension.get("uri").is_some();
    let mut entries = Vec::new();
    for entry in extension.entries() {
        let value = &entry.value;
        let (key, value) = match entry.key.as_str() {
            "bundled" | "display_name" => continue,
            // An empty list allows all tools.
            "available_tools" if value.items().is_empty() => continue,
            "available_tools" => ("enabled_tools", value.clone()),
            "timeout" => ("tool_timeout_sec", value.clone()),
            // The URL and the headers refer to them.
            "envs" | "env_keys" if is_remote => continue,
            "env_keys" => ("env", secrets(extension, value)),
            "uri" | "headers" => (entry.key.as_str(), texts(value, &|text| substituted(text, extension))),
            "args" | "envs" => (entry.key.as_str(), texts(value, &reference::escape)),
            key => (key, value.clone()),
        };
        entries.push(Entry { key: key.to_owned(), position: entry.position, value });
    }
    Node::map(extension.position, entries)
}

/// Returns the variables for the secrets that Goose keeps in its keyring. `envs` takes precedence.
fn secrets(extension: &Node, names: &Node) -> Node {
    let is_set = |name: &str| extension.get("envs").is_some_and(|envs| envs.get(name).is_some());
    let names_at = names.position;
    let names = names.items().iter().filter_map(|name| Some((name, name.as_str()?)));
    let entries = names.filter(|(_, name)| !is_set(name)).map(|(node, name)| Entry {
        key: name.to_owned(),
        position: node.position,
        value: Node::string(node.position, format!("${{{name}}}")),
    });
    Node::map(names_at, entries.collect())
}

/// Changes every string in a value.
fn texts(value: &Node, change: &dyn Fn(&str) -> String) -> Node {
    let kind = match &value.kind {
        NodeKind::Scalar { text, plain } => NodeKind::Scalar { text: change(text), plain: *plain },
        NodeKind::List(items) => NodeKind::List(items.iter().map(|item| texts(item, change)).collect()),
        NodeKind::Map(_) => return map_values(value, |value| texts(value, change)),
    };
    Node { position: value.position, kind }
}

/// Replaces `$NAME` and `${NAME}` by the values in `envs` and by references to the variables in `env_keys`. Other
/// dollar signs are literal.
fn substituted(text: &str, extension: &Node) -> String {
    let value = |name: &str| {
        let set = extension.get("envs").and_then(|envs| envs.get(name)?.as_str());
        let keys = extension.get("env_keys").map(Node::items).unwrap_or_default();
        let is_key = || keys.iter().any(|key| key.as_str() == Some(name));
        set.map(|value| value.replace('$', "$$")).or_else(|| is_key().then(|| format!("${{{name}}}")))
    };
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let after = &rest[at + 1..];
        let (name, length) = match after.strip_prefix('{').and_then(|inside| inside.split_once('}')) {
            Some((name, _)) => (name.trim(), name.len() + 2),
            None => {
                let length = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
                (&after[..length], length)
            }
        };
        result.push_str(&rest[..at]);
        match value(name) {
            Some(value) => {
                result.push_str(&value);
                rest = &after[length..];
            }
            None => {
                result.push_str("$$");
                rest = after;
            }
        }
    }
    result + rest
}
