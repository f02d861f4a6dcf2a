//! A store's folder: checking who can access it, and reading and replacing the files in it.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::MAX_FILE_BYTES;
use super::error::StoreError;
use ropeway_core::private_file;
use ropeway_core::replace_file::{ReplaceOptions, replace_file};

/// The token files' extension.
const EXTENSION: &str = "json";

/// Maximum number of names in the folder to check.
const MAX_NAMES: usize = 20_000;

/// Creates the folder if it does not exist, and checks that only this user can replace files in it.
pub(super) fn prepare(folder: &Path) -> Result<(), StoreError> {
    private_file::create_folder(folder).map_err(|source| StoreError::Write { path: folder.to_owned(), source })?;
    check_folder(folder).map(drop)
}

/// Removes other users' access to a folder that this program created, and that belongs to this user. They could see how many
/// sign-ins exist, and when they change. Returns `true` if the mode was changed.
pub(super) fn tighten(folder: &Path) -> io::Result<bool> {
    // The folder that is checked is the folder that is changed, and a link is not followed.
    let opened = private_file::open_direct(folder)?;
    let metadata = opened.metadata()?;
    let is_own = metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw();
    if !is_own || metadata.permissions().mode() & 0o077 == 0 {
        return Ok(false);
    }
    opened.set_permissions(fs::Permissions::from_mode(0o700)).map(|()| true)
}

/// Checks that only this user can replace files in the folder. Returns `false` if it does not exist.
pub(super) fn check_folder(folder: &Path) -> Result<bool, StoreError> {
    match fs::metadata(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(source) => Err(StoreError::Read { path: folder.to_owned(), source }),
        Ok(metadata) if !metadata.is_dir() => {
            let source = io::Error::new(ErrorKind::NotADirectory, "not a folder");
            Err(StoreError::Read { path: folder.to_owned(), source })
        }
        Ok(metadata) => check_access(folder, &metadata, Access::Folder).map(|()| true),
    }
}

/// Reads a file that only this user can access. Returns `None` if it does not exist.
pub(super) fn read(folder: &Path, path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    if !check_folder(folder)? {
        return Ok(None);
    }
    let failed = |source| StoreError::Read { path: path.to_owned(), source };
    let file = match private_file::open_direct(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(link_problem(path).unwrap_or_else(|| failed(error))),
        Ok(file) => file,
    };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(failed(io::Error::new(ErrorKind::InvalidInput, "not a regular file")));
    }
    check_access(path, &metadata, Access::File)?;
    read_bounded(file, path).map(Some)
}

fn read_bounded(file: File, path: &Path) -> Result<Vec<u8>, StoreError> {
    let mut content = Vec::new();
    let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content);
    read.map_err(|source| StoreError::Read { path: path.to_owned(), source })?;
    if content.len() as u64 > MAX_FILE_BYTES {
        let problem = format!("larger than {} KiB", MAX_FILE_BYTES >> 10);
        return Err(StoreError::Invalid { path: path.to_owned(), problem });
    }
    Ok(content)
}

/// Replaces a file, and creates its folder if necessary.
pub(super) fn replace(folder: &Path, path: &Path, content: &[u8]) -> Result<(), StoreError> {
    prepare(folder)?;
    let replaced = replace_file(path, content, ReplaceOptions::private()).map(drop);
    replaced.map_err(|source| StoreError::Write { path: path.to_owned(), source })
}

/// Removes a file or link. Returns `false` if it does not exist.
pub(super) fn remove(path: &Path) -> Result<bool, StoreError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(source) => Err(StoreError::Write { path: path.to_owned(), source }),
    }
}

/// Returns the token files' paths, sorted.
pub(super) fn token_files(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    if !check_folder(folder)? {
        return Ok(Vec::new());
    }
    let failed = |source| StoreError::Read { path: folder.to_owned(), source };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)?.take(MAX_NAMES) {
        let path = entry.map_err(failed)?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !is_hidden && path.extension().is_some_and(|extension| extension == EXTENSION) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Returns the path for a file name without extension.
pub(super) fn token_file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.{EXTENSION}"))
}

/// Returns the error for a symbolic link, if the path is one.
fn link_problem(path: &Path) -> Option<StoreError> {
    let is_link = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
    is_link.then(|| StoreError::Insecure {
        path: path.to_owned(),
        problem: "it is a symbolic link".to_owned(),
        fix: format!("remove it with `rm {}`, then sign in again", quoted(path)),
    })
}

