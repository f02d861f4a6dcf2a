//! Files that only their owner can access: creating their folder, locking and comparing them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Flags that make opening fail for a symbolic link and not block on a pipe without a writer.
const DIRECT: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits() as i32;

/// Identifies a file's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<&fs::Metadata> for FileStamp {
    fn from(metadata: &fs::Metadata) -> Self {
        Self {
            file: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Creates a folder and its missing parents with mode 0700. An existing folder is left as it is.
///
/// # Errors
///
/// Fails if the folder cannot be created.
pub fn create_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Opens a file for reading, without following a symbolic link or blocking on a pipe without a writer.
pub fn open_direct(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(DIRECT).open(path)
}

/// Opens a lock file, or creates it with mode 0600.
///
/// # Errors
///
/// Fails if the file cannot be opened, and for symbolic links and pipes.
pub fn open_lock(path: &Path) -> io::Result<File> {
    let irregular =
        || io::Error::new(io::ErrorKind::InvalidInput, format!("`{}` is not a regular file", path.display()));
    if fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(irregular());
    }
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).write(true).mode(0o600).custom_flags(DIRECT).open(path)?;
    // The file may have been replaced in the meantime.
    if file.metadata()?.is_file() { Ok(file) } else { Err(irregular()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_replaced_file_has_another_stamp() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let stamps = ["one", "two"].map(|text| {
            fs::write(folder.path().join("new"), text).expect("a file");
            fs::rename(folder.path().join("new"), &path).expect("renamed");
            FileStamp::from(&fs::symlink_metadata(&path).expect("a file"))
        });
        assert_ne!(stamps[0], stamps[1]);
    }

    #[test]
    fn links_and_pipes_are_not_opened_as_locks() {
        let folder = tempfile::tempdir().expect("a folder");
        let (link, pipe) = (folder.path().join("link"), folder.path().join("pipe"));
        symlink("target", &link).expect("a link");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        for path in [&link, &pipe] {
            assert!(open_lock(path).is_err());
        }
        assert!(open_direct(&link).is_err());
        assert!(!folder.path().join("target").exists());
        open_lock(&folder.path().join("new")).expect("a lock");
    }
}
