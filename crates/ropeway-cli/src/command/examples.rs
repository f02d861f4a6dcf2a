//! Short examples for `--help`.

use crate::failure::EXIT_CODES;

pub(super) const ROPEWAY: &str = "\
Examples:
  ropeway
  ropeway tools
  ropeway call calculate expression='2^10 / 3'
  ropeway add time -- uvx mcp-server-time
  ropeway chat -p 'What time is it in Tokyo?'";

pub(super) const TOOLS: &str = "\
Examples:
  ropeway tools
  ropeway tools files
  ropeway tools --find 'read a file'
  ropeway tools --stdio 'uvx mcp-server-time' --json";

pub(super) const RESOURCES: &str = "\
Examples:
  ropeway resources
  ropeway resources files --json";

pub(super) const READ: &str = "\
Examples:
  ropeway read test://notes/today
  ropeway read files file:///srv/logo.png --save out";

pub(super) const PROMPTS: &str = "\
Examples:
  ropeway prompts
  ropeway prompts github";

pub(super) const PROMPT: &str = "\
Examples:
  ropeway prompt github.review pull_request=42
  ropeway prompt github.review pull_request=42 --json";

pub(super) const DOCTOR: &str = "\
Examples:
  ropeway doctor
  ropeway doctor github
  ropeway doctor --url https://example.com/mcp --bearer @token.txt
  ropeway doctor --stdio 'uvx mcp-server-time' --timeout 2m";

pub(super) const EVENTS: &str = "\
Examples:
  ropeway events
  ropeway events github --timeout 1m
  ropeway events --json";

pub(super) const REMOVE: &str = "\
Examples:
  ropeway remove github
  ropeway remove github linear --global";

pub(super) const CONFIG: &str = "\
Examples:
  ropeway config check
  ropeway config path
  ropeway config schema";

pub(super) const CONFIG_CHECK: &str = "\
Examples:
  ropeway config check
  ropeway config check other.yaml --connect
  ropeway config check --json";

pub(super) const CONFIG_PATH: &str = "\
Examples:
  ropeway config path
  ropeway config path --json";

pub(super) const CONFIG_SCHEMA: &str = "\
Examples:
  ropeway config schema > ropeway.schema.json";

pub(super) const DEMO_SERVER: &str = "\
Examples:
  ropeway demo-server
  ropeway tools --stdio 'ropeway demo-server'";

/// Appends the exit codes to examples.
pub(super) fn with_exit_codes(examples: &str) -> String {
    format!("{examples}\n\n{EXIT_CODES}")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::{Command, CommandFactory as _, Parser as _};

    use super::super::CommandLine;
    use crate::arguments::command_rewrite::rewrite;

    /// Returns all commands by path: `config`, `config check`.
    fn commands() -> Vec<(String, Command)> {
        fn walk(command: &Command, words: &str, all: &mut Vec<(String, Command)>) {
            all.push((words.to_owned(), command.clone()));
            for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
                walk(command, format!("{words} {}", command.get_name()).trim(), all);
            }
        }
        let mut all = Vec::new();
        walk(&CommandLine::command(), "", &mut all);
        all
    }

    /// Returns the command lines below `Examples:` in the help of a command.
    fn examples(command: &Command) -> Vec<String> {
        let help = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
        let help = help.unwrap_or_default();
        let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
        lines.take_while(|line| line.starts_with("  ")).map(|line| line.trim().to_owned()).collect()
    }

    #[test]
    fn every_help_has_an_example_of_its_own_command() {
        for (words, command) in commands() {
            let start = format!("ropeway {words}");
            let is_own = |example: &String| example.contains(start.trim_end());
            assert!(examples(&command).iter().any(is_own), "`ropeway {words} --help` has no example");
        }
    }

    #[test]
    fn every_example_is_a_command_line_that_is_understood() {
        let mut root = CommandLine::command();
        root.build();
        let mut count = 0;
        for (words, command) in commands() {
            for example in examples(&command) {
                // Pipes and redirections belong to the shell.
                let ours = example.split(" | ").find(|part| part.starts_with("ropeway")).unwrap_or_default();
                let ours = ours.split(" > ").next().unwrap_or_default();
                let typed = shlex::split(ours).filter(|typed| !typed.is_empty());
                let typed = typed.unwrap_or_else(|| panic!("`{words}`: `{example}` does not begin with ropeway"));
                let is_help = |error: &clap::Error| error.kind() == clap::error::ErrorKind::DisplayHelp;
                let typed = rewrite(&root, typed.into_iter().map(OsString::from).collect());
                if let Err(error) = CommandLine::try_parse_from(typed)
                    && !is_help(&error)
                {
                    panic!("`{example}` in the help of `{words}`: {error}");
                }
                count += 1;
            }
        }
        assert!(count > 40, "only {count} examples");
    }
}