/// What other users must not be able to do.
#[derive(Clone, Copy)]
enum Access {
    /// Read or change a file.
    File,
    /// Replace the folder's files. Their names reveal nothing.
    Folder,
}

fn check_access(path: &Path, metadata: &Metadata, access: Access) -> Result<(), StoreError> {
    let user = rustix::process::geteuid().as_raw();
    match access_problem(path, (metadata.uid(), metadata.permissions().mode()), user, access) {
        Some((problem, fix)) => Err(StoreError::Insecure { path: path.to_owned(), problem, fix }),
        None => Ok(()),
    }
}

/// Returns why users other than `user` may access a file or folder with this owner and mode, and what to do.
fn access_problem(path: &Path, (owner, mode): (u32, u32), user: u32, access: Access) -> Option<(String, String)> {
    let (path, mode) = (quoted(path), mode & 0o777);
    if owner != user {
        let fix = format!("run as that user, or run `chown {user} {path}` as root");
        return Some((format!("it belongs to another user (uid {owner})"), fix));
    }
    match access {
        Access::File if mode & 0o077 != 0 => Some((
            format!("other users can access it (mode {mode:03o})"),
            format!("run `chmod 600 {path}`; if others may have read it, sign in again"),
        )),
        Access::Folder if mode & 0o022 != 0 => Some((
            format!("other users can replace the files in it (mode {mode:03o})"),
            format!("run `chmod 700 {path}`, or use another folder"),
        )),
        Access::File | Access::Folder => None,
    }
}

/// Returns a path as a shell word.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_of_others_is_described_with_the_command_that_ends_it() {
        let of = |owner, mode| access_problem(Path::new("/a b/it's"), (owner, mode), 1000, Access::File);
        assert_eq!(of(1000, 0o100600), None);
        assert_eq!(of(1000, 0o100400), None);
        let (problem, fix) = of(1000, 0o100644).expect("a problem");
        assert_eq!(problem, "other users can access it (mode 644)");
        assert_eq!(fix, r"run `chmod 600 '/a b/it'\''s'`; if others may have read it, sign in again");
        let folder = |mode| access_problem(Path::new("/a"), (1000, mode), 1000, Access::Folder);
        assert_eq!((folder(0o40700), folder(0o40755)), (None, None));
        let (problem, fix) = folder(0o41777).expect("a problem");
        assert_eq!(problem, "other users can replace the files in it (mode 777)");
        assert_eq!(fix, "run `chmod 700 /a`, or use another folder");
        let (problem, fix) = of(0, 0o100600).expect("a problem");
        assert_eq!(problem, "it belongs to another user (uid 0)");
        assert!(fix.starts_with("run as that user, or run `chown 1000 "), "{fix}");
    }

    #[test]
    fn a_folder_is_tightened_but_not_the_target_of_a_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let (own, link) = (folder.path().join("own"), folder.path().join("link"));
        fs::create_dir(&own).expect("a folder");
        std::os::unix::fs::symlink(&own, &link).expect("a link");
        let mode = || fs::metadata(&own).expect("a folder").permissions().mode() & 0o777;
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).expect("permissions");
        assert!(tighten(&link).is_err());
        assert_eq!(mode(), 0o755);
        assert!(tighten(&own).expect("permissions"));
        assert_eq!(mode(), 0o700);
        assert!(!tighten(&own).expect("nothing to do"));
    }

    #[test]
    fn only_visible_token_files_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["b.json", "a.json", ".a.json.0.new", ".hidden.json", "a.lock", "other"] {
            fs::write(folder.path().join(name), "").expect("a file");
        }
        let found = token_files(folder.path()).expect("files");
        assert_eq!(found, ["a.json", "b.json"].map(|name| folder.path().join(name)));
        assert_eq!(token_files(&folder.path().join("missing")).expect("no files"), [] as [PathBuf; 0]);
    }

    #[test]
    fn a_file_in_the_place_of_the_folder_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens");
        fs::write(&path, "").expect("a file");
        assert!(matches!(check_folder(&path), Err(StoreError::Read { .. })));
        assert!(matches!(prepare(&path), Err(StoreError::Write { .. })));
    }

    #[test]
    fn files_up_to_the_limit_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.json");
        replace(folder.path(), &path, &vec![b'x'; MAX_FILE_BYTES as usize]).expect("written");
        assert!(read(folder.path(), &path).expect("a file").is_some());
        replace(folder.path(), &path, &vec![b'x'; MAX_FILE_BYTES as usize + 1]).expect("written");
        assert!(matches!(read(folder.path(), &path), Err(StoreError::Invalid { .. })));
    }
}
