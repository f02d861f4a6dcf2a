//! What is wrong with a configuration file: where, what was found, what was expected.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::node::Place;
use crate::secret::{Redactor, in_arguments};

/// How much of a value is shown.
const SHOWN: usize = 60;

/// Maximum problems of one error.
pub(super) const MAX_PROBLEMS: usize = 100;

/// How alike two words must be for one to be meant by the other.
const ALIKE: f64 = 0.75;

/// A configuration file that cannot be used. Its text names every problem on a line of its own, up to 100 of them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it, in the order of the file; empty when it could not be read at all.
    pub problems: Vec<ConfigProblem>,
    /// The file has more problems than these: reading stopped at the limit of 100.
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

/// One thing that is wrong with a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigProblem {
    /// The line, from one; zero when the file as a whole is meant.
    pub line: usize,
    /// The column, from one.
    pub column: usize,
    /// The way to the value: `servers[2].transport`; may be empty.
    pub path: String,
    /// What is there.
    pub found: String,
    /// What should be there; empty when the suggestion says it, or the file's format itself is broken.
    pub expected: String,
    /// The right word that is nearest to what was found.
    pub suggestion: Option<String>,
}

impl ConfigProblem {
    pub(super) fn at(
        place: Place,
        path: impl Into<String>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        let (path, found, expected) = (path.into(), found.into(), expected.into());
        Self { line: place.line, column: place.column, path, found, expected, suggestion: None }
    }

    /// A problem of the file as a whole.
    pub(super) fn of_file(found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::at(Place::default(), "", found, expected)
    }

    pub(super) fn suggest(mut self, suggestion: Option<impl Into<String>>) -> Self {
        self.suggestion = suggestion.map(Into::into);
        self
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "found {}", self.found)?;
        if !self.expected.is_empty() {
            write!(f, ", expected {}", self.expected)?;
        }
        match &self.suggestion {
            Some(suggestion) => write!(f, " (did you mean `{suggestion}`?)"),
            None => Ok(()),
        }
    }
}

/// A value as it is shown: on one line, not too long, without what looks like a secret. Errors go into logs.
pub(super) fn in_backticks(value: &str) -> String {
    let words: Vec<String> = value.split_whitespace().chain([value]).map(str::to_owned).collect();
    let value = &*Redactor::new(&in_arguments(&words)).hide(value);
    let shown: String = value.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    let shown = shown.replace("\\\"", "\"").replace("\\'", "'");
    let more = if value.chars().nth(SHOWN).is_some() { "…" } else { "" };
    format!("`{shown}{more}`")
}

/// The word that was probably meant.
pub(super) fn nearest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |word: &str| {
        let letters = word.chars().filter(|c| !matches!(c, '_' | '-' | ' '));
        letters.flat_map(char::to_lowercase).take(SHOWN).collect::<String>()
    };
    let wanted = plain(word);
    let likeness = |candidate: &&str| strsim::jaro_winkler(&wanted, &plain(candidate));
    let nearest =
        words.into_iter().map(|candidate| (likeness(&candidate), candidate)).fold(None, |best, next| match best {
            Some((likeness, _)) if likeness >= next.0 => best,
            _ => Some(next),
        });
    nearest.filter(|(likeness, _)| *likeness >= ALIKE).map(|(_, candidate)| candidate)
}

/// The choices, in words.
pub(super) fn one_of<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.as_slice() {
        [] => "nothing".to_owned(),
        [word] => word.clone(),
        words => format!("one of {}", words.join(", ")),
    }
}
