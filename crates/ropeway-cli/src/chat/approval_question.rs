//! The question whether a tool may be called, and its answers.

use anstyle::Style;
use ropeway_agent::{Approval, ApprovalRequest};
use ropeway_core::tool::Origin;

use super::argument_display::{ArgumentText, ReplacedContent};
use super::call_display;
use crate::terminal::table::{Cell, Overflow, Table};
use crate::terminal::text::fold;

const NAME: Style = Style::new().bold();

/// Maximum tool changes that are shown.
const MAX_CHANGES: usize = 12;

/// Asks why a call is denied.
pub(super) const REASON_PROMPT: &str = "Reason (optional): ";

/// The optional answers that apply to a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ApprovalChoices {
    /// The approval can be kept for later chats.
    pub(super) keep: bool,
    /// The tool is annotated as read-only, so all its server's read-only tools can be allowed at once.
    pub(super) read_only: bool,
    /// Some arguments are hidden.
    pub(super) show: bool,
}

impl ApprovalChoices {
    /// Returns the prompt with the keys that apply.
    pub(super) fn prompt(self) -> String {
        let optional = [(self.keep, "/k"), (self.read_only, "/r"), (self.show, "/s")];
        let keys: String = optional.into_iter().filter_map(|(is_offered, key)| is_offered.then_some(key)).collect();
        format!("Allow? y/n/a{keys}/q (? for help) ")
    }

    /// Returns `true` if the user can choose this answer.
    pub(super) fn offers(self, reply: &Reply) -> bool {
        match reply {
            Reply::Keep => self.keep,
            Reply::Answer(Approval::AlwaysReadOnly) => self.read_only,
            _ => true,
        }
    }

    /// Explains the answers.
    pub(super) fn help(self, origin: &Origin, width: usize) -> String {
        let read_only = match origin {
            Origin::Server { server, .. } => {
                format!("allow all tools of `{server}` that declare themselves read-only, in this chat")
            }
            Origin::Local => String::new(),
        };
        let mut table = Table::new(&[], Overflow::Wrap);
        for (is_offered, key, what) in [
            (true, "y", "allow this call"),
            (true, "n", "deny it, with an optional reason for the model"),
            (true, "a", "allow this tool in this chat"),
            (self.keep, "k", "keep allowed: allow this tool also in later chats"),
            (self.read_only, "r", &read_only),
            (true, "s", "show all arguments"),
            (true, "q", "end the turn"),
        ] {
            if is_offered {
                table.row([Cell::new(key), Cell::new(what)]);
            }
        }
        table.render(Some(width), 2)
    }
}

/// An answer to the question about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// Allows or denies the call.
    Answer(Approval),
    /// Always allows the tool, also in later chats.
    Keep,
    /// Shows all arguments and asks again.
    Show,
    /// Explains the answers and asks again.
    Help,
    /// Ends the turn.
    Quit,
}

impl Reply {
    /// Parses a key, or a line on a terminal that reads no single keys.
    pub(super) fn read(line: &str) -> Option<Self> {
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
            ("?" | "h" | "help", None) => Some(Self::Help),
            ("q" | "quit", None) => Some(Self::Quit),
            _ => None,
        }
    }
}

/// The question about a call, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApprovalQuestion {
    /// Text above the prompt.
    pub(super) before: String,
    pub(super) choices: ApprovalChoices,
    /// All arguments, for "show all".
    pub(super) whole: String,
}

impl ApprovalQuestion {
    /// Creates the question about a call whose line is on the screen.
    ///
    /// Arguments are repeated only if the line does not show all of them: a summary never replaces them, because it is derived
    /// from the model's text.
    pub(super) fn new(
        request: &ApprovalRequest,
        choices: ApprovalChoices,
        replaced: Option<&ReplacedContent>,
        width: usize,
    ) -> Self {
        let name = call_display::tool_name(&request.tool, &request.origin);
        let mut before = changes_text(&name, &request.changes, width);
        let is_complete = call_display::is_complete(&name, &request.arguments, request.summary.as_deref(), width);
        let ArgumentText { brief, whole } = ArgumentText::new(&request.arguments, replaced, width);
        if is_complete && replaced.is_none() {
            return Self { before, choices, whole };
        }
        before.push_str(&brief);
        Self { before, choices: ApprovalChoices { show: brief != whole, ..choices }, whole }
    }
}

