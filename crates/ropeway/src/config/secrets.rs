//! Where the values of `${NAME}` come from.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::callback::{Asker, Callback, CallbackError};
use super::node::Place;
use super::problem::{ConfigError, ConfigProblem};
use super::{decode, file, yaml};
use crate::config::raw::{Pairs, Text};
use crate::secret::Secret;

/// Variables that everybody has, and that hide nothing.
const ORDINARY: [&str; 14] = [
    "HOME", "USER", "LOGNAME", "PATH", "PWD", "OLDPWD", "LANG", "SHELL", "TERM", "TMPDIR", "TEMP", "TMP", "HOSTNAME",
    "EDITOR",
];

/// The longest value in quotes: one that never ends is not looked for for ever.
const LONGEST: usize = 64 << 10;

/// The sources of `${NAME}`.
///
/// The first source that has a value wins: values from code ([`with`](Self::with)), the callback ([`from_fn`](Self::from_fn)), the
/// environment, `.env` beside the file, files with secrets. Values of every source are redacted alike.
#[derive(Clone, Default)]
pub struct Secrets {
    code: BTreeMap<String, Secret>,
    callback: Option<Callback>,
    environment: BTreeMap<String, String>,
    files: Vec<PathBuf>,
    unread: bool,
}

impl Secrets {
    /// The environment of this process.
    pub fn from_env() -> Self {
        let text = |text: std::ffi::OsString| text.into_string().ok();
        Self::from_map(std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))))
    }

    /// A callback that returns secrets by name, before the environment of this process.
    ///
    /// The callback is asked while a configuration is read ([`Config::load`](super::Config::load),
    /// [`Bridge::watch`](crate::bridge::Bridge::watch)), once for each name that the configuration refers to and that
    /// [`with`](Self::with) does not set. `None` leaves the name to the other sources.
    ///
    /// The callback runs on a thread of its own, while the reader of the configuration waits: in asynchronous code, read a configuration
    /// whose callback blocks with `spawn_blocking`, as [`Bridge::watch`](crate::bridge::Bridge::watch) does on a thread of its own. A panic, or more than thirty seconds for all names of a
    /// configuration, makes reading it fail with an error that names the variable. A bridge that follows a file then keeps its
    /// configuration. A callback that never returns keeps its thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::path::Path;
    ///
    /// use ropeway::config::{Config, Secrets};
    ///
    /// let secrets = Secrets::from_fn(|name| (name == "TOKEN").then_some("from the vault"));
    /// let text = "servers: [{alias: web, url: 'https://example.com/mcp', auth: {bearer: '${TOKEN}'}}]";
    /// let config = Config::parse(text, Path::new("ropeway.yaml"), &secrets)?;
    /// assert!(config.warnings.is_empty());
    /// # Ok::<(), ropeway::config::ConfigError>(())
    /// ```
    pub fn from_fn<S: Into<Secret>>(callback: impl Fn(&str) -> Option<S> + Send + Sync + 'static) -> Self {
        Self::from_env().with_fn(callback)
    }

    /// Asks a callback before the environment and the files, as [`from_fn`](Self::from_fn) does. Replaces an earlier callback.
    #[must_use]
    pub fn with_fn<S: Into<Secret>>(mut self, callback: impl Fn(&str) -> Option<S> + Send + Sync + 'static) -> Self {
        self.callback = Some(Callback::new(move |name| callback(name).map(Into::into)));
        self
    }

    /// No source at all, besides what the file itself names.
    pub fn none() -> Self {
        Self::default()
    }

    /// No source at all, not even the files that the configuration names: no file is read, and each reference without a default
    /// counts as missing. For checking a file that is not trusted.
    pub fn unread() -> Self {
        Self { unread: true, ..Self::default() }
    }

    /// Returns true if a callback may block while a configuration is read.
    pub(crate) fn may_block(&self) -> bool {
        self.callback.is_some()
    }

    /// Returns true if no file may be read.
    pub(super) fn is_unread(&self) -> bool {
        self.unread
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

    /// Adds a secret from code, which wins over every other source.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.code.insert(name.into(), value.into());
        self
    }

    /// Reads the files; `named` is the one that the configuration itself names.
    pub(super) fn open(&self, beside: &Path, named: Option<BTreeMap<String, String>>) -> Result<Sources, ConfigError> {
        let mut sources =
            Sources { environment: self.environment.clone(), code: self.code.clone(), ..Sources::default() };
        if self.unread {
            sources.unread = true;
            return Ok(sources);
        }
        sources.callback = self.callback.as_ref().map(Asker::new);
        let beside = beside.join(".env");
        // Nobody asked for this file: what we do not understand in it may be somebody else's, and so may all of it.
        match read_leniently(&beside) {
            Ok((variables, problems)) => {
                sources.files.push(variables);
                let warning = |problem: ConfigProblem| {
                    format!("`.env` line {} is left out: found {}", problem.line, problem.found)
                };
                sources.warnings.extend(problems.into_iter().map(warning));
            }
            Err(error) if is_absent(&error) || error.kind() == ErrorKind::IsADirectory => {}
            Err(error) => sources.warnings.push(format!("`.env` is left out: {error}")),
        }
        for path in &self.files {
            sources.files.push(read_variables(path).map_err(|error| error.of(path))?);
        }
        sources.files.extend(named);
        Ok(sources)
    }

    /// The files that are looked into for a configuration in this folder, whether they are there or not.
    pub(super) fn files(&self, beside: &Path) -> Vec<PathBuf> {
        std::iter::once(beside.join(".env")).chain(self.files.iter().cloned()).collect()
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
            .field("code", &names(&mut self.code.keys()))
            .field("callback", &self.callback.is_some())
            .field("environment", &names(&mut self.environment.keys()))
            .field("files", &self.files)
            .finish()
    }
}

