//! Permanent tool approvals, bound to tool definitions.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use ropeway_core::sync::lock;
use ropeway_core::tool::{Alias, Digest, Origin, ToolDefinition, differences};

/// Permanently approved tools, each bound to its definition at that time.
///
/// Clones share their contents: a host that replaces an agent passes the same approvals to the new one
/// ([`AgentBuilder::approvals`](super::AgentBuilder::approvals)).
///
/// The host writes approvals at any time, and the agent when its approval handler returns
/// [`Approval::Always`](super::Approval::Always) or [`AlwaysReadOnly`](super::Approval::AlwaysReadOnly); the agent's policy
/// checks them before each call that needs approval. A tool is unknown, approved or withdrawn. A check that sees another
/// definition withdraws the approval, and only a new approval restores it. Since a check may write, the lock is a mutex and
/// not an `RwLock`. It is the only lock here, and comparing definitions under it neither awaits nor calls other code.
/// Dropping the last clone forgets the approvals: nothing is stored.
#[derive(Clone, Default)]
pub struct Approvals(Arc<Mutex<HashMap<Key, Approved>>>);

/// A tool's server, and the server's own name for the tool.
type Key = (Option<Alias>, String);

struct Approved {
    digest: Digest,
    /// The approved definition, to describe changes.
    definition: Option<Arc<ToolDefinition>>,
    /// Whether the tool was seen with another definition.
    is_withdrawn: bool,
}

/// Whether a tool is permanently approved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(super) enum ApprovalStatus {
    /// Approved and unchanged.
    Approved,
    /// Approved, and changed since.
    Changed(Vec<String>),
    /// Never approved.
    Unknown,
}

impl Approvals {
    /// Creates an empty approval set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Approves a tool until its definition changes.
    pub fn allow(&self, definition: &ToolDefinition) {
        let digest = Digest::of_approved(definition);
        self.insert(key(definition), digest, Some(Arc::new(definition.clone())));
    }

    /// Approves the server's tool whose definition has this digest ([`Digest::of_approved`]). The definition, if present, is
    /// used to describe changes.
    pub fn allow_digest(&self, server: &Alias, tool: &str, digest: Digest, definition: Option<ToolDefinition>) {
        self.insert((Some(server.clone()), tool.to_owned()), digest, definition.map(Arc::new));
    }

    /// Approves the given tools that are annotated as read-only and not as destructive. Tools that the server adds or annotates
    /// later are not approved.
    pub fn allow_read_only<'a>(&self, tools: impl IntoIterator<Item = &'a ToolDefinition>) {
        let says = |tool: &ToolDefinition, hint: &str| tool.annotations.0.get(hint) == Some(&true.into());
        let harmless = |tool: &&ToolDefinition| tool.annotations.read_only() && !says(tool, "destructiveHint");
        tools.into_iter().filter(harmless).for_each(|tool| self.allow(tool));
    }

    fn insert(&self, key: Key, digest: Digest, definition: Option<Arc<ToolDefinition>>) {
        lock(&self.0).insert(key, Approved { digest, definition, is_withdrawn: false });
    }

    /// Returns whether a tool is approved. A tool that was seen with another definition stays unapproved, even if it changes
    /// back.
    pub(super) fn check(&self, definition: &ToolDefinition) -> ApprovalStatus {
        let mut tools = lock(&self.0);
        let Some(approved) = tools.get_mut(&key(definition)) else { return ApprovalStatus::Unknown };
        let digest = Digest::of_approved(definition);
        if approved.digest == digest && !approved.is_withdrawn {
            return ApprovalStatus::Approved;
        }
        approved.is_withdrawn = true;
        let mut changes =
            approved.definition.as_ref().map(|earlier| differences(earlier, definition)).unwrap_or_default();
        if changes.is_empty() {
            let back = if approved.digest == digest { "changed and changed back" } else { "definition changed" };
            changes.push(back.to_owned());
        }
        ApprovalStatus::Changed(changes)
    }
}

