//! Short examples for `--help`.

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

pub(super) const CHAT: &str = "\
Examples:
  ropeway chat
  ropeway chat -p 'What time is it in Tokyo?'
  ropeway chat files -p 'Which files are new?' --model MODEL
  git diff | ropeway chat -p 'Review this change' --no-tools
  ropeway chat -p 'What is in @photo.png?' --attach notes.txt
  ropeway chat --continue
  ropeway chat --list
  ropeway chat -p 'Tidy up' --allow 'files.*' --deny 'files.delete*' --save talk.json
  ropeway chat --resume talk.json --save talk.json
  ropeway chat -p hello --base-url http://127.0.0.1:8080/v1 --json

Output: standard output contains only the text of the model. With --json it contains one JSON object per step; the \
last one is {\"step\": \"final\", …} or {\"step\": \"failed\", \"error\": …, \"exit\": …}. Markdown is rendered on a \
terminal, unless --plain is given or TERM is dumb.

Input: without -p, and if standard input or output is not a terminal, each line of standard input is a message or a \
command such as /prompt; /save and /load are not available. With -p TEXT, piped or redirected standard input is \
appended to the message, up to 10 MiB of UTF-8 text. Terminals, devices such as /dev/null, and sockets that send \
nothing for 3 s are not read. -p - reads the whole message from standard input.

Attachments: @FILE at the start of a word attaches a text, image or PDF file: @notes.txt, @~/photo.png, @\"my \
file.txt\". The type is detected from the content. A word that names no file stays text. Files are attached only to \
typed messages and -p TEXT.

Saving: conversations are saved after each turn to ~/.local/state/ropeway/conversations (see XDG_STATE_HOME), \
readable by the user only and with known secrets redacted, unless --no-save is given. ROPEWAY_CONVERSATIONS_DIR sets \
another directory; an empty value disables saving. The latest 200 conversations are kept, up to 1 GiB in total. A \
conversation continued in two terminals is saved as two. A resumed conversation keeps its model and provider unless \
options override them.

Approval: each tool call needs approval. Without a terminal, and with -p, calls are denied unless --allow or --yes \
permits them. Read-only tools need no approval if the server has `trust_hints: true` in its entry or --trust-hints \
is given. --deny takes precedence over --ask, and --ask over --allow. Options override the configuration file, \
except its `deny`. \"Always\" applies to the current definition of a tool; a changed tool needs approval again.

Patterns: a GLOB is SERVER.TOOL, such as files.read_* or *.list, or the name that the model uses, such as \
mcp_files_read, or mcp_files_* for all tools of a server. A wildcard does not cross from the server into the tool: \
for some tools of server my, use my.files_*, not mcp_my_files_*. --ask and --deny also match the latter, as a \
precaution.";

pub(super) const CHAT_EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    the turn reached a limit, or the answer is incomplete
  2    invalid usage or configuration, or the provider rejected the request
  3    server or provider unreachable or overloaded (429, 5xx)
  4    server or provider needs authentication
  5    timeout
  130  interrupted with Ctrl-C";

pub(super) const RESOURCES: &str = "\
Examples:
  ropeway resources
  ropeway resources files notes --json";

pub(super) const READ: &str = "\
Examples:
  ropeway read test://notes/today
  ropeway read files file:///srv/logo.png --save out";

pub(super) const PROMPTS: &str = "\
Examples:
  ropeway prompts
  ropeway prompts github linear";

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
  ropeway events github linear --timeout 1m
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

    /// Returns the command lines below `Examples:` in a command's help.
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
