//! A policy: which calls are made, which are asked about, and which are not made.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::approvals::{ApprovalStatus, Approvals};
use super::pattern::ToolPattern;
use crate::tool::{Annotations, Arguments, BoxFuture, CallId, DefinitionChange, Origin, ToolDefinition};

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// It is made.
    Allow,
    /// Somebody is asked first.
    Ask,
    /// It is not made, and the model is told so.
    Deny,
}

/// Which calls are made, which are asked about, and which are not made: the first rule that fits a tool decides.
///
/// It is about the tools of the host and of servers. Those that come with an agent, which find tools and read on in what was cut,
/// are always called: what is told of them to the model must be true, and what they lead to has rules of its own.
///
/// Rules go by [patterns](ToolPattern), which are anchored to a server. [`allow`](Self::allow) takes them strictly; [`ask`](Self::ask) and
/// [`deny`](Self::deny) also where a wildcard reaches from the server into the tool, which is the safe side.
///
/// What a server says about the behaviour of its tools (`readOnlyHint`, `destructiveHint`) counts only where the host
/// [believes it](crate::config::ServerEntry::trust_hints).
///
/// A pattern that is none is an error of [`AgentBuilder::build`](super::AgentBuilder::build). Whoever asks the policy itself is on
/// the safe side: such a rule allows nothing, and asks about or denies everything.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Vec<(Rule, Permission)>,
    otherwise: Permission,
    /// Patterns that are none, each with what is wrong with it.
    pub(super) broken: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
enum Rule {
    /// The pattern means the tool.
    Named(ToolPattern),
    /// Nobody knows which tools were meant: all of them.
    Unreadable,
    /// The tool may destroy something.
    Destructive,
    /// The tool does not say that it changes nothing.
    Changing,
}

impl Default for Policy {
    fn default() -> Self {
        Self { rules: Vec::new(), otherwise: Permission::Allow, broken: Vec::new() }
    }
}

impl Policy {
    /// Every call is made.
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls of tools that the [pattern](ToolPattern) means are made.
    #[must_use]
    pub fn allow(self, pattern: &str) -> Self {
        self.named(pattern, Permission::Allow)
    }

    /// Calls of tools that the [pattern](ToolPattern) means, or [matches loosely](ToolPattern::matches_loosely), are asked about.
    #[must_use]
    pub fn ask(self, pattern: &str) -> Self {
        self.named(pattern, Permission::Ask)
    }

    /// Calls of tools that the [pattern](ToolPattern) means, or [matches loosely](ToolPattern::matches_loosely), are not made.
    #[must_use]
    pub fn deny(self, pattern: &str) -> Self {
        self.named(pattern, Permission::Deny)
    }

    /// What becomes of calls of tools that may destroy something. A server's tool is taken for one unless it says that it is not
    /// and the host believes that; a local one only if it says so.
    #[must_use]
    pub fn destructive(self, permission: Permission) -> Self {
        self.with(Rule::Destructive, permission)
    }

    /// What becomes of calls of tools that do not say that they change nothing, or are not believed; of local ones that say that
    /// they may.
    #[must_use]
    pub fn changing(self, permission: Permission) -> Self {
        self.with(Rule::Changing, permission)
    }

    /// What becomes of calls that no rule is about; allowed where nothing is said.
    #[must_use]
    pub fn otherwise(mut self, permission: Permission) -> Self {
        self.otherwise = permission;
        self
    }

    fn named(mut self, pattern: &str, permission: Permission) -> Self {
        match ToolPattern::new(pattern) {
            Ok(pattern) => self.with(Rule::Named(pattern), permission),
            Err(error) => {
                self.broken.push((pattern.to_owned(), error.to_string()));
                match permission {
                    Permission::Allow => self,
                    Permission::Ask | Permission::Deny => self.with(Rule::Unreadable, permission),
                }
            }
        }
    }

    fn with(mut self, rule: Rule, permission: Permission) -> Self {
        self.rules.push((rule, permission));
        self
    }

    /// What becomes of calls of this tool.
    pub fn permission(&self, definition: &ToolDefinition) -> Permission {
        self.rule(definition).map_or(self.otherwise, |(_, permission)| *permission)
    }

