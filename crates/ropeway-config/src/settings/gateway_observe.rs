//! Gateway log settings.

use std::path::PathBuf;

/// A gateway's audit log: one JSON line for each client request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditSettings {
    /// Where lines are written.
    pub file: LogTarget,
    /// Whether lines contain call arguments, redacted.
    pub arguments: bool,
}

impl AuditSettings {
    /// Creates settings for a log without arguments, in a file that is created with mode 0600.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { file: LogTarget::File(file.into()), arguments: false }
    }
}

/// Where a log is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard error.
    #[default]
    Stderr,
    /// A file, which is created with mode 0600.
    File(PathBuf),
}
