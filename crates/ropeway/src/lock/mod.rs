//! Tool definitions and sandboxes that the user accepted, and the lock file that stores them.

mod accepted;
mod difference;
mod error;
mod file;
mod format;
#[cfg(test)]
mod tests;

pub use self::accepted::Lock;
// Hidden from the docs: digests of definitions, for the binary.
#[doc(hidden)]
pub use self::accepted::LockedTool;
pub use self::difference::{Difference, DifferenceKind, SandboxDifference};
pub use self::error::LockError;
pub use self::file::LOCK_FILE_NAME;
#[cfg(feature = "gateway")]
pub(crate) use self::file::hold;
// Hidden from the docs: replaces the file while other processes wait; used by the binary.
#[doc(hidden)]
pub use self::file::LockFile;
