//! One server process's temporary directory.

use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::tree_removal::remove_tree;
use ropeway_core::sync::lock;

/// Maximum time to wait until a directory is removed. Its removal continues in the background.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum time to remove directories before this process exits.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The temporary directories for all servers that this process has started.
static DIRECTORIES: Directories = Directories::new();

/// The directories that are not yet removed.
#[derive(Debug)]
struct Directories(Mutex<BTreeSet<PathBuf>>);

impl Directories {
    const fn new() -> Self {
        Self(Mutex::new(BTreeSet::new()))
    }

    fn create(&'static self, parent: &Path) -> io::Result<PrivateTemp> {
        let path = parent.join(format!("ropeway-{:016x}", fastrand::u64(..)));
        // Held while the directory is created, so that `remove_all` misses none.
        let mut paths = lock(&self.0);
        // Fails if the path exists, even as a link.
        DirBuilder::new().mode(0o700).create(&path)?;
        paths.insert(path.clone());
        Ok(PrivateTemp { path, directories: self })
    }

    /// Removes a directory, and unregisters it once it is removed.
    fn remove(&self, path: &Path) {
        if remove_tree(path, None).is_ok() {
            lock(&self.0).remove(path);
        }
    }

    fn remove_all(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        let deadline = Instant::now() + EXIT_TIMEOUT;
        let mut paths = lock(&self.0);
        paths.retain(|path| remove_tree(path, Some(deadline)).is_err());
        paths
    }
}

/// A directory that only this user can read. Dropping it removes it in the background.
#[derive(Debug)]
pub(super) struct PrivateTemp {
    path: PathBuf,
    directories: &'static Directories,
}

impl PrivateTemp {
    pub(super) fn new() -> io::Result<Self> {
        DIRECTORIES.create(&std::env::temp_dir())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the directory.
    pub(super) async fn remove(mut self) {
        let (path, directories) = (std::mem::take(&mut self.path), self.directories);
        let removal = tokio::task::spawn_blocking(move || directories.remove(&path));
        // A server may leave any number of files.
        let _ = tokio::time::timeout(REMOVAL_TIMEOUT, removal).await;
    }
}

impl Drop for PrivateTemp {
    fn drop(&mut self) {
        let (path, directories) = (std::mem::take(&mut self.path), self.directories);
        if !path.as_os_str().is_empty() {
            std::thread::spawn(move || directories.remove(&path));
        }
    }
}

/// Removes all servers' directories. The servers must have ended. Gives up after a short time.
///
/// No directory can be created until the returned guard is dropped.
pub(super) fn remove_all() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    DIRECTORIES.remove_all()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn a_private_directory_is_removed_with_its_contents() {
        let temp = PrivateTemp::new().expect("a folder");
        let path = temp.path().to_owned();
        assert!(lock(&DIRECTORIES.0).contains(&path));
        assert_eq!(fs::metadata(&path).expect("a folder").permissions().mode() & 0o777, 0o700);
        fs::create_dir_all(path.join("a/b")).expect("a folder");
        temp.remove().await;
        assert!(!path.exists() && !lock(&DIRECTORIES.0).contains(&path));
    }

    #[test]
    fn a_directory_that_is_created_during_the_exit_is_not_left() {
        static OWN: Directories = Directories::new();
        let parent = tempfile::tempdir().expect("a folder");
        let path = parent.path().to_owned();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let starts = std::thread::spawn(move || {
            while matches!(stopped.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty)) {
                std::mem::forget(OWN.create(&path).expect("a folder"));
            }
        });
        for _ in 0..20 {
            let held = OWN.remove_all();
            assert_eq!(fs::read_dir(parent.path()).expect("a folder").count(), 0);
            drop(held);
            std::thread::yield_now();
        }
        drop(stop);
        starts.join().expect("a thread");
    }
}
