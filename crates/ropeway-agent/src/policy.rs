//! Policy: which calls are allowed, denied, or need approval.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::approvals::{ApprovalStatus, Approvals};
use super::pattern::ToolPattern;
use ropeway_core::tool::{Annotations, Arguments, BoxFuture, CallId, Origin, ToolDefinition};

/// Whether a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// The call is made.
    Allow,
    /// The call needs approval.
    Ask,
    /// The call is not made, and the model receives an error.
    Deny,
}

/// Decides which calls are allowed, denied, or need approval. The first rule that matches a tool applies.
///
/// The policy covers host and server tools. Built-in tools are always allowed: `find_tools` and `read_more` change nothing, and
/// `call_tool` is subject to the rules for the tool that it calls.
///
/// Rules use [patterns](ToolPattern), which are anchored to a server. [`allow`](Self::allow) matches them strictly.
/// [`ask`](Self::ask) and [`deny`](Self::deny) also match if a wildcard spans both the server and the tool, which errs on the
/// safe side.
///
/// A server's tool [annotations](https://modelcontextprotocol.io/specification/2025-06-18/server/tools#tool) (`readOnlyHint`,
/// `destructiveHint`) count only if the host [trusts them](ropeway_config::ServerEntry::trust_hints).
///
/// [`AgentBuilder::build`](super::AgentBuilder::build) fails for an invalid pattern. Until then, such an `allow` rule matches no
/// tool, and such an `ask` or `deny` rule matches every tool.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Vec<(Rule, Permission)>,
    otherwise: Permission,
    /// Invalid patterns, each with the reason.
    pub(super) invalid: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
enum Rule {
    Named(ToolPattern),
    /// An invalid pattern; it matches all tools.
    Invalid,
    /// The tool may be destructive.
    Destructive,
    /// The tool is not known to be read-only.
    Changing,
}

impl Default for Policy {
    fn default() -> Self {
        Self { rules: Vec::new(), otherwise: Permission::Allow, invalid: Vec::new() }
    }
}

impl Policy {
    /// Creates a policy that allows every call.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows calls to tools that match the [pattern](ToolPattern).
    #[must_use]
    pub fn allow(self, pattern: &str) -> Self {
        self.named(pattern, Permission::Allow)
    }

    /// Requires approval for calls to tools that match the [pattern](ToolPattern), also [loosely](ToolPattern::matches_loosely).
    #[must_use]
    pub fn ask(self, pattern: &str) -> Self {
        self.named(pattern, Permission::Ask)
    }

    /// Denies calls to tools that match the [pattern](ToolPattern), also [loosely](ToolPattern::matches_loosely).
    #[must_use]
    pub fn deny(self, pattern: &str) -> Self {
        self.named(pattern, Permission::Deny)
    }

    /// Sets the permission for destructive tools. A server's tool counts as destructive unless a trusted annotation denies it; a
    /// local tool only if its annotations say so.
    #[must_use]
    pub fn destructive(self, permission: Permission) -> Self {
        self.with(Rule::Destructive, permission)
    }

    /// Sets the permission for tools that may change something. A server's tool counts as changing unless a trusted annotation
    /// marks it read-only; a local tool only if its annotations say so.
    #[must_use]
    pub fn changing(self, permission: Permission) -> Self {
        self.with(Rule::Changing, permission)
    }

    /// Sets the permission for tools that no rule matches; [`Permission::Allow`] by default.
    #[must_use]
    pub fn otherwise(mut self, permission: Permission) -> Self {
        self.otherwise = permission;
        self
    }

    fn named(mut self, pattern: &str, permission: Permission) -> Self {
        match ToolPattern::new(pattern) {
            Ok(pattern) => self.with(Rule::Named(pattern), permission),
            Err(error) => {
                self.invalid.push((pattern.to_owned(), error.to_string()));
                match permission {
                    Permission::Allow => self,
                    Permission::Ask | Permission::Deny => self.with(Rule::Invalid, permission),
                }
            }
        }
    }

    fn with(mut self, rule: Rule, permission: Permission) -> Self {
        self.rules.push((rule, permission));
        self
    }

