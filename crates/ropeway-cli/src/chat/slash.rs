//! Commands inside a chat: what is typed behind a slash.

use std::path::{Path, PathBuf};

use super::record::at_home;
use crate::arguments::suggest;
use crate::failure::Failure;
use crate::terminal::table::{Cell, Overflow, Table};
use crate::terminal::text::{width, wrap};

/// What is typed behind a slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slash {
    /// What can be typed.
    Help,
    /// The tools, or those that some words describe.
    Tools {
        /// The words.
        words: String,
    },
    /// How the servers stand.
    Servers,
    /// A prompt of a server is said to the model.
    Prompt {
        /// Its name.
        name: String,
        /// Its arguments, as they are typed.
        words: Vec<String>,
    },
    /// The model is asked once more.
    Retry,
    /// What was said is written down.
    Save {
        /// Where.
        file: PathBuf,
    },
    /// What was written down is gone on with.
    Load {
        /// Where it is.
        file: PathBuf,
    },
    /// What was said is forgotten.
    Clear,
    /// Lists the models of the provider.
    Models,
    /// Switches to another model.
    Model {
        name: String,
        /// Does not ask the provider whether it has the model.
        force: bool,
    },
    /// Shows the whole result of a call.
    Expand {
        /// 1 is the last one.
        number: usize,
    },
    /// Switches the rendering of Markdown on or off.
    Plain,
    /// The chat is over.
    Quit,
}

/// All commands: how they are typed, and what they do.
const COMMANDS: [(&str, &str); 12] = [
    ("/help", "show this"),
    ("/tools [WORDS]", "list the tools, or find some"),
    ("/servers", "show how the servers stand"),
    ("/prompt NAME key=value…", "say a server's prompt to the model"),
    ("/retry", "ask the model once more, after a failure or a limit"),
    ("/save FILE", "write down what was said"),
    ("/load FILE", "go on with what was written down"),
    ("/clear", "forget what was said"),
    ("/model [NAME] [--force]", "list the models, or switch to one; --force skips the check"),
    ("/expand [N]", "show the whole result of the last call, or the Nth last"),
    ("/plain", "show text as it comes, or render Markdown again"),
    ("/quit", "leave, like Ctrl-D"),
];

/// The names of all commands, with the slash.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().filter_map(|(usage, _)| usage.split(' ').next())
}

/// All commands, for people.
pub(super) fn manual() -> String {
    let mut table = Table::new(&[], Overflow::Wrap);
    for (usage, what) in COMMANDS {
        table.row([Cell::new(usage), Cell::new(what)]);
    }
    let text = table.render(Some(width()), 2);
    let keys = "Everything else is said to the model. Alt+Enter, Ctrl-J or a backslash before Enter starts a new line. Ctrl-C ends \
        the model's turn; twice at the prompt, it leaves.";
    format!("{text}\n{}", wrap(keys, width(), 2))
}

/// The command that is typed, if it is one: `/etc/hosts` is not.
pub(super) fn parse(line: &str) -> Option<Result<Slash, Failure>> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let name = word.strip_prefix('/')?;
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphabetic()) {
        return None;
    }
    Some(read(word, rest.trim()))
}

