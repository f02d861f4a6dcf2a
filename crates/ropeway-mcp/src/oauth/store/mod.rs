//! Stored sign-ins: private files, encrypted with a key in the keyring of the operating system if it has one.

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

/// Maximum bytes of a token file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Maximum number of sign-ins that are listed or exported.
const MAX_ENTRIES: usize = 1000;

/// Minimum length of the passphrase of an export.
const MIN_PASSPHRASE_CHARS: usize = 8;