    /// Returns a tool's permission.
    pub fn permission(&self, definition: &ToolDefinition) -> Permission {
        self.rule(definition).map_or(self.otherwise, |(_, permission)| *permission)
    }

    fn rule(&self, definition: &ToolDefinition) -> Option<&(Rule, Permission)> {
        self.rules.iter().find(|(rule, permission)| rule.matches(definition, *permission))
    }

    /// Returns `true` if the permission depends on the tool's definition. An `allow` rule with a pattern does not.
    pub(super) fn depends_on_definition(&self, definition: &ToolDefinition) -> bool {
        !self.rules.is_empty() && !matches!(self.rule(definition), Some((Rule::Named(_), Permission::Allow)))
    }

    /// Returns `true` if all tools have the same permission.
    pub(super) fn is_uniform(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the patterns that match none of these tools.
    pub fn unmatched(&self, tools: &[&ToolDefinition]) -> Vec<&ToolPattern> {
        let named = self.rules.iter().filter_map(|(rule, permission)| match rule {
            Rule::Named(pattern) => Some((rule, pattern, *permission)),
            _ => None,
        });
        let unmatched = named.filter(|(rule, _, permission)| !tools.iter().any(|tool| rule.matches(tool, *permission)));
        unmatched.map(|(_, pattern, _)| pattern).collect()
    }
}

impl Rule {
    fn matches(&self, definition: &ToolDefinition, permission: Permission) -> bool {
        let ToolDefinition { annotations, origin, .. } = definition;
        let trusted = definition.provenance.trust_hints;
        let says =
            |hint: &str, value: bool| annotations.0.get(hint).and_then(serde_json::Value::as_bool) == Some(value);
        match (self, origin) {
            (Self::Named(pattern), _) => match permission {
                Permission::Allow => pattern.matches(definition),
                Permission::Ask | Permission::Deny => pattern.matches_loosely(definition),
            },
            (Self::Invalid, _) => true,
            (Self::Destructive, Origin::Server { .. }) => !trusted || annotations.destructive(),
            (Self::Changing, Origin::Server { .. }) => !trusted || !annotations.read_only(),
            // Local tools without annotations are considered harmless.
            (Self::Destructive, Origin::Local) => says("destructiveHint", true),
            (Self::Changing, Origin::Local) => says("readOnlyHint", false) || says("destructiveHint", true),
        }
    }
}

/// A call that needs approval.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// The call's id.
    pub call: CallId,
    /// The tool's name, as the model sees it.
    pub tool: String,
    /// The tool's origin.
    pub origin: Origin,
    /// The tool's annotations.
    pub annotations: Annotations,
    /// The call's arguments.
    pub arguments: Arguments,
    /// The tool's own call [summary](ropeway_core::tool::Tool::summarize), redacted. It is built from the arguments, which come
    /// from a model: show it next to them, not instead of them. MCP tools have none.
    pub summary: Option<String>,
    /// The changes to the tool since it was approved permanently; empty if it never was.
    pub changes: Vec<String>,
    /// The definition that the approval is for.
    pub definition: ToolDefinition,
}

impl ApprovalRequest {
    /// Creates the request for a call to a tool that was never approved.
    pub fn new(call: CallId, definition: ToolDefinition, arguments: Arguments) -> Self {
        let ToolDefinition { name, origin, annotations, .. } = definition.clone();
        Self { call, tool: name, origin, annotations, arguments, summary: None, changes: Vec::new(), definition }
    }
}

/// The answer to an [`ApprovalRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Approval {
    /// Allows this call.
    Allow,
    /// Allows this and all further calls to the tool, until its definition changes.
    Always,
    /// Allows this call, and all further calls to the same server's tools with `readOnlyHint: true`, until the tool's definition
    /// changes.
    AlwaysReadOnly,
    /// Denies the call.
    Deny {
        /// The reason, for the model.
        reason: Option<String>,
    },
}

impl Approval {
    /// Denies the call without a reason.
    pub fn deny() -> Self {
        Self::Deny { reason: None }
    }
}

pub(super) type ApprovalHandler = Arc<dyn Fn(ApprovalRequest) -> BoxFuture<'static, Approval> + Send + Sync>;

