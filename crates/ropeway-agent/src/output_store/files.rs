//! Spill files: private files and directories, and readers for stored text.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file with an output's text.
#[derive(Clone, Debug)]
pub(crate) enum StoredText {
    Named(PathBuf),
    Unnamed(Arc<File>),
}

impl StoredText {
    pub(crate) fn open(&self) -> io::Result<TextReader> {
        let file = match self {
            Self::Named(path) => Arc::new(File::open(path)?),
            Self::Unnamed(file) => file.clone(),
        };
        Ok(TextReader { file, position: 0 })
    }
}

/// Reads a stored text. Several readers may share one file: each has its own position.
pub(crate) struct TextReader {
    file: Arc<File>,
    position: u64,
}

impl TextReader {
    pub(crate) fn seek(&mut self, position: u64) {
        self.position = position;
    }
}

impl io::Read for TextReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

/// A directory with named files.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    owner: u32,
}

impl Folder {
    /// Creates a directory with mode 0700.
    pub(super) fn create(parent: &Path) -> io::Result<Self> {
        create_unique(parent, |path| {
            DirBuilder::new().mode(0o700).create(path)?;
            Ok(Self { owner: fs::symlink_metadata(path)?.uid(), path: path.to_owned() })
        })
    }

    /// Returns `true` if the directory still exists with the same owner. In a world-writable directory, another user could have
    /// replaced it.
    pub(super) fn exists(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|found| found.is_dir() && found.uid() == self.owner)
    }
}

/// Creates a file with mode 0600. Fails if the path exists, also as a symbolic link.
pub(super) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Creates a file and removes its name before anything is written to it: the system deletes the file when it is closed, even if
/// the process is killed.
pub(super) fn create_unnamed() -> io::Result<File> {
    create_unique(&std::env::temp_dir(), |path| {
        let file = create_private(path)?;
        fs::remove_file(path).map(|()| file)
    })
}

/// Calls `create` with random paths below `parent` until one is free.
fn create_unique<T>(parent: &Path, create: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
    let mut tries = 0;
    loop {
        match create(&parent.join(format!("ropeway-{:016x}", fastrand::u64(..)))) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < 10 => tries += 1,
            result => return result,
        }
    }
}

/// Removes files; failures are ignored.
pub(super) fn remove_files(files: &[PathBuf]) {
    for file in files {
        let _ = fs::remove_file(file);
    }
}
