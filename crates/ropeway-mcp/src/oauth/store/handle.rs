//! The handle to a token store.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::MAX_ENTRIES;
use super::error::StoreError;
use super::export;
use super::file_store::{FileStore, default_folder};
use super::key::SignInKey;
use super::keyring::{self, Keyring, KeyringMode};
use super::lock::StoreLock;
use super::memory::MemoryStore;
use super::summary::{CredentialsList, Protection, StoredSummary};
use crate::oauth::credentials::Credentials;
use ropeway_core::private_file::FileStamp;
use ropeway_core::secret::Secret;

/// The variable that sets the default folder.
const FOLDER_VARIABLE: &str = "ROPEWAY_TOKENS_DIR";

/// Stores sign-ins ([`Credentials`]), for this and other processes.
///
/// Every sign-in is a file with mode 0600 in a folder with mode 0700, and is replaced atomically. If the operating system has a
/// keyring, the tokens are encrypted with a key in it, unless the variable `ROPEWAY_KEYRING` is `off`. Files that other users can
/// read, that belong to another user, or that are symbolic links are refused, as is a folder in which other users can replace
/// files. A default folder that other users can list gets mode 0700 when tokens are saved.
///
/// Cloning is cheap; clones share the key and the entries in memory. The methods take any spelling of a server's URL: the case of
/// the host, a default port, user information and a fragment do not matter.
///
/// # Examples
///
/// Signs out of a server, if `ropeway login` or this program signed in to it before:
///
/// ```no_run
/// use ropeway::config::OAuthSettings;
/// use ropeway::oauth::TokenStore;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let store = TokenStore::default_location()?;
/// if let Some(credentials) = store.load("https://example.com/mcp", None).await? {
///     store.remove("https://example.com/mcp", None).await?;
///     credentials.revoke(&OAuthSettings::new()).await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct TokenStore {
    backend: Arc<Backend>,
}

enum Backend {
    Files(FileStore),
    Memory(MemoryStore),
}

/// Identifies a stored sign-in's version. See [`TokenStore::stamp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreStamp(Stamp);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stamp {
    File(Option<FileStamp>),
    Memory(u64),
}

/// An import's outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportReport {
    /// Number of sign-ins that the import stored.
    pub imported: usize,
    /// Number of existing sign-ins that were kept because they are newer.
    pub kept: usize,
}

impl TokenStore {
    /// Time to wait for another process in [`lock`](Self::lock).
    pub const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

    /// Opens the store in a folder, which is created when tokens are saved.
    ///
    /// The variable `ROPEWAY_KEYRING` sets whether tokens are encrypted with a key in the keyring: `off`, `auto` (the default, if
    /// there is a keyring) or `required`. An invalid value is reported by the first operation.
    pub fn open(folder: impl Into<PathBuf>) -> Self {
        let setting = std::env::var_os(keyring::VARIABLE).unwrap_or_default();
        let mode = setting.to_string_lossy().parse().map_err(|_| setting.to_string_lossy().chars().take(40).collect());
        Self::files(folder.into(), mode, Keyring::new(keyring::DEFAULT_TIMEOUT))
    }