/// Decides about calls: by the policy, permanent approvals, and the approval request handler.
#[derive(Clone, Default)]
pub(super) struct Approver {
    pub(super) policy: Policy,
    pub(super) handler: Option<ApprovalHandler>,
    pub(super) approvals: Approvals,
}

/// The decision about a call.
pub(super) struct PolicyDecision {
    pub(super) permission: Permission,
    /// Whether it holds only for this tool definition.
    pub(super) only_unchanged: bool,
    /// The changes to the tool since it was approved.
    pub(super) changes: Vec<String>,
}

impl Approver {
    #[cfg(test)]
    fn permission(&self, definition: &ToolDefinition) -> Permission {
        self.decide(definition).permission
    }

    pub(super) fn decide(&self, definition: &ToolDefinition) -> PolicyDecision {
        let only_unchanged = self.policy.depends_on_definition(definition);
        let decision = |permission, changes| PolicyDecision { permission, only_unchanged, changes };
        match self.policy.permission(definition) {
            Permission::Ask => match self.approvals.check(definition) {
                ApprovalStatus::Approved => decision(Permission::Allow, Vec::new()),
                ApprovalStatus::Changed(changes) => decision(Permission::Ask, changes),
                ApprovalStatus::Unknown => decision(Permission::Ask, Vec::new()),
            },
            permission => decision(permission, Vec::new()),
        }
    }
}

