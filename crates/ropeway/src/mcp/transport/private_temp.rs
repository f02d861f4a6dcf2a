//! The temporary directory of one server process.

use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::tree_removal::remove_tree;
use crate::sync::lock;

/// Maximum time to wait for the removal of a directory. It continues in the background.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum time to remove directories before this process exits.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The directories that are not yet removed.
static DIRECTORIES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A directory that only this user can read. Dropping it removes it in the background.
#[derive(Debug)]
pub(super) struct PrivateTemp(PathBuf);

impl PrivateTemp {
    pub(super) fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("ropeway-{:016x}", fastrand::u64(..)));
        // Fails if the path exists, even as a link.
        DirBuilder::new().mode(0o700).create(&path)?;
        lock(&DIRECTORIES).insert(path.clone());
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Removes the directory.
    pub(super) async fn remove(mut self) {
        let path = std::mem::take(&mut self.0);
        let removal = tokio::task::spawn_blocking(move || remove(&path, None));
        // A server may leave any number of files.
        let _ = tokio::time::timeout(REMOVAL_TIMEOUT, removal).await;
    }
}

impl Drop for PrivateTemp {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.0);
        if !path.as_os_str().is_empty() {
            std::thread::spawn(move || remove(&path, None));
        }
    }
}

/// Removes a directory, and forgets it if it is gone.
fn remove(path: &Path, deadline: Option<Instant>) {
    if remove_tree(path, deadline).is_ok() {
        lock(&DIRECTORIES).remove(path);
    }
}

/// Removes the directories of all servers, which must have ended. Gives up after a short time.
pub(super) fn remove_all() {
    let deadline = Instant::now() + EXIT_TIMEOUT;
    let directories: Vec<PathBuf> = lock(&DIRECTORIES).iter().cloned().collect();
    directories.iter().for_each(|path| remove(path, Some(deadline)));
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
        assert!(lock(&DIRECTORIES).contains(&path));
        assert_eq!(fs::metadata(&path).expect("a folder").permissions().mode() & 0o777, 0o700);
        fs::create_dir_all(path.join("a/b")).expect("a folder");
        temp.remove().await;
        assert!(!path.exists() && !lock(&DIRECTORIES).contains(&path));
    }
}
