//! A store's key in the operating system's keyring: whether to use one, finding it, and creating it.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::error::{KeyringError, StoreError};
use super::files;
use super::format::TokenFile;
use super::keyring_tool::KeyringTool;
use super::lock::lock_file;
use super::seal::{StoreKey, fingerprint, new_key};
use ropeway_core::secret::Secret;

/// The variable that sets the mode.
pub(super) const VARIABLE: &str = "ROPEWAY_KEYRING";

/// Time limit for one access to the keyring, in which the user may have to unlock it.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Time during which callers that waited for a failed access get the same error.
const FAILURE_LIFETIME: Duration = Duration::from_secs(3);

/// Name of the lock that is held while a key is created.
const LOCK_NAME: &str = "keyring";

/// Whether tokens are encrypted with a key in the operating system's keyring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyringMode {
    /// Never. Tokens are in files that only the user can read.
    Off,
    /// If this machine and session have a keyring.
    #[default]
    Auto,
    /// Always. Tokens are not stored without a keyring.
    Required,
}

impl FromStr for KeyringMode {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        match text {
            "off" => Ok(Self::Off),
            "auto" | "" => Ok(Self::Auto),
            "required" => Ok(Self::Required),
            _ => Err(StoreError::Setting { value: text.chars().take(40).collect() }),
        }
    }
}

/// The keyring as a store uses it.
pub(super) struct Keyring {
    /// `None` uses the operating system's program.
    tool: Option<KeyringTool>,
    limit: Duration,
    /// Locked during an access, so that the user is prompted to unlock the keyring only once.
    state: Mutex<KeyState>,
}

#[derive(Default)]
enum KeyState {
    #[default]
    Unknown,
    Ready(StoreKey),
    Failed(KeyringError, Instant),
}

impl Keyring {
    pub(super) fn new(limit: Duration) -> Self {
        Self { tool: None, limit, state: Mutex::default() }
    }

    #[cfg(test)]
    pub(super) fn with_tool(tool: KeyringTool) -> Self {
        Self { tool: Some(tool), limit: DEFAULT_TIMEOUT, state: Mutex::default() }
    }

