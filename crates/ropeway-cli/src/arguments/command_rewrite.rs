//! Rewrites a command line for clap: a bare URL or command becomes `--url` or `--stdio`, and unknown options
//! become tool arguments.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use clap::{Arg, Command};
use ropeway_core::suggest;

use crate::arguments::argument::option_word;
use crate::arguments::command_words::{CommandWords, Role};

/// Commands whose first word may be a server.
const TAKE_SERVER: [&str; 9] =
    ["tools", "call", "read", "resources", "prompts", "prompt", "health", "doctor", "events"];

/// Commands whose first word is a tool or prompt, optionally after a server.
const TAKE_TOOL: [&str; 2] = ["call", "prompt"];

/// The option that may also precede the command.
const CONFIG: &str = "config";

/// An option that every command has, and tools may have, too.
const COLOR: &str = "color";

/// Rewrites a command line's words. Configured server names contain neither `/` nor spaces and are never rewritten.
pub(crate) fn rewrite(root: &Command, words: Vec<OsString>) -> Vec<OsString> {
    let words = config_behind_command(root, words);
    let walk = CommandWords::new(root, &words);
    let name = walk.command.get_name();
    let mut places = walk.positionals();
    let (first, second) = (places.next(), places.next());
    let word = |at: Option<usize>| at.and_then(|at| words.get(at)).and_then(|word| word.to_str());
    let is_given = walk.has_option(&["stdio", "url", "config"]);
    let bare = word(first)
        .filter(|_| TAKE_SERVER.contains(&name) && !is_given)
        .and_then(|server| bare_server(name, server, word(second)).map(|option| (server, option)))
        .map(|(server, option)| OsString::from(format!("--{option}={server}")));
    let tool = if bare.is_some() { second } else { first };
    let mut rewritten = Vec::with_capacity(words.len());
    let mut at = 0;
    while at < words.len() {
        let takes_options = TAKE_TOOL.contains(&name) && tool.is_some_and(|tool| tool < at);
        if first == Some(at)
            && let Some(bare) = &bare
        {
            rewritten.push(bare.clone());
        } else if takes_options
            && (matches!(walk.roles[at], Role::Unknown) || is_other_color(&walk, &words, at))
            && let Some(text) = words[at].to_str()
            && let Some(body) = text.strip_prefix("--").filter(|body| !body.is_empty() && !body.starts_with('='))
        {
            let has_value = body.contains('=');
            let next = words.get(at + 1).and_then(|word| word.to_str());
            let next = next
                .filter(|next| !has_value && (is_value(walk.roles[at + 1], next) || is_other_color(&walk, &words, at)));
            let nearest = nearest_option(walk.command, body.split('=').next().unwrap_or(body));
            rewritten.push(OsString::from(option_word(body, next, nearest)));
            at += usize::from(next.is_some());
        } else {
            rewritten.push(words[at].clone());
        }
        at += 1;
    }
    rewritten
}

/// Moves `--config FILE` from before the command to behind it, where each command defines what the file is for.
fn config_behind_command(root: &Command, words: Vec<OsString>) -> Vec<OsString> {
    let walk = CommandWords::new(root, &words);
    let Some(command) = walk.roles.iter().rposition(|role| matches!(role, Role::Command)) else { return words };
    let is_config = |at: usize| match walk.roles[at] {
        Role::Option(option) | Role::Value(option) => at < command && option.get_long() == Some(CONFIG),
        _ => false,
    };
    let moved = (0..command).filter(|at| is_config(*at));
    let before = (0..=command).filter(|at| !is_config(*at));
    before.chain(moved).chain(command + 1..words.len()).map(|at| words[at].clone()).collect()
}

/// Returns `true` for a `--color` with a value that only a tool can know.
fn is_other_color(walk: &CommandWords<'_>, words: &[OsString], at: usize) -> bool {
    let Role::Option(option) = walk.roles[at] else { return false };
    let word = words[at].to_string_lossy();
    let value = match word.split_once('=') {
        Some((_, value)) => Some(value.to_owned()),
        None => words.get(at + 1).map(|value| value.to_string_lossy().into_owned()),
    };
    let is_known = |value: &String| option.get_possible_values().iter().any(|known| known.matches(value, false));
    option.get_long() == Some(COLOR) && value.is_some_and(|value| !is_known(&value))
}

/// Returns `true` if a word can be the preceding option's value. A word that starts with `-` must be a number.
fn is_value(role: Role<'_>, word: &str) -> bool {
    match role {
        Role::Positional => word != "-",
        Role::Unknown => word.parse::<f64>().is_ok(),
        _ => false,
    }
}

fn nearest_option<'a>(command: &'a Command, name: &str) -> Option<&'a str> {
    let names = command.get_arguments().filter(|option| !option.is_hide_set()).filter_map(Arg::get_long);
    suggest::closest(name, names).into_iter().next()
}

/// Returns the option for a bare server: `url` or `stdio`. Only URLs, words with spaces and program paths qualify: a
/// misspelled name must not run a program.
pub(crate) fn bare_server(command: &str, word: &str, next: Option<&str>) -> Option<&'static str> {
    let needs_another = TAKE_TOOL.contains(&command) || command == "read";
    if word.starts_with("http://") || word.starts_with("https://") {
        // A single URL is a resource URI.
        return (command != "read" || next.is_some()).then_some("url");
    }
    let is_before_tool = next.is_some_and(|next| command == "read" || is_name(next));
    if needs_another && (!is_before_tool || word.contains('(')) {
        return None;
    }
    let is_command = word.trim().contains(char::is_whitespace) || (is_path(word) && is_program(Path::new(word)));
    is_command.then_some("stdio")
}

