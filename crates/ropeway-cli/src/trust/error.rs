//! Trust store errors.

use std::path::PathBuf;
use std::{fmt, io};

/// A trust store error.
#[derive(Debug)]
pub(crate) enum TrustStoreError {
    /// The user has no state directory.
    NoFolder,
    /// The store exists but cannot be read.
    Unreadable { path: PathBuf, source: io::Error },
    /// The store is damaged.
    Broken { path: PathBuf, reason: String },
    /// A newer ropeway wrote the store.
    Newer { path: PathBuf, version: u64 },
    /// Another user may have written the store.
    Insecure { path: PathBuf, problem: String },
    /// The store cannot be written.
    Unwritable { path: PathBuf, source: io::Error },
    /// Another process held the lock for too long.
    Locked { path: PathBuf },
    /// The accepted file's metadata cannot be read.
    Unidentified { path: PathBuf, source: io::Error },
    /// The accepted file's path is not UTF-8.
    NotText { path: PathBuf },
}

impl fmt::Display for TrustStoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFolder => f.write_str("no state directory: neither `XDG_STATE_HOME` nor `HOME` is set"),
            Self::Unreadable { path, .. } => write!(f, "could not read trust store `{}`", path.display()),
            Self::Broken { path, reason } => write!(f, "trust store `{}` is damaged: {reason}", path.display()),
            Self::Newer { path, version } => {
                write!(
                    f,
                    "trust store `{}` was written by a newer version of ropeway (format {version})",
                    path.display()
                )
            }
            Self::Insecure { path, problem } => write!(f, "trust store `{}` is {problem}", path.display()),
            Self::Unwritable { path, .. } => write!(f, "could not write `{}`", path.display()),
            Self::Locked { path } => write!(f, "`{}` is locked by another process", path.display()),
            Self::Unidentified { path, .. } => write!(f, "could not access `{}`", path.display()),
            Self::NotText { path } => write!(f, "path `{}` is not UTF-8", path.display()),
        }
    }
}

impl std::error::Error for TrustStoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable { source, .. } | Self::Unwritable { source, .. } | Self::Unidentified { source, .. } => {
                Some(source)
            }
            _ => None,
        }
    }
}

impl TrustStoreError {
    /// Returns the suggested fix.
    pub(crate) fn fix(&self) -> Option<String> {
        match self {
            Self::Broken { path, .. } => Some(format!("repair or remove `{}`", path.display())),
            Self::Newer { .. } => Some("update ropeway".to_owned()),
            Self::Insecure { path, .. } => {
                Some(format!("check its content, then run `chmod 600 {0}` or remove it", path.display()))
            }
            _ => None,
        }
    }
}
