//! Printing: results on standard output, messages on standard error.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::Interest;
use tokio::net::unix::pipe;

use crate::failure::Failure;
use crate::secrets::redaction;
use crate::terminal::charset::for_locale;
use crate::terminal::pager::Pager;
use crate::terminal::text::clean_json;

/// Set once a result was written to standard output.
static HAS_WRITTEN: AtomicBool = AtomicBool::new(false);

/// Set while the last result on standard output does not end its line.
static IS_MID_LINE: AtomicBool = AtomicBool::new(false);

/// Returns `true` once a result was written to standard output.
pub(crate) fn has_written() -> bool {
    HAS_WRITTEN.load(Ordering::Relaxed)
}

/// Prints a result with secrets redacted. A closed pipe is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_unredacted(&for_locale(&redaction::redact(text)))
}

/// Prints a result, or pages it when the command ends if it is longer than the screen.
pub(crate) fn print_paged(pager: &Pager, text: &str) -> Result<(), Failure> {
    print_paged_unredacted(pager, &for_locale(&redaction::redact(text)))
}

/// Like [`print_paged`], for a tool result, without redaction.
pub(crate) fn print_paged_unredacted(pager: &Pager, text: &str) -> Result<(), Failure> {
    if pager.take_long(text) { Ok(()) } else { print_unredacted(text) }
}

/// Prints a tool result, without redaction.
pub(crate) fn print_unredacted(text: &str) -> Result<(), Failure> {
    write(text).map(drop)
}

/// The state of standard output's reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReaderState {
    /// The reader accepts more output.
    Open,
    /// The reader closed the pipe.
    Closed,
}

/// Writes to standard output and returns the reader's state.
pub(crate) fn write(text: &str) -> Result<ReaderState, Failure> {
    write_to(anstream::stdout().lock(), text.as_bytes())
}

/// Writes bytes to standard output unchanged; [`write`] strips escape sequences for pipes.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    IS_MID_LINE.store(bytes.last().is_some_and(|last| *last != b'\n'), Ordering::Relaxed);
    write_to(std::io::stdout().lock(), bytes).map(drop)
}

fn write_to(mut stdout: impl Write, bytes: &[u8]) -> Result<ReaderState, Failure> {
    HAS_WRITTEN.store(true, Ordering::Relaxed);
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(ReaderState::Open),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ReaderState::Closed),
        Err(error) => Err(Failure::usage("could not write the result").caused_by(&error)),
    }
}

/// Waits until standard output's reader closes the pipe, or forever if that cannot be detected.
pub(crate) async fn reader_closed() {
    // Files cannot be watched. Nothing is written here, so blocking mode does not matter.
    let copy = std::io::stdout().as_fd().try_clone_to_owned().map(File::from);
    match copy.and_then(pipe::Sender::from_file_unchecked) {
        Ok(stdout) if stdout.ready(Interest::ERROR).await.is_ok() => {}
        _ => std::future::pending().await,
    }
}

/// Prints a result as JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let json =
        redaction::to_json(value, true).map_err(|error| Failure::usage("the result is not JSON").caused_by(&error))?;
    print_unredacted(&(json + "\n"))
}

/// Prints a result as one line of JSON.
pub(crate) fn print_json_line(value: &impl serde::Serialize) -> Result<(), Failure> {
    let json =
        redaction::to_json(value, false).map_err(|error| Failure::usage("the result is not JSON").caused_by(&error))?;
    print_unredacted(&(json + "\n"))
}

/// Formats a tool result as JSON, without redaction.
pub(crate) fn json_text(value: &impl serde::Serialize) -> Result<String, Failure> {
    let json = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::usage("the result is not JSON").caused_by(&error))?;
    Ok(clean_json(&json) + "\n")
}

/// Starts a line on standard error, if standard output goes to the same place and its last line has no end.
pub(crate) fn start_line() {
    let is_shared = || {
        let place = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        let (stdout, stderr) = (rustix::fs::fstat(std::io::stdout()), rustix::fs::fstat(std::io::stderr()));
        stdout.is_ok_and(|stdout| stderr.is_ok_and(|stderr| place(stdout) == place(stderr)))
    };
    if IS_MID_LINE.swap(false, Ordering::Relaxed) && is_shared() {
        let _ = std::io::stderr().write_all(b"\n");
    }
}

/// Prints a message to standard error with secrets redacted.
pub(crate) fn say(text: &str) {
    start_line();
    // Errors on standard error cannot be reported.
    let _ = anstream::stderr().lock().write_all(for_locale(&redaction::redact(text)).as_bytes());
}