    /// Returns the key that new files are encrypted with; `None` if they are not encrypted.
    pub(super) async fn key_for_writing(
        &self,
        mode: KeyringMode,
        folder: &Path,
    ) -> Result<Option<StoreKey>, StoreError> {
        if mode == KeyringMode::Off {
            return Ok(None);
        }
        match self.obtain(folder).await {
            Ok(key) => Ok(Some(key)),
            Err(StoreError::Keyring(KeyringError::Unavailable { problem })) if mode == KeyringMode::Auto => {
                tracing::debug!("tokens are stored without a keyring: {problem}");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the key with this id, which decrypts the file at `path`.
    pub(super) async fn key_for_reading(
        &self,
        mode: KeyringMode,
        path: &Path,
        (server, id): (&str, &str),
    ) -> Result<StoreKey, StoreError> {
        if mode == KeyringMode::Off {
            return Err(KeyringError::Disabled { path: path.to_owned() }.into());
        }
        let mut state = self.state.lock().await;
        if let Some(key) = state.ready()?.filter(|key| key.id() == id) {
            return Ok(key);
        }
        // Another process may have created a new key since the last access.
        let name = entry_name(path.parent().unwrap_or(Path::new("/")))?;
        match self.lookup(&mut state, &name).await? {
            Some(key) if key.id() == id => Ok(key),
            _ => Err(KeyringError::MissingKey { server: server.to_owned() }.into()),
        }
    }

    /// Returns the store's key, and creates it if the store has none.
    async fn obtain(&self, folder: &Path) -> Result<StoreKey, StoreError> {
        let mut state = self.state.lock().await;
        if let Some(key) = state.ready()? {
            return Ok(key);
        }
        // A folder's path can only be resolved if the folder exists.
        files::prepare(folder)?;
        let name = entry_name(folder)?;
        if let Some(key) = self.lookup(&mut state, &name).await? {
            return Ok(key);
        }
        let _lock = lock_file(folder, LOCK_NAME, "the keyring", self.limit * 3).await?;
        if let Some(key) = self.lookup(&mut state, &name).await? {
            return Ok(key);
        }
        // A locked keyring can look like an empty one. A new key would replace the one that these files need.
        if let Some(server) = encrypted_sign_in(folder)? {
            return Err(KeyringError::MissingKey { server }.into());
        }
        self.make(&mut state, &name).await
    }

    async fn make(&self, state: &mut KeyState, name: &str) -> Result<StoreKey, StoreError> {
        let text = new_key().map(Secret::new).map_err(|_| no_random_numbers())?;
        let stored = match self.tool() {
            Ok(tool) => tool.store(name, &text).await,
            Err(error) => Err(error),
        };
        stored.map_err(|error| state.fail(error))?;
        let key = StoreKey::parse(text.expose()).ok_or_else(no_random_numbers)?;
        match self.lookup(state, name).await? {
            Some(found) if found.id() == key.id() => Ok(found),
            _ => {
                *state = KeyState::Unknown;
                Err(state.fail(failed("the key was not stored")))
            }
        }
    }

    async fn lookup(&self, state: &mut KeyState, name: &str) -> Result<Option<StoreKey>, StoreError> {
        let found = match self.tool() {
            Ok(tool) => tool.lookup(name).await,
            Err(error) => Err(error),
        };
        let Some(text) = found.map_err(|error| state.fail(error))? else { return Ok(None) };
        let key = StoreKey::parse(text.expose())
            .ok_or_else(|| state.fail(failed("the entry `ropeway` of the keyring is not a key; delete it")))?;
        *state = KeyState::Ready(key.clone());
        Ok(Some(key))
    }

    fn tool(&self) -> Result<KeyringTool, KeyringError> {
        self.tool.clone().map_or_else(|| KeyringTool::find(self.limit), Ok)
    }
}

impl KeyState {
    /// Returns the cached key, or the error if the last access has just failed.
    fn ready(&self) -> Result<Option<StoreKey>, StoreError> {
        match self {
            Self::Unknown => Ok(None),
            Self::Ready(key) => Ok(Some(key.clone())),
            Self::Failed(error, at) if at.elapsed() < FAILURE_LIFETIME => Err(error.clone().into()),
            Self::Failed(..) => Ok(None),
        }
    }

    /// Caches an error, unless a key is cached.
    fn fail(&mut self, error: KeyringError) -> StoreError {
        if !matches!(self, Self::Ready(_)) {
            *self = Self::Failed(error.clone(), Instant::now());
        }
        error.into()
    }
}

fn failed(problem: &str) -> KeyringError {
    KeyringError::Failed { program: "keyring", problem: problem.to_owned() }
}

pub(super) fn no_random_numbers() -> StoreError {
    StoreError::Write {
        path: PathBuf::from("/dev/urandom"),
        source: std::io::Error::other("the system's random number generator failed"),
    }
}

/// Returns the name of a folder's key. Each folder has its own key, so that a lock in the folder protects it.
fn entry_name(folder: &Path) -> Result<String, StoreError> {
    let path = std::fs::canonicalize(folder);
    let path = path.map_err(|source| StoreError::Read { path: folder.to_owned(), source })?;
    Ok(fingerprint(&[&path.to_string_lossy()]))
}

/// Returns one encrypted file's server, if the folder has such a file.
fn encrypted_sign_in(folder: &Path) -> Result<Option<String>, StoreError> {
    for path in files::token_files(folder)? {
        let content = files::read(folder, &path).ok().flatten();
        let file = content.and_then(|content| TokenFile::parse(&content).ok());
        if let Some(file) = file.filter(|file| file.key_id().is_some()) {
            return Ok(Some(file.key.server));
        }
    }
    Ok(None)
}
