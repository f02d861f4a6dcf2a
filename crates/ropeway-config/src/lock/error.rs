//! Lock file errors.

use std::path::PathBuf;

/// Newest supported format version.
pub(super) const SUPPORTED_VERSION: u64 = 1;

/// Error returned when a lock file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The file is not a valid lock.
    #[error("{}: {problem}", place(.path, *.line))]
    Broken {
        /// File path.
        path: PathBuf,
        /// The problem's line, if known.
        line: Option<usize>,
        /// Problem description.
        problem: String,
    },
    /// The file has a newer format version.
    #[error("{}: lock version {found} is not supported (latest supported: {SUPPORTED_VERSION})", .path.display())]
    Newer {
        /// File path.
        path: PathBuf,
        /// The file's format version.
        found: u64,
    },
    /// The file could not be read.
    #[error("could not read `{}`", .path.display())]
    Read {
        /// File path.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// The file could not be written.
    #[error("could not write `{}`", .path.display())]
    Write {
        /// File path.
        path: PathBuf,
        /// The I/O error.
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
