//! Approval of tool calls: rules, and the question to the user.

use std::collections::BTreeSet;

use anstyle::Style;
use clap::Args;
use ropeway::agent::{Approval, Permission, Policy, ToolPattern};
use ropeway::config::ToolApproval;
use ropeway::message::CallArguments;
use ropeway::tool::{Arguments, Origin, ToolDefinition};

use super::call_display;
use crate::suggest;
use crate::text::{clean_line, columns};

const NAME: Style = Style::new().bold();

/// Lines of arguments that are shown from the start and from the end.
const SHOWN_LINES: (usize, usize) = (40, 20);

/// Characters of each line that are shown from the start and from the end.
const SHOWN_CHARACTERS: (usize, usize) = (1500, 500);

/// Maximum changes of a tool that are shown.
const MAX_CHANGES: usize = 12;

/// The optional answers that apply to a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ApprovalChoices {
    /// The approval can be saved to ropeway.lock.
    pub(crate) keep: bool,
    /// The tool is annotated as read-only, so all read-only tools of its server can be allowed at once.
    pub(crate) read_only: bool,
}

impl ApprovalChoices {
    fn labels(self, show: bool) -> String {
        let optional = |is_offered: bool, choice: &'static str| if is_offered { choice } else { "" };
        format!(
            "[y]es / [n]o / [a]lways / {}{}{}[q]uit turn: ",
            optional(self.keep, "[k]eep allowed / "),
            optional(self.read_only, "[r]ead-only tools / "),
            optional(show, "[s]how all / ")
        )
    }

    /// Returns `true` if the user can choose this answer.
    pub(crate) fn offers(self, approval: &Approval) -> bool {
        self.read_only || !matches!(approval, Approval::AlwaysReadOnly)
    }

    /// Explains the answers.
    pub(crate) fn help(self, server: &str) -> String {
        let mut help =
            "y: allow once; n: deny, optionally with a reason; a: always allow this tool in this chat; ".to_owned();
        if self.keep {
            help.push_str("k: always allow, also in later chats (saved to ropeway.lock); ");
        }
        if self.read_only {
            help.push_str(&format!("r: always allow the tools of `{server}` that declare themselves read-only; "));
        }
        help.push_str("s: show all arguments; q: end the turn\n");
        help
    }
}

/// Tools that the model may call; other calls need approval
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Approval")]
pub(crate) struct ApprovalArgs {
    /// Call matching tools, such as `files.read_*`, without asking (repeatable)
    #[arg(long, value_name = "GLOB")]
    allow: Vec<String>,
    /// Ask before calling matching tools; wins over --allow (repeatable)
    #[arg(long, value_name = "GLOB")]
    ask: Vec<String>,
    /// Never call matching tools; wins over all others (repeatable)
    #[arg(long, value_name = "GLOB")]
    deny: Vec<String>,
    /// Trust the tool annotations of the --stdio or --url server, such as readOnlyHint
    #[arg(long, conflicts_with = "config")]
    pub(crate) trust_hints: bool,
    /// Call all tools without asking, except denied ones
    #[arg(long, short, conflicts_with = "ask")]
    yes: bool,
    /// The rules of the configuration file.
    #[arg(skip)]
    configured: ToolApproval,
}

impl ApprovalArgs {
    /// Adds the rules of the configuration file.
    pub(crate) fn with_configured(mut self, configured: &ToolApproval) -> Self {
        self.configured = configured.clone();
        self
    }

    /// Returns the policy for calls. Deny rules of any source win, then the command line over the configuration file, and within
    /// each of them "ask" over "allow".
    pub(crate) fn policy(&self) -> Policy {
        let Self { allow, ask, deny, yes, configured, trust_hints: _ } = self;
        let denied = deny.iter().chain(&configured.deny);
        let policy = denied.fold(Policy::new(), |policy, glob| policy.deny(glob));
        if *yes {
            return policy;
        }
        let both = [(ask, allow), (&configured.ask, &configured.allow)];
        let policy = both.into_iter().fold(policy, |policy, (ask, allow)| {
            let policy = ask.iter().fold(policy, |policy, glob| policy.ask(glob));
            allow.iter().fold(policy, |policy, glob| policy.allow(glob))
        });
        policy.changing(Permission::Ask)
    }
}

