//! Shell completion.
//!
//! Candidates come from the configuration file and from cached tools, prompts and resources, within a time limit. No server is
//! started, and the user is never asked. If a project file is not trusted, only its server names are used.

mod bash;
mod candidate;
mod known_servers;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::PossibleValue;
use clap::{Arg, Command};
use clap_complete::Shell;

use self::candidate::Candidate;
use self::known_servers::KnownServers;
use crate::arguments::command_words::{CommandWords, Role, find_long};
use crate::describe::{schema, types};
use crate::secrets::redaction;
use crate::terminal::duration;
use crate::terminal::text::clean_line;

/// A completion's time limit.
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(150);

/// The variable that sets another time limit.
const TIMEOUT_VARIABLE: &str = "ROPEWAY_COMPLETION_TIMEOUT";

/// Maximum number of candidates.
const MAX_CANDIDATES: usize = 2_000;

/// Returns saved conversations' ids and titles.
pub(crate) type Conversations = fn() -> Vec<(String, String)>;

/// Completions for a word.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Completions {
    Candidates(Vec<Candidate>),
    /// File paths, which the shell completes itself.
    Files,
    /// Directory paths.
    Folders,
}

/// Returns a shell's completion script, or `None` for an unsupported shell.
pub(crate) fn script(shell: Shell) -> Option<&'static str> {
    match shell {
        Shell::Bash => Some(include_str!("ropeway.bash")),
        Shell::Zsh => Some(include_str!("ropeway.zsh")),
        Shell::Fish => Some(include_str!("ropeway.fish")),
        _ => None,
    }
}

/// Prints the completions for a shell: `bash WORDBREAKS LINE`, or `zsh` or `fish` with the words up to the current one. On any
/// error, prints nothing.
///
/// `conversations` returns saved conversations' ids and titles.
pub(crate) fn run(root: &Command, arguments: &[OsString], conversations: Conversations) -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let timeout =
        std::env::var(TIMEOUT_VARIABLE).ok().and_then(|time| duration::parse(&time).ok()).unwrap_or(DEFAULT_TIMEOUT);
    let watchdog = std::thread::Builder::new().spawn(move || {
        std::thread::sleep(timeout);
        std::process::exit(0);
    });
    // The watchdog enforces the time limit.
    if watchdog.is_ok() {
        let arguments: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let text = answer(root, &arguments, conversations);
        // The shell may have exited.
        let _ = std::io::stdout().lock().write_all(text.as_bytes());
    }
    ExitCode::SUCCESS
}

fn answer(root: &Command, arguments: &[String], conversations: Conversations) -> String {
    let (line, words) = match arguments {
        [shell, breaks, line] if shell == "bash" => match bash::Line::parse(line, breaks) {
            Some(line) => (Some(line.clone()), line.words),
            None => return String::new(),
        },
        [shell, words @ ..] if shell == "zsh" || shell == "fish" => (None, words.to_vec()),
        _ => return String::new(),
    };
    let text = |candidate: &Candidate| match &line {
        Some(line) => {
            line.replacement(&candidate.value, candidate.is_open()).map_or_else(String::new, |text| text + "\n")
        }
        None => format!("{}\t{}\n", candidate.value, candidate.description),
    };
    match complete(root, &words, conversations) {
        Completions::Files => "\tfiles\n".to_owned(),
        Completions::Folders => "\tfolders\n".to_owned(),
        Completions::Candidates(candidates) => candidates.iter().map(text).collect(),
    }
}

/// Returns completions for the last word.
fn complete(root: &Command, words: &[String], conversations: Conversations) -> Completions {
    let Some((current, before)) = words.split_last().filter(|(_, before)| !before.is_empty()) else {
        return Completions::Candidates(Vec::new());
    };
    let walk = CommandWords::new(root, before);
    let line = PartialLine { walk: &walk, before, current, conversations };
    let mut complete = line.complete();
    if let Completions::Candidates(candidates) = &mut complete {
        candidates.retain(|candidate| candidate.value.starts_with(current.as_str()) && is_safe(&candidate.value));
        candidates.truncate(MAX_CANDIDATES);
        for candidate in candidates {
            candidate.description = clean_line(&redaction::redact(&candidate.description));
        }
    }
    complete
}

/// Returns `true` if a value contains no control characters and no secrets.
fn is_safe(value: &str) -> bool {
    !value.chars().any(ropeway_core::invisible::hides_text) && redaction::redact(value) == value
}

