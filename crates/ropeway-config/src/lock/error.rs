//! Errors of lock files.

use std::path::PathBuf;

/// Newest version of the format that is supported.
pub(super) const SUPPORTED_VERSION: u64 = 1;

/// Error returned when a lock file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The file is not a valid lock.
    #[error("{}: {problem}", place(.path, *.line))]
    Broken {
        /// Path of the file.
        path: PathBuf,
        /// Line of the problem, if known.
        line: Option<usize>,
        /// Description of the problem.
        problem: String,
    },
    /// The file has a newer format version.
    #[error("{}: lock version {found} is not supported (latest supported: {SUPPORTED_VERSION})", .path.display())]
    Newer {
        /// Path of the file.
        path: PathBuf,
        /// Version of the file.
        found: u64,
    },
    /// The file could not be read.
    #[error("could not read `{}`", .path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// The file could not be written.
    #[error("could not write `{}`", .path.display())]
    Write {
        /// Path of the file.
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
