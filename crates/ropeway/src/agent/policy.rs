//! A policy: which calls are made, which are asked about, and which are not made.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::config::Glob;
use crate::tool::{Annotations, Arguments, BoxFuture, CallId, Origin, ToolDefinition};

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
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Vec<(Rule, Permission)>,
    otherwise: Permission,
    /// Patterns that are none, each with what is wrong with it.
    pub(super) broken: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
enum Rule {
    /// Our name for the tool fits.
    Named(Glob),
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

    /// Calls of tools whose names match the glob are made.
    #[must_use]
    pub fn allow(self, pattern: &str) -> Self {
        self.named(pattern, Permission::Allow)
    }

    /// Calls of tools whose names match the glob are asked about.
    #[must_use]
    pub fn ask(self, pattern: &str) -> Self {
        self.named(pattern, Permission::Ask)
    }

    /// Calls of tools whose names match the glob are not made.
    #[must_use]
    pub fn deny(self, pattern: &str) -> Self {
        self.named(pattern, Permission::Deny)
    }

    /// What becomes of calls of tools that may destroy something. A server's tool is taken for one unless it says that it is not;
    /// a local one only if it says so.
    #[must_use]
    pub fn destructive(self, permission: Permission) -> Self {
        self.with(Rule::Destructive, permission)
    }

    /// What becomes of calls of tools that do not say that they change nothing; of local ones that say that they may.
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
        match Glob::new(pattern) {
            Ok(glob) => self.with(Rule::Named(glob), permission),
            Err(error) => {
                self.broken.push((pattern.to_owned(), error.to_string()));
                self
            }
        }
    }

    fn with(mut self, rule: Rule, permission: Permission) -> Self {
        self.rules.push((rule, permission));
        self
    }

    /// What becomes of calls of this tool.
    pub fn permission(&self, definition: &ToolDefinition) -> Permission {
        let rule = self.rules.iter().find(|(rule, _)| rule.fits(definition));
        rule.map_or(self.otherwise, |(_, permission)| *permission)
    }
}

impl Rule {
    fn fits(&self, definition: &ToolDefinition) -> bool {
        let ToolDefinition { name, annotations, origin, .. } = definition;
        let says =
            |hint: &str, value: bool| annotations.0.get(hint).and_then(serde_json::Value::as_bool) == Some(value);
        match (self, origin) {
            (Self::Named(glob), _) => glob.matches(name),
            (Self::Destructive, Origin::Server { .. }) => annotations.destructive(),
            (Self::Changing, Origin::Server { .. }) => !annotations.read_only(),
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
}

/// What somebody says to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Approval {
    /// It may be made.
    Allow,
    /// It may be made, and so may all further calls of the same tool.
    Always,
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
    /// Tools that somebody has agreed to once and for all.
    always: Arc<Mutex<HashSet<String>>>,
}

impl Desk {
    pub(super) fn permission(&self, definition: &ToolDefinition) -> Permission {
        match self.policy.permission(definition) {
            Permission::Ask if self.always().contains(&definition.name) => Permission::Allow,
            permission => permission,
        }
    }

    pub(super) fn allow_always(&self, tool: &str) {
        self.always().insert(tool.to_owned());
    }

    fn always(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.always.lock().unwrap_or_else(PoisonError::into_inner)
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
        desk.allow_always("a");
        desk.allow_always("b");
        assert_eq!(desk.permission(&local("a", json!({}))), Permission::Allow);
        assert_eq!(desk.permission(&local("b", json!({}))), Permission::Deny);
    }
}
