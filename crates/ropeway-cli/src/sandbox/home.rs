//! The home directory of the user.

use std::path::{Path, PathBuf};

/// Returns the home directory of the user, without links. The server's entry cannot set it.
pub(super) fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").and_then(|home| Path::new(&home).canonicalize().ok())
}