    fn rule(&self, definition: &ToolDefinition) -> Option<&(Rule, Permission)> {
        self.rules.iter().find(|(rule, permission)| rule.fits(definition, *permission))
    }

    /// Returns whether a decision about a tool depends on its definition: a rule that names it holds whatever it says of itself.
    pub(super) fn is_bound(&self, definition: &ToolDefinition) -> bool {
        !self.rules.is_empty() && !matches!(self.rule(definition), Some((Rule::Named(_), Permission::Allow)))
    }

    /// Returns whether every call is decided about in the same way.
    pub(super) fn is_uniform(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the patterns that mean none of these tools.
    pub fn unmatched(&self, tools: &[&ToolDefinition]) -> Vec<&ToolPattern> {
        let named = self.rules.iter().filter_map(|(rule, permission)| match rule {
            Rule::Named(pattern) => Some((rule, pattern, *permission)),
            _ => None,
        });
        let unmatched = named.filter(|(rule, _, permission)| !tools.iter().any(|tool| rule.fits(tool, *permission)));
        unmatched.map(|(_, pattern, _)| pattern).collect()
    }
}

impl Rule {
    fn fits(&self, definition: &ToolDefinition, permission: Permission) -> bool {
        let ToolDefinition { annotations, origin, .. } = definition;
        let trusted = definition.provenance.trust_hints;
        let says =
            |hint: &str, value: bool| annotations.0.get(hint).and_then(serde_json::Value::as_bool) == Some(value);
        match (self, origin) {
            (Self::Named(pattern), _) => match permission {
                Permission::Allow => pattern.matches(definition),
                Permission::Ask | Permission::Deny => pattern.matches_loosely(definition),
            },
            (Self::Unreadable, _) => true,
            (Self::Destructive, Origin::Server { .. }) => !trusted || annotations.destructive(),
            (Self::Changing, Origin::Server { .. }) => !trusted || !annotations.read_only(),
            // The host knows its own tools: what it says nothing about is harmless.
            (Self::Destructive, Origin::Local) => says("destructiveHint", true),
            (Self::Changing, Origin::Local) => says("readOnlyHint", false) || says("destructiveHint", true),
        }
    }
}

/// A call that somebody must agree to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// The call.
    pub call: CallId,
    /// The tool, by our own name for it.
    pub tool: String,
    /// Where the tool comes from.
    pub origin: Origin,
    /// What the tool says about its behaviour.
    pub annotations: Annotations,
    /// What it is to be called with.
    pub arguments: Arguments,
    /// The tool's own [summary](crate::tool::Tool::summarize) of the call, safe to show. It is built from the arguments, which come
    /// from a model: show it beside them, not instead of them. Tools of MCP servers have none.
    pub summary: Option<String>,
    /// What changed since the tool was last allowed for good, in words; empty for one that never was.
    pub changes: Vec<DefinitionChange>,
    /// The definition that is approved, or not.
    pub definition: ToolDefinition,
}

/// What somebody says to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Approval {
    /// It may be made.
    Allow,
    /// It may be made, and so may all further calls of the same tool, as long as its definition stays the same.
    Always,
    /// It may be made, and so may all further calls of tools of the same server that say `readOnlyHint: true`, each as long as its
    /// definition stays the same.
    AlwaysReadOnly,
    /// It must not be made.
    Deny {
        /// Why, for the model.
        reason: Option<String>,
    },
}

impl Approval {
    /// It must not be made.
    pub fn deny() -> Self {
        Self::Deny { reason: None }
    }
}

pub(super) type Asker = Arc<dyn Fn(ApprovalRequest) -> BoxFuture<'static, Approval> + Send + Sync>;

/// Who decides about calls.
#[derive(Clone, Default)]
pub(super) struct Desk {
    pub(super) policy: Policy,
    pub(super) asker: Option<Asker>,
    /// Tools that were allowed for good.
    pub(super) approvals: Approvals,
}

/// What becomes of a call, and why.
pub(super) struct PolicyDecision {
    pub(super) permission: Permission,
    /// It holds only for this definition of the tool.
    pub(super) is_bound: bool,
    /// What changed since the tool was allowed for good.
    pub(super) changes: Vec<DefinitionChange>,
}