/// Returns `true` for an explicit path. `files/read` may be a tool name and must not run a program.
fn is_path(word: &str) -> bool {
    ["/", "./", "../"].iter().any(|start| word.starts_with(start))
}

/// Returns `true` if a word can be a tool name.
fn is_name(word: &str) -> bool {
    word != "-" && !word.contains('=') && !word.trim_start().starts_with(['{', '@'])
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Returns why a program's path cannot be a server, or `None` if the word is not a path.
pub(crate) fn unusable_path(word: &str) -> Option<String> {
    let path = Path::new(word);
    let reason = match path.metadata() {
        _ if !is_path(word) => return None,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "does not exist".to_owned(),
        Err(error) => format!("cannot be read: {error}"),
        Ok(metadata) if metadata.is_dir() => "is a directory, not a program".to_owned(),
        Ok(_) if !is_program(path) => format!("is not executable; run `chmod +x {word}`"),
        Ok(_) => return None,
    };
    Some(format!("`{word}` {reason}"))
}

/// Returns `true` if the words contain `--json`.
pub(crate) fn asks_for_json(words: &[impl AsRef<OsStr>]) -> bool {
    words.iter().map(AsRef::as_ref).take_while(|word| *word != "--").any(|word| word == "--json")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::command::CommandLine;

    fn rewritten(words: &[&str]) -> Vec<String> {
        let mut root = CommandLine::command();
        root.build();
        let words = ["ropeway"].iter().chain(words).map(OsString::from).collect();
        let rewritten = rewrite(&root, words);
        rewritten.into_iter().skip(1).map(|word| word.into_string().expect("UTF-8")).collect()
    }

    #[test]
    fn a_bare_url_or_command_becomes_an_option() {
        let npx = "npx -y @scope/server";
        for (words, first) in [
            (&["tools", "https://h/mcp"][..], "--url=https://h/mcp"),
            (&["call", "http://h/mcp", "tool", "a=1"], "--url=http://h/mcp"),
            (&["read", "http://h/mcp", "test://x"], "--url=http://h/mcp"),
            (&["tools", npx], "--stdio=npx -y @scope/server"),
            (&["call", npx, "tool"], "--stdio=npx -y @scope/server"),
            (&["doctor", "/bin/sh"], "--stdio=/bin/sh"),
            (&["call", "/bin/sh", "tool", "a=1"], "--stdio=/bin/sh"),
        ] {
            let expected: Vec<&str> =
                words.iter().enumerate().map(|(at, word)| if at == 1 { first } else { word }).collect();
            assert_eq!(rewritten(words), expected);
        }
    }

    #[test]
    fn a_configuration_file_may_be_named_before_the_command() {
        for (words, expected) in [
            (&["--config", "f", "tools", "files"][..], &["tools", "--config", "f", "files"][..]),
            (&["--config=f", "--json", "list"], &["--json", "list", "--config=f"]),
            (&["-c", "f", "auth", "status"], &["auth", "status", "-c", "f"]),
            (&["-c", "f", "call", "https://h/mcp", "t"], &["call", "-c", "f", "https://h/mcp", "t"]),
            (&["-c", "tools"], &["-c", "tools"]),
            (&["-c", "f"], &["-c", "f"]),
        ] {
            assert_eq!(rewritten(words), expected);
        }
    }

    #[test]
    fn a_plain_name_is_not_a_server_and_runs_nothing() {
        for words in [
            &["tools", "sh"][..],
            &["tools", "no/such/program"],
            &["tools", "/etc"],
            &["tools", "/etc/passwd"],
            &["call", "/bin/sh", "a=1"],
            &["call", "a/b", "{}"],
            &["call", "chart(values: [1, 2])", "title"],
            &["call", "two words", "a=1"],
            &["read", "https://h/resource"],
            &["read", "a b"],
            &["tools", "https://h/mcp", "--config", "f"],
            &["add", "name", "https://h/mcp"],
        ] {
            assert_eq!(rewritten(words), words);
        }
    }

    #[test]
    fn options_that_the_command_does_not_have_are_arguments_of_the_tool() {
        let call = |words: &[&str]| rewritten(&[&["call", "tool"], words].concat()).split_off(2);
        assert_eq!(call(&["--expression=1+1"]), [option_word("expression=1+1", None, None)]);
        assert_eq!(call(&["--expression", "1+1", "a=1"]), [option_word("expression", Some("1+1"), None), "a=1".into()]);
        assert_eq!(call(&["--count", "-5"]), [option_word("count", Some("-5"), None)]);
        assert_eq!(call(&["--grid", "--json"]), [option_word("grid", None, None), "--json".into()]);
        assert_eq!(call(&["--jsno"]), [option_word("jsno", None, Some("json"))]);
        assert_eq!(call(&["--timeout", "5s", "--", "--x"]), ["--timeout", "5s", "--", "--x"]);
        assert_eq!(call(&["--color", "red", "a=1"]), [option_word("color", Some("red"), Some("color")), "a=1".into()]);
        assert_eq!(call(&["--color=red"]), [option_word("color=red", None, Some("color"))]);
        assert_eq!(call(&["--color", "never"]), ["--color", "never"]);
        // Before the tool they are mistakes.
        assert_eq!(rewritten(&["call", "--expression=1", "tool"]), ["call", "--expression=1", "tool"]);
        assert_eq!(rewritten(&["tools", "a", "--expression=1"]), ["tools", "a", "--expression=1"]);
    }
}