fn key(definition: &ToolDefinition) -> Key {
    let server = match &definition.origin {
        Origin::Server { server, .. } => Some(server.clone()),
        Origin::Local => None,
    };
    (server, definition.own_name().to_owned())
}

impl fmt::Debug for Approvals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Approvals").field("tools", &lock(&self.0).len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ropeway_core::tool::Annotations;

    fn tool(name: &str, hints: serde_json::Value) -> ToolDefinition {
        let mut definition = ToolDefinition::new(format!("mcp_s_{name}")).with_description("Reads");
        definition.annotations = Annotations(hints.as_object().cloned().unwrap_or_default());
        definition.origin = Origin::Server { server: "s".into(), tool: name.into() };
        definition
    }

    fn changes(status: ApprovalStatus) -> Vec<String> {
        match status {
            ApprovalStatus::Changed(changes) => changes.iter().map(ToString::to_string).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_approved_tool_stays_approved_until_it_changes() {
        let approvals = Approvals::new();
        let note = tool("note", json!({}));
        assert_eq!(approvals.check(&note), ApprovalStatus::Unknown);
        approvals.allow(&note);
        let other = approvals.clone();
        assert_eq!(other.check(&note), ApprovalStatus::Approved);
        assert_eq!(other.check(&tool("other", json!({}))), ApprovalStatus::Unknown);
        let shell = tool("note", json!({})).with_description("Runs a shell");
        assert_eq!(changes(other.check(&shell)), ["description changed"]);
        assert_eq!(changes(approvals.check(&note)), ["changed and changed back"]);
        approvals.allow(&shell);
        assert_eq!(approvals.check(&shell), ApprovalStatus::Approved);
    }

    #[test]
    fn another_server_under_the_same_alias_is_not_approved() {
        let approvals = Approvals::new();
        let at = |place: &[u8]| {
            let mut definition = tool("note", json!({"readOnlyHint": true}));
            definition.provenance.server = Some(Digest::of_bytes(place));
            definition
        };
        approvals.allow_read_only([&at(b"here")]);
        assert_eq!(changes(approvals.check(&at(b"there"))), ["the command or URL of the server changed"]);
        let mut fresh = at(b"there");
        fresh.origin = Origin::Server { server: "s".into(), tool: "another".into() };
        assert_eq!(approvals.check(&fresh), ApprovalStatus::Unknown);
    }

    #[test]
    fn read_only_tools_stay_approved_until_their_hint_flips() {
        let approvals = Approvals::new();
        let read = |name| tool(name, json!({"readOnlyHint": true}));
        let wild = |name| tool(name, json!({"readOnlyHint": false}));
        let both = tool("e", json!({"readOnlyHint": true, "destructiveHint": true}));
        approvals.allow_read_only([&read("a"), &read("b"), &wild("c"), &both]);
        assert_eq!([read("a"), read("b")].map(|tool| approvals.check(&tool)), [const { ApprovalStatus::Approved }; 2]);
        // Annotated later, new, or contradictory.
        for tool in [wild("c"), read("c"), read("new"), both] {
            assert_eq!(approvals.check(&tool), ApprovalStatus::Unknown, "{}", tool.name);
        }
        let flipped = tool("b", json!({"readOnlyHint": false}));
        assert_eq!(changes(approvals.check(&flipped)), ["hint `readOnlyHint` changed to false"]);
        let changed = read("a").with_description("Runs a shell");
        assert_eq!(changes(approvals.check(&changed)), ["description changed"]);
        let mut elsewhere = read("d");
        elsewhere.origin = Origin::Server { server: "t".into(), tool: "d".into() };
        assert_eq!(approvals.check(&elsewhere), ApprovalStatus::Unknown);
    }

    #[test]
    fn a_tool_approved_by_its_digest_is_checked_like_any_other() {
        let approvals = Approvals::new();
        let note = tool("note", json!({}));
        approvals.allow_digest(&"s".into(), "note", Digest::of_approved(&note), None);
        assert_eq!(approvals.check(&note), ApprovalStatus::Approved);
        assert_eq!(changes(approvals.check(&note.clone().with_description("x"))), ["definition changed"]);
    }
}
