//! Approval of tool calls: rules, and the question to the user.

use std::collections::BTreeSet;

use anstyle::Style;
use clap::Args;
use ropeway::agent::{Approval, Permission, Policy, ToolPattern};
use ropeway::config::ToolApproval;
use ropeway::message::CallArguments;
use ropeway::suggest;
use ropeway::tool::{Arguments, Origin, ToolDefinition};

use super::call_display;
use crate::terminal::text::{clean_line, columns};

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
        Some(own) => suggest::did_you_mean_one_of(&[own]),
        None => {
            let all = servers.iter().map(String::as_str).chain(dotted.iter().map(String::as_str)).chain(names);
            let mut near: Vec<String> = suggest::closest(text, all).into_iter().map(as_typed).collect();
            near.dedup();
            suggest::did_you_mean_one_of(&near)
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

/// An answer to the question about a call.
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
mod tests;
