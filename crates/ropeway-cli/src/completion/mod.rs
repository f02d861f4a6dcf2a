//! Completion: what a shell offers for a command line that is not finished.
//!
//! The answer comes from the configuration file and from remembered tools. No server is started, no question is asked, and the time
//! is bounded. Of a project file that is not trusted only the names of its servers are used.

mod bash;
mod known;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::PossibleValue;
use clap::{Arg, Command};
use clap_complete::Shell;

use self::known::KnownServers;
use crate::arguments::command_words::{CommandWords, Role, find_long};
use crate::describe::schema;
use crate::describe::types;
use crate::secrets::redaction;
use crate::terminal::duration;
use crate::terminal::text::{clean_line, cut, first_sentence};

/// After this time an answer is of no use: the person has typed on.
const LONGEST: Duration = Duration::from_millis(150);

/// The variable that sets another time, for a machine that is slow.
const TIMEOUT: &str = "ROPEWAY_COMPLETION_TIMEOUT";

/// The most candidates of an answer.
const MOST: usize = 2_000;

/// The widest description, in columns.
const WIDEST: usize = 60;

/// Something that can stand in the place of the word that is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    value: String,
    description: String,
}

impl Candidate {
    fn new(value: impl Into<String>, description: &str) -> Self {
        Self { value: value.into(), description: cut(&first_sentence(description), WIDEST) }
    }

    /// Returns true if more follows in the same word.
    fn is_open(&self) -> bool {
        self.value.ends_with(['=', '.'])
    }
}

/// What a shell offers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Offer {
    Candidates(Vec<Candidate>),
    /// The paths of files, which the shell knows itself.
    Files,
    /// The paths of folders.
    Folders,
}

/// Returns the script that makes a shell complete with this module; `None` for a shell that has no such script.
pub(crate) fn script(shell: Shell) -> Option<&'static str> {
    match shell {
        Shell::Bash => Some(include_str!("ropeway.bash")),
        Shell::Zsh => Some(include_str!("ropeway.zsh")),
        Shell::Fish => Some(include_str!("ropeway.fish")),
        _ => None,
    }
}

/// Answers a shell: `bash WORDBREAKS LINE`, or `zsh` or `fish` and the words up to the one that is typed. Whatever goes wrong, nothing
/// is offered and nothing is said.
pub(crate) fn run(root: &Command, arguments: &[OsString]) -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let timeout = std::env::var(TIMEOUT).ok().and_then(|time| duration::parse(&time).ok()).unwrap_or(LONGEST);
    let watchdog = std::thread::Builder::new().spawn(move || {
        std::thread::sleep(timeout);
        std::process::exit(0);
    });
    // Without the watchdog nothing bounds the time.
    if watchdog.is_ok() {
        let arguments: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let text = answer(root, &arguments);
        // A shell that has gone needs no answer.
        let _ = std::io::stdout().lock().write_all(text.as_bytes());
    }
    ExitCode::SUCCESS
}

fn answer(root: &Command, arguments: &[String]) -> String {
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
    match offer(root, &words) {
        Offer::Files => "\tfiles\n".to_owned(),
        Offer::Folders => "\tfolders\n".to_owned(),
        Offer::Candidates(candidates) => candidates.iter().map(text).collect(),
    }
}

/// Returns what can stand in the place of the last word.
fn offer(root: &Command, words: &[String]) -> Offer {
    let Some((current, before)) = words.split_last().filter(|(_, before)| !before.is_empty()) else {
        return Offer::Candidates(Vec::new());
    };
    let walk = CommandWords::new(root, before);
    let line = Typed { walk: &walk, before, current };
    let mut offer = line.offer();
    if let Offer::Candidates(candidates) = &mut offer {
        candidates.retain(|candidate| candidate.value.starts_with(current.as_str()) && is_safe(&candidate.value));
        candidates.truncate(MOST);
        for candidate in candidates {
            candidate.description = clean_line(&redaction::redact(&candidate.description));
        }
    }
    offer
}

/// Returns true if a value can be inserted: it has no control character, and no secret.
fn is_safe(value: &str) -> bool {
    !value.chars().any(crate::terminal::text::is_invisible) && redaction::redact(value) == value
}

/// A command line that is not finished.
struct Typed<'a> {
    walk: &'a CommandWords<'a>,
    before: &'a [String],
    current: &'a str,
}