/// An incomplete command line.
struct PartialLine<'a> {
    walk: &'a CommandWords<'a>,
    before: &'a [String],
    current: &'a str,
    conversations: Conversations,
}

impl PartialLine<'_> {
    fn complete(&self) -> Completions {
        let has_ended = self.walk.roles.iter().any(|role| matches!(role, Role::End));
        if let Some(option) = self.walk.pending {
            return self.values(option, "");
        }
        if !has_ended && self.current.starts_with('-') && self.current != "-" {
            return match self.current.split_once('=') {
                Some((name, _)) => match find_long(self.walk.command, name.trim_start_matches('-')) {
                    Some(option) => self.values(option, &format!("{name}=")),
                    None => Completions::Candidates(self.argument_values("--")),
                },
                None => {
                    let mut candidates = self.options();
                    candidates.extend(self.arguments("--"));
                    Completions::Candidates(candidates)
                }
            };
        }
        let place = self.walk.positionals().count();
        if place == 0 && self.walk.command.has_subcommands() {
            return Completions::Candidates(self.subcommands());
        }
        let mut positionals = self.walk.command.get_positionals();
        let last = self.walk.command.get_positionals().last();
        let Some(positional) = positionals.nth(place).or(last.filter(|last| takes_many(last))) else {
            return Completions::Candidates(Vec::new());
        };
        self.values(positional, "")
    }

    fn subcommands(&self) -> Vec<Candidate> {
        let about = |command: &Command| command.get_about().map(ToString::to_string).unwrap_or_default();
        let commands = self.walk.command.get_subcommands().filter(|command| !command.is_hide_set());
        commands.map(|command| Candidate::new(command.get_name(), &about(command))).collect()
    }

    fn options(&self) -> Vec<Candidate> {
        let options = self.walk.command.get_arguments().filter(|option| !option.is_hide_set());
        let help = |option: &Arg| option.get_help().map(ToString::to_string).unwrap_or_default();
        options.filter_map(|option| Some(Candidate::new(format!("--{}", option.get_long()?), &help(option)))).collect()
    }

    /// Returns the values for an option or a positional argument, each with a prefix.
    fn values(&self, argument: &Arg, prefix: &str) -> Completions {
        let possible: Vec<PossibleValue> = argument.get_possible_values();
        if !possible.is_empty() {
            let help = |value: &PossibleValue| value.get_help().map(ToString::to_string).unwrap_or_default();
            let shown = possible.iter().filter(|value| !value.is_hide_set());
            let candidate =
                |value: &PossibleValue| Candidate::new(format!("{prefix}{}", value.get_name()), &help(value));
            return Completions::Candidates(shown.map(candidate).collect());
        }
        let name =
            argument.get_value_names().and_then(|names| names.first()).map(|name| name.as_str()).unwrap_or_default();
        let is_positional = argument.is_positional();
        Completions::Candidates(match name {
            "FILE" | "PATH" => return Completions::Files,
            "DIR" => return Completions::Folders,
            "KEY=VALUE" if self.current.starts_with('@') => return Completions::Files,
            "KEY=VALUE" if self.current.contains("=@") => return Completions::Files,
            "ID|FILE" => {
                let ids = (self.conversations)();
                let ids: Vec<Candidate> = ids.iter().map(|(id, title)| Candidate::new(id.as_str(), title)).collect();
                if ids.iter().any(|id| id.value.starts_with(self.current)) { ids } else { return Completions::Files }
            }
            "SERVER" if is_positional && matches!(self.walk.command.get_name(), "login" | "logout") => {
                KnownServers::load(self.walk, self.before).remote_names()
            }
            "KEY=VALUE" if self.current.contains('=') => self.argument_values(""),
            "KEY=VALUE" => self.arguments(""),
            "TOOL" if is_positional => KnownServers::load(self.walk, self.before).tools(self.current),
            name if is_positional && name.contains("SERVER") => {
                let servers = KnownServers::load(self.walk, self.before);
                let mut names = servers.names();
                if name.contains("TOOL") && self.current.contains('.') {
                    names.extend(servers.tools(self.current));
                } else if name.contains("TOOL") && !self.current.is_empty() {
                    names.extend(servers.short_names(self.current));
                }
                names
            }
            "PROMPT" if is_positional => KnownServers::load(self.walk, self.before).prompts(),
            "URI" if is_positional => {
                let servers = KnownServers::load(self.walk, self.before);
                let server = self.walk.positionals().next().and_then(|first| self.before.get(first));
                servers.resources(server.map(String::as_str))
            }
            "NAME" if is_positional && self.walk.command.get_name() != "add" => {
                KnownServers::load(self.walk, self.before).names()
            }
            _ => Vec::new(),
        })
    }

    /// Returns the tool that `ropeway call` names.
    fn tool(&self) -> Option<&str> {
        let first = self.walk.positionals().next().filter(|_| self.walk.command.get_name() == "call")?;
        self.before.get(first).map(String::as_str)
    }

    /// Returns the tool's unused arguments as `name=`, with a prefix.
    fn arguments(&self, prefix: &str) -> Vec<Candidate> {
        let Some(tool) = self.tool().and_then(|tool| KnownServers::load(self.walk, self.before).tool(tool)) else {
            return Vec::new();
        };
        let is_given = |name: &str| {
            let typed = |word: &String| word.trim_start_matches("--").split(['=', ':']).next() == Some(name);
            self.before.iter().skip(2).any(typed)
        };
        let fields = types::fields(&tool.input_schema).into_iter().filter(|field| !is_given(&field.name));
        fields
            .filter(|field| !field.name.contains(['=', ':']) && !field.name.starts_with(['{', '@', '-']))
            .map(|field| {
                let description = field.description.map(|text| format!("{}: {text}", field.kind)).unwrap_or(field.kind);
                Candidate { value: format!("{prefix}{}=", field.name), ..Candidate::new("", &description) }
            })
            .collect()
    }

    /// Returns the possible values for the argument before `=`.
    fn argument_values(&self, prefix: &str) -> Vec<Candidate> {
        let Some((name, _)) = self.current.strip_prefix(prefix).and_then(|word| word.split_once('=')) else {
            return Vec::new();
        };
        let Some(tool) = self.tool().and_then(|tool| KnownServers::load(self.walk, self.before).tool(tool)) else {
            return Vec::new();
        };
        let choices = schema::choices(&tool.input_schema, name);
        choices.into_iter().map(|choice| Candidate::new(format!("{prefix}{name}={choice}"), "")).collect()
    }
}

