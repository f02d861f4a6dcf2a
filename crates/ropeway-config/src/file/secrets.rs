//! The sources that provide values for `${NAME}` references.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::callback::{CallbackError, CallbackRunner, SecretCallback};
use super::problem::{ConfigError, ConfigProblem};
use super::regular_file;
use super::variables::{Dotenv, is_not_found, read_dotenv, read_variables};
use ropeway_core::secret::Secret;

/// The sources that provide values for `${NAME}` references.
///
/// The first source with a value wins, in this order: values from code ([`with`](Self::with)), the callback
/// ([`from_fn`](Self::from_fn)), the environment, the file whose path is in the variable `NAME_FILE`, the `.env` file next to the
/// configuration file, and files with secrets. Values from all sources are redacted in logs, events and errors.
#[derive(Clone, Default)]
pub struct Secrets {
    code: BTreeMap<String, Secret>,
    callback: Option<SecretCallback>,
    environment: BTreeMap<String, String>,
    files: Vec<PathBuf>,
    unread: bool,
}

impl Secrets {
    /// Creates sources with this process's environment.
    pub fn from_env() -> Self {
        let text = |text: std::ffi::OsString| text.into_string().ok();
        Self::from_map(std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))))
    }

    /// Creates sources with a callback that returns secrets by name, and this process's environment.
    ///
    /// The callback is called while a configuration is read ([`Config::load`](crate::Config::load),
    /// `Bridge::watch`), once for each name that the configuration refers to and that
    /// [`with`](Self::with) does not set. If it returns `None`, the other sources are used.
    ///
    /// The callback runs on its own thread while the thread that reads the configuration blocks. In asynchronous code, read the
    /// configuration in `spawn_blocking`; `Bridge::watch` does so. If the callback panics, or takes more than 30 seconds for all
    /// names, reading fails with an error that names the variable, and a bridge that watches the file keeps its configuration. A
    /// callback that never returns leaks its thread.
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
    #[doc(alias = "get_secret")]
    pub fn from_fn<S: Into<Secret>>(callback: impl Fn(&str) -> Option<S> + Send + Sync + 'static) -> Self {
        Self::from_env().with_fn(callback)
    }

    /// Sets the callback, as [`from_fn`](Self::from_fn) does. Replaces an earlier one.
    #[must_use]
    pub fn with_fn<S: Into<Secret>>(mut self, callback: impl Fn(&str) -> Option<S> + Send + Sync + 'static) -> Self {
        self.callback = Some(SecretCallback::new(move |name| callback(name).map(Into::into)));
        self
    }

    /// Creates empty sources. Only `.env` and the files that the configuration names are read.
    pub fn none() -> Self {
        Self::default()
    }

    /// Creates empty sources that read no files, for validating an untrusted file. Every reference without a default counts as
    /// missing.
    pub fn unread() -> Self {
        Self { unread: true, ..Self::default() }
    }

    /// Returns `true` if a callback may block while a configuration is read.
    pub fn may_block(&self) -> bool {
        self.callback.is_some()
    }

    /// Returns `true` if no file may be read.
    pub(super) fn is_unread(&self) -> bool {
        self.unread
    }

    /// Creates sources with these variables as the environment.
    pub fn from_map<N: Into<String>, V: Into<String>>(environment: impl IntoIterator<Item = (N, V)>) -> Self {
        let environment = environment.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self { environment, ..Self::default() }
    }

    /// Adds a file with secrets: `NAME=value` lines, or a YAML map. It is read together with a configuration.
    #[must_use]
    pub fn with_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.files.push(path.into());
        self
    }

    /// Adds a secret, which takes precedence over all other sources.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.code.insert(name.into(), value.into());
        self
    }

    /// Reads the files. `named` holds the variables from the configuration's own `secrets_file`.
    pub(super) fn open(
        &self,
        folder: &Path,
        named: Option<BTreeMap<String, String>>,
    ) -> Result<SecretSources, ConfigError> {
        let mut sources = SecretSources {
            environment: self.environment.clone(),
            code: self.code.clone(),
            ..SecretSources::default()
        };
        if self.unread {
            sources.unread = true;
            return Ok(sources);
        }
        sources.callback = self.callback.as_ref().map(CallbackRunner::new);
        // The file may belong to another program, so its problems are only warnings.
        match read_dotenv(&folder.join(".env")) {
            Ok(Dotenv { variables, problems, .. }) => {
                sources.files.push(variables);
                let warning = |problem: ConfigProblem| format!("ignored line {} of `.env`: {problem}", problem.line);
                sources.warnings.extend(problems.into_iter().map(warning));
            }
            Err(error) if is_not_found(&error) || error.kind() == ErrorKind::IsADirectory => {}
            Err(error) => sources.warnings.push(format!("ignored `.env`: {error}")),
        }
        for path in &self.files {
            sources.files.push(read_variables(path).map_err(|error| error.into_config_error(path))?);
        }
        sources.files.extend(named);
        Ok(sources)
    }

    /// Returns all paths that are read for a configuration in this directory, whether or not they exist.
    pub(super) fn files(&self, folder: &Path) -> Vec<PathBuf> {
        std::iter::once(folder.join(".env")).chain(self.files.iter().cloned()).collect()
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

/// Error from a source.
#[derive(Debug, thiserror::Error)]
pub(super) enum SecretError {
    #[error(transparent)]
    Callback(#[from] CallbackError),
    #[error("could not read the file of `{name}`: {source}")]
    File { name: String, source: std::io::Error },
}

/// The sources with their files' contents.
#[derive(Default)]
pub(super) struct SecretSources {
    code: BTreeMap<String, Secret>,
    callback: Option<CallbackRunner>,
    environment: BTreeMap<String, String>,
    files: Vec<BTreeMap<String, String>>,
    pub(super) warnings: Vec<String>,
    /// No file may be read.
    pub(super) unread: bool,
}

impl SecretSources {
    /// Returns a name's value from the first source that has it.
    pub(super) fn get(&self, name: &str) -> Result<Option<Secret>, SecretError> {
        if let Some(secret) = self.code.get(name) {
            return Ok(Some(secret.clone()));
        }
        if let Some(callback) = &self.callback
            && let Some(secret) = callback.get(name)?
        {
            return Ok(Some(secret));
        }
        if let Some(value) = self.environment.get(name) {
            return Ok(Some(Secret::new(value)));
        }
        let file = format!("{name}_FILE");
        if let Some(path) = self.environment.get(&file).filter(|path| !self.unread && !path.is_empty()) {
            let text =
                regular_file::read(Path::new(path)).map_err(|source| SecretError::File { name: file, source })?;
            return Ok(Some(Secret::new(text.trim_end_matches(['\r', '\n']))));
        }
        Ok(self.files.iter().find_map(|source| source.get(name)).map(Secret::new))
    }
}
