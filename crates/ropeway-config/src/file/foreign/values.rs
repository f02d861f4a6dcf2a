//! Values in other clients' files.

use crate::file::decode::decode;
use crate::file::node::{Entry, Node, NodeKind};
use crate::file::problem::ConfigProblem;

/// Decodes a boolean, with or without quotes.
pub(super) fn parse_bool(value: &Node) -> Result<bool, ConfigProblem> {
    let unquoted = match &value.kind {
        NodeKind::Scalar { text, .. } => {
            Node { position: value.position, kind: NodeKind::Scalar { text: text.clone(), plain: true } }
        }
        _ => value.clone(),
    };
    decode(&unquoted, "")
}

/// Returns `true` if a map sets nothing but tool approval modes.
pub(super) fn is_approval(tools: &Node) -> bool {
    let is_mode =
        |tool: &Entry| tool.value.is_map() && tool.value.entries().iter().all(|setting| setting.key == "approval_mode");
    tools.is_map() && tools.entries().iter().all(is_mode)
}

/// Returns a reference to the variable with this name.
pub(super) fn variable_reference(name: &Node) -> Node {
    Node::string(name.position, format!("${{{}}}", name.as_str().unwrap_or_default()))
}

/// Applies a function to each value in a map.
pub(super) fn map_values(map: &Node, change: impl Fn(&Node) -> Node) -> Node {
    let entries = map.entries().iter();
    let entries = entries.map(|Entry { key, position, value }| Entry {
        key: key.clone(),
        position: *position,
        value: change(value),
    });
    Node::map(map.position, entries.collect())
}