/// The sources, with their files read.
#[derive(Default)]
pub(super) struct Sources {
    code: BTreeMap<String, Secret>,
    callback: Option<Asker>,
    environment: BTreeMap<String, String>,
    files: Vec<BTreeMap<String, String>>,
    pub(super) warnings: Vec<String>,
    /// No file may be read.
    pub(super) unread: bool,
}

impl Sources {
    /// Returns the value of a name, or why the callback did not tell it.
    pub(super) fn get(&self, name: &str) -> Result<Option<Secret>, CallbackError> {
        if let Some(secret) = self.code.get(name) {
            return Ok(Some(secret.clone()));
        }
        if let Some(callback) = &self.callback
            && let Some(secret) = callback.ask(name)?
        {
            return Ok(Some(secret));
        }
        let written = std::iter::once(&self.environment).chain(&self.files).find_map(|source| source.get(name));
        Ok(written.map(Secret::new))
    }
}

/// Whether the value of a variable is no secret, by its name.
pub(super) fn is_ordinary(name: &str) -> bool {
    ORDINARY.contains(&name) || name.starts_with("XDG_") || name.starts_with("LC_")
}

/// Whether a file could not be read because there is none.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
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
    let is_yaml = path.extension().is_some_and(|extension| matches!(extension.to_str(), Some("yaml" | "yml" | "json")));
    if is_yaml {
        let node = yaml::parse(&file::read(path).map_err(Unread::Io)?).map_err(Unread::Broken)?;
        let pairs: Pairs<Text> = decode::decode_secrets(&node).map_err(Unread::Broken)?;
        Ok(pairs.0.into_iter().map(|(name, value)| (name, value.0)).collect())
    } else {
        let (variables, problems) = read_leniently(path).map_err(Unread::Io)?;
        problems.into_iter().next().map_or(Ok(variables), |problem| Err(Unread::Broken(problem)))
    }
}

/// The variables in the lines of a file, and what is wrong with the other lines.
fn read_leniently(path: &Path) -> io::Result<(BTreeMap<String, String>, Vec<ConfigProblem>)> {
    file::read(path).map(|text| variables(&text))
}

/// Lines of `NAME=value`: with `export` before them, quotes around the value and comments, as shells read them.
pub(super) fn variables(text: &str) -> (BTreeMap<String, String>, Vec<ConfigProblem>) {
    let mut variables = BTreeMap::new();
    let mut problems = Vec::new();
    let mut rest = text;
    let mut number = 1;
    while !rest.is_empty() {
        let place = Place { line: number, column: 1 };
        let end = rest.find('\n').map_or(rest.len(), |end| end + 1);
        let (line, mut following) = rest.split_at(end);
        let setting = line.trim();
        let setting = setting.strip_prefix("export ").unwrap_or(setting).trim_start();
        if !setting.is_empty() && !setting.starts_with('#') {
            match setting.split_once('=') {
                None => problems.push(ConfigProblem::at(place, "", "a line without `=`", "`NAME=value`")),
                Some((name, value)) => {
                    let name = name.trim_end().to_owned();
                    let value = value.trim_start();
                    match value.chars().next() {
                        // A quoted value may go on over several lines.
                        Some(quote @ ('"' | '\'')) => {
                            match unquoted(&rest[rest.find(quote).map_or(0, |at| at + 1)..], quote) {
                                Some((value, after)) => {
                                    variables.insert(name, value);
                                    following = after.split_once('\n').map_or("", |(_, following)| following);
                                }
                                None => {
                                    let expected = format!("a closing {quote}");
                                    problems.push(ConfigProblem::at(place, "", "a quote that never ends", expected));
                                }
                            }
                        }
                        _ => {
                            let value = value.split(" #").next().unwrap_or(value).trim_end();
                            variables.insert(name, value.to_owned());
                        }
                    }
                }
            }
        }
        number += rest[..rest.len() - following.len()].matches('\n').count();
        rest = following;
    }
    (variables, problems)
}

/// The value up to the closing quote, and what follows, if that quote is there.
fn unquoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.chars();
    while let Some(c) = characters.next().filter(|_| value.len() < LONGEST) {
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
