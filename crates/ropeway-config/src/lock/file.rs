//! Reads and writes the lock file.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::accepted::Lock;
use super::error::LockError;
use crate::open_regular;
use ropeway_core::replace_file::{ReplaceOptions, replace_file};

/// Lock file name, in the configuration file's directory.
pub const LOCK_FILE_NAME: &str = "ropeway.lock";

/// Maximum file size in bytes.
const MAX_BYTES: u64 = 32 << 20;

/// Timeout for another process that writes the file.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// A configuration file's lock file.
///
/// The value holds only a path: no file stays open between calls, and clones refer to the same file. [`read`](Self::read) takes
/// no lock, since [`update`](Self::update) replaces the file atomically and a reader sees either the old or the new text.
///
/// `update` locks the directory from its read to its write, so that updates by several threads and processes follow each other.
/// It blocks the thread until it has the lock, fails after ten seconds, and releases the lock when it returns, even if `change`
/// panics. On a file system without locks, concurrent updates are not serialized, and the last write wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockFile {
    path: PathBuf,
}

impl LockFile {
    /// Returns the lock file in a configuration file's directory.
    pub fn beside(config: &Path) -> Self {
        Self { path: config.with_file_name(LOCK_FILE_NAME) }
    }

    /// Returns the file path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the lock and its text. Returns `None` if the file does not exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or is not a valid lock.
    pub fn read(&self) -> Result<Option<(Lock, String)>, LockError> {
        let failed = |source| LockError::Read { path: self.path.clone(), source };
        let file = match open_regular(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(&self.path).is_err() => {
                return Ok(None);
            }
            Err(error) => return Err(failed(error)),
        };
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(failed(io::Error::other(format!("larger than {} MiB", MAX_BYTES >> 20))));
        }
        let text = String::from_utf8(bytes).map_err(|_| LockError::Broken {
            path: self.path.clone(),
            line: None,
            problem: "not UTF-8".to_owned(),
        })?;
        Ok(Some((Lock::parse(&text, &self.path)?, text)))
    }

    /// Reads the lock, applies `change` and replaces the file atomically. Other processes wait until it is done. Returns the new
    /// text and what `change` returned.
    ///
    /// `change` receives the lock and its current text. An invalid file is not overwritten, and neither is a file in another
    /// directory that a link points to.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or written, or is not a valid lock.
    pub fn update<T>(&self, change: impl FnOnce(&mut Lock, Option<&str>) -> T) -> Result<(String, T), LockError> {
        let failed = |source| LockError::Write { path: self.path.clone(), source };
        let folder = match self.path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        // A separate file for locking would be left behind.
        let _held = hold(folder).map_err(failed)?;
        let (mut lock, before) = match self.read()? {
            Some((lock, text)) => (lock, Some(text)),
            None => (Lock::new(), None),
        };
        let changed = change(&mut lock, before.as_deref());
        let text = lock.to_text();
        if text.len() as u64 > MAX_BYTES {
            return Err(failed(io::Error::other(format!("larger than {} MiB", MAX_BYTES >> 20))));
        }
        if before.as_deref() != Some(text.as_str()) {
            let target = if before.is_some() { target(&self.path, folder).map_err(failed)? } else { self.path.clone() };
            replace_file(&target, text.as_bytes(), ReplaceOptions::keeping_permissions(0o666)).map_err(failed)?;
        }
        Ok((text, changed))
    }
}

impl Lock {
    /// Reads a lock file. Returns `None` if the file does not exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or is not a valid lock.
    pub fn load(path: impl Into<PathBuf>) -> Result<Option<Self>, LockError> {
        let file = LockFile { path: path.into() };
        Ok(file.read()?.map(|(lock, _)| lock))
    }
}

