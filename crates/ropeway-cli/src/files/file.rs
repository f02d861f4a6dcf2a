//! Atomic file writes.

use std::io;
use std::path::{Path, PathBuf};

use ropeway_config::read_regular;
pub(crate) use ropeway_core::private_file::open_lock;
use ropeway_core::replace_file::{ReplaceOptions, replace_file};

use crate::failure::Failure;

/// Mode for files that others may read, subject to the umask.
pub(crate) const SHARED: u32 = 0o666;

/// Mode for files that only the user may read.
pub(crate) const PRIVATE: u32 = 0o600;

/// Maximum size of a file that is read, in bytes. A saved conversation may contain images.
const LARGEST: usize = 256 << 20;

/// Returns a regular file's text, or `None` if the file does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<String>, Failure> {
    match read_regular(path, LARGEST) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::usage(format!("could not read `{}`", path.display())).caused_by(&error)),
    }
}

/// Replaces a file's text, unless it was changed since `before` was read. A new file gets `mode`; an existing one keeps its
/// own, unless `mode` is [`PRIVATE`].
pub(crate) fn replace(path: &Path, before: Option<&str>, text: &str, mode: u32) -> Result<(), Failure> {
    if read(path)?.as_deref() != before {
        return Err(Failure::usage(format!("`{}` was changed by another program", path.display()))
            .hint("nothing was written; try again"));
    }
    write(path, text, mode).map_err(|error| {
        Failure::usage(format!("could not write `{}`", path.display())).caused_by(&error).hint("nothing was changed")
    })
}

/// Writes a file and replaces its previous content.
pub(crate) fn put(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    write(path, text, mode)
        .map_err(|error| Failure::usage(format!("could not write `{}`", path.display())).caused_by(&error))
}

fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let path = resolved(path, mode)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    if std::fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(io::Error::other("it is not a regular file"));
    }
    let options = if mode == PRIVATE { ReplaceOptions::private() } else { ReplaceOptions::keeping_permissions(mode) };
    replace_file(&path, text.as_bytes(), options).map(drop)
}

/// Returns the file to write: the path itself, or a symbolic link's target.
///
/// A link in a cloned directory may point to any of the user's files, so private files are not written through links and
/// missing targets are not created.
fn resolved(path: &Path, mode: u32) -> io::Result<PathBuf> {
    let Some(target) = link_target(path) else { return Ok(path.to_owned()) };
    let shown = target.display();
    if mode == PRIVATE {
        let problem = format!("it is a symbolic link to `{shown}`; private files are not written through links");
        return Err(io::Error::other(problem));
    }
    std::fs::canonicalize(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other(format!("it is a broken symbolic link to `{shown}`")),
        _ => error,
    })
}

/// Returns a symbolic link's target, resolved if it exists.
pub(crate) fn link_target(path: &Path) -> Option<PathBuf> {
    let written = std::fs::read_link(path).ok()?;
    Some(std::fs::canonicalize(path).unwrap_or(written))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("a file").permissions().mode() & 0o777
    }

    fn names(folder: &Path) -> Vec<String> {
        let files = std::fs::read_dir(folder).expect("a folder").flatten();
        let mut names: Vec<String> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn an_existing_file_keeps_its_mode() {
        let folder = tempfile::tempdir().expect("a folder");
        let (new, old) = (folder.path().join("deep/new"), folder.path().join("old"));
        replace(&new, None, "secret", PRIVATE).expect("written");
        assert_eq!((std::fs::read_to_string(&new).expect("a file").as_str(), mode(&new)), ("secret", 0o600));
        std::fs::write(&old, "one").expect("a file");
        std::fs::set_permissions(&old, Permissions::from_mode(0o640)).expect("permissions");
        replace(&old, Some("one"), "two", SHARED).expect("written");
        assert_eq!((std::fs::read_to_string(&old).expect("a file").as_str(), mode(&old)), ("two", 0o640));
        assert_eq!(names(folder.path()), ["deep", "old"]);
    }

    #[test]
    fn a_private_file_always_gets_mode_0600() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(".env");
        for before in [0o644, 0o666, 0o400, 0o600] {
            std::fs::write(&path, "one").expect("a file");
            std::fs::set_permissions(&path, Permissions::from_mode(before)).expect("permissions");
            replace(&path, Some("one"), "two", PRIVATE).expect("written");
            assert_eq!(mode(&path), 0o600, "{before:o}");
            std::fs::remove_file(&path).expect("a file");
        }
    }

    #[test]
    fn only_regular_files_are_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(put(folder.path(), "x", SHARED).is_err());
        assert!(put(Path::new("/dev/null"), "x", SHARED).is_err());
        assert_eq!(names(folder.path()), [] as [&str; 0]);
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let (link, target) = (folder.path().join("link"), folder.path().join("target"));
        std::os::unix::fs::symlink("target", &link).expect("a link");
        std::fs::write(&target, "one").expect("a file");
        replace(&link, Some("one"), "two", SHARED).expect("written");
        assert!(std::fs::symlink_metadata(&link).expect("a link").is_symlink());
        assert_eq!(std::fs::read_to_string(target).expect("a file"), "two");
        let (round, about) = (folder.path().join("round"), folder.path().join("about"));
        std::os::unix::fs::symlink(&about, &round).expect("a link");
        std::os::unix::fs::symlink(&round, &about).expect("a link");
        assert!(replace(&round, None, "x", SHARED).is_err());
    }

    #[test]
    fn a_link_to_nothing_creates_no_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let (link, target) = (folder.path().join("link"), folder.path().join("target"));
        std::os::unix::fs::symlink("target", &link).expect("a link");
        for mode in [SHARED, PRIVATE] {
            assert!(replace(&link, None, "x", mode).is_err());
        }
        assert!(!target.exists());
        let why = write(&link, "x", SHARED).expect_err("a link to nothing").to_string();
        assert_eq!(why, "it is a broken symbolic link to `target`");
    }

    #[test]
    fn secrets_are_not_written_through_a_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let (link, target) = (folder.path().join(".env"), folder.path().join(".bashrc"));
        std::fs::write(&target, "one").expect("a file");
        std::fs::set_permissions(&target, Permissions::from_mode(0o644)).expect("permissions");
        std::os::unix::fs::symlink(&target, &link).expect("a link");
        assert!(replace(&link, Some("one"), "two", PRIVATE).is_err());
        assert_eq!((std::fs::read_to_string(&target).expect("a file").as_str(), mode(&target)), ("one", 0o644));
        assert_eq!(names(folder.path()), [".bashrc", ".env"]);
    }

    #[test]
    fn a_pipe_and_a_device_are_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
        assert!(made.success());
        for path in [Path::new("/dev/zero"), &pipe] {
            assert!(read(path).is_err(), "{}", path.display());
        }
    }

    #[test]
    fn a_concurrent_change_is_not_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "theirs").expect("a file");
        for before in [None, Some("ours")] {
            assert!(replace(&path, before, "new", SHARED).is_err());
        }
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), "theirs");
        assert_eq!(names(folder.path()), ["file"]);
    }
}