impl Typed<'_> {
    fn offer(&self) -> Offer {
        let has_ended = self.walk.roles.iter().any(|role| matches!(role, Role::End));
        if let Some(option) = self.walk.pending {
            return self.values(option, "");
        }
        if !has_ended && self.current.starts_with('-') && self.current != "-" {
            return match self.current.split_once('=') {
                Some((name, _)) => match find_long(self.walk.command, name.trim_start_matches('-')) {
                    Some(option) => self.values(option, &format!("{name}=")),
                    None => Offer::Candidates(self.argument_values("--")),
                },
                None => {
                    let mut candidates = self.options();
                    candidates.extend(self.arguments("--"));
                    Offer::Candidates(candidates)
                }
            };
        }
        let place = self.walk.positionals().count();
        if place == 0 && self.walk.command.has_subcommands() {
            return Offer::Candidates(self.subcommands());
        }
        let mut positionals = self.walk.command.get_positionals();
        let last = self.walk.command.get_positionals().last();
        let Some(positional) = positionals.nth(place).or(last.filter(|last| takes_many(last))) else {
            return Offer::Candidates(Vec::new());
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

    /// The values of an option or of a positional argument, each behind a prefix.
    fn values(&self, argument: &Arg, prefix: &str) -> Offer {
        let possible: Vec<PossibleValue> = argument.get_possible_values();
        if !possible.is_empty() {
            let help = |value: &PossibleValue| value.get_help().map(ToString::to_string).unwrap_or_default();
            let shown = possible.iter().filter(|value| !value.is_hide_set());
            let candidate =
                |value: &PossibleValue| Candidate::new(format!("{prefix}{}", value.get_name()), &help(value));
            return Offer::Candidates(shown.map(candidate).collect());
        }
        let name =
            argument.get_value_names().and_then(|names| names.first()).map(|name| name.as_str()).unwrap_or_default();
        let is_positional = argument.is_positional();
        Offer::Candidates(match name {
            "FILE" => return Offer::Files,
            "DIR" => return Offer::Folders,
            "KEY=VALUE" if self.current.starts_with('@') => return Offer::Files,
            "KEY=VALUE" if self.current.contains('=') => self.argument_values(""),
            "KEY=VALUE" => self.arguments(""),
            "TOOL" if is_positional => KnownServers::load(self.walk, self.before).tools(self.current),
            name if is_positional && name.contains("SERVER") => {
                let servers = KnownServers::load(self.walk, self.before);
                let mut names = servers.names();
                if name.contains("TOOL") && self.current.contains('.') {
                    names.extend(servers.tools(self.current));
                }
                names
            }
            "PROMPT" if is_positional => {
                let names = KnownServers::load(self.walk, self.before).names();
                names.into_iter().map(|name| Candidate { value: name.value + ".", ..name }).collect()
            }
            "URI" | "NAME" if is_positional && self.walk.command.get_name() != "add" => {
                KnownServers::load(self.walk, self.before).names()
            }
            _ => Vec::new(),
        })
    }

    /// The name of the tool of a call.
    fn tool(&self) -> Option<&str> {
        let first = self.walk.positionals().next().filter(|_| self.walk.command.get_name() == "call")?;
        self.before.get(first).map(String::as_str)
    }

    /// The arguments of the tool that are not given yet, behind a prefix: `name=`.
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

    /// The values that the argument before `=` can have.
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
        match offer(&root, &words) {
            Offer::Candidates(candidates) => candidates.into_iter().map(|candidate| candidate.value).collect(),
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
        assert_eq!(values(&["ropeway", "call", "t", "--save", ""]), ["Folders"]);
        assert_eq!(values(&["ropeway", "call", "t", "@"]), ["Files"]);
        assert_eq!(values(&["ropeway"]), [""; 0]);
        assert_eq!(values(&[]), [""; 0]);
    }

    #[test]
    fn what_a_terminal_would_obey_is_never_inserted() {
        assert!(is_safe("files.read_file") && is_safe("odd name's") && is_safe("日本"));
        for value in ["a\u{1b}[2J", "a\nb", "a\tb", "a\u{202e}b", "a\u{200b}"] {
            assert!(!is_safe(value), "{value:?}");
        }
    }
}
