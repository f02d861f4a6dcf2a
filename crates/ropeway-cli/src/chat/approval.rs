//! Approval: which calls are made, and how a person is asked about one.

use anstyle::Style;
use clap::Args;
use ropeway::agent::{Approval, Permission, Policy};
use ropeway::config::ToolApproval;
use ropeway::message::CallArguments;
use ropeway::tool::Arguments;

use super::show;
use crate::text::columns;

const NAME: Style = Style::new().bold();

/// How many lines of arguments are shown at first and at last; who writes more wants them not to be read.
const LINES: (usize, usize) = (40, 20);

/// How much of a line of them is.
const LINE: (usize, usize) = (1500, 500);

const CHOICES: &str = "[y]es / [n]o / [a]lways / [q]uit turn: ";
const MORE_CHOICES: &str = "[y]es / [n]o / [a]lways / [s]how all / [q]uit turn: ";

/// Which tools the model may call. What changes nothing is called without asking; where nobody can be asked, what may
/// change something is not called
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Approval")]
pub(crate) struct Rules {
    /// Call tools whose names match, such as `files.read_*`, without asking (repeatable)
    #[arg(long, value_name = "GLOB")]
    allow: Vec<String>,
    /// Ask before tools are called whose names match; this wins over --allow (repeatable)
    #[arg(long, value_name = "GLOB")]
    ask: Vec<String>,
    /// Never call tools whose names match; this wins over all others (repeatable)
    #[arg(long, value_name = "GLOB")]
    deny: Vec<String>,
    /// Call all tools that are not denied without asking
    #[arg(long, short, conflicts_with = "ask")]
    yes: bool,
    /// Those of the configuration.
    #[arg(skip)]
    configured: ToolApproval,
    /// Tools that a person has agreed to once and for all, by our own names for them.
    #[arg(skip)]
    agreed: Vec<String>,
}

impl Rules {
    /// These, and those of the configuration.
    pub(crate) fn and(mut self, configured: &ToolApproval) -> Self {
        self.configured = configured.clone();
        self
    }

    /// From now on calls of this tool are made.
    pub(crate) fn always(&mut self, tool: &str) {
        self.agreed.push(glob(tool));
    }

    /// What becomes of calls. What is denied is so whoever says it; then a person's own word counts, then the command line
    /// before the configuration, and of each of these what is asked about before what is allowed.
    pub(crate) fn policy(&self) -> Policy {
        let Self { allow, ask, deny, yes, configured, agreed } = self;
        let denied = deny.iter().chain(&configured.deny);
        let policy = denied.fold(Policy::new(), |policy, glob| policy.deny(glob));
        if *yes {
            return policy;
        }
        let policy = agreed.iter().fold(policy, |policy, glob| policy.allow(glob));
        let both = [(ask, allow), (&configured.ask, &configured.allow)];
        let policy = both.into_iter().fold(policy, |policy, (ask, allow)| {
            let policy = ask.iter().fold(policy, |policy, glob| policy.ask(glob));
            allow.iter().fold(policy, |policy, glob| policy.allow(glob))
        });
        policy.changing(Permission::Ask)
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

/// How a person is asked. Nothing of the arguments is left out without a word that says how much.
pub(crate) fn question(name: &str, arguments: &Arguments, width: usize) -> Wording {
    let pretty = serde_json::to_string_pretty(arguments).unwrap_or_default();
    let lines: Vec<String> = pretty.lines().map(show::escaped).collect();
    let indented = |lines: &[String]| lines.iter().map(|line| format!("  {line}\n")).collect::<String>();
    let whole = indented(&lines);
    let brief = show::arguments(&CallArguments::Object(arguments.clone()));
    let line = format!("Allow {name}({brief})? ");
    if columns(&line) + columns(CHOICES) < width {
        return Wording { before: String::new(), prompt: line + CHOICES, whole };
    }
    let shown = indented(&shortened(&lines));
    let choices = if shown == whole { CHOICES } else { MORE_CHOICES };
    let before = format!("Allow {NAME}{name}{NAME:#} with these arguments?\n{shown}");
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
    use ropeway::tool::{Annotations, Origin, ToolDefinition};
    use serde_json::json;

    use super::*;

    fn tool(name: &str, hints: serde_json::Value) -> ToolDefinition {
        let mut definition = ToolDefinition::new(format!("mcp_s_{name}"));
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
    fn whoever_says_always_is_not_asked_again_but_does_not_allow_what_is_denied() {
        use Permission::{Allow, Ask, Deny};
        let mut rules = Rules { ask: globs(&["*"]), deny: globs(&["s.d"]), ..Rules::default() };
        rules.always("mcp_s_a");
        rules.always("mcp_s_d");
        // It is a name, and no pattern.
        rules.always("mcp_s_?");
        assert_eq!(permissions(&rules, ["a", "b", "d", "?"]), [Allow, Ask, Deny, Allow]);
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
    fn what_may_change_something_is_asked_about_until_somebody_says_always() {
        let mut rules = Rules::default();
        assert_eq!(rules.policy().permission(&tool("read", json!({"readOnlyHint": true}))), Permission::Allow);
        assert_eq!(rules.policy().permission(&tool("write", json!({"destructiveHint": false}))), Permission::Ask);
        rules.always("mcp_s_write");
        assert_eq!(rules.policy().permission(&tool("write", json!({}))), Permission::Allow);
    }

    fn asked(arguments: serde_json::Value) -> (String, String) {
        let arguments = arguments.as_object().cloned().expect("an object");
        let Wording { before, prompt, .. } = question("demo.write", &arguments, 100);
        (anstream::adapter::strip_str(&before).to_string(), prompt)
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
        let whole = question("demo.write", &arguments, 100).whole;
        assert!(lines.iter().all(|line| whole.contains(line)), "{whole}");
    }

    #[test]
    fn a_reply_is_a_word_or_its_letter() {
        let deny = |reason: Option<&str>| Some(Reply::Said(Approval::Deny { reason: reason.map(str::to_owned) }));
        let replies =
            ["y", " YES ", "a", "n", "no, use the other file", "q", "s", "", "yes please", "what"].map(Reply::read);
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
                None
            ]
        );
    }
}