/// Returns a warning for each pattern that matches no tool, with suggestions.
///
/// `unseen` are the servers whose tools are unknown, each with the prefix of its tool names. Patterns that may match one of
/// their tools cause no warning.
pub(crate) fn unmatched_warnings(policy: &Policy, tools: &[&ToolDefinition], unseen: &[(&str, String)]) -> Vec<String> {
    let is_unsure =
        |pattern: &ToolPattern| unseen.iter().any(|(alias, prefix)| pattern.may_match_server(alias, prefix));
    let unmatched_warnings = policy.unmatched(tools).into_iter().filter(|pattern| !is_unsure(pattern));
    let mut warnings: Vec<String> = unmatched_warnings
        .map(|pattern| {
            let text = clean_line(pattern.as_str());
            match suggestion(pattern, tools) {
                Some(question) => format!("no tool matches `{text}`; {}", clean_line(&question)),
                None => format!("no tool matches `{text}`"),
            }
        })
        .collect();
    warnings.dedup();
    warnings
}

/// Suggests a correction for a pattern that matches no tool.
fn suggestion(pattern: &ToolPattern, tools: &[&ToolDefinition]) -> Option<String> {
    let text = pattern.as_str();
    // A wildcard that spans the server and the tool has an equivalent `SERVER.TOOL` pattern.
    for tool in tools.iter().filter(|tool| pattern.matches_loosely(tool)) {
        let Origin::Server { server, .. } = &tool.origin else { continue };
        if let Some(rest) = text.strip_prefix(&*tool.provenance.prefix).filter(|rest| !rest.is_empty()) {
            return Some(format!("did you mean `{server}.{rest}`?"));
        }
    }
    let dotted: Vec<String> = tools
        .iter()
        .map(|tool| match &tool.origin {
            Origin::Server { server, tool } => format!("{server}.{tool}"),
            Origin::Local => tool.name.clone(),
        })
        .collect();
    let servers: BTreeSet<String> = tools
        .iter()
        .filter_map(|tool| match &tool.origin {
            Origin::Server { server, .. } => Some(format!("{server}.*")),
            Origin::Local => None,
        })
        .collect();
    // Model names are compared, too, and suggested in the form `SERVER.TOOL`.
    let as_typed = |name: &str| {
        let at = tools.iter().position(|tool| tool.name == name);
        at.map_or_else(|| name.to_owned(), |at| dotted[at].clone())
    };
    let names = tools.iter().map(|tool| tool.name.as_str());
    let own = tools.iter().zip(&dotted).find(|(tool, _)| tool.own_name() == text).map(|(_, dotted)| dotted.as_str());
    match own {
        Some(own) => suggest::ask(&[own]),
        None => {
            let all = servers.iter().map(String::as_str).chain(dotted.iter().map(String::as_str)).chain(names);
            let mut near: Vec<String> = suggest::closest(text, all).into_iter().map(as_typed).collect();
            near.dedup();
            suggest::ask(&near.iter().map(String::as_str).collect::<Vec<_>>())
        }
    }
}

/// Returns the pattern that matches exactly this tool: `SERVER.TOOL` if the names are plain words, otherwise the escaped
/// model name. A server may name a tool `*`.
pub(crate) fn exact_pattern(tool: &ToolDefinition) -> String {
    let is_plain =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    match &tool.origin {
        Origin::Server { server, tool: own } if is_plain(server.as_str()) && is_plain(own) && **own != *tool.name => {
            format!("{server}.{own}")
        }
        _ => escape_glob(&tool.name),
    }
}

/// Escapes the special characters of a glob.
pub(crate) fn escape_glob(name: &str) -> String {
    name.chars().fold(String::with_capacity(name.len()), |mut glob, c| {
        if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | ',' | '!' | '\\') {
            glob.push('\\');
        }
        glob.push(c);
        glob
    })
}

/// What a person replies to a question about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Allows or denies the call.
    Answer(Approval),
    /// Always allows the tool, also in later chats.
    Keep,
    /// Shows all arguments and asks again.
    Show,
    /// Ends the turn.
    Quit,
}

