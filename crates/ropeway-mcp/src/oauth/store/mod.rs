//! Stored sign-ins: private files, encrypted with a key in the operating system's keyring if it has one.

mod error;
mod export;
mod file_store;
mod files;
mod format;
mod handle;
mod key;
mod keyring;
mod keyring_tool;
mod lock;
mod memory;
mod seal;
mod summary;
#[cfg(test)]
mod tests;

pub use self::error::{KeyringError, StoreError};
pub use self::handle::{ImportReport, StoreStamp, TokenStore};
pub use self::key::canonical_server;
pub use self::keyring::KeyringMode;
pub use self::lock::StoreLock;
pub use self::summary::{CredentialsList, CredentialsSummary, Protection};

/// Maximum token file size, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Maximum number of sign-ins to list or export.
const MAX_ENTRIES: usize = 1000;

/// Minimum length of an export's passphrase.
const MIN_PASSPHRASE_CHARS: usize = 8;