/// Lists how a tool changed since it was approved.
fn changes_text(name: &str, changes: &[String], width: usize) -> String {
    if changes.is_empty() {
        return String::new();
    }
    let mut text = format!("{NAME}{name}{NAME:#} changed since it was approved:\n");
    for change in changes.iter().take(MAX_CHANGES) {
        text.push_str(&fold(&format!("- {}", call_display::escaped(change)), width, 2));
    }
    if let Some(more) = changes.len().checked_sub(MAX_CHANGES).filter(|more| *more > 0) {
        text.push_str(&format!("  - … and {more} more\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use ropeway_core::tool::{CallId, ToolDefinition};
    use serde_json::{Value, json};

    use super::*;

    fn request(arguments: Value) -> ApprovalRequest {
        let mut definition = ToolDefinition::new("mcp_demo_write");
        definition.origin = Origin::Server { server: "demo".into(), tool: "write".into() };
        let arguments = arguments.as_object().cloned().expect("an object");
        ApprovalRequest::new(CallId("a".to_owned()), definition, arguments)
    }

    fn before(request: &ApprovalRequest, width: usize) -> String {
        let question = ApprovalQuestion::new(request, ApprovalChoices::default(), None, width);
        anstream::adapter::strip_str(&question.before).to_string()
    }

    #[test]
    fn the_prompt_names_the_keys_that_apply() {
        assert_eq!(ApprovalChoices::default().prompt(), "Allow? y/n/a/q (? for help) ");
        let all = ApprovalChoices { keep: true, read_only: true, show: true };
        assert_eq!(all.prompt(), "Allow? y/n/a/k/r/s/q (? for help) ");
    }

    #[test]
    fn arguments_are_shown_only_if_the_line_was_cut() {
        assert_eq!(before(&request(json!({})), 80), "");
        assert_eq!(before(&request(json!({"text": "hi\u{1b}[2J"})), 80), "");
        let text = "word ".repeat(20);
        let shown = before(&request(json!({"n": 1, "text": text})), 60);
        assert!(shown.starts_with("  n: 1\n  text: \"word word"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 60), "{shown}");
        assert_eq!(shown.matches("word").count(), 20, "{shown}");
    }

    #[test]
    fn a_summary_hides_no_arguments() {
        let mut asked = request(json!({"path": "/etc"}));
        asked.summary = Some("Delete nothing".to_owned());
        assert_eq!(before(&asked, 80), "  path: \"/etc\"\n");
    }

    #[test]
    fn replaced_content_is_shown_even_if_the_line_is_short() {
        let replaced = ReplacedContent { argument: "content".to_owned(), before: "a\nb\n".to_owned() };
        let asked = request(json!({"path": "x", "content": "a\n"}));
        let question = ApprovalQuestion::new(&asked, ApprovalChoices::default(), Some(&replaced), 80);
        assert!(question.before.contains("content (replaces 2 lines):") && question.choices.show, "{question:?}");
    }

    #[test]
    fn changes_are_listed_first_and_bounded() {
        let mut asked = request(json!({"text": "hi"}));
        asked.changes = (0..14).map(|n| format!("argument `{n}\u{1b}` added")).collect();
        let shown = before(&asked, 80);
        let start = "demo.write changed since it was approved:\n  - argument `0\\u001b` added\n";
        assert!(shown.starts_with(start), "{shown}");
        assert!(shown.ends_with("  - … and 2 more\n") && shown.lines().count() == 14, "{shown}");
    }

    #[test]
    fn help_explains_the_keys_that_apply() {
        let origin = Origin::Server { server: "demo".into(), tool: "write".into() };
        let help = ApprovalChoices { keep: true, ..ApprovalChoices::default() }.help(&origin, 40);
        assert!(help.contains("  k  keep allowed") && !help.contains("  r  "), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 40), "{help}");
    }

    #[test]
    fn an_answer_is_a_key_or_a_word() {
        let deny = |reason: Option<&str>| Some(Reply::Answer(Approval::Deny { reason: reason.map(str::to_owned) }));
        let allow = || Some(Reply::Answer(Approval::Allow));
        for (line, reply) in [
            ("y", allow()),
            (" YES ", allow()),
            ("a", Some(Reply::Answer(Approval::Always))),
            ("n", deny(None)),
            ("no, use the other file", deny(Some("use the other file"))),
            ("q", Some(Reply::Quit)),
            ("s", Some(Reply::Show)),
            ("?", Some(Reply::Help)),
            ("", None),
            ("yes please", None),
            ("what", None),
            ("k", Some(Reply::Keep)),
            ("r", Some(Reply::Answer(Approval::AlwaysReadOnly))),
        ] {
            assert_eq!(Reply::read(line), reply, "{line}");
        }
    }
}
