//! Approval: which calls are made, and how a person is asked about one.

use std::collections::BTreeSet;

use anstyle::Style;
use clap::Args;
use ropeway::agent::{Approval, Permission, Policy, ToolPattern};
use ropeway::config::ToolApproval;
use ropeway::message::CallArguments;
use ropeway::tool::{Arguments, Origin, ToolDefinition};

use super::show;
use crate::arguments::suggest;
use crate::terminal::text::{clean_line, columns};

const NAME: Style = Style::new().bold();

/// How many lines of arguments are shown at first and at last; who writes more wants them not to be read.
const LINES: (usize, usize) = (40, 20);

/// How much of a line of them is.
const LINE: (usize, usize) = (1500, 500);

/// How much of the words about a changed tool is shown.
const CHANGES: usize = 12;

/// Answers that are offered only where they mean something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ApprovalChoices {
    /// The approval can be kept in ropeway.lock.
    pub(crate) keep: bool,
    /// The tool says that it is read-only, so the tools of its server that say so can be allowed at once.
    pub(crate) read_only: bool,
}

impl ApprovalChoices {
    fn choices(self, show: bool) -> String {
        let optional = |is_offered: bool, choice: &'static str| if is_offered { choice } else { "" };
        format!(
            "[y]es / [n]o / [a]lways / {}{}{}[q]uit turn: ",
            optional(self.keep, "[k]eep allowed / "),
            optional(self.read_only, "[r]ead-only tools / "),
            optional(show, "[s]how all / ")
        )
    }

    /// Returns whether this answer is offered.
    pub(crate) fn offer(self, reply: &Reply) -> bool {
        match reply {
            Reply::Keep => self.keep,
            Reply::Said(Approval::AlwaysReadOnly) => self.read_only,
            _ => true,
        }
    }

    /// Explains the answers.
    pub(crate) fn help(self, server: &str) -> String {
        let mut help = "y: yes; n: no, also with a reason; a: always for this tool; ".to_owned();
        if self.keep {
            help.push_str("k: always, also next time (kept in ropeway.lock); ");
        }
        if self.read_only {
            help.push_str(&format!("r: always for the tools of `{server}` that say that they are read-only; "));
        }
        help.push_str("s: show all arguments; q: end the turn\n");
        help
    }
}

/// Tools that the model may call. Others are asked about, or not called where nobody can be asked
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Approval")]
pub(crate) struct Rules {
    /// Call matching tools, such as `files.read_*`, without asking (repeatable)
    #[arg(long, value_name = "GLOB")]
    allow: Vec<String>,
    /// Ask before calling matching tools; wins over --allow (repeatable)
    #[arg(long, value_name = "GLOB")]
    ask: Vec<String>,
    /// Never call matching tools; wins over all others (repeatable)
    #[arg(long, value_name = "GLOB")]
    deny: Vec<String>,
    /// Believe what the server of --stdio or --url says about its tools, such as readOnlyHint
    #[arg(long, conflicts_with = "config")]
    pub(crate) trust_hints: bool,
    /// Call all tools that are not denied without asking
    #[arg(long, short, conflicts_with = "ask")]
    yes: bool,
    /// Those of the configuration.
    #[arg(skip)]
    configured: ToolApproval,
}

impl Rules {
    /// These, and those of the configuration.
    pub(crate) fn and(mut self, configured: &ToolApproval) -> Self {
        self.configured = configured.clone();
        self
    }

