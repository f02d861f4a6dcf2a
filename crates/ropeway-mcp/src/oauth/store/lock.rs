//! Locks across processes: one per sign-in, released when the holder drops it or dies.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::error::StoreError;
use super::files;
use ropeway_core::private_file::open_lock;

/// Shortest and longest pause between two attempts.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// Holds one sign-in's lock. Other tasks and processes wait until this is dropped, or until this process ends.
///
/// The lock may be held across `.await`, and usually is, during a refresh. For a store in a folder it is an advisory lock on a
/// file next to the sign-in's, which the kernel releases when the file is closed. For a store in memory it is an async mutex.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct StoreLock {
    _held: Held,
}

#[derive(Debug)]
enum Held {
    /// Closing the file releases the lock (`flock(2)`), even when the process is killed.
    File {
        _file: File,
    },
    Memory {
        _guard: OwnedMutexGuard<()>,
    },
}

impl StoreLock {
    pub(super) fn memory(guard: OwnedMutexGuard<()>) -> Self {
        Self { _held: Held::Memory { _guard: guard } }
    }
}

/// Waits for the lock on the file `name` in the folder, which is created if necessary.
pub(super) async fn lock_file(
    folder: &Path,
    name: &str,
    server: &str,
    limit: Duration,
) -> Result<StoreLock, StoreError> {
    files::prepare(folder)?;
    let path = folder.join(format!("{name}.lock"));
    let failed = |source| StoreError::Write { path: path.clone(), source };
    // A lock file is never removed, so every process locks the same one.
    let file = open_lock(&path).map_err(failed)?;
    let (deadline, mut pause) = (Instant::now() + limit, PAUSE.0);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(StoreLock { _held: Held::File { _file: file } }),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                return Err(StoreError::Busy { server: server.to_owned(), waited: limit });
            }
            Err(TryLockError::WouldBlock) => tokio::time::sleep_until((Instant::now() + pause).min(deadline)).await,
        }
        pause = (pause * 2).min(PAUSE.1);
    }
}
