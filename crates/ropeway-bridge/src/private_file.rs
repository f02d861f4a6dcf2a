//! Files that only their owner may read.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Replaces a file atomically, creating its directory.
pub(super) fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let new = path.with_extension(format!("{:016x}.new", fastrand::u64(..)));
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
    let written = file.and_then(|mut file| file.write_all(text));
    written.and_then(|()| fs::rename(&new, path)).inspect_err(|_| drop(fs::remove_file(&new)))
}
