//! Standard input in addition to a prompt: `git diff | ropeway chat -p 'review this'`.

use std::fs::File;
use std::io::{IsTerminal as _, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::oneshot;

use super::attachment::MAX_TEXT;
use crate::connect::deadline::Deadline;
use crate::failure::Failure;
use crate::output::print::say;
use crate::terminal::style::faint;

/// Delay before a note explains the wait.
const NOTE_DELAY: Duration = Duration::from_secs(3);

/// Time that a socket has to send data. Some parent processes pass one and never close it.
const SOCKET_TIMEOUT: Timespec = Timespec { tv_sec: 3, tv_nsec: 0 };

/// Standard input's file type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A file or a pipe, which ends.
    Stream,
    /// A socket, which may stay open.
    Socket,
    /// A terminal, a device, or closed.
    Other,
}

fn kind() -> Kind {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Kind::Other;
    }
    let Ok(file) = stdin.as_fd().try_clone_to_owned().map(File::from) else { return Kind::Other };
    match file.metadata().map(|metadata| metadata.file_type()) {
        Ok(kind) if kind.is_file() || kind.is_fifo() => Kind::Stream,
        Ok(kind) if kind.is_socket() => Kind::Socket,
        _ => Kind::Other,
    }
}

/// Reads piped or redirected standard input to its end. Returns `None` if it is blank.
///
/// Terminals and devices such as `/dev/null` are not read. A socket is read only if it sends data within 3 seconds.
pub(crate) async fn read_beside_prompt(deadline: Option<&Deadline>) -> Result<Option<String>, Failure> {
    let kind = kind();
    if kind == Kind::Other || (kind == Kind::Socket && !is_readable()) {
        return Ok(None);
    }
    let bytes = read(deadline).await?;
    if bytes.len() > MAX_TEXT {
        let failure = Failure::usage(format!("standard input is larger than {} MiB", MAX_TEXT >> 20));
        return Err(failure.hint("use `< /dev/null` to skip standard input"));
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        let failure = Failure::usage("standard input is not UTF-8 text");
        failure.hint("attach images and PDFs with `--attach FILE`; use `< /dev/null` to skip standard input")
    })?;
    Ok(Some(text).filter(|text| !text.trim().is_empty()))
}

/// Reads on a thread, so that a silent pipe cannot block past the deadline.
async fn read(deadline: Option<&Deadline>) -> Result<Vec<u8>, Failure> {
    let (send, received) = oneshot::channel();
    let thread = std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let mut bytes = Vec::new();
        let read = std::io::stdin().lock().take(MAX_TEXT as u64 + 1).read_to_end(&mut bytes);
        // The command may have ended.
        let _ = send.send(read.map(|_| bytes));
    });
    let unreadable = |error: &std::io::Error| Failure::usage("could not read standard input").caused_by(error);
    thread.map_err(|error| unreadable(&error))?;
    let late = async {
        match deadline {
            Some(deadline) => tokio::time::sleep_until(deadline.at()).await,
            None => std::future::pending().await,
        }
    };
    let noted = async {
        tokio::time::sleep(NOTE_DELAY).await;
        say(&faint("waiting for the end of standard input; use `< /dev/null` to skip it\n"));
        std::future::pending::<()>().await;
    };
    let read = tokio::select! {
        biased;
        read = received => read,
        () = late => {
            let failure = deadline.map_or_else(|| Failure::usage("the command timed out"), Deadline::failure);
            return Err(failure.hint("standard input is still open; use `< /dev/null` to skip it"));
        }
        () = noted => return Ok(Vec::new()),
    };
    match read {
        Ok(read) => read.map_err(|error| unreadable(&error)),
        Err(_) => Ok(Vec::new()),
    }
}

/// Waits until a socket is readable or closed, or the timeout expires.
fn is_readable() -> bool {
    let stdin = std::io::stdin();
    let mut waiting = [PollFd::new(&stdin, PollFlags::IN)];
    poll(&mut waiting, Some(&SOCKET_TIMEOUT)).is_ok_and(|count| count > 0)
}
