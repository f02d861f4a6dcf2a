//! Where the values of `${NAME}` come from.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::node::Place;
use super::problem::{ConfigError, ConfigProblem};
use super::{decode, yaml};
use crate::config::raw::{Pairs, Text};
use crate::secret::Secret;

/// Variables that everybody has, and that hide nothing.
const ORDINARY: [&str; 14] = [
    "HOME", "USER", "LOGNAME", "PATH", "PWD", "OLDPWD", "LANG", "SHELL", "TERM", "TMPDIR", "TEMP", "TMP", "HOSTNAME",
    "EDITOR",
];

/// The sources of `${NAME}`, in this order: the environment, `.env` beside the file, files with secrets, code.
#[derive(Clone, Default)]
pub struct Secrets {
    environment: BTreeMap<String, String>,
    files: Vec<PathBuf>,
    code: BTreeMap<String, Secret>,
}

impl Secrets {
    /// The environment of this process.
    pub fn from_env() -> Self {
        let text = |text: std::ffi::OsString| text.into_string().ok();
        Self::from_map(std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))))
    }

    /// No source at all, besides what the file itself names.
    pub fn none() -> Self {
        Self::default()
    }

    /// These variables as the environment.
    pub fn from_map<N: Into<String>, V: Into<String>>(environment: impl IntoIterator<Item = (N, V)>) -> Self {
        let environment = environment.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self { environment, ..Self::default() }
    }

    /// Adds a file with secrets: lines of `NAME=value`, or a YAML map. It is read when a configuration is.
    #[must_use]
    pub fn with_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.files.push(path.into());
        self
    }

    /// Adds a secret from code; every other source goes before it.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.code.insert(name.into(), value.into());
        self
    }

    /// The files that are looked into for a configuration in this folder, whether they are there or not.
    pub(super) fn files(&self, beside: &Path, named: Option<&Path>) -> Vec<PathBuf> {
        let named = named.map(Path::to_owned);
        std::iter::once(beside.join(".env")).chain(self.files.iter().cloned()).chain(named).collect()
    }

    /// Reads the files.
    pub(super) fn open(&self, beside: &Path, named: Option<PathBuf>) -> Result<Sources, ConfigError> {
        let mut files = Vec::new();
        match read_variables(&beside.join(".env")) {
            Err(Unread::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            result => files.extend(result.map(Some).map_err(|error| error.of(&beside.join(".env")))?),
        }
        for path in self.files.iter().cloned().chain(named) {
            files.push(read_variables(&path).map_err(|error| error.of(&path))?);
        }
        Ok(Sources { environment: self.environment.clone(), files, code: self.code.clone() })
    }

    pub(super) fn home(&self) -> Option<PathBuf> {
        let home = self.environment.get("HOME").or_else(|| self.environment.get("USERPROFILE"));
        home.filter(|home| !home.is_empty()).map(PathBuf::from)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |names: &mut dyn Iterator<Item = &String>| names.cloned().collect::<Vec<_>>();
        f.debug_struct("Secrets")
            .field("environment", &names(&mut self.environment.keys()))
            .field("files", &self.files)
            .field("code", &names(&mut self.code.keys()))
            .finish()
    }
}

/// The sources, with their files read.
pub(super) struct Sources {
    environment: BTreeMap<String, String>,
    files: Vec<BTreeMap<String, String>>,
    code: BTreeMap<String, Secret>,
}

impl Sources {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let written = std::iter::once(&self.environment).chain(&self.files).find_map(|source| source.get(name));
        written.map(String::as_str).or_else(|| self.code.get(name).map(Secret::expose))
    }
}

/// Whether the value of a variable is no secret, by its name.
pub(super) fn is_ordinary(name: &str) -> bool {
    ORDINARY.contains(&name) || name.starts_with("XDG_") || name.starts_with("LC_")
}

/// Why a file with variables could not be read.
pub(super) enum Unread {
    Io(io::Error),
    Broken(ConfigProblem),
}

impl Unread {
    fn of(self, path: &Path) -> ConfigError {
        match self {
            Self::Io(error) => ConfigError::unreadable(path, error),
            Self::Broken(problem) => ConfigError::new(path, vec![problem]),
        }
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Self::Io(error) => error.to_string(),
            Self::Broken(problem) => format!("line {}: {problem}", problem.line),
        }
    }
}

/// The variables in a file: a YAML map by its name's end, else lines of `NAME=value`.
pub(super) fn read_variables(path: &Path) -> Result<BTreeMap<String, String>, Unread> {
    let text = std::fs::read_to_string(path).map_err(Unread::Io)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let is_yaml = path.extension().is_some_and(|extension| matches!(extension.to_str(), Some("yaml" | "yml" | "json")));
    if is_yaml {
        let node = yaml::parse(text).map_err(Unread::Broken)?;
        let pairs: Pairs<Text> = decode::decode(&node, "").map_err(Unread::Broken)?;
        Ok(pairs.0.into_iter().map(|(name, value)| (name, value.0)).collect())
    } else {
        variables(text).map_err(Unread::Broken)
    }
}

/// Lines of `NAME=value`: with `export` before them, quotes around the value and comments, as shells read them.
pub(super) fn variables(text: &str) -> Result<BTreeMap<String, String>, ConfigProblem> {
    let mut variables = BTreeMap::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let place = Place { line: index + 1, column: 1 };
        let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
        let Some((name, value)) = line.split_once('=') else {
            return Err(ConfigProblem::at(place, "", "a line without `=`", "`NAME=value`"));
        };
        let value = value.trim_start();
        let value = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                let mut quoted = value[1..].to_owned();
                // A quoted value may go on over several lines.
                loop {
                    if let Some(value) = unquoted(&quoted, quote) {
                        break value;
                    }
                    let Some((_, more)) = lines.next() else {
                        return Err(ConfigProblem::at(
                            place,
                            "",
                            "a quote that never ends",
                            format!("a closing {quote}"),
                        ));
                    };
                    quoted.push('\n');
                    quoted.push_str(more);
                }
            }
            _ => value.split(" #").next().unwrap_or(value).trim_end().to_owned(),
        };
        variables.insert(name.trim_end().to_owned(), value);
    }
    Ok(variables)
}

/// The value up to the closing quote, if that is there.
fn unquoted(text: &str, quote: char) -> Option<String> {
    let mut value = String::new();
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            c if c == quote => return Some(value),
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
