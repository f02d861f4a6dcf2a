//! Loads configuration files.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::document::Document;
use super::format::{max_bytes, too_large};
use super::glob::GlobChecker;
use super::position::LineIndex;
use super::problem::{ConfigError, ConfigProblem};
use super::reference::workspace;
use super::resolve::{ResolveContext, expand_path};
use super::resolve_document::resolve_document;
use super::secrets::Secrets;
use crate::settings::Config;

impl Config {
    /// Loads a `ropeway.yaml`, a manifest, or another client's file.
    ///
    /// Resolves all `${NAME}` and `${file:…}` references in the file, and reads the `.env` next to it. The caller decides whether
    /// the file is trusted: a `Bridge` runs its commands and sends the values to its URLs. To show an untrusted file to a user
    /// first, read it with [`read_text`], show its [`review`](super::review()), and [`parse`](Self::parse) the same text.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or is invalid. The error contains all problems in the file, up to a limit.
    pub fn load(path: &Path, secrets: &Secrets) -> Result<Self, ConfigError> {
        Self::parse(&read_text(path)?, path, secrets)
    }

    /// Parses text as the file `origin`, which does not have to exist.
    ///
    /// Like [`load`](Self::load), this reads the files that the text refers to, except with [`Secrets::unread`].
    ///
    /// # Errors
    ///
    /// Fails if the text is invalid. The error contains all problems in the text, up to a limit.
    pub fn parse(text: &str, origin: &Path, secrets: &Secrets) -> Result<Self, ConfigError> {
        let mut document = Document::parse(text, origin)?;
        let folder = origin.parent().unwrap_or(Path::new(""));
        let home = secrets.home();
        let mut files = secrets.files(folder);
        files.extend(document.secrets_file.as_ref().map(|(path, _)| expand_path(path, folder, home.as_deref())));
        let named = if secrets.is_unread() { None } else { document.open_secrets_file(folder, home.as_deref()) };
        let sources = secrets.open(folder, named)?;
        document.warnings.extend(sources.warnings.iter().cloned());
        let workspace = workspace(origin);
        let is_foreign = document.is_foreign;
        let globs = GlobChecker::default();
        // Other clients start the servers from a file such as `.vscode/mcp.json` in the project.
        let base_dir = existing_dir(if is_foreign { workspace } else { folder });
        let context = ResolveContext { sources: &sources, folder, base_dir, workspace, home, is_foreign, globs };
        let mut config = resolve_document(document, origin, &context)?;
        files.append(&mut config.files);
        Ok(Self { files, ..config })
    }
}

/// Returns a directory's absolute path, if it exists.
fn existing_dir(folder: &Path) -> Option<PathBuf> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    std::path::absolute(folder).ok().filter(|folder| folder.is_dir())
}

/// Reads a configuration file's text.
///
/// # Errors
///
/// Fails if the file cannot be read, is not UTF-8, or is larger than 4 MiB (64 MiB for JSON).
pub fn read_text(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |error| ConfigError::unreadable(path, error);
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let max_bytes = max_bytes(path);
    let mut bytes = Vec::new();
    file.take(max_bytes as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > max_bytes {
        let size = std::fs::metadata(path).map_or(bytes.len() as u64, |metadata| metadata.len());
        return Err(ConfigError::new(path, vec![too_large(size, max_bytes)]));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned();
        let position = LineIndex::new(&text).position(text.len());
        ConfigError::new(path, vec![ConfigProblem::new(position, "", "file is not valid UTF-8")])
    })
}
