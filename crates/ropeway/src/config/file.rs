//! Regular files of a bounded size: read whole, or refused.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// No secret is larger, nor is a list of them.
const LARGEST: usize = 1 << 20;

/// `O_NONBLOCK`: opening a pipe does not wait for its writer.
#[cfg(target_os = "linux")]
const NONBLOCK: i32 = rustix::pipe::PipeFlags::NONBLOCK.bits() as i32;
#[cfg(not(target_os = "linux"))]
const NONBLOCK: i32 = 0;

/// Reads the text of a small file, without its byte order mark.
pub(super) fn read(path: &Path) -> io::Result<String> {
    let text = read_regular(path, LARGEST)?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Reads the text of a regular file of at most `largest` bytes.
///
/// Pipes and devices, which may never begin or never end, are refused without waiting for them.
pub fn read_regular(path: &Path, largest: usize) -> io::Result<String> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(largest as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > largest {
        let problem = format!("it is larger than {} MiB", largest >> 20);
        return Err(io::Error::new(ErrorKind::FileTooLarge, problem));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}

/// Opens a regular file for reading. Pipes and devices are refused without waiting for them.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Opening some devices has an effect already.
    check_regular(&fs::metadata(path)?)?;
    let file = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path)?;
    // Another file may have taken the place of the first.
    check_regular(&file.metadata()?)?;
    Ok(file)
}

fn check_regular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_dir() {
        return Err(io::Error::new(ErrorKind::IsADirectory, "it is a folder"));
    }
    if !metadata.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit_and_without_its_mark() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, "\u{feff}text").expect("a file");
        assert_eq!(read(&path).expect("a text"), "text");
        fs::write(&path, vec![b'x'; LARGEST]).expect("a file");
        assert_eq!(read(&path).expect("a text").len(), LARGEST);
        fs::write(&path, vec![b'x'; LARGEST + 1]).expect("a file");
        assert_eq!(read(&path).expect_err("too large").to_string(), "it is larger than 1 MiB");
        fs::write(&path, b"\xff").expect("a file");
        assert_eq!(read(&path).expect_err("no text").to_string(), "it is not UTF-8");
    }

    #[test]
    fn a_device_a_pipe_and_a_folder_are_refused_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
        assert!(made.success());
        for path in [Path::new("/dev/zero"), &pipe] {
            assert_eq!(read(path).expect_err("no file").to_string(), "it is not a regular file");
        }
        #[cfg(target_os = "linux")]
        {
            let opened = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(&pipe);
            let opened = opened.expect("a pipe without a writer");
            check_regular(&opened.metadata().expect("metadata")).expect_err("no file");
        }
        assert_eq!(read(folder.path()).expect_err("no file").to_string(), "it is a folder");
    }
}
