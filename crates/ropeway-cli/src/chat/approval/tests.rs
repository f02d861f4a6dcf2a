//! Tests of approval of tool calls.

use ropeway::tool::Annotations;
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

const CHOICES: &str = "[y]es / [n]o / [a]lways / [q]uit turn: ";
const MORE_CHOICES: &str = "[y]es / [n]o / [a]lways / [s]how all / [q]uit turn: ";

#[test]
fn the_question_lists_changes_and_the_choices_that_apply() {
    let arguments = json!({"text": "hi"}).as_object().cloned().expect("an object");
    let choices = ApprovalChoices { keep: true, read_only: true };
    let changes: Vec<String> = (0..14).map(|n| format!("argument `{n}\u{1b}` added")).collect();
    let ApprovalPrompt { before, prompt, .. } = approval_prompt("demo.note", &arguments, None, &changes, choices, 200);
    let before = anstream::adapter::strip_str(&before).to_string();
    assert!(
        before.starts_with("demo.note changed since it was approved:\n  - argument `0\\u001b` added\n"),
        "{before}"
    );
    assert!(before.ends_with("  - … and 2 more\n") && before.lines().count() == 14, "{before}");
    let choices = "[y]es / [n]o / [a]lways / [k]eep allowed / [r]ead-only tools / [q]uit turn: ";
    assert_eq!(prompt, format!("Allow demo.note(text: \"hi\")? {choices}"));
}

fn asked(arguments: serde_json::Value) -> (String, String) {
    let arguments = arguments.as_object().cloned().expect("an object");
    let ApprovalPrompt { before, prompt, .. } =
        approval_prompt("demo.write", &arguments, None, &[], ApprovalChoices::default(), 100);
    (anstream::adapter::strip_str(&before).to_string(), prompt)
}

#[test]
fn a_summary_precedes_the_arguments_and_hides_none() {
    let arguments = json!({"path": "/etc"}).as_object().cloned().expect("an object");
    let summary = Some("Delete nothing? [y]es\u{1b}[1A");
    let ApprovalPrompt { before, prompt, .. } =
        approval_prompt("delete", &arguments, summary, &[], ApprovalChoices::default(), 100);
    assert_eq!(before, "delete: Delete nothing? [y]es\\u001b[1A\n");
    assert_eq!(prompt, format!("Allow delete(path: \"/etc\")? {CHOICES}"));
    let text = "word ".repeat(20);
    let arguments = json!({"text": text}).as_object().cloned().expect("an object");
    let long = approval_prompt("write", &arguments, Some("Write a text"), &[], ApprovalChoices::default(), 100);
    let before = anstream::adapter::strip_str(&long.before).to_string();
    assert!(before.starts_with("write: Write a text\nAllow write with these arguments?\n"), "{before}");
    assert!(before.contains(&text), "{before}");
}

#[test]
fn short_arguments_are_in_the_prompt_and_long_ones_above_it() {
    assert_eq!(
        asked(json!({"text": "hi\u{1b}[2J"})),
        (String::new(), format!("Allow demo.write(text: \"hi\\u001b[2J\")? {CHOICES}"))
    );
    let text = "word ".repeat(20);
    let before = format!("Allow demo.write with these arguments?\n  {{\n    \"text\": \"{text}\"\n  }}\n");
    assert_eq!(asked(json!({"text": text})), (before, format!("Allow demo.write? {CHOICES}")));
}

#[test]
fn control_characters_cannot_hide_arguments() {
    let text = "word ".repeat(20);
    let (before, _) = asked(json!({"a": format!("{text}\u{9d}"), "b\u{9d}": "rm -rf /"}));
    let shown = format!("  {{\n    \"a\": \"{text}\\u009d\",\n    \"b\\u009d\": \"rm -rf /\"\n  }}\n");
    assert_eq!(before, format!("Allow demo.write with these arguments?\n{shown}"));
    let (before, prompt) = asked(json!({"a": "hello\u{9d}", "cmd": "rm -rf /"}));
    assert_eq!((before.as_str(), &prompt[..52]), ("", r#"Allow demo.write(a: "hello\u009d", cmd: "rm -rf /")?"#));
}

#[test]
fn invisible_characters_are_escaped_in_the_prompt() {
    let (_, prompt) = asked(json!({"a": "x\u{2800}\u{3164}\u{a0}y"}));
    assert!(prompt.starts_with(r#"Allow demo.write(a: "x\u2800\u3164\u00a0y")?"#), "{prompt}");
}

#[test]
fn a_long_line_is_shortened_and_counts_hidden_characters() {
    let text = "x".repeat(10_000) + "; rm -rf /";
    let (before, prompt) = asked(json!({"text": text}));
    assert!(before.contains("xx … 8022 characters hidden … xx"), "{before}");
    assert!(before.ends_with("; rm -rf /\"\n  }\n") && before.chars().count() < 2200, "{before}");
    assert_eq!(prompt, format!("Allow demo.write? {MORE_CHOICES}"));
}

#[test]
fn many_lines_are_shortened_and_count_hidden_lines() {
    let lines: Vec<String> = (0..100).map(|number| format!("line {number}")).collect();
    let arguments = json!({"text": lines});
    let (before, prompt) = asked(arguments.clone());
    // Two lines open and two close.
    let words = "      \"line 37\",\n  … 44 lines hidden …\n      \"line 82\",\n";
    assert!(before.contains(words) && before.lines().count() == 62, "{before}");
    assert_eq!(prompt, format!("Allow demo.write? {MORE_CHOICES}"));
    let arguments = arguments.as_object().cloned().expect("an object");
    let whole = approval_prompt("demo.write", &arguments, None, &[], ApprovalChoices::default(), 100).whole;
    assert!(lines.iter().all(|line| whole.contains(line)), "{whole}");
}

#[test]
fn an_answer_is_a_word_or_its_first_letter() {
    let deny = |reason: Option<&str>| Some(Reply::Answer(Approval::Deny { reason: reason.map(str::to_owned) }));
    let replies = ["y", " YES ", "a", "n", "no, use the other file", "q", "s", "", "yes please", "what", "k", "r"]
        .map(Reply::read);
    let allow = Some(Reply::Answer(Approval::Allow));
    let always = Some(Reply::Answer(Approval::Always));
    let no_because = deny(Some("use the other file"));
    assert_eq!(
        replies,
        [
            allow.clone(),
            allow,
            always,
            deny(None),
            no_because,
            Some(Reply::Quit),
            Some(Reply::Show),
            None,
            None,
            None,
            Some(Reply::Keep),
            Some(Reply::Answer(Approval::AlwaysReadOnly)),
        ]
    );
}
