//! A lock on the user's private directory, held while a process changes its files.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::file::open_lock;
use crate::failure::Failure;

/// The file that is locked while the directory is changed.
const LOCK: &str = "lock";

/// Time to wait for another process that holds the lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Creates the private directory and waits for its lock. Dropping the file releases it.
pub(crate) fn lock_folder(folder: &Path) -> Result<File, Failure> {
    let unwritable =
        |error: &io::Error| Failure::usage(format!("could not write `{}`", folder.display())).caused_by(error);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| unwritable(&error))?;
    let path = folder.join(LOCK);
    let file = open_lock(&path).map_err(|error| unwritable(&error))?;
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(unwritable(&error)),
            Err(TryLockError::WouldBlock) if began.elapsed() > LOCK_TIMEOUT => {
                return Err(Failure::usage(format!("`{}` is locked by another process", path.display())));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