/// Waits until no other process changes a file in this directory under its lock.
pub fn hold(folder: &Path) -> io::Result<File> {
    let held = File::open(folder)?;
    let began = Instant::now();
    loop {
        match held.try_lock() {
            Ok(()) => return Ok(held),
            // Some file systems do not support locks.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => return Ok(held),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if began.elapsed() > WRITE_TIMEOUT => {
                return Err(io::Error::other("another process is writing to it"));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Returns the file to write. A link is followed, but not to another directory.
fn target(path: &Path, folder: &Path) -> io::Result<PathBuf> {
    let target = fs::canonicalize(path)?;
    if !target.starts_with(fs::canonicalize(folder)?) {
        let problem = format!("links to `{}` in another directory", target.display());
        return Err(io::Error::other(problem));
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_core::tool::{Origin, ToolDefinition};

    fn tool(server: &str) -> ToolDefinition {
        let mut definition = ToolDefinition::new("t");
        definition.origin = Origin::Server { server: server.into(), tool: "t".into() };
        definition
    }

    fn file() -> (tempfile::TempDir, LockFile) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = LockFile::beside(&folder.path().join("ropeway.yaml"));
        (folder, file)
    }

    #[test]
    fn a_lock_round_trips_through_its_file() {
        let (folder, file) = file();
        assert_eq!(file.read().expect("no file"), None);
        let (text, ()) = file.update(|lock, _| lock.accept(&"s".into(), [&tool("s")])).expect("written");
        let (lock, read) = file.read().expect("readable").expect("a file");
        assert_eq!((read, lock.check(&tool("s"))), (text, None));
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing is left behind");
    }

    #[test]
    fn concurrent_updates_are_all_kept() {
        let (_folder, file) = file();
        std::thread::scope(|scope| {
            for number in 0..16 {
                let file = &file;
                scope.spawn(move || {
                    let alias = format!("s{number}");
                    file.update(|lock, _| lock.accept(&alias.as_str().into(), [&tool(&alias)])).expect("written");
                });
            }
        });
        assert_eq!(file.read().expect("readable").expect("a file").0.servers().count(), 16);
    }

    #[test]
    fn an_invalid_file_is_not_overwritten() {
        let (_folder, file) = file();
        for text in ["precious", "{\"version\": 9}", ""] {
            fs::write(file.path(), text).expect("a file");
            file.update(|lock, _| lock.accept(&"s".into(), [&tool("s")])).expect_err("no lock");
            assert_eq!(fs::read_to_string(file.path()).expect("a file"), text);
        }
        fs::write(file.path(), [0xff]).expect("a file");
        let broken = file.read().expect_err("no text").to_string();
        assert!(broken.ends_with("ropeway.lock: not UTF-8"), "{broken}");
        fs::remove_file(file.path()).expect("removed");
        fs::create_dir(file.path()).expect("a folder");
        assert!(matches!(file.read(), Err(LockError::Read { .. })));
        let sparse = File::create(file.path().with_file_name("huge")).expect("a file");
        sparse.set_len(MAX_BYTES + 1).expect("a size");
        fs::remove_dir(file.path()).expect("removed");
        fs::rename(file.path().with_file_name("huge"), file.path()).expect("renamed");
        let huge = std::error::Error::source(&file.read().expect_err("huge")).map(ToString::to_string);
        assert_eq!(huge.as_deref(), Some("larger than 32 MiB"));
    }

    #[test]
    fn a_link_is_followed_to_a_valid_lock_only() {
        let (folder, file) = file();
        let target = folder.path().join("elsewhere");
        std::os::unix::fs::symlink(&target, file.path()).expect("a link");
        let accept = || file.update(|lock, _| lock.accept(&"s".into(), [&tool("s")]));
        accept().expect_err("it leads nowhere");
        assert!(!target.exists());
        fs::write(&target, Lock::new().to_text()).expect("a lock");
        accept().expect("written");
        assert!(fs::symlink_metadata(file.path()).expect("a link").is_symlink());
        assert!(fs::read_to_string(&target).expect("a lock").contains("\"s\""));
    }

    #[test]
    fn a_link_to_another_folder_is_not_written() {
        let ((_mine, mine), (_theirs, theirs)) = (file(), file());
        let before = Lock::new().to_text();
        fs::write(theirs.path(), &before).expect("a lock");
        std::os::unix::fs::symlink(theirs.path(), mine.path()).expect("a link");
        let refused = mine.update(|lock, _| lock.accept(&"s".into(), [&tool("s")])).expect_err("another folder");
        let why = std::error::Error::source(&refused).expect("a source").to_string();
        let target = fs::canonicalize(theirs.path()).expect("a path");
        assert_eq!(why, format!("links to `{}` in another directory", target.display()));
        assert_eq!(fs::read_to_string(theirs.path()).expect("a lock"), before);
    }

    #[test]
    fn a_pipe_is_rejected_without_blocking() {
        let (_folder, file) = file();
        let made = std::process::Command::new("mkfifo").arg(file.path()).status().expect("mkfifo");
        assert!(made.success());
        assert!(matches!(file.read(), Err(LockError::Read { .. })));
    }
}
