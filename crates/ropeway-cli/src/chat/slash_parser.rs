//! Parses slash commands.

use std::path::{Path, PathBuf};

use super::save_file::expand_home;
use ropeway_core::suggest;

use crate::failure::Failure;
use crate::terminal::table::{Cell, Overflow, Table};
use crate::terminal::text::{width, wrap};

/// A command that is typed in a chat, such as `/tools`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlashCommand {
    /// Shows the commands.
    Help,
    /// Lists the tools, or searches them.
    Tools {
        /// The search terms; empty lists all tools.
        words: String,
    },
    /// Shows server status.
    Servers,
    /// Sends a server's prompt to the model.
    Prompt {
        name: String,
        /// The arguments, as typed.
        words: Vec<String>,
    },
    /// Sends the last request again.
    Retry,
    /// Removes the last message and its answer.
    Undo,
    /// Saves the conversation to a file.
    Save { file: PathBuf },
    /// Continues the conversation in a file.
    Load { file: PathBuf },
    /// Starts an empty conversation.
    Clear,
    /// Lists the provider's models.
    Models,
    /// Switches to another model.
    Model {
        name: String,
        /// Skips the check that the provider has the model.
        force: bool,
    },
    /// Shows a call's complete result.
    Expand {
        /// 1 is the latest one.
        number: usize,
    },
    /// Toggles Markdown rendering.
    Plain,
    /// Leaves the chat.
    Quit,
}

/// Each command's usage and description.
const COMMANDS: [(&str, &str); 13] = [
    ("/help", "show this help"),
    ("/tools [WORDS]", "list tools, or search them"),
    ("/servers", "show server status"),
    ("/prompt NAME key=value…", "send a server's prompt to the model"),
    ("/retry", "send the last request again, after a failure or a limit"),
    ("/undo", "remove the last message and what followed it"),
    ("/save FILE", "save the conversation to a file"),
    ("/load FILE", "continue a saved conversation"),
    ("/clear", "start an empty conversation"),
    ("/model [NAME] [--force]", "list models, or switch to one; --force skips the check"),
    ("/expand [N]", "show the complete result of the last call, or the Nth last"),
    ("/plain", "toggle Markdown rendering"),
    ("/quit", "leave the chat (also Ctrl-D)"),
];

/// Returns all command names, with the slash.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().filter_map(|(usage, _)| usage.split(' ').next())
}

/// Returns the `/help` text.
pub(super) fn help_text() -> String {
    let mut table = Table::new(&[], Overflow::Wrap);
    for (usage, what) in COMMANDS {
        table.row([Cell::new(usage), Cell::new(what)]);
    }
    let text = table.render(Some(width()), 2);
    let keys = "Any other line is sent to the model. Alt+Enter, Ctrl-J, or a backslash before Enter inserts a line break. Ctrl-C \
        ends the model's turn; press it twice at the prompt to leave.";
    format!("{text}\n{}", wrap(keys, width(), 2))
}

/// Parses a line. Returns `None` for a message, such as one that starts with the path `/etc/hosts`.
pub(super) fn parse(line: &str) -> Option<Result<SlashCommand, Failure>> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let name = word.strip_prefix('/')?;
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphabetic()) {
        return None;
    }
    Some(read(word, rest.trim()))
}