    /// Opens this user's store: in the folder `ROPEWAY_TOKENS_DIR`, else `ropeway/tokens` in `XDG_STATE_HOME` or
    /// `~/.local/state`.
    ///
    /// # Errors
    ///
    /// Fails if the variables do not name an absolute path.
    pub fn default_location() -> Result<Self, StoreError> {
        let named = std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from);
        let folder = named.or_else(default_folder);
        let folder = folder.filter(|folder| folder.is_absolute());
        folder.map(Self::open).ok_or(StoreError::NoFolder)
    }

    /// Creates an empty store in memory.
    pub fn in_memory() -> Self {
        Self { backend: Arc::new(Backend::Memory(MemoryStore::default())) }
    }

    /// Sets whether tokens are encrypted with a key in the keyring, regardless of `ROPEWAY_KEYRING`.
    #[must_use]
    pub fn with_keyring(self, mode: KeyringMode) -> Self {
        self.with_keyring_timeout(mode, keyring::DEFAULT_TIMEOUT)
    }

    /// Sets the keyring mode, and the time limit for one access to it. The user may have to unlock the keyring in that time.
    #[must_use]
    pub fn with_keyring_timeout(self, mode: KeyringMode, limit: Duration) -> Self {
        match &*self.backend {
            Backend::Files(store) => Self::files(store.folder.clone(), Ok(mode), Keyring::new(limit)),
            Backend::Memory(_) => self,
        }
    }

    pub(super) fn files(folder: PathBuf, mode: Result<KeyringMode, String>, keyring: Keyring) -> Self {
        Self { backend: Arc::new(Backend::Files(FileStore { folder, mode, keyring })) }
    }

    /// Returns the folder; `None` for a store in memory.
    pub fn folder(&self) -> Option<&Path> {
        match &*self.backend {
            Backend::Files(store) => Some(&store.folder),
            Backend::Memory(_) => None,
        }
    }

    /// Returns the sign-in for a server and account; `None` if none is stored.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, is damaged or can be accessed by other users, and if its key cannot be obtained from the
    /// keyring.
    pub async fn load(&self, server: &str, account: Option<&str>) -> Result<Option<Credentials>, StoreError> {
        let key = SignInKey::new(server, account);
        match &*self.backend {
            Backend::Files(store) => store.load(&key).await,
            Backend::Memory(store) => Ok(store.load(&key)),
        }
    }

    /// Stores a sign-in, replacing the previous one for its server and account.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written, if other users can change the folder, and if a keyring exists but cannot be used.
    pub async fn save(&self, credentials: &Credentials) -> Result<(), StoreError> {
        let key = SignInKey::new(&credentials.server, credentials.account.as_deref());
        if key.is_too_long() {
            return Err(StoreError::TooLarge { server: key.server.chars().take(100).collect() });
        }
        let mut credentials = credentials.clone();
        credentials.server.clone_from(&key.server);
        match &*self.backend {
            Backend::Files(store) => store.save(&key, &credentials).await,
            Backend::Memory(store) => {
                store.save(key, credentials);
                Ok(())
            }
        }
    }

    /// Removes the sign-in for a server and account, even if its file is damaged. Returns whether one was stored.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be removed.
    pub async fn remove(&self, server: &str, account: Option<&str>) -> Result<bool, StoreError> {
        let key = SignInKey::new(server, account);
        match &*self.backend {
            Backend::Files(store) => store.remove(&key).await,
            Backend::Memory(store) => Ok(store.remove(&key)),
        }
    }

    /// Removes all sign-ins, even damaged ones. Returns their number.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be removed.
    pub async fn remove_all(&self) -> Result<usize, StoreError> {
        match &*self.backend {
            Backend::Files(store) => store.remove_all().await,
            Backend::Memory(store) => Ok(store.remove_all()),
        }
    }

    /// Lists all sign-ins without their secrets. The keyring is not used.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be read. The list includes files that cannot be read.
    pub async fn list(&self) -> Result<CredentialsList, StoreError> {
        match &*self.backend {
            Backend::Files(store) => store.list().await,
            Backend::Memory(store) => Ok(list(store.all())),
        }
    }

    /// Checks that a sign-in can be stored, before the user signs in. Returns how it will be protected.
    ///
    /// # Errors
    ///
    /// Fails in the same way as [`save`](Self::save).
    pub async fn check(&self) -> Result<Protection, StoreError> {
        match &*self.backend {
            Backend::Files(store) => store.check().await,
            Backend::Memory(_) => Ok(Protection::Memory),
        }
    }

    /// Waits until no other task or process holds a sign-in's lock, for at most [`LOCK_TIMEOUT`](Self::LOCK_TIMEOUT).
    ///
    /// The other methods do not use this lock. A refresh holds it while it loads, refreshes and saves the tokens.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Busy`] if the time is up, and fails if the folder cannot be used.
    pub async fn lock(&self, server: &str, account: Option<&str>) -> Result<StoreLock, StoreError> {
        self.lock_within(server, account, Self::LOCK_TIMEOUT).await
    }

    /// Waits for a sign-in's lock like [`lock`](Self::lock), with a time limit.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Busy`] if the time is up, and fails if the folder cannot be used.
    pub async fn lock_within(
        &self,
        server: &str,
        account: Option<&str>,
        limit: Duration,
    ) -> Result<StoreLock, StoreError> {
        let key = SignInKey::new(server, account);
        match &*self.backend {
            Backend::Files(store) => store.lock(&key, limit).await,
            Backend::Memory(store) => store.lock(key, limit).await,
        }
    }

    /// Returns a stored sign-in's version. This reads only its file's metadata.
    ///
    /// Take the stamp before [`load`](Self::load), so that a change between the two is noticed.
    pub fn stamp(&self, server: &str, account: Option<&str>) -> StoreStamp {
        let key = SignInKey::new(server, account);
        StoreStamp(match &*self.backend {
            Backend::Files(store) => Stamp::File(store.stamp(&key)),
            Backend::Memory(store) => Stamp::Memory(store.generation(&key)),
        })
    }

    /// Returns `true` if a sign-in was stored or removed since the stamp was taken, for example by another process.
    pub fn changed_since(&self, server: &str, account: Option<&str>, stamp: &StoreStamp) -> bool {
        self.stamp(server, account) != *stamp
    }

    /// Returns all sign-ins as one line of text, encrypted with a passphrase.
    ///
    /// # Errors
    ///
    /// Fails if the passphrase is too short, or if a sign-in cannot be loaded.
    pub async fn export(&self, passphrase: &Secret) -> Result<Secret, StoreError> {
        export::check_passphrase(passphrase)?;
        let mut list = self.list().await?;
        if let Some(error) = list.unreadable.pop() {
            return Err(error);
        }
        if list.truncated || list.entries.len() > MAX_ENTRIES {
            return Err(StoreError::TooMany);
        }
        let mut sign_ins = Vec::new();
        for entry in list.entries {
            sign_ins.extend(self.load(&entry.server, entry.account.as_deref()).await?);
        }
        let passphrase = passphrase.clone();
        self.computing(move || export::write(sign_ins, &passphrase)).await
    }

    /// Stores an export's sign-ins. Newer stored sign-ins are kept.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a complete export, if the passphrase is wrong, or if a sign-in cannot be stored.
    pub async fn import(&self, text: &str, passphrase: &Secret) -> Result<ImportReport, StoreError> {
        let (text, passphrase) = (text.to_owned(), passphrase.clone());
        let sign_ins = self.computing(move || export::read(&text, &passphrase)).await?;
        let mut report = ImportReport::default();
        for sign_in in sign_ins {
            let (server, account) = (&sign_in.server, sign_in.account.as_deref());
            let _lock = self.lock(server, account).await?;
            let stored = match self.load(server, account).await {
                Err(StoreError::Invalid { .. }) => None,
                stored => stored?,
            };
            if stored.is_some_and(|stored| stored.obtained_at > sign_in.obtained_at) {
                report.kept += 1;
            } else {
                self.save(&sign_in).await?;
                report.imported += 1;
            }
        }
        Ok(report)
    }

    /// Derives keys outside the asynchronous threads.
    async fn computing<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let path = self.folder().unwrap_or(Path::new("")).to_owned();
        let interrupted = |error| StoreError::Read { path, source: std::io::Error::other(error) };
        tokio::task::spawn_blocking(work).await.map_err(interrupted)?
    }
}

impl fmt::Debug for TokenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenStore").field("folder", &self.folder()).finish_non_exhaustive()
    }
}

fn list(mut all: Vec<Credentials>) -> CredentialsList {
    all.sort_by(|a, b| (&a.server, &a.account).cmp(&(&b.server, &b.account)));
    let mut list = CredentialsList { truncated: all.len() > MAX_ENTRIES, ..CredentialsList::default() };
    let summaries = all.into_iter().take(MAX_ENTRIES).map(|credentials| {
        StoredSummary::from(&credentials).with(credentials.server, credentials.account, Protection::Memory)
    });
    list.entries.extend(summaries);
    list
}