impl fmt::Debug for Approver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Approver").field("policy", &self.policy).field("asks", &self.handler.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn local(name: &str, hints: serde_json::Value) -> ToolDefinition {
        let mut definition = ToolDefinition::new(name);
        definition.annotations = Annotations(hints.as_object().cloned().unwrap_or_default());
        definition
    }

    fn of_server(name: &str, hints: serde_json::Value) -> ToolDefinition {
        let mut definition = local(name, hints);
        definition.origin = Origin::Server { server: "s".into(), tool: name.into() };
        definition.provenance.trust_hints = true;
        definition
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let policy = Policy::new().deny("*_delete").allow("fs_*").ask("*");
        let permission = |name: &str| policy.permission(&local(name, json!({})));
        assert_eq!(
            ["fs_delete", "fs_read", "web_get"].map(permission),
            [Permission::Deny, Permission::Allow, Permission::Ask]
        );
        assert_eq!(Policy::new().permission(&local("x", json!({}))), Permission::Allow);
        assert_eq!(Policy::new().otherwise(Permission::Deny).permission(&local("x", json!({}))), Permission::Deny);
    }

    #[test]
    fn a_server_tool_has_two_names() {
        let mut tool = of_server("read", json!({}));
        tool.name = "mcp_s_read".to_owned();
        tool.provenance.prefix = "mcp_s_".into();
        let permission = |pattern: &str| Policy::new().deny(pattern).permission(&tool);
        assert_eq!(["mcp_s_*", "s.read", "s.*"].map(permission), [Permission::Deny; 3]);
        assert_eq!(["read", "t.read"].map(permission), [Permission::Allow; 2]);
    }

    #[test]
    fn a_servers_tool_is_destructive_unless_it_denies_it() {
        let policy = Policy::new().destructive(Permission::Ask);
        let permission = |hints| policy.permission(&of_server("t", hints));
        assert_eq!(permission(json!({})), Permission::Ask);
        assert_eq!(permission(json!({"destructiveHint": false})), Permission::Allow);
        assert_eq!(permission(json!({"readOnlyHint": true})), Permission::Allow);
        // Not a boolean, so it is ignored.
        assert_eq!(permission(json!({"readOnlyHint": "true"})), Permission::Ask);
    }

    #[test]
    fn annotations_count_only_if_they_are_trusted() {
        let mut lying = of_server("wipe", json!({"readOnlyHint": true, "destructiveHint": false}));
        lying.provenance.trust_hints = false;
        for policy in [Policy::new().changing(Permission::Ask), Policy::new().destructive(Permission::Ask)] {
            assert_eq!(policy.permission(&lying), Permission::Ask);
        }
    }

    #[test]
    fn allow_is_strict_and_ask_and_deny_are_broad() {
        let mut wipe = of_server("files_wipe", json!({}));
        wipe.origin = Origin::Server { server: "my".into(), tool: "files_wipe".into() };
        wipe.name = "mcp_my_files_wipe".to_owned();
        wipe.provenance.prefix = "mcp_my_".into();
        let of = |policy: Policy| policy.permission(&wipe);
        assert_eq!(of(Policy::new().allow("mcp_my_files_*").otherwise(Permission::Ask)), Permission::Ask);
        assert_eq!(of(Policy::new().ask("mcp_my_files_*")), Permission::Ask);
        assert_eq!(of(Policy::new().deny("*_wipe")), Permission::Deny);
        let policy = Policy::new().allow("mcp_my_files_*").allow("my.*").deny("*_wipe").deny("nothing");
        let unmatched: Vec<&str> = policy.unmatched(&[&wipe]).iter().map(|pattern| pattern.as_str()).collect();
        assert_eq!(unmatched, ["mcp_my_files_*", "nothing"]);
    }

    #[test]
    fn a_local_tool_is_harmless_unless_annotated_otherwise() {
        let policy = Policy::new().destructive(Permission::Deny).changing(Permission::Ask);
        let permission = |hints| policy.permission(&local("t", hints));
        assert_eq!(permission(json!({})), Permission::Allow);
        assert_eq!(permission(json!({"destructiveHint": true})), Permission::Deny);
        assert_eq!(permission(json!({"readOnlyHint": false})), Permission::Ask);
    }

    #[test]
    fn a_tool_without_annotations_may_change_something() {
        let policy = Policy::new().changing(Permission::Ask);
        let permission = |hints| policy.permission(&of_server("t", hints));
        assert_eq!(permission(json!({"destructiveHint": false})), Permission::Ask);
        assert_eq!(permission(json!({"readOnlyHint": true})), Permission::Allow);
    }

    #[test]
    fn an_invalid_pattern_is_reported() {
        let policy = Policy::new().allow("a[").deny("b");
        assert_eq!(policy.invalid.len(), 1);
        assert_eq!(policy.invalid[0].0, "a[");
    }

    #[test]
    fn a_permanent_approval_does_not_override_a_denial() {
        let approver = Approver { policy: Policy::new().ask("a").deny("b"), ..Approver::default() };
        approver.approvals.allow(&local("a", json!({})));
        approver.approvals.allow(&local("b", json!({})));
        assert_eq!(approver.permission(&local("a", json!({}))), Permission::Allow);
        assert_eq!(approver.permission(&local("b", json!({}))), Permission::Deny);
    }

    #[test]
    fn an_approval_is_for_a_tool_and_not_for_a_name() {
        let approver = Approver { policy: Policy::new().ask("*"), ..Approver::default() };
        let (mine, other) = (of_server("a", json!({})), local("a", json!({})));
        approver.approvals.allow(&mine);
        assert_eq!([&mine, &other].map(|tool| approver.permission(tool)), [Permission::Allow, Permission::Ask]);
        let mut elsewhere = mine.clone();
        elsewhere.origin = Origin::Server { server: "t".into(), tool: "a".into() };
        assert_eq!(approver.permission(&elsewhere), Permission::Ask);
        assert_eq!(approver.permission(&mine), Permission::Allow);
    }

    #[test]
    fn a_tool_whose_annotations_change_needs_approval_again() {
        let approver = Approver { policy: Policy::new().ask("*"), ..Approver::default() };
        let (tame, wild) = (of_server("a", json!({"readOnlyHint": true})), of_server("a", json!({})));
        approver.approvals.allow(&tame);
        assert_eq!(
            [&tame, &wild, &tame].map(|tool| approver.permission(tool)),
            [Permission::Allow, Permission::Ask, Permission::Ask]
        );
    }

    #[test]
    fn an_invalid_rule_is_on_the_safe_side() {
        let permission = |policy: Policy| policy.permission(&local("x", json!({})));
        assert_eq!(permission(Policy::new().deny("a[")), Permission::Deny);
        assert_eq!(permission(Policy::new().ask("a[")), Permission::Ask);
        assert_eq!(permission(Policy::new().allow("a[").otherwise(Permission::Deny)), Permission::Deny);
    }
}