fn read(word: &str, rest: &str) -> Result<SlashCommand, Failure> {
    let usage =
        || COMMANDS.iter().find(|(usage, _)| usage.split(' ').next() == Some(word)).map_or("", |(usage, _)| usage);
    let words = || {
        let words = shlex::split(rest).ok_or_else(|| Failure::usage("missing closing quote"))?;
        Ok::<_, Failure>(words)
    };
    let one = || match &words()?[..] {
        [one] => Ok(one.clone()),
        _ => Err(Failure::usage(format!("usage: {}", usage()))),
    };
    let without_arguments = |command: SlashCommand| match rest {
        "" => Ok(command),
        _ => Err(Failure::usage(format!("`{word}` takes no arguments"))),
    };
    match word {
        "/help" => without_arguments(SlashCommand::Help),
        "/tools" => Ok(SlashCommand::Tools { words: rest.to_owned() }),
        "/servers" => without_arguments(SlashCommand::Servers),
        "/prompt" => match words()?.split_first() {
            Some((name, words)) => Ok(SlashCommand::Prompt { name: name.clone(), words: words.to_vec() }),
            None => Err(Failure::usage(format!("usage: {}", usage()))),
        },
        "/retry" => without_arguments(SlashCommand::Retry),
        "/undo" => without_arguments(SlashCommand::Undo),
        "/save" => Ok(SlashCommand::Save { file: expand_home(Path::new(&one()?)) }),
        "/load" => Ok(SlashCommand::Load { file: expand_home(Path::new(&one()?)) }),
        "/clear" => without_arguments(SlashCommand::Clear),
        "/model" => match &words()?.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => Ok(SlashCommand::Models),
            [name, "--force"] | ["--force", name] => Ok(SlashCommand::Model { name: (*name).to_owned(), force: true }),
            [name] if !name.starts_with('-') => Ok(SlashCommand::Model { name: (*name).to_owned(), force: false }),
            _ => Err(Failure::usage(format!("usage: {}", usage()))),
        },
        "/expand" if rest.is_empty() => Ok(SlashCommand::Expand { number: 1 }),
        "/expand" => match rest.parse() {
            Ok(number) => Ok(SlashCommand::Expand { number }),
            Err(_) => Err(Failure::usage(format!("usage: {}", usage()))),
        },
        "/plain" => without_arguments(SlashCommand::Plain),
        "/quit" | "/exit" => without_arguments(SlashCommand::Quit),
        _ => {
            let failure = Failure::usage(format!("unknown command `{word}`"));
            let question =
                suggest::did_you_mean(word, names()).unwrap_or_else(|| "type `/help` to list the commands".to_owned());
            Err(failure.hint(question))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &str) -> Option<Result<SlashCommand, String>> {
        parse(line).map(|command| command.map_err(|failure| failure.message().to_owned()))
    }

    #[test]
    fn commands_are_parsed_with_their_arguments() {
        for (line, command) in [
            ("/help", SlashCommand::Help),
            (" /tools read a file ", SlashCommand::Tools { words: "read a file".into() }),
            ("/tools", SlashCommand::Tools { words: String::new() }),
            ("/save 'my talk.json'", SlashCommand::Save { file: "my talk.json".into() }),
            ("/load a", SlashCommand::Load { file: "a".into() }),
            ("/model", SlashCommand::Models),
            ("/model x/y", SlashCommand::Model { name: "x/y".into(), force: false }),
            ("/model x/y --force", SlashCommand::Model { name: "x/y".into(), force: true }),
            ("/expand", SlashCommand::Expand { number: 1 }),
            ("/expand 3", SlashCommand::Expand { number: 3 }),
            ("/plain", SlashCommand::Plain),
            ("/prompt s.p a='b c'", SlashCommand::Prompt { name: "s.p".into(), words: vec!["a=b c".into()] }),
            ("/exit", SlashCommand::Quit),
        ] {
            assert_eq!(typed(line), Some(Ok(command)), "{line}");
        }
    }

    #[test]
    fn other_lines_are_messages() {
        for line in ["hello", "/etc/hosts is what?", "/ a", "/", "a /help", "/2"] {
            assert_eq!(typed(line), None, "{line}");
        }
    }

    #[test]
    fn mistyped_commands_are_reported() {
        for (line, words) in [
            ("/tolos", "unknown command `/tolos`"),
            ("/save", "usage: /save FILE"),
            ("/save a b", "usage: /save FILE"),
            ("/save 'a", "missing closing quote"),
            ("/quit now", "`/quit` takes no arguments"),
            ("/expand all", "usage: /expand [N]"),
            ("/model --force", "usage: /model [NAME] [--force]"),
            ("/model a b", "usage: /model [NAME] [--force]"),
        ] {
            assert_eq!(typed(line), Some(Err(words.to_owned())), "{line}");
        }
        let failure = parse("/tolos").expect("a command").expect_err("a failure");
        assert!(failure.render().contains("did you mean `/tools`?"), "{}", failure.render());
    }

    #[test]
    fn every_listed_command_is_known() {
        for name in names() {
            assert!(!matches!(typed(name), Some(Err(words)) if words.starts_with("unknown command")), "{name}");
        }
    }
}