    /// Returns the policy for calls. Deny rules from any source win. Then the command line counts before the configuration, and of
    /// each of these what is asked about before what is allowed.
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

/// Warnings about patterns that mean no tool, each with what may have been meant.
///
/// `unseen` are the servers whose tools are not known, each with what stands before the names of its tools: what may mean one of
/// theirs is not warned about.
pub(crate) fn unmatched(policy: &Policy, tools: &[&ToolDefinition], unseen: &[(&str, String)]) -> Vec<String> {
    let is_unsure =
        |pattern: &ToolPattern| unseen.iter().any(|(alias, prefix)| pattern.may_match_server(alias, prefix));
    let unmatched = policy.unmatched(tools).into_iter().filter(|pattern| !is_unsure(pattern));
    let mut warnings: Vec<String> = unmatched
        .map(|pattern| {
            let text = clean_line(pattern.as_str());
            match meant(pattern, tools) {
                Some(question) => format!("no tool matches `{text}`; {}", clean_line(&question)),
                None => format!("no tool matches `{text}`"),
            }
        })
        .collect();
    warnings.dedup();
    warnings
}

/// What a pattern that means no tool may have been meant to be.
fn meant(pattern: &ToolPattern, tools: &[&ToolDefinition]) -> Option<String> {
    let text = pattern.as_str();
    // It reaches from the server into the tool: the pattern that does not is known.
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
    // The names that models use are compared, and shown as people type them.
    let as_typed = |name: &str| {
        let at = tools.iter().position(|tool| tool.name == name);
        at.map_or_else(|| name.to_owned(), |at| dotted[at].clone())
    };
    let names = tools.iter().map(|tool| tool.name.as_str());
    let own = tools.iter().zip(&dotted).find(|(tool, _)| tool.own_name() == text).map(|(_, dotted)| dotted.as_str());
    match own {
        Some(own) => suggest::did_you_mean_one_of(&[own]),
        None => {
            let all = servers.iter().map(String::as_str).chain(dotted.iter().map(String::as_str)).chain(names);
            let mut near: Vec<String> = suggest::closest(text, all).into_iter().map(as_typed).collect();
            near.dedup();
            suggest::did_you_mean_one_of(&near.iter().map(String::as_str).collect::<Vec<_>>())
        }
    }
}

/// The pattern that only this tool matches: `SERVER.TOOL` where its names are plain words, else the name that models use, since a
/// server may call its tool `*`.
pub(crate) fn pattern_of(tool: &ToolDefinition) -> String {
    let is_plain =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    match &tool.origin {
        Origin::Server { server, tool: own } if is_plain(server.as_str()) && is_plain(own) && **own != *tool.name => {
            format!("{server}.{own}")
        }
        _ => glob(&tool.name),
    }
}

/// The glob that only this name matches.
pub(crate) fn glob(name: &str) -> String {
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
    /// A word about the call.
    Said(Approval),
    /// It may be made, always, also in later chats.
    Keep,
    /// All of the arguments are to be shown first.
    Show,
    /// The whole turn is to end.
    Quit,
}

impl Reply {
    /// What is typed means.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let word = word.trim_end_matches([',', ':', '.']).to_lowercase();
        let reason = Some(rest.trim()).filter(|rest| !rest.is_empty());
        match (word.as_str(), reason) {
            ("n" | "no", reason) => Some(Self::Said(Approval::Deny { reason: reason.map(str::to_owned) })),
            ("y" | "yes", None) => Some(Self::Said(Approval::Allow)),
            ("a" | "always", None) => Some(Self::Said(Approval::Always)),
            ("k" | "keep", None) => Some(Self::Keep),
            ("r" | "read-only", None) => Some(Self::Said(Approval::AlwaysReadOnly)),
            ("s" | "show", None) => Some(Self::Show),
            ("q" | "quit", None) => Some(Self::Quit),
            _ => None,
        }
    }
}

/// How a person is asked about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wording {
    /// What is said before.
    pub(crate) before: String,
    /// What stands before the reply.
    pub(crate) prompt: String,
    /// All of the arguments.
    pub(crate) whole: String,
}

/// Returns the question about a call. The summary stands before the arguments and never instead of them: it is built from what a
/// model wrote. Arguments are shown whole, or with the amount that is left out.
pub(crate) fn question(
    name: &str,
    arguments: &Arguments,
    summary: Option<&str>,
    changes: &[String],
    offers: ApprovalChoices,
    width: usize,
) -> Wording {
    let pretty = serde_json::to_string_pretty(arguments).unwrap_or_default();
    let lines: Vec<String> = pretty.lines().map(show::escaped).collect();
    let indented = |lines: &[String]| lines.iter().map(|line| format!("  {line}\n")).collect::<String>();
    let whole = indented(&lines);
    let brief = show::arguments(&CallArguments::Object(arguments.clone()));
    let changed = match changes {
        [] => String::new(),
        changes => {
            let shown = changes.iter().take(CHANGES).map(|change| format!("  - {}\n", show::escaped(change)));
            let more = changes.len().saturating_sub(CHANGES);
            let more = if more > 0 { format!("  - {more} more changes\n") } else { String::new() };
            format!("{NAME}{name}{NAME:#} changed since it was allowed:\n{}{more}", shown.collect::<String>())
        }
    };
    let summary = summary.map(|summary| format!("{name}: {}\n", show::escaped(summary))).unwrap_or_default();
    let line = format!("Allow {name}({brief})? ");
    let choices = offers.choices(false);
    if columns(&line) + columns(&choices) < width {
        return Wording { before: changed + &summary, prompt: line + &choices, whole };
    }
    let shown = indented(&shortened(&lines));
    let choices = offers.choices(shown != whole);
    let before = format!("{changed}{summary}Allow {NAME}{name}{NAME:#} with these arguments?\n{shown}");
    Wording { before, prompt: format!("Allow {name}? {choices}"), whole }
}

