//! Tool definitions and sandboxes that the user accepted, and the lock file that stores them.
//!
//! `ropeway lock` writes the file. [`Lock::load`] reads it, and [`BridgeBuilder::lock`](crate::bridge::BridgeBuilder::lock) makes a
//! bridge warn about tools that differ from it, or hide them.

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
// Hidden from the docs: a bridge compares tools and sandboxes with the lock, and reports differences as warnings; used by the binary.
#[doc(hidden)]
pub use self::difference::{Difference, DifferenceKind, SandboxDifference};
pub use self::error::LockError;
pub use self::file::LOCK_FILE_NAME;
#[cfg(feature = "gateway")]
pub(crate) use self::file::hold;
// Hidden from the docs: replaces the file while other processes wait; used by the binary.
#[doc(hidden)]
pub use self::file::LockFile;
