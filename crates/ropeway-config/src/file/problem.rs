//! Problems in a configuration file, with their positions.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::position::Position;
use ropeway_core::secret::{Redactor, in_arguments};
use ropeway_core::suggest;

/// Maximum characters per value in a message.
const MAX_SHOWN: usize = 60;

/// Synonyms for `alias` in manifests. The last two may also be display names.
pub(super) const ALIAS_SYNONYMS: [&str; 4] = ["serverName", "server_name", "name", "id"];

/// Maximum problems per error.
pub(super) const MAX_PROBLEMS: usize = 100;

/// An invalid configuration file.
///
/// The `Display` output has one line for each problem.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConfigError {
    /// File path.
    pub file: PathBuf,
    /// The problems in file order. Empty if the file could not be read.
    pub problems: Vec<ConfigProblem>,
    /// Whether the file has more than the 100 problems that are reported.
    pub truncated: bool,
    source: Option<Arc<std::io::Error>>,
}

impl ConfigError {
    pub(super) fn new(file: &Path, mut problems: Vec<ConfigProblem>) -> Self {
        let truncated = problems.len() > MAX_PROBLEMS;
        problems.sort_by_key(|problem| (problem.line, problem.column));
        problems.dedup_by(|a, b| {
            (a.line, a.column, &a.found, &a.expected) == (b.line, b.column, &b.found, &b.expected) && a.line > 0
        });
        problems.truncate(MAX_PROBLEMS);
        Self { file: file.to_owned(), problems, truncated, source: None }
    }

    pub(super) fn unreadable(file: &Path, source: std::io::Error) -> Self {
        Self { file: file.to_owned(), problems: Vec::new(), truncated: false, source: Some(Arc::new(source)) }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        if self.problems.is_empty() {
            return write!(f, "could not read `{file}`");
        }
        for (index, problem) in self.problems.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            match problem.line {
                0 => write!(f, "{end}{file}: {problem}")?,
                line => write!(f, "{end}{file}:{line}:{}: {problem}", problem.column)?,
            }
        }
        if self.truncated {
            write!(f, "\n{file}: stopped after {} problems", self.problems.len())?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// One problem in a configuration file.
///
/// The `Display` output is the path, the [message](Self::message) and the suggestion, without the position.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigProblem {
    /// The line, starting at one. Zero if the problem concerns the file as a whole.
    pub line: usize,
    /// The column, starting at one.
    pub column: usize,
    /// The value's path, such as `servers[2].transport`. May be empty.
    pub path: String,
    /// The invalid value, or a problem description such as "unknown key `comand`".
    pub found: String,
    /// The valid values. Empty if `found` describes the whole problem.
    pub expected: String,
    /// The valid value most similar to the invalid one.
    pub suggestion: Option<String>,
    is_mismatch: bool,
}

impl ConfigProblem {
    /// Creates a problem from its description.
    pub(super) fn new(position: Position, path: impl Into<String>, message: impl Into<String>) -> Self {
        let Position { line, column } = position;
        let (path, found) = (path.into(), message.into());
        Self { line, column, path, found, expected: String::new(), suggestion: None, is_mismatch: false }
    }

    /// Creates the problem for a value other than the expected one.
    pub(super) fn mismatch(
        position: Position,
        path: impl Into<String>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self { is_mismatch: true, ..Self::new(position, path, found) }.expecting(expected)
    }

    /// Creates the problem for an unknown key.
    ///
    /// The message lists the known keys if none is similar: a long list would hide the suggestion.
    pub(super) fn unknown_key<'a>(
        position: Position,
        path: impl Into<String>,
        key: &str,
        known: impl IntoIterator<Item = &'a str> + Clone,
    ) -> Self {
        let suggestion = nearest_key(key, known.clone());
        let expected = if suggestion.is_some() { String::new() } else { one_of(known) };
        Self::new(position, path, format!("unknown key {}", in_backticks(key))).expecting(expected).suggest(suggestion)
    }

    /// Creates a problem with the file as a whole.
    pub(super) fn of_file(message: impl Into<String>) -> Self {
        Self::new(Position::default(), "", message)
    }

    /// Adds the valid values.
    pub(super) fn expecting(mut self, expected: impl Into<String>) -> Self {
        self.expected = expected.into();
        self
    }

    pub(super) fn suggest(mut self, suggestion: Option<impl Into<String>>) -> Self {
        self.suggestion = suggestion.map(Into::into);
        self
    }

    /// Returns the problem description without its path and suggestion: "expected a list, found `5`".
    pub fn message(&self) -> String {
        let Self { found, expected, .. } = self;
        match (self.is_mismatch, expected.is_empty()) {
            (_, true) => found.clone(),
            (true, false) => format!("expected {expected}, found {found}"),
            (false, false) => format!("{found}, expected {expected}"),
        }
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{}{}", self.message(), did_you_mean(self.suggestion.as_deref()))
    }
}

/// Formats a suggestion as a message suffix. Empty without one.
pub(super) fn did_you_mean(suggestion: Option<&str>) -> String {
    suggest::did_you_mean_one_of(suggestion.as_slice()).map(|question| format!(" ({question})")).unwrap_or_default()
}

/// Formats a value on one line: shortened, and with likely secrets redacted, since errors end up in logs.
pub(super) fn in_backticks(value: &str) -> String {
    let words: Vec<String> = value.split_whitespace().chain([value]).map(str::to_owned).collect();
    let value = &*Redactor::new(&in_arguments(&words)).redact(value);
    let shown: String = value.chars().take(MAX_SHOWN).flat_map(char::escape_debug).collect();
    let shown = shown.replace("\\\"", "\"").replace("\\'", "'");
    let more = if value.chars().nth(MAX_SHOWN).is_some() { "…" } else { "" };
    format!("`{shown}{more}`")
}

/// Returns the most similar candidate, if one is similar enough.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    suggest::closest(word, candidates).into_iter().next()
}

/// Returns the key that is meant by an unknown one: a similar one, or `alias` for its synonyms in manifests.
pub(super) fn nearest_key<'a>(key: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let alias = known.clone().into_iter().find(|known| *known == "alias");
    alias.filter(|_| ALIAS_SYNONYMS.contains(&key)).or_else(|| nearest(key, known))
}

/// Formats choices: "one of `a`, `b`".
pub(super) fn one_of<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.as_slice() {
        [] => "nothing".to_owned(),
        [word] => word.clone(),
        words => format!("one of {}", words.join(", ")),
    }
}
