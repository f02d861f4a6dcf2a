//! Removes a directory that a hostile process has filled.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, renameat, unlinkat};
use rustix::io::Errno;

/// Maximum names in memory.
const MAX_NAMES: usize = 1_000;

/// Removes a directory and everything in it, without following links. Returns an error if something is left.
///
/// The tree's depth bounds neither the stack nor the open files: nested directories are moved to the top before they are
/// emptied. An open directory's parent is never used, because another process could have moved it.
pub(super) fn remove_tree(path: &Path, deadline: Option<Instant>) -> io::Result<()> {
    let mut removal = match open_directory(CWD, path.as_os_str()) {
        Ok(top) => Removal { top, moved: 0, deadline },
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    loop {
        let names = names(&removal.top)?;
        if names.is_empty() {
            break;
        }
        names.iter().try_for_each(|name| removal.remove(name))?;
    }
    match unlinkat(CWD, path, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

struct Removal {
    top: OwnedFd,
    /// Counts directories that were moved to the top.
    moved: u64,
    deadline: Option<Instant>,
}

impl Removal {
    fn check_deadline(&self) -> io::Result<()> {
        let is_over = self.deadline.is_some_and(|deadline| Instant::now() > deadline);
        if is_over { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }

    /// Removes a top-level entry, except for directories within it, which are moved to the top.
    fn remove(&mut self, name: &[u8]) -> io::Result<()> {
        self.check_deadline()?;
        if is_removed(&self.top, name)? {
            return Ok(());
        }
        match open_directory(&self.top, OsStr::from_bytes(name)) {
            Ok(folder) => self.empty(&folder)?,
            // Another thread removes the same tree.
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        remove_directory(&self.top, name).map(drop)
    }

    /// Removes a directory's files, and moves its directories to the top.
    fn empty(&mut self, folder: &OwnedFd) -> io::Result<()> {
        for name in names(folder)? {
            self.check_deadline()?;
            if is_removed(folder.as_fd(), &name)? {
                continue;
            }
            // Moving a directory needs the permission to write to it.
            drop(open_directory(folder.as_fd(), OsStr::from_bytes(&name)));
            loop {
                self.moved += 1;
                let target = format!("removed-{:x}", self.moved);
                match renameat(folder, name.as_slice(), &self.top, target.as_str()) {
                    Ok(()) | Err(Errno::NOENT) => break,
                    // The process has used this name.
                    Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
}

/// Removes a file or an empty directory. Returns `false` for a directory with contents.
fn is_removed(folder: impl AsFd, name: &[u8]) -> io::Result<bool> {
    match unlinkat(&folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => remove_directory(folder, name),
        Err(error) => Err(error.into()),
    }
}

/// Removes an empty directory. Returns `false` if it has contents.
fn remove_directory(folder: impl AsFd, name: &[u8]) -> io::Result<bool> {
    match unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Opens a directory, after restoring the permissions that its owner may have removed.
fn open_directory(folder: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || openat(&folder, name, flags | OFlags::RDONLY, Mode::empty());
    let opened = open();
    let is_usable = opened
        .as_ref()
        .is_ok_and(|opened| fstat(opened).is_ok_and(|status| Mode::from_raw_mode(status.st_mode).contains(Mode::RWXU)));
    if is_usable || opened.as_ref().is_err_and(|error| *error != Errno::ACCESS) {
        return opened;
    }
    restore_permissions(&folder, name)?;
    open()
}

/// Lets the owner change a directory again.
#[cfg(target_os = "linux")]
fn restore_permissions(folder: impl AsFd, name: &OsStr) -> Result<(), Errno> {
    use std::os::fd::AsRawFd as _;

    // A path could be replaced by a link meanwhile; the open file cannot.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = openat(folder, name, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&place)?.st_mode) == FileType::Directory {
        let path = format!("/proc/self/fd/{}", place.as_raw_fd());
        // Without it, the directory stays.
        let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700));
    }
    Ok(())
}

/// Does nothing: only Linux sandboxes have directories that hostile processes fill.
#[cfg(not(target_os = "linux"))]
fn restore_permissions(_: impl AsFd, _: &OsStr) -> Result<(), Errno> {
    Ok(())
}

/// Returns up to [`MAX_NAMES`] names in a directory. The caller repeats this until none is left.
fn names(folder: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let entries = Dir::read_from(folder)?.map(|entry| Ok(entry?.file_name().to_bytes().to_vec()));
    let is_own = |name: &io::Result<Vec<u8>>| !matches!(name.as_deref(), Ok(b"." | b".."));
    entries.filter(is_own).take(MAX_NAMES).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::mkdirat;

    use super::*;

    #[test]
    fn a_deep_tree_is_removed_with_little_stack() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("deep");
        fs::create_dir(&path).expect("a folder");
        let mut place = open_directory(CWD, path.as_os_str()).expect("a folder");
        for _ in 0..15_000 {
            mkdirat(&place, "d", Mode::RWXU).expect("a folder");
            place = open_directory(&place, OsStr::new("d")).expect("a folder");
        }
        drop(place);
        let small = std::thread::Builder::new().stack_size(64 << 10);
        let thread = small.spawn({
            let path = path.clone();
            move || remove_tree(&path, None)
        });
        thread.expect("a thread").join().expect("no overflow").expect("a removal");
        assert!(!path.exists());
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tree");
        fs::create_dir_all(path.join("a/removed-1/b")).expect("a folder");
        fs::create_dir_all(path.join("removed-1/removed-2")).expect("a folder");
        fs::write(path.join("removed-1/file"), "").expect("a file");
        fs::create_dir(folder.path().join("kept")).expect("a folder");
        fs::write(folder.path().join("kept/file"), "kept").expect("a file");
        symlink(folder.path().join("kept"), path.join("a/link")).expect("a link");
        symlink("../kept", path.join("link")).expect("a link");
        remove_tree(&path, None).expect("a removal");
        assert!(!path.exists());
        assert_eq!(fs::read_to_string(folder.path().join("kept/file")).expect("a file"), "kept");
        assert!(remove_tree(&path, None).is_ok());
    }

    #[test]
    fn a_directory_without_permissions_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tree");
        fs::create_dir_all(path.join("a/b/c")).expect("a folder");
        for name in ["a/b/c", "a/b", "a", ""] {
            fs::set_permissions(path.join(name), fs::Permissions::from_mode(0o0)).expect("permissions");
        }
        // Root needs no permissions, but they are restored all the same.
        drop(open_directory(CWD, path.as_os_str()).expect("a folder"));
        assert_eq!(fs::metadata(&path).expect("a folder").permissions().mode() & 0o777, 0o700);
        remove_tree(&path, None).expect("a removal");
        assert!(!path.exists());
    }

    #[test]
    fn a_removal_ends_at_its_deadline() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("a/b")).expect("a folder");
        let error = remove_tree(folder.path(), Some(Instant::now())).expect_err("a timeout");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_directory_with_many_files_is_removed_in_portions() {
        let folder = tempfile::tempdir().expect("a folder");
        let (top, inner) = (folder.path().join("top"), folder.path().join("top/inner"));
        fs::create_dir_all(&inner).expect("folders");
        for number in 0..2 * MAX_NAMES + 1 {
            fs::write(inner.join(number.to_string()), "").expect("a file");
        }
        remove_tree(&top, None).expect("a removal");
        assert!(!top.exists());
    }
}
