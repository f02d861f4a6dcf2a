//! Small files beside a configuration: read whole, or refused.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// No secret is larger, nor is a list of them.
const LARGEST: usize = 1 << 20;

/// The text of a regular file that is not too large. A pipe or a device may have no end, or never begin.
pub(super) fn read(path: &Path) -> io::Result<String> {
    // Already to open a pipe is to wait for whoever writes into it.
    let metadata = fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(io::Error::new(ErrorKind::IsADirectory, "it is a folder"));
    }
    if !metadata.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > LARGEST {
        let problem = format!("it is larger than {} MiB", LARGEST >> 20);
        return Err(io::Error::new(ErrorKind::FileTooLarge, problem));
    }
    let text = String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
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
        assert_eq!(read(folder.path()).expect_err("no file").to_string(), "it is a folder");
    }
}
