//! Files that only their owner can access: creating, replacing, locking and comparing them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Flags that make opening fail for a symbolic link and not block on a pipe without a writer.
const DIRECT: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits() as i32;

/// Identifies a version of a file.
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

/// Atomically replaces a file by a new one with mode 0600. The content is on disk when this returns. A symbolic link at the path
/// is replaced, not followed.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{:016x}.new", fastrand::u64(..)));
    let new = path.with_file_name(name);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
    let written = file.and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()));
    written.and_then(|()| fs::rename(&new, path)).inspect_err(|_| drop(fs::remove_file(&new)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_is_replaced_at_once_and_readable_by_its_owner_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, target) = (folder.path().join("file"), folder.path().join("target"));
        fs::write(&target, "theirs").expect("a file");
        symlink(&target, &path).expect("a link");
        replace(&path, b"one").expect("written");
        let first = FileStamp::from(&fs::symlink_metadata(&path).expect("a file"));
        replace(&path, b"two").expect("written");
        let metadata = fs::symlink_metadata(&path).expect("a file");
        assert_ne!(FileStamp::from(&metadata), first);
        assert_eq!((metadata.is_file(), metadata.permissions().mode() & 0o777), (true, 0o600));
        assert_eq!(fs::read_to_string(&target).expect("a file"), "theirs");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "nothing is left behind");
        assert!(replace(&folder.path().join("missing/file"), b"").is_err());
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