impl Reply {
    /// Parses a typed line.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let word = word.trim_end_matches([',', ':', '.']).to_lowercase();
        let reason = Some(rest.trim()).filter(|rest| !rest.is_empty());
        match (word.as_str(), reason) {
            ("n" | "no", reason) => Some(Self::Answer(Approval::Deny { reason: reason.map(str::to_owned) })),
            ("y" | "yes", None) => Some(Self::Answer(Approval::Allow)),
            ("a" | "always", None) => Some(Self::Answer(Approval::Always)),
            ("k" | "keep", None) => Some(Self::Keep),
            ("r" | "read-only", None) => Some(Self::Answer(Approval::AlwaysReadOnly)),
            ("s" | "show", None) => Some(Self::Show),
            ("q" | "quit", None) => Some(Self::Quit),
            _ => None,
        }
    }
}

/// The question about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApprovalPrompt {
    /// Text above the prompt.
    pub(crate) before: String,
    pub(crate) prompt: String,
    /// All arguments, for "show all".
    pub(crate) whole: String,
}

/// Returns the question about a call. A summary never replaces the arguments: it is derived from the model's text. Long
/// arguments are shortened and state how much is hidden.
pub(crate) fn approval_prompt(
    name: &str,
    arguments: &Arguments,
    summary: Option<&str>,
    changes: &[String],
    choices: ApprovalChoices,
    width: usize,
) -> ApprovalPrompt {
    let pretty = serde_json::to_string_pretty(arguments).unwrap_or_default();
    let lines: Vec<String> = pretty.lines().map(call_display::escaped).collect();
    let indented = |lines: &[String]| lines.iter().map(|line| format!("  {line}\n")).collect::<String>();
    let whole = indented(&lines);
    let brief = call_display::format_arguments(&CallArguments::Object(arguments.clone()));
    let changed = match changes {
        [] => String::new(),
        changes => {
            let shown =
                changes.iter().take(MAX_CHANGES).map(|change| format!("  - {}\n", call_display::escaped(change)));
            let more = changes.len().saturating_sub(MAX_CHANGES);
            let more = if more > 0 { format!("  - … and {more} more\n") } else { String::new() };
            format!("{NAME}{name}{NAME:#} changed since it was approved:\n{}{more}", shown.collect::<String>())
        }
    };
    let summary = summary.map(|summary| format!("{name}: {}\n", call_display::escaped(summary))).unwrap_or_default();
    let line = format!("Allow {name}({brief})? ");
    let labels = choices.labels(false);
    if columns(&line) + columns(&labels) < width {
        return ApprovalPrompt { before: changed + &summary, prompt: line + &labels, whole };
    }
    let shown = indented(&shortened(&lines));
    let labels = choices.labels(shown != whole);
    let before = format!("{changed}{summary}Allow {NAME}{name}{NAME:#} with these arguments?\n{shown}");
    ApprovalPrompt { before, prompt: format!("Allow {name}? {labels}"), whole }
}

/// Shortens long lines and many lines to their start and end.
fn shortened(lines: &[String]) -> Vec<String> {
    let (first, last) = SHOWN_LINES;
    let line = |line: &String| {
        let (head, tail) = SHOWN_CHARACTERS;
        let length = line.chars().count();
        let Some(left_out) = length.checked_sub(head + tail).filter(|left_out| *left_out > 0) else {
            return line.clone();
        };
        let head: String = line.chars().take(head).collect();
        let tail: String = line.chars().skip(length - tail).collect();
        format!("{head} … {left_out} characters hidden … {tail}")
    };
    match lines.len().checked_sub(first + last) {
        None | Some(0) => lines.iter().map(line).collect(),
        Some(left_out) => {
            let between = format!("… {left_out} lines hidden …");
            let head = lines[..first].iter().map(line);
            head.chain([between]).chain(lines[first + left_out..].iter().map(line)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
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
    fn calls_need_approval_unless_a_trusted_hint_says_read_only() {
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
        let ApprovalPrompt { before, prompt, .. } =
            approval_prompt("demo.note", &arguments, None, &changes, choices, 200);
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
}