/// Head and tail of what is long, with the amount that is left out in between.
fn shortened(lines: &[String]) -> Vec<String> {
    let (first, last) = LINES;
    let line = |line: &String| {
        let (head, tail) = LINE;
        let length = line.chars().count();
        let Some(left_out) = length.checked_sub(head + tail).filter(|left_out| *left_out > 0) else {
            return line.clone();
        };
        let head: String = line.chars().take(head).collect();
        let tail: String = line.chars().skip(length - tail).collect();
        format!("{head} … {left_out} characters are left out … {tail}")
    };
    match lines.len().checked_sub(first + last) {
        None | Some(0) => lines.iter().map(line).collect(),
        Some(left_out) => {
            let between = format!("… {left_out} lines are left out …");
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

    fn permissions<const N: usize>(rules: &Rules, names: [&str; N]) -> [Permission; N] {
        let policy = rules.policy();
        names.map(|name| policy.permission(&tool(name, json!({}))))
    }

    #[test]
    fn denied_goes_before_asked_and_asked_before_allowed() {
        use Permission::{Allow, Ask, Deny};
        let rules = Rules {
            deny: globs(&["*_delete"]),
            allow: globs(&["*"]),
            ask: globs(&["s.w*", "s.d*"]),
            ..Rules::default()
        };
        assert_eq!(permissions(&rules, ["delete", "write", "read"]), [Deny, Ask, Allow]);
        let eager = Rules { yes: true, ask: Vec::new(), ..rules };
        assert_eq!(permissions(&eager, ["delete", "write", "read"]), [Deny, Allow, Allow]);
    }

    #[test]
    fn the_command_line_goes_before_the_configuration_unless_that_denies() {
        use Permission::{Allow, Ask, Deny};
        let mut configured = ToolApproval::default();
        configured.allow = globs(&["s.a*"]);
        configured.ask = globs(&["s.b*", "s.ab"]);
        configured.deny = globs(&["s.c*"]);
        let names = ["a", "ab", "b", "c"];
        assert_eq!(permissions(&Rules::default().and(&configured), names), [Allow, Ask, Ask, Deny]);
        let asking = Rules { ask: globs(&["s.a"]), ..Rules::default() }.and(&configured);
        assert_eq!(permissions(&asking, names), [Ask, Ask, Ask, Deny]);
        let allowing = Rules { allow: globs(&["*"]), ..Rules::default() }.and(&configured);
        assert_eq!(permissions(&allowing, names), [Allow, Allow, Allow, Deny]);
    }

    #[test]
    fn a_glob_of_a_name_matches_nothing_else() {
        for name in ["a*", "a?", "[ab]", "{a,b}", "[!a]", r"a\b", "plain_name"] {
            let policy = Policy::new().deny(&glob(name));
            let denied = |name: &str| policy.permission(&ToolDefinition::new(name)) == Permission::Deny;
            assert!(denied(name) && !["a", "ab", "b", "c"].into_iter().any(denied), "{name}");
        }
    }

    #[test]
    fn what_may_change_something_is_asked_about_and_hints_count_only_where_they_are_believed() {
        let policy = Rules::default().policy();
        let mut read = tool("read", json!({"readOnlyHint": true}));
        assert_eq!(policy.permission(&read), Permission::Ask);
        read.provenance.trust_hints = true;
        assert_eq!(policy.permission(&read), Permission::Allow);
        assert_eq!(policy.permission(&tool("write", json!({"destructiveHint": false}))), Permission::Ask);
    }

    #[test]
    fn a_pattern_that_means_no_tool_is_warned_about_with_the_nearest_right_word() {
        let tools = [tool("read_file", json!({})), tool("write_file", json!({}))];
        let tools: Vec<&ToolDefinition> = tools.iter().collect();
        let said = |pattern: &str, unseen: &[(&str, String)]| {
            let rules = Rules { allow: globs(&[pattern]), ..Rules::default() };
            unmatched(&rules.policy(), &tools, unseen)
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
    fn the_question_says_what_changed_and_offers_what_makes_sense() {
        let arguments = json!({"text": "hi"}).as_object().cloned().expect("an object");
        let offers = ApprovalChoices { keep: true, read_only: true };
        let changes: Vec<String> = (0..14).map(|n| format!("argument `{n}\u{1b}` added")).collect();
        let Wording { before, prompt, .. } = question("demo.note", &arguments, None, &changes, offers, 200);
        let before = anstream::adapter::strip_str(&before).to_string();
        assert!(
            before.starts_with("demo.note changed since it was allowed:\n  - argument `0\\u001b` added\n"),
            "{before}"
        );
        assert!(before.ends_with("  - 2 more changes\n") && before.lines().count() == 14, "{before}");
        let choices = "[y]es / [n]o / [a]lways / [k]eep allowed / [r]ead-only tools / [q]uit turn: ";
        assert_eq!(prompt, format!("Allow demo.note(text: \"hi\")? {choices}"));
    }

    fn asked(arguments: serde_json::Value) -> (String, String) {
        let arguments = arguments.as_object().cloned().expect("an object");
        let Wording { before, prompt, .. } =
            question("demo.write", &arguments, None, &[], ApprovalChoices::default(), 100);
        (anstream::adapter::strip_str(&before).to_string(), prompt)
    }

    #[test]
    fn a_summary_stands_before_the_arguments_and_hides_none() {
        let arguments = json!({"path": "/etc"}).as_object().cloned().expect("an object");
        let summary = Some("Delete nothing? [y]es\u{1b}[1A");
        let Wording { before, prompt, .. } =
            question("delete", &arguments, summary, &[], ApprovalChoices::default(), 100);
        assert_eq!(before, "delete: Delete nothing? [y]es\\u001b[1A\n");
        assert_eq!(prompt, format!("Allow delete(path: \"/etc\")? {CHOICES}"));
        let text = "word ".repeat(20);
        let arguments = json!({"text": text}).as_object().cloned().expect("an object");
        let long = question("write", &arguments, Some("Write a text"), &[], ApprovalChoices::default(), 100);
        let before = anstream::adapter::strip_str(&long.before).to_string();
        assert!(before.starts_with("write: Write a text\nAllow write with these arguments?\n"), "{before}");
        assert!(before.contains(&text), "{before}");
    }

    #[test]
    fn short_arguments_are_in_the_question_and_long_ones_before_it() {
        assert_eq!(
            asked(json!({"text": "hi\u{1b}[2J"})),
            (String::new(), format!("Allow demo.write(text: \"hi\\u001b[2J\")? {CHOICES}"))
        );
        let text = "word ".repeat(20);
        let before = format!("Allow demo.write with these arguments?\n  {{\n    \"text\": \"{text}\"\n  }}\n");
        assert_eq!(asked(json!({"text": text})), (before, format!("Allow demo.write? {CHOICES}")));
    }

    #[test]
    fn nothing_that_a_terminal_would_obey_hides_what_is_asked_about() {
        let text = "word ".repeat(20);
        let (before, _) = asked(json!({"a": format!("{text}\u{9d}"), "b\u{9d}": "rm -rf /"}));
        let shown = format!("  {{\n    \"a\": \"{text}\\u009d\",\n    \"b\\u009d\": \"rm -rf /\"\n  }}\n");
        assert_eq!(before, format!("Allow demo.write with these arguments?\n{shown}"));
        let (before, prompt) = asked(json!({"a": "hello\u{9d}", "cmd": "rm -rf /"}));
        assert_eq!((before.as_str(), &prompt[..52]), ("", r#"Allow demo.write(a: "hello\u009d", cmd: "rm -rf /")?"#));
    }

    #[test]
    fn blanks_that_are_no_spaces_are_seen_in_the_question() {
        let (_, prompt) = asked(json!({"a": "x\u{2800}\u{3164}\u{a0}y"}));
        assert!(prompt.starts_with(r#"Allow demo.write(a: "x\u2800\u3164\u00a0y")?"#), "{prompt}");
    }

    #[test]
    fn of_a_long_line_head_and_tail_are_shown_and_how_much_is_between() {
        let text = "x".repeat(10_000) + "; rm -rf /";
        let (before, prompt) = asked(json!({"text": text}));
        assert!(before.contains("xx … 8022 characters are left out … xx"), "{before}");
        assert!(before.ends_with("; rm -rf /\"\n  }\n") && before.chars().count() < 2200, "{before}");
        assert_eq!(prompt, format!("Allow demo.write? {MORE_CHOICES}"));
    }

    #[test]
    fn of_many_lines_the_first_and_the_last_are_shown_and_how_many_are_between() {
        let lines: Vec<String> = (0..100).map(|number| format!("line {number}")).collect();
        let arguments = json!({"text": lines});
        let (before, prompt) = asked(arguments.clone());
        // Two lines open and two close.
        let words = "      \"line 37\",\n  … 44 lines are left out …\n      \"line 82\",\n";
        assert!(before.contains(words) && before.lines().count() == 62, "{before}");
        assert_eq!(prompt, format!("Allow demo.write? {MORE_CHOICES}"));
        let arguments = arguments.as_object().cloned().expect("an object");
        let whole = question("demo.write", &arguments, None, &[], ApprovalChoices::default(), 100).whole;
        assert!(lines.iter().all(|line| whole.contains(line)), "{whole}");
    }

    #[test]
    fn a_reply_is_a_word_or_its_letter() {
        let deny = |reason: Option<&str>| Some(Reply::Said(Approval::Deny { reason: reason.map(str::to_owned) }));
        let replies = ["y", " YES ", "a", "n", "no, use the other file", "q", "s", "", "yes please", "what", "k", "r"]
            .map(Reply::read);
        let allow = Some(Reply::Said(Approval::Allow));
        let always = Some(Reply::Said(Approval::Always));
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
                Some(Reply::Said(Approval::AlwaysReadOnly)),
            ]
        );
    }
}