fn takes_many(argument: &Arg) -> bool {
    argument.get_num_args().is_some_and(|range| range.max_values() > 1)
        || matches!(argument.get_action(), clap::ArgAction::Append)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::command::CommandLine;

    fn values(words: &[&str]) -> Vec<String> {
        let mut root = CommandLine::command();
        root.build();
        let words: Vec<String> = words.iter().copied().map(str::to_owned).collect();
        let conversations = || vec![("4f2a9c01".to_owned(), "A talk".to_owned())];
        match complete(&root, &words, conversations) {
            Completions::Candidates(candidates) => candidates.into_iter().map(|candidate| candidate.value).collect(),
            other => vec![format!("{other:?}")],
        }
    }

    #[test]
    fn commands_options_and_their_values_are_completed() {
        assert_eq!(values(&["ropeway", "comp"]), ["completions"]);
        assert!(values(&["ropeway", ""]).len() > 10);
        assert!(!values(&["ropeway", ""]).contains(&"complete".to_owned()));
        assert_eq!(values(&["ropeway", "call", "--rem"]), [""; 0]);
        assert_eq!(values(&["ropeway", "call", "--tim"]), ["--timeout"]);
        assert_eq!(values(&["ropeway", "tools", "--era", "l"]), ["legacy"]);
        assert_eq!(values(&["ropeway", "tools", "--era=l"]), ["--era=legacy"]);
        assert_eq!(values(&["ropeway", "completions", "f"]), ["fish"]);
        assert_eq!(values(&["ropeway", "tools", "--config", ""]), ["Files"]);
        assert_eq!(values(&["ropeway", "call", "t", "--save", ""]), ["Files"]);
        assert_eq!(values(&["ropeway", "call", "t", "@"]), ["Files"]);
        assert_eq!(values(&["ropeway", "chat", "--resume", ""]), ["4f2a9c01"]);
        assert_eq!(values(&["ropeway", "chat", "--resume", "./"]), ["Files"]);
        assert_eq!(values(&["ropeway", "call", "t", "body=@"]), ["Files"]);
        assert_eq!(values(&["ropeway"]), [""; 0]);
        assert_eq!(values(&[]), [""; 0]);
    }

    #[test]
    fn control_characters_are_never_inserted() {
        assert!(is_safe("files.read_file") && is_safe("odd name's") && is_safe("日本"));
        for value in ["a\u{1b}[2J", "a\nb", "a\tb", "a\u{202e}b", "a\u{200b}"] {
            assert!(!is_safe(value), "{value:?}");
        }
    }
}
