//! Each word's role in a command line, as clap would parse it.

use std::ffi::OsStr;

use clap::{Arg, Command};

/// One word's role.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role<'a> {
    /// The program itself.
    Program,
    /// A subcommand.
    Command,
    /// An option that the command has.
    Option(&'a Arg),
    /// The preceding option's value.
    Value(&'a Arg),
    /// An unknown option.
    Unknown,
    /// The `--` that ends the options.
    End,
    /// Any other word.
    Positional,
}

/// A command line's words with their roles.
#[derive(Debug)]
pub(crate) struct CommandWords<'a> {
    /// The innermost command.
    pub(crate) command: &'a Command,
    /// One role for each word.
    pub(crate) roles: Vec<Role<'a>>,
    /// The option that expects the next word as its value.
    pub(crate) pending: Option<&'a Arg>,
}

impl<'a> CommandWords<'a> {
    /// Assigns a role to each word. The command must be [built](Command::build) to include global options in subcommands.
    pub(crate) fn new(root: &'a Command, words: &[impl AsRef<OsStr>]) -> Self {
        let mut walk = Self { command: root, roles: Vec::with_capacity(words.len()), pending: None };
        let (mut has_ended, mut has_positional) = (false, false);
        for word in words {
            let word = word.as_ref().to_string_lossy();
            let role = match &*word {
                _ if walk.roles.is_empty() => Role::Program,
                _ if walk.pending.is_some() => walk.pending.take().map_or(Role::Positional, Role::Value),
                _ if has_ended => Role::Positional,
                "--" => {
                    has_ended = true;
                    Role::End
                }
                long if long.starts_with("--") => walk.long(long),
                short if short.starts_with('-') && short.len() > 1 => walk.short(short),
                word => match walk.command.find_subcommand(word).filter(|_| !has_positional) {
                    Some(command) => {
                        walk.command = command;
                        Role::Command
                    }
                    None => {
                        has_positional = true;
                        Role::Positional
                    }
                },
            };
            walk.roles.push(role);
        }
        walk
    }

    fn long(&mut self, word: &str) -> Role<'a> {
        let (name, value) = word[2..].split_once('=').map_or((&word[2..], None), |(name, value)| (name, Some(value)));
        let Some(option) = find_long(self.command, name) else { return Role::Unknown };
        if value.is_none() && option.get_action().takes_values() {
            self.pending = Some(option);
        }
        Role::Option(option)
    }

    fn short(&mut self, word: &str) -> Role<'a> {
        let mut role = Role::Unknown;
        let letters = &word[1..];
        for (at, letter) in letters.char_indices() {
            let has_letter =
                |option: &&Arg| option.get_short_and_visible_aliases().is_some_and(|all| all.contains(&letter));
            let Some(option) = self.command.get_arguments().find(has_letter) else { return Role::Unknown };
            role = Role::Option(option);
            if option.get_action().takes_values() {
                let is_last = at + letter.len_utf8() == letters.len();
                self.pending = Some(option).filter(|_| is_last);
                break;
            }
        }
        role
    }

    /// Returns the positional words' indices.
    pub(crate) fn positionals(&self) -> impl Iterator<Item = usize> {
        self.roles.iter().enumerate().filter(|(_, role)| matches!(role, Role::Positional)).map(|(at, _)| at)
    }

    /// Returns `true` if one of these options is present.
    pub(crate) fn has_option(&self, names: &[&str]) -> bool {
        self.roles.iter().any(|role| match role {
            Role::Option(option) => option.get_long().is_some_and(|long| names.contains(&long)),
            _ => false,
        })
    }

    /// Returns an option's value. `words` must be those passed to [`new`](Self::new).
    pub(crate) fn value<'w>(&self, name: &str, words: &'w [String]) -> Option<&'w str> {
        self.roles.iter().zip(words).find_map(|(role, word)| match role {
            Role::Value(option) if option.get_long() == Some(name) => Some(word.as_str()),
            Role::Option(option) if option.get_long() == Some(name) => word.split_once('=').map(|(_, value)| value),
            _ => None,
        })
    }
}

/// Returns the option with this long name.
pub(crate) fn find_long<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let is_named = |option: &&Arg| {
        option.get_long() == Some(name) || option.get_all_aliases().is_some_and(|all| all.contains(&name))
    };
    command.get_arguments().find(is_named)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::command::CommandLine;

    #[test]
    fn every_word_has_the_role_that_clap_gives_it() {
        let mut root = CommandLine::command();
        root.build();
        let roles = |line: &str| -> String {
            let words: Vec<&str> = line.split(' ').collect();
            let letter = |role: &Role<'_>| match role {
                Role::Program => 'p',
                Role::Command => 'c',
                Role::Option(_) => 'o',
                Role::Value(_) => 'v',
                Role::Unknown => 'u',
                Role::End => 'e',
                Role::Positional => 'w',
            };
            CommandWords::new(&root, &words).roles.iter().map(letter).collect()
        };
        for (line, expected) in [
            ("ropeway", "p"),
            ("ropeway --json --timeout 5s call tools a=1 --save out --json", "poovcwwovo"),
            ("ropeway call a --timeout=5s --expression 1+1 -vv -x", "pcwouwou"),
            ("ropeway config check file", "pccw"),
            ("ropeway call a -- --json -", "pcweww"),
            ("ropeway call - --stdio cmd", "pcwov"),
        ] {
            assert_eq!(roles(line), expected, "{line}");
        }
    }
}
