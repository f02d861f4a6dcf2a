//! Approval: which calls are made, and how a person is asked about one.

use anstyle::Style;
use clap::Args;
use ropeway::agent::{Approval, Permission, Policy};
use ropeway::config::ToolApproval;
use ropeway::message::CallArguments;
use ropeway::tool::Arguments;

use super::show;
use crate::text::{clean, columns, cut};

const NAME: Style = Style::new().bold();

/// How many lines of arguments are shown; who writes more wants them not to be read.
const MOST_LINES: usize = 60;

/// How much of a line of them is shown.
const LONGEST_LINE: usize = 2000;

const CHOICES: &str = "[y]es / [n]o / [a]lways / [q]uit turn: ";

/// Which tools the model may call. What changes nothing is called without asking; where nobody can be asked, what may
/// change something is not called
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Approval")]
pub(crate) struct Rules {
    /// Call tools whose names match, such as `files.read_*`, without asking (repeatable)
    #[arg(long, value_name = "GLOB")]
    allow: Vec<String>,
    /// Ask before tools are called whose names match (repeatable)
    #[arg(long, value_name = "GLOB")]
    ask: Vec<String>,
    /// Never call tools whose names match; this wins over all others (repeatable)
    #[arg(long, value_name = "GLOB")]
    deny: Vec<String>,
    /// Call all tools that are not denied without asking
    #[arg(long, short)]
    yes: bool,
}

impl Rules {
    /// These, and those of the configuration.
    pub(crate) fn and(mut self, configured: &ToolApproval) -> Self {
        self.allow.extend_from_slice(&configured.allow);
        self.ask.extend_from_slice(&configured.ask);
        self.deny.extend_from_slice(&configured.deny);
        self
    }

    /// From now on calls of this tool are made.
    pub(crate) fn always(&mut self, tool: &str) {
        self.allow.push(tool.to_owned());
    }

    /// What becomes of calls.
    pub(crate) fn policy(&self) -> Policy {
        let policy = self.deny.iter().fold(Policy::new(), |policy, glob| policy.deny(glob));
        if self.yes {
            return policy;
        }
        let policy = self.allow.iter().fold(policy, |policy, glob| policy.allow(glob));
        let policy = self.ask.iter().fold(policy, |policy, glob| policy.ask(glob));
        policy.changing(Permission::Ask)
    }
}

/// What a person replies to a question about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A word about the call.
    Said(Approval),
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
            ("q" | "quit", None) => Some(Self::Quit),
            _ => None,
        }
    }
}

/// How a person is asked: what is said before, and what stands before the reply. All of the arguments can be read.
pub(crate) fn question(name: &str, arguments: &Arguments, width: usize) -> (String, String) {
    let brief = show::arguments(&CallArguments::Object(arguments.clone()));
    let line = format!("Allow {name}({brief})? ");
    if columns(&line) + columns(CHOICES) < width {
        return (String::new(), line + CHOICES);
    }
    let whole = clean(&serde_json::to_string_pretty(arguments).unwrap_or_default());
    let lines: Vec<&str> = whole.lines().collect();
    let mut before = format!("Allow {NAME}{name}{NAME:#} with these arguments?\n");
    lines.iter().take(MOST_LINES).for_each(|line| before.push_str(&format!("  {}\n", cut(line, LONGEST_LINE))));
    if lines.len() > MOST_LINES {
        before.push_str(&format!("  … and {} more lines\n", lines.len() - MOST_LINES));
    }
    (before, CHOICES.to_owned())
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

    #[test]
    fn denied_goes_before_allowed_and_allowed_before_asked() {
        let globs = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect::<Vec<_>>();
        let rules = Rules { deny: globs(&["*_delete"]), allow: globs(&["s.w*", "*"]), ask: globs(&["*"]), yes: false };
        let permission = |rules: &Rules, name: &str| rules.policy().permission(&tool(name, json!({})));
        assert_eq!(["delete", "write"].map(|name| permission(&rules, name)), [Permission::Deny, Permission::Allow]);
        let asking = Rules { allow: globs(&["s.w*"]), ..rules.clone() };
        assert_eq!(["write", "read"].map(|name| permission(&asking, name)), [Permission::Allow, Permission::Ask]);
        let eager = Rules { yes: true, ..asking };
        assert_eq!(["delete", "read"].map(|name| permission(&eager, name)), [Permission::Deny, Permission::Allow]);
    }

    #[test]
    fn what_may_change_something_is_asked_about_until_somebody_says_always() {
        let mut rules = Rules::default();
        assert_eq!(rules.policy().permission(&tool("read", json!({"readOnlyHint": true}))), Permission::Allow);
        assert_eq!(rules.policy().permission(&tool("write", json!({"destructiveHint": false}))), Permission::Ask);
        rules.always("mcp_s_write");
        assert_eq!(rules.policy().permission(&tool("write", json!({}))), Permission::Allow);
    }

    #[test]
    fn long_arguments_are_shown_before_the_question() {
        let arguments = |text: &str| json!({"text": text}).as_object().cloned().expect("an object");
        let asked = |text: &str| {
            let (before, prompt) = question("demo.write", &arguments(text), 100);
            (anstream::adapter::strip_str(&before).to_string(), prompt)
        };
        assert_eq!(
            asked("hi\u{1b}[2J"),
            (String::new(), format!("Allow demo.write(text: \"hi\\u001b[2J\")? {CHOICES}"))
        );
        let text = "word ".repeat(20);
        let before = format!("Allow demo.write with these arguments?\n  {{\n    \"text\": \"{text}\"\n  }}\n");
        assert_eq!(asked(&text), (before, CHOICES.to_owned()));
        let (before, _) = asked(&"x".repeat(10_000));
        assert!(before.contains("xx…\n") && before.len() < 3000, "{before}");
    }

    #[test]
    fn a_reply_is_a_word_or_its_letter() {
        let deny = |reason: Option<&str>| Some(Reply::Said(Approval::Deny { reason: reason.map(str::to_owned) }));
        let replies =
            ["y", " YES ", "a", "n", "no, use the other file", "q", "", "yes please", "what"].map(Reply::read);
        let allow = Some(Reply::Said(Approval::Allow));
        let always = Some(Reply::Said(Approval::Always));
        let no_because = deny(Some("use the other file"));
        assert_eq!(
            replies,
            [allow.clone(), allow, always, deny(None), no_because, Some(Reply::Quit), None, None, None]
        );
    }
}
