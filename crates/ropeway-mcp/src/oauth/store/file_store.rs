//! A store in a folder: one file per sign-in.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::StoreError;
use super::files;
use super::format::{self, FormatError, OpenError, TokenFile};
use super::key::SignInKey;
use super::keyring::{Keyring, KeyringMode, no_random_numbers};
use super::lock::{StoreLock, lock_file};
use super::summary::{CredentialsList, CredentialsSummary, Protection};
use super::{MAX_ENTRIES, MAX_FILE_BYTES};
use crate::oauth::credentials::Credentials;
use ropeway_core::private_file::FileStamp;
use ropeway_core::user_folders::state_folder;

/// A file that is written and removed to check the folder.
const PROBE: &str = ".probe";

/// Returns the default folder for this user's sign-ins.
pub(super) fn default_folder() -> Option<PathBuf> {
    Some(state_folder()?.join("tokens"))
}

/// Sign-ins in a folder.
///
/// The [`TokenStore`](super::TokenStore) owns it and its clones share it, but every process of this user may write to the same
/// folder. Each write replaces a whole file with a rename, so a reader sees the old or the new sign-in, and reading takes no
/// lock. Loading, saving and removing do not take the sign-in's [`lock`](Self::lock) either: callers hold it while they load,
/// refresh and save. Locks are taken in this order: the sign-in's lock, the keyring's async mutex, and the lock file
/// `keyring.lock`, which is held only while a key is created.
///
/// Files are read and written on blocking threads, so dropping a future does not interrupt a write that has begun. Dropping the
/// store changes nothing in the folder.
pub(super) struct FileStore {
    pub(super) folder: PathBuf,
    /// The mode, or a setting's invalid text.
    pub(super) mode: Result<KeyringMode, String>,
    pub(super) keyring: Keyring,
}

impl FileStore {
    pub(super) async fn load(&self, key: &SignInKey) -> Result<Option<Credentials>, StoreError> {
        let mode = self.mode()?;
        let path = self.path(key);
        let (folder, file) = (self.folder.clone(), path.clone());
        let content = self.blocking(move || files::read(&folder, &file)).await?;
        let Some(content) = content else { return Ok(None) };
        let file = parse(&path, &content)?;
        let store_key = match file.key_id() {
            Some(id) => Some(self.keyring.key_for_reading(mode, &path, (&key.server, id)).await?),
            None => None,
        };
        match file.credentials(key, store_key.as_ref()) {
            Ok(credentials) => Ok(Some(credentials)),
            Err(OpenError::AnotherKey) => Err(invalid(&path, "it is encrypted with an unknown key")),
            Err(OpenError::Invalid { problem }) => Err(invalid(&path, problem)),
        }
    }

    pub(super) async fn save(&self, key: &SignInKey, credentials: &Credentials) -> Result<(), StoreError> {
        let store_key = self.keyring.key_for_writing(self.mode()?, &self.folder).await?;
        let content = format::write(credentials, store_key.as_ref()).map_err(|_| no_random_numbers())?;
        if content.len() as u64 > MAX_FILE_BYTES {
            return Err(StoreError::TooLarge { server: key.server.clone() });
        }
        let (folder, path) = (self.folder.clone(), self.path(key));
        self.blocking(move || replace(&folder, &path, &content)).await
    }

    pub(super) async fn remove(&self, key: &SignInKey) -> Result<bool, StoreError> {
        let path = self.path(key);
        self.blocking(move || files::remove(&path)).await
    }

    pub(super) async fn remove_all(&self) -> Result<usize, StoreError> {
        let folder = self.folder.clone();
        self.blocking(move || {
            let mut removed = 0;
            for path in files::token_files(&folder)? {
                removed += usize::from(files::remove(&path)?);
            }
            Ok(removed)
        })
        .await
    }

    pub(super) async fn list(&self) -> Result<CredentialsList, StoreError> {
        let folder = self.folder.clone();
        self.blocking(move || list(&folder)).await
    }

    /// Checks that a sign-in can be stored. Returns how it will be protected.
    pub(super) async fn check(&self) -> Result<Protection, StoreError> {
        let mode = self.mode()?;
        let folder = self.folder.clone();
        self.blocking(move || {
            let probe = folder.join(PROBE);
            replace(&folder, &probe, b"")?;
            files::remove(&probe)
        })
        .await?;
        let store_key = self.keyring.key_for_writing(mode, &self.folder).await?;
        Ok(if store_key.is_some() { Protection::Keyring } else { Protection::File })
    }

    pub(super) async fn lock(&self, key: &SignInKey, limit: Duration) -> Result<StoreLock, StoreError> {
        lock_file(&self.folder, &key.file_name(), &key.server, limit).await
    }

    pub(super) fn stamp(&self, key: &SignInKey) -> Option<FileStamp> {
        fs::symlink_metadata(self.path(key)).ok().map(|metadata| FileStamp::from(&metadata))
    }

    fn path(&self, key: &SignInKey) -> PathBuf {
        files::token_file(&self.folder, &key.file_name())
    }

    fn mode(&self) -> Result<KeyringMode, StoreError> {
        self.mode.clone().map_err(|value| StoreError::Setting { value })
    }

    /// Runs file operations, which may take long on a slow disk, outside the asynchronous threads.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let interrupted = |error| StoreError::Read { path: self.folder.clone(), source: std::io::Error::other(error) };
        tokio::task::spawn_blocking(work).await.map_err(interrupted)?
    }
}

/// Replaces a file. Other users lose the access to the default folder, which no other program uses, but not to a folder that the
/// user has chosen.
fn replace(folder: &Path, path: &Path, content: &[u8]) -> Result<(), StoreError> {
    files::replace(folder, path, content)?;
    if default_folder().is_some_and(|default| default == folder)
        && let Err(error) = files::tighten(folder)
    {
        tracing::warn!("other users may be able to list `{}`: {error}", folder.display());
    }
    Ok(())
}

fn list(folder: &Path) -> Result<CredentialsList, StoreError> {
    let paths = files::token_files(folder)?;
    let mut list = CredentialsList { truncated: paths.len() > MAX_ENTRIES, ..CredentialsList::default() };
    for path in paths.into_iter().take(MAX_ENTRIES) {
        match summary(folder, &path) {
            Ok(summary) => list.entries.extend(summary),
            Err(error) => list.unreadable.push(error),
        }
    }
    list.entries.sort_by(|a, b| (&a.server, &a.account).cmp(&(&b.server, &b.account)));
    Ok(list)
}

/// Returns a file's summary; `None` if it was removed in the meantime.
fn summary(folder: &Path, path: &Path) -> Result<Option<CredentialsSummary>, StoreError> {
    let Some(content) = files::read(folder, path)? else { return Ok(None) };
    let file = parse(path, &content)?;
    if files::token_file(folder, &file.key.file_name()) != path {
        return Err(invalid(path, "its name does not match its server"));
    }
    Ok(Some(file.summary()))
}

fn parse(path: &Path, content: &[u8]) -> Result<TokenFile, StoreError> {
    TokenFile::parse(content).map_err(|error| match error {
        FormatError::Newer { version } => StoreError::Newer { path: path.to_owned(), version },
        FormatError::Invalid { problem } => StoreError::Invalid { path: path.to_owned(), problem },
    })
}

fn invalid(path: &Path, problem: &str) -> StoreError {
    StoreError::Invalid { path: path.to_owned(), problem: problem.to_owned() }
}
