//! Tool definitions and sandboxes that the user accepted, and the lock file that stores them.
//!
//! `ropeway lock` writes the file. [`Lock::load`] reads it, and [`BridgeBuilder::lock`](crate::bridge::BridgeBuilder::lock) makes a
//! bridge warn about tools that differ from it, or hide them.

pub use ropeway_config::lock::{LOCK_FILE_NAME, Lock, LockError};