impl Desk {
    #[cfg(test)]
    fn permission(&self, definition: &ToolDefinition) -> Permission {
        self.decide(definition).permission
    }

    pub(super) fn decide(&self, definition: &ToolDefinition) -> PolicyDecision {
        let is_bound = self.policy.is_bound(definition);
        let decision = |permission, changes| PolicyDecision { permission, is_bound, changes };
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

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("policy", &self.policy).field("asks", &self.asker.is_some()).finish()
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
    fn a_servers_tool_goes_by_two_names() {
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
        // Not a boolean: it says nothing.
        assert_eq!(permission(json!({"readOnlyHint": "true"})), Permission::Ask);
    }

    #[test]
    fn what_a_server_says_of_its_tools_counts_only_where_it_is_believed() {
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
    fn a_local_tool_is_harmless_unless_it_says_otherwise() {
        let policy = Policy::new().destructive(Permission::Deny).changing(Permission::Ask);
        let permission = |hints| policy.permission(&local("t", hints));
        assert_eq!(permission(json!({})), Permission::Allow);
        assert_eq!(permission(json!({"destructiveHint": true})), Permission::Deny);
        assert_eq!(permission(json!({"readOnlyHint": false})), Permission::Ask);
    }

    #[test]
    fn a_tool_that_does_not_say_that_it_changes_nothing_may_change_something() {
        let policy = Policy::new().changing(Permission::Ask);
        let permission = |hints| policy.permission(&of_server("t", hints));
        assert_eq!(permission(json!({"destructiveHint": false})), Permission::Ask);
        assert_eq!(permission(json!({"readOnlyHint": true})), Permission::Allow);
    }

    #[test]
    fn a_pattern_that_is_none_is_told() {
        let policy = Policy::new().allow("a[").deny("b");
        assert_eq!(policy.broken.len(), 1);
        assert_eq!(policy.broken[0].0, "a[");
    }

    #[test]
    fn what_was_agreed_to_for_ever_is_not_asked_again_and_what_is_denied_stays_so() {
        let desk = Desk { policy: Policy::new().ask("a").deny("b"), ..Desk::default() };
        desk.approvals.allow(&local("a", json!({})));
        desk.approvals.allow(&local("b", json!({})));
        assert_eq!(desk.permission(&local("a", json!({}))), Permission::Allow);
        assert_eq!(desk.permission(&local("b", json!({}))), Permission::Deny);
    }

    #[test]
    fn what_was_agreed_to_is_a_tool_and_not_a_name() {
        let desk = Desk { policy: Policy::new().ask("*"), ..Desk::default() };
        let (mine, other) = (of_server("a", json!({})), local("a", json!({})));
        desk.approvals.allow(&mine);
        assert_eq!([&mine, &other].map(|tool| desk.permission(tool)), [Permission::Allow, Permission::Ask]);
        let mut elsewhere = mine.clone();
        elsewhere.origin = Origin::Server { server: "t".into(), tool: "a".into() };
        assert_eq!(desk.permission(&elsewhere), Permission::Ask);
        assert_eq!(desk.permission(&mine), Permission::Allow);
    }

    #[test]
    fn a_tool_that_says_something_else_about_itself_is_asked_about_again() {
        let desk = Desk { policy: Policy::new().ask("*"), ..Desk::default() };
        let (tame, wild) = (of_server("a", json!({"readOnlyHint": true})), of_server("a", json!({})));
        desk.approvals.allow(&tame);
        assert_eq!(
            [&tame, &wild, &tame].map(|tool| desk.permission(tool)),
            [Permission::Allow, Permission::Ask, Permission::Ask]
        );
    }

    #[test]
    fn a_rule_that_cannot_be_read_is_on_the_safe_side() {
        let permission = |policy: Policy| policy.permission(&local("x", json!({})));
        assert_eq!(permission(Policy::new().deny("a[")), Permission::Deny);
        assert_eq!(permission(Policy::new().ask("a[")), Permission::Ask);
        assert_eq!(permission(Policy::new().allow("a[").otherwise(Permission::Deny)), Permission::Deny);
    }
}
