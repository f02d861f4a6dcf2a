//! Files with variables: `NAME=value` lines, or YAML maps.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::position::Position;
use super::problem::{ConfigError, ConfigProblem};
use super::raw::{RawMap, RawText};
use super::{decode, regular_file, yaml};
use ropeway_core::secret::Secret;

/// Common environment variables whose values are not secret.
const PUBLIC_VARIABLES: [&str; 14] = [
    "HOME", "USER", "LOGNAME", "PATH", "PWD", "OLDPWD", "LANG", "SHELL", "TERM", "TMPDIR", "TEMP", "TMP", "HOSTNAME",
    "EDITOR",
];

/// Maximum bytes in a quoted value, which limits the search for the closing quote.
const MAX_QUOTED: usize = 64 << 10;

/// Returns `true` for common variables whose values are not secret.
pub(super) fn is_public_variable(name: &str) -> bool {
    PUBLIC_VARIABLES.contains(&name) || name.starts_with("XDG_") || name.starts_with("LC_")
}

/// Returns `true` if the error says that the file does not exist.
pub(super) fn is_not_found(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Error returned for a file with variables.
pub(super) enum VariablesError {
    Io(io::Error),
    Invalid(ConfigProblem),
}

impl VariablesError {
    pub(super) fn into_config_error(self, path: &Path) -> ConfigError {
        match self {
            Self::Io(error) => ConfigError::unreadable(path, error),
            Self::Invalid(problem) => ConfigError::new(path, vec![problem]),
        }
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Self::Io(error) => error.to_string(),
            Self::Invalid(problem) => format!("line {}: {problem}", problem.line),
        }
    }
}

/// Reads variables from a YAML map, by the file extension, or from `NAME=value` lines.
pub(super) fn read_variables(path: &Path) -> Result<BTreeMap<String, String>, VariablesError> {
    let is_yaml = path.extension().is_some_and(|extension| matches!(extension.to_str(), Some("yaml" | "yml" | "json")));
    if is_yaml {
        let node =
            yaml::parse(&regular_file::read(path).map_err(VariablesError::Io)?).map_err(VariablesError::Invalid)?;
        let pairs: RawMap<RawText> = decode::decode_secrets(&node).map_err(VariablesError::Invalid)?;
        Ok(pairs.0.into_iter().map(|(name, value)| (name, value.0)).collect())
    } else {
        let Dotenv { variables, problems, .. } = read_dotenv(path).map_err(VariablesError::Io)?;
        problems.into_iter().next().map_or(Ok(variables), |problem| Err(VariablesError::Invalid(problem)))
    }
}

/// The variables in a file with `NAME=value` lines.
#[derive(Default)]
pub(super) struct Dotenv {
    pub(super) variables: BTreeMap<String, String>,
    pub(super) problems: Vec<ConfigProblem>,
    /// Names whose value has no closing quote.
    unterminated: Vec<String>,
}

/// Returns the variables in a `.env` with their values. A variable whose value has no closing quote has `None`.
pub fn dotenv_variables(text: &str) -> BTreeMap<String, Option<Secret>> {
    let Dotenv { variables, unterminated, .. } = parse_dotenv(text);
    let unknown = unterminated.into_iter().map(|name| (name, None));
    unknown.chain(variables.into_iter().map(|(name, value)| (name, Some(Secret::new(value))))).collect()
}

/// Reads variables from `NAME=value` lines, with a problem for each invalid line.
pub(super) fn read_dotenv(path: &Path) -> io::Result<Dotenv> {
    regular_file::read(path).map(|text| parse_dotenv(&text))
}

/// Parses `NAME=value` lines. As in shells, lines may start with `export`, and have quoted values and comments.
pub(super) fn parse_dotenv(text: &str) -> Dotenv {
    let mut file = Dotenv::default();
    let mut rest = text;
    let mut number = 1;
    while !rest.is_empty() {
        let position = Position { line: number, column: 1 };
        let end = rest.find('\n').map_or(rest.len(), |end| end + 1);
        let (line, mut following) = rest.split_at(end);
        let setting = line.trim();
        let setting = setting.strip_prefix("export ").unwrap_or(setting).trim_start();
        if !setting.is_empty() && !setting.starts_with('#') {
            match setting.split_once('=') {
                None => file.problems.push(ConfigProblem::new(position, "", "missing `=` after the name")),
                Some((name, value)) => {
                    let name = name.trim_end().to_owned();
                    let value = value.trim_start();
                    match value.chars().next() {
                        // A quoted value may span several lines.
                        Some(quote @ ('"' | '\'')) => {
                            match unquoted(&rest[rest.find(quote).map_or(0, |at| at + 1)..], quote) {
                                Some((value, after)) => {
                                    file.variables.insert(name, value);
                                    following = after.split_once('\n').map_or("", |(_, following)| following);
                                }
                                None => {
                                    let message = format!("missing closing quote {quote}");
                                    file.problems.push(ConfigProblem::new(position, "", message));
                                    file.unterminated.push(name);
                                }
                            }
                        }
                        _ => {
                            let value = value.split(" #").next().unwrap_or(value).trim_end();
                            file.variables.insert(name, value.to_owned());
                        }
                    }
                }
            }
        }
        number += rest[..rest.len() - following.len()].matches('\n').count();
        rest = following;
    }
    file
}

/// Returns the value before the closing quote and the text after it. `None` without a closing quote.
fn unquoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.chars();
    while let Some(c) = characters.next().filter(|_| value.len() < MAX_QUOTED) {
        match c {
            c if c == quote => return Some((value, characters.as_str())),
            '\\' if quote == '"' => match characters.next()? {
                'n' => value.push('\n'),
                'r' => value.push('\r'),
                't' => value.push('\t'),
                c @ ('"' | '\\' | '$' | '`') => value.push(c),
                c => value.extend(['\\', c]),
            },
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_a_variable_counts_unless_its_quote_is_open() {
        let text = "A=1 # one\nexport B=\"x\\n${Y}\"\nC='\nD=no\n'\n# E=5\nA=2\nF\nA='3\nG=\"";
        let known = |name: &str, value: Option<&str>| (name.to_owned(), value.map(Secret::new));
        let expected =
            [known("A", Some("2")), known("B", Some("x\n${Y}")), known("C", Some("\nD=no\n")), known("G", None)];
        assert_eq!(dotenv_variables(text), BTreeMap::from(expected));
    }
}
