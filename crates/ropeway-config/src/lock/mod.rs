//! Tool definitions and sandboxes that the user accepted, and the lock file that stores them.

mod accepted;
mod difference;
mod error;
mod file;
mod format;
#[cfg(test)]
mod tests;

pub use self::accepted::Lock;
pub use self::accepted::LockedTool;
pub use self::difference::{Difference, DifferenceKind, SandboxDifference};
pub use self::error::LockError;
pub use self::file::LOCK_FILE_NAME;
pub use self::file::LockFile;
pub use self::file::hold;
