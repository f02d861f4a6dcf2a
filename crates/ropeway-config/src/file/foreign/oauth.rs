//! A server's OAuth client, with the names that are used by Claude Code, Cursor, Gemini CLI and opencode.

use crate::file::node::{Entry, Node, NodeKind};
use crate::file::position::Position;

/// Translates `true`, or a map, to the native key `auth`. `text` translates strings.
///
/// Fails with the first key that is not supported; empty for the value itself.
pub(super) fn oauth(value: &Node, text: impl Fn(&Node) -> Node) -> Result<Node, (String, Position)> {
    if value.is_bool(true) {
        return Ok(Node::string(value.position, "oauth"));
    }
    if !value.is_map() {
        return Err((String::new(), value.position));
    }
    let mut entries = Vec::new();
    for Entry { key, position, value } in value.entries().iter().filter(|entry| !entry.value.is_null()) {
        let (native, value) = match key.as_str() {
            "clientId" | "CLIENT_ID" => ("client_id", text(value)),
            "clientSecret" | "CLIENT_SECRET" => ("client_secret", text(value)),
            "callbackPort" => ("redirect_port", value.clone()),
            "scopes" => ("scopes", value.clone()),
            "scope" => {
                let words = value.as_str().unwrap_or_default().split_whitespace();
                let items = words.map(|word| Node::string(value.position, word)).collect();
                ("scopes", Node { position: value.position, kind: NodeKind::List(items) })
            }
            "enabled" if value.is_bool(true) => continue,
            _ => return Err((format!(".{key}"), *position)),
        };
        entries.push(Entry { key: native.to_owned(), position: *position, value });
    }
    let settings =
        Entry { key: "oauth".to_owned(), position: value.position, value: Node::map(value.position, entries) };
    Ok(Node::map(value.position, vec![settings]))
}
