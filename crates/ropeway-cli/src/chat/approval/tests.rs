//! Tests of approval of tool calls.

use ropeway_core::tool::Annotations;
use serde_json::json;

use super::*;

fn tool(name: &str, hints: serde_json::Value) -> ToolDefinition {
    let mut definition = ToolDefinition::new(format!("mcp_s_{name}"));
    definition.provenance.prefix = "mcp_s_".into();
    definition.annotations = Annotations(hints.as_object().cloned().unwrap_or_default());
    definition.origin = Origin::Server { server: "s".into(), tool: name.into() };
    definition
}

fn globs(globs: &[&str]) -> Vec<String> {
    globs.iter().map(|glob| (*glob).to_owned()).collect()
}

fn permissions<const N: usize>(rules: &ApprovalArgs, names: [&str; N]) -> [Permission; N] {
    let policy = rules.policy();
    names.map(|name| policy.permission(&tool(name, json!({}))))
}

#[test]
fn deny_wins_over_ask_and_ask_wins_over_allow() {
    use Permission::{Allow, Ask, Deny};
    let rules = ApprovalArgs {
        deny: globs(&["*_delete"]),
        allow: globs(&["*"]),
        ask: globs(&["s.w*", "s.d*"]),
        ..ApprovalArgs::default()
    };
    assert_eq!(permissions(&rules, ["delete", "write", "read"]), [Deny, Ask, Allow]);
    let eager = ApprovalArgs { yes: true, ask: Vec::new(), ..rules };
    assert_eq!(permissions(&eager, ["delete", "write", "read"]), [Deny, Allow, Allow]);
}

#[test]
fn the_command_line_wins_over_the_file_except_over_its_deny() {
    use Permission::{Allow, Ask, Deny};
    let mut configured = ToolApproval::default();
    configured.allow = globs(&["s.a*"]);
    configured.ask = globs(&["s.b*", "s.ab"]);
    configured.deny = globs(&["s.c*"]);
    let names = ["a", "ab", "b", "c"];
    assert_eq!(permissions(&ApprovalArgs::default().with_configured(&configured), names), [Allow, Ask, Ask, Deny]);
    let asking = ApprovalArgs { ask: globs(&["s.a"]), ..ApprovalArgs::default() }.with_configured(&configured);
    assert_eq!(permissions(&asking, names), [Ask, Ask, Ask, Deny]);
    let allowing = ApprovalArgs { allow: globs(&["*"]), ..ApprovalArgs::default() }.with_configured(&configured);
    assert_eq!(permissions(&allowing, names), [Allow, Allow, Allow, Deny]);
}

#[test]
fn an_escaped_name_matches_only_itself() {
    for name in ["a*", "a?", "[ab]", "{a,b}", "[!a]", r"a\b", "plain_name"] {
        let policy = Policy::new().deny(&escape_glob(name));
        let denied = |name: &str| policy.permission(&ToolDefinition::new(name)) == Permission::Deny;
        assert!(denied(name) && !["a", "ab", "b", "c"].into_iter().any(denied), "{name}");
    }
}

#[test]
fn calls_need_approval_without_a_trusted_read_only_hint() {
    let policy = ApprovalArgs::default().policy();
    let mut read = tool("read", json!({"readOnlyHint": true}));
    assert_eq!(policy.permission(&read), Permission::Ask);
    read.provenance.trust_hints = true;
    assert_eq!(policy.permission(&read), Permission::Allow);
    assert_eq!(policy.permission(&tool("write", json!({"destructiveHint": false}))), Permission::Ask);
}

#[test]
fn a_pattern_without_a_match_warns_with_a_suggestion() {
    let tools = [tool("read_file", json!({})), tool("write_file", json!({}))];
    let tools: Vec<&ToolDefinition> = tools.iter().collect();
    let said = |pattern: &str, unseen: &[(&str, String)]| {
        let rules = ApprovalArgs { allow: globs(&[pattern]), ..ApprovalArgs::default() };
        unmatched_warnings(&rules.policy(), &tools, unseen)
    };
    for (pattern, warning) in [
        ("s.raed_file", "no tool matches `s.raed_file`; did you mean `s.read_file`?"),
        ("read_file", "no tool matches `read_file`; did you mean `s.read_file`?"),
        ("mcp_s_read_*", "no tool matches `mcp_s_read_*`; did you mean `s.read_*`?"),
        ("z.*", "no tool matches `z.*`; did you mean `s.*`?"),
        ("xylophone", "no tool matches `xylophone`"),
    ] {
        assert_eq!(said(pattern, &[]), [warning]);
    }
    for pattern in ["s.*", "*", "mcp_s_*", "s.read_file"] {
        assert_eq!(said(pattern, &[]), [""; 0]);
    }
    let down = [("web", "mcp_web_".to_owned())];
    assert_eq!(["web.x", "mcp_web_*", "*.x"].map(|pattern| said(pattern, &down).len()), [0; 3]);
    assert_eq!(said("s.raed_file", &down).len(), 1);
}
