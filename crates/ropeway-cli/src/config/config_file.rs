//! A configuration file: its text, its origin and its meaning.

use std::path::{Path, PathBuf};

use ropeway_config::{Config, ConfigError, Secrets, read_text};

use crate::config::config_paths::Origin;
use crate::failure::Failure;
use crate::trust;

/// A configuration file, read once. The same text is reviewed, accepted and parsed.
#[derive(Clone, Debug)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    pub(crate) origin: Origin,
}

impl ConfigFile {
    pub(crate) fn read(path: &Path, origin: Origin) -> Result<Self, Failure> {
        let text = read_text(path).map_err(|error| Failure::config(&error))?;
        Ok(Self { path: path.to_owned(), text, origin })
    }

    /// Checks that the file may be used. A project file must be trusted; on a terminal, asks the user.
    pub(crate) fn admit(&self, mode: trust::TrustMode) -> Result<(), Failure> {
        match self.origin {
            Origin::Named | Origin::Own => Ok(()),
            Origin::Project => trust::admit(&self.path, &self.text, mode),
        }
    }

    /// Returns `true` if the file can be used without asking.
    pub(crate) fn is_trusted(&self, mode: trust::TrustMode) -> bool {
        let is_known = || trust::TrustStore::open().is_ok_and(|store| store.is_trusted(&self.path, &self.text));
        self.origin != Origin::Project || mode == trust::TrustMode::TrustAll || is_known()
    }

    /// Parses the file with this process's environment.
    pub(crate) fn parse(&self) -> Result<Config, ConfigError> {
        Config::parse(&self.text, &self.path, &Secrets::from_env())
    }

    /// Parses the file without reading other files or variables.
    pub(crate) fn parse_unread(&self) -> Result<Config, ConfigError> {
        Config::parse(&self.text, &self.path, &Secrets::unread())
    }
}
