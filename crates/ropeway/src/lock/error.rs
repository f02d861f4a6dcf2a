//! Errors of lock files.

use std::path::PathBuf;

/// Newest version of the format that this crate reads.
pub(super) const SUPPORTED_VERSION: u64 = 1;

/// A lock file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The file is not a lock.
    #[error("{}: {problem}", place(.path, *.line))]
    Broken {
        /// The file.
        path: PathBuf,
        /// The line, where one is to blame.
        line: Option<usize>,
        /// What is wrong.
        problem: String,
    },
    /// The file was written by a later version.
    #[error("{}: lock version {found} is newer than version {SUPPORTED_VERSION}, which this program supports", .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// The file cannot be read.
    #[error("could not read `{}`", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error("could not write `{}`", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

fn place(path: &std::path::Path, line: Option<usize>) -> String {
    match line {
        Some(line) => format!("{}:{line}", path.display()),
        None => path.display().to_string(),
    }
}
