//! Reads regular files with a size limit.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Maximum size, in bytes, for a file with secrets.
const MAX_BYTES: usize = 1 << 20;

/// `O_NONBLOCK`: opening a pipe does not wait for a writer.
#[cfg(target_os = "linux")]
const NONBLOCK: i32 = rustix::pipe::PipeFlags::NONBLOCK.bits() as i32;
#[cfg(not(target_os = "linux"))]
const NONBLOCK: i32 = 0;

/// Reads a file of at most [`MAX_BYTES`], without its byte order mark.
pub(super) fn read(path: &Path) -> io::Result<String> {
    let text = read_regular(path, MAX_BYTES)?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Reads a regular UTF-8 file of at most `max_bytes`.
///
/// # Errors
///
/// Fails without blocking for pipes and devices, and for files that are larger or not UTF-8.
pub fn read_regular(path: &Path, max_bytes: usize) -> io::Result<String> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(max_bytes as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > max_bytes {
        let problem = format!("file is larger than {} MiB", max_bytes >> 20);
        return Err(io::Error::new(ErrorKind::FileTooLarge, problem));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "file is not valid UTF-8"))
}

/// Opens a regular file for reading.
///
/// # Errors
///
/// Fails without blocking for directories, pipes and devices.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Opening a device may have side effects.
    check_regular(&fs::metadata(path)?)?;
    let file = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path)?;
    // The file may have been replaced in the meantime.
    check_regular(&file.metadata()?)?;
    Ok(file)
}

fn check_regular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_dir() {
        return Err(io::Error::new(ErrorKind::IsADirectory, "path is a directory"));
    }
    if !metadata.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_up_to_the_limit_without_byte_order_mark() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, "\u{feff}text").expect("a file");
        assert_eq!(read(&path).expect("a text"), "text");
        fs::write(&path, vec![b'x'; MAX_BYTES]).expect("a file");
        assert_eq!(read(&path).expect("a text").len(), MAX_BYTES);
        fs::write(&path, vec![b'x'; MAX_BYTES + 1]).expect("a file");
        assert_eq!(read(&path).expect_err("too large").to_string(), "file is larger than 1 MiB");
        fs::write(&path, b"\xff").expect("a file");
        assert_eq!(read(&path).expect_err("no text").to_string(), "file is not valid UTF-8");
    }

    #[test]
    fn devices_pipes_and_directories_are_rejected_without_blocking() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
        assert!(made.success());
        for path in [Path::new("/dev/zero"), &pipe] {
            assert_eq!(read(path).expect_err("no file").to_string(), "not a regular file");
        }
        #[cfg(target_os = "linux")]
        {
            let opened = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(&pipe);
            let opened = opened.expect("a pipe without a writer");
            check_regular(&opened.metadata().expect("metadata")).expect_err("no file");
        }
        assert_eq!(read(folder.path()).expect_err("no file").to_string(), "path is a directory");
    }
}
