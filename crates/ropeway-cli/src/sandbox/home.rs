//! The user's home directory.

use std::path::{Path, PathBuf};

/// Returns the user's home directory, without links. The server's entry cannot set it.
pub(super) fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").and_then(|home| Path::new(&home).canonicalize().ok())
}