fn read(word: &str, rest: &str) -> Result<Slash, Failure> {
    let usage =
        || COMMANDS.iter().find(|(usage, _)| usage.split(' ').next() == Some(word)).map_or("", |(usage, _)| usage);
    let words = || {
        let words = shlex::split(rest).ok_or_else(|| Failure::usage("a quote is not closed"))?;
        Ok::<_, Failure>(words)
    };
    let one = || match &words()?[..] {
        [one] => Ok(one.clone()),
        _ => Err(Failure::usage(format!("it is typed as `{}`", usage()))),
    };
    let alone = |command: Slash| match rest {
        "" => Ok(command),
        _ => Err(Failure::usage(format!("`{word}` stands alone"))),
    };
    match word {
        "/help" => alone(Slash::Help),
        "/tools" => Ok(Slash::Tools { words: rest.to_owned() }),
        "/servers" => alone(Slash::Servers),
        "/prompt" => match words()?.split_first() {
            Some((name, words)) => Ok(Slash::Prompt { name: name.clone(), words: words.to_vec() }),
            None => Err(Failure::usage(format!("it is typed as `{}`", usage()))),
        },
        "/retry" => alone(Slash::Retry),
        "/save" => Ok(Slash::Save { file: at_home(Path::new(&one()?)) }),
        "/load" => Ok(Slash::Load { file: at_home(Path::new(&one()?)) }),
        "/clear" => alone(Slash::Clear),
        "/model" => match &words()?.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => Ok(Slash::Models),
            [name, "--force"] | ["--force", name] => Ok(Slash::Model { name: (*name).to_owned(), force: true }),
            [name] if !name.starts_with('-') => Ok(Slash::Model { name: (*name).to_owned(), force: false }),
            _ => Err(Failure::usage(format!("it is typed as `{}`", usage()))),
        },
        "/expand" if rest.is_empty() => Ok(Slash::Expand { number: 1 }),
        "/expand" => match rest.parse() {
            Ok(number) => Ok(Slash::Expand { number }),
            Err(_) => Err(Failure::usage(format!("it is typed as `{}`", usage()))),
        },
        "/plain" => alone(Slash::Plain),
        "/quit" | "/exit" => alone(Slash::Quit),
        _ => {
            let failure = Failure::usage(format!("there is no command `{word}`"));
            let question =
                suggest::did_you_mean(word, names()).unwrap_or_else(|| "`/help` shows all of them".to_owned());
            Err(failure.hint(question))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &str) -> Option<Result<Slash, String>> {
        parse(line).map(|command| command.map_err(|failure| failure.message().to_owned()))
    }

    #[test]
    fn commands_are_read_with_what_stands_behind_them() {
        for (line, command) in [
            ("/help", Slash::Help),
            (" /tools read a file ", Slash::Tools { words: "read a file".into() }),
            ("/tools", Slash::Tools { words: String::new() }),
            ("/save 'my talk.json'", Slash::Save { file: "my talk.json".into() }),
            ("/load a", Slash::Load { file: "a".into() }),
            ("/model", Slash::Models),
            ("/model x/y", Slash::Model { name: "x/y".into(), force: false }),
            ("/model x/y --force", Slash::Model { name: "x/y".into(), force: true }),
            ("/expand", Slash::Expand { number: 1 }),
            ("/expand 3", Slash::Expand { number: 3 }),
            ("/plain", Slash::Plain),
            ("/prompt s.p a='b c'", Slash::Prompt { name: "s.p".into(), words: vec!["a=b c".into()] }),
            ("/exit", Slash::Quit),
        ] {
            assert_eq!(typed(line), Some(Ok(command)), "{line}");
        }
    }

    #[test]
    fn what_is_no_command_is_a_message() {
        for line in ["hello", "/etc/hosts is what?", "/ a", "/", "a /help", "/2"] {
            assert_eq!(typed(line), None, "{line}");
        }
    }

    #[test]
    fn what_is_mistyped_is_told() {
        for (line, words) in [
            ("/tolos", "there is no command `/tolos`"),
            ("/save", "it is typed as `/save FILE`"),
            ("/save a b", "it is typed as `/save FILE`"),
            ("/save 'a", "a quote is not closed"),
            ("/quit now", "`/quit` stands alone"),
            ("/expand all", "it is typed as `/expand [N]`"),
            ("/model --force", "it is typed as `/model [NAME] [--force]`"),
            ("/model a b", "it is typed as `/model [NAME] [--force]`"),
        ] {
            assert_eq!(typed(line), Some(Err(words.to_owned())), "{line}");
        }
        let failure = parse("/tolos").expect("a command").expect_err("a failure");
        assert!(failure.render().contains("did you mean `/tools`?"), "{}", failure.render());
    }

    #[test]
    fn every_command_that_is_shown_is_known() {
        for name in names() {
            assert!(!matches!(typed(name), Some(Err(words)) if words.starts_with("there is no")), "{name}");
        }
    }
}
