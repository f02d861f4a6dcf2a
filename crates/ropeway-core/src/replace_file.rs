//! Replacing a file atomically.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Longest file name that the temporary file's name contains. Most file systems allow 255 bytes.
const MAX_NAME: usize = 200;

/// How [`replace_file`] creates the new file.
#[derive(Clone, Copy, Debug)]
pub struct ReplaceOptions {
    mode: u32,
    keeps_permissions: bool,
    is_synced: bool,
    is_locked: bool,
}

impl ReplaceOptions {
    /// The new file has mode 0600, even if the old one has another.
    pub const fn private() -> Self {
        Self { mode: 0o600, keeps_permissions: false, is_synced: true, is_locked: false }
    }

    /// The new file has the old one's permissions. Without an old file, it has `mode`, subject to the umask.
    pub const fn keeping_permissions(mode: u32) -> Self {
        Self { mode, keeps_permissions: true, is_synced: true, is_locked: false }
    }

    /// Returns before the content is on disk, for a cache. After a power failure, the file may be empty.
    #[must_use]
    pub const fn without_sync(mut self) -> Self {
        self.is_synced = false;
        self
    }

    /// The caller holds a lock, so that no other process replaces the file. The temporary file has a fixed name, and one that a
    /// killed process left is removed.
    #[must_use]
    pub const fn under_lock(mut self) -> Self {
        self.is_locked = true;
        self
    }
}

/// Atomically replaces a file, or creates it, and returns the new one, opened for writing. Its directory must exist.
///
/// A symbolic link at the path is replaced, not followed: callers that follow links decide where a link may lead, and pass its
/// target.
///
/// # Errors
///
/// Fails if the new file cannot be written or renamed. The old file is unchanged then.
pub fn replace_file(path: &Path, content: &[u8], options: ReplaceOptions) -> io::Result<File> {
    let kept = match fs::metadata(path) {
        Ok(metadata) if options.keeps_permissions => Some(metadata.permissions()),
        Ok(_) | Err(_) => None,
    };
    let new = temporary_path(path, options.is_locked);
    if options.is_locked {
        let _ = fs::remove_file(&new);
    }
    // No other user can read the content before the permissions are set.
    let mode = kept.as_ref().map_or(options.mode, |kept| kept.mode() & 0o7777);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    let written = write_content(&mut file, content, kept, options.is_synced).and_then(|()| fs::rename(&new, path));
    match written {
        Ok(()) => Ok(file),
        Err(error) => {
            let _ = fs::remove_file(&new);
            Err(error)
        }
    }
}

fn write_content(file: &mut File, content: &[u8], kept: Option<Permissions>, is_synced: bool) -> io::Result<()> {
    if let Some(kept) = kept {
        // The umask may have removed some when the file was created.
        file.set_permissions(kept)?;
    }
    file.write_all(content)?;
    if is_synced { file.sync_all() } else { Ok(()) }
}

/// Returns a path in the same directory, from where a rename is atomic.
fn temporary_path(path: &Path, is_fixed: bool) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().filter(|name| name.len() <= MAX_NAME).unwrap_or_default());
    if !is_fixed {
        name.push(format!(".{:016x}", fastrand::u64(..)));
    }
    name.push(".new");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const PRIVATE: ReplaceOptions = ReplaceOptions::private();
    const SHARED: ReplaceOptions = ReplaceOptions::keeping_permissions(0o644);

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).expect("a file").permissions().mode() & 0o777
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).expect("a file")
    }

    #[test]
    fn a_link_is_replaced_and_nothing_is_left_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, target) = (folder.path().join("file"), folder.path().join("target"));
        fs::write(&target, "theirs").expect("a file");
        for options in [PRIVATE, PRIVATE.without_sync(), PRIVATE.under_lock(), SHARED] {
            let _ = fs::remove_file(&path);
            symlink(&target, &path).expect("a link");
            let file = replace_file(&path, b"ours", options).expect("written");
            assert_eq!(file.metadata().expect("a file").len(), 4);
            assert_eq!((read(&path).as_str(), read(&target).as_str()), ("ours", "theirs"));
            assert!(fs::symlink_metadata(&path).expect("a file").is_file());
        }
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
        assert!(replace_file(&folder.path().join("missing/file"), b"", PRIVATE).is_err());
        assert!(replace_file(folder.path(), b"", PRIVATE).is_err());
    }

    #[test]
    fn permissions_are_kept_or_private() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        for before in [0o666, 0o640, 0o600, 0o400, 0o755] {
            fs::write(&path, "one").expect("a file");
            fs::set_permissions(&path, Permissions::from_mode(before)).expect("permissions");
            replace_file(&path, b"two", SHARED).expect("written");
            assert_eq!((read(&path).as_str(), mode(&path)), ("two", before));
            replace_file(&path, b"three", PRIVATE).expect("written");
            assert_eq!((read(&path).as_str(), mode(&path)), ("three", 0o600));
        }
        let new = folder.path().join("new");
        replace_file(&new, b"", ReplaceOptions::keeping_permissions(0o600)).expect("written");
        assert_eq!(mode(&new), 0o600);
    }

    #[test]
    fn a_file_left_by_a_killed_process_is_removed_under_a_lock() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(folder.path().join(".file.new"), "half").expect("a file");
        replace_file(&path, b"whole", PRIVATE.under_lock()).expect("written");
        assert_eq!(read(&path), "whole");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }

    #[test]
    fn a_file_with_the_longest_name_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("n".repeat(255));
        replace_file(&path, b"content", SHARED).expect("written");
        assert_eq!(read(&path), "content");
    }
}
