//! Printing: results on standard output, messages on standard error.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::Interest;
use tokio::net::unix::pipe;

use crate::failure::Failure;
use crate::secrets::redaction;
use crate::terminal::pager::{self, Pager};
use crate::terminal::text::clean_json;

/// Something was written to standard output.
static HAS_WRITTEN: AtomicBool = AtomicBool::new(false);

/// Returns `true` once a result was written to standard output.
pub(crate) fn has_written() -> bool {
    HAS_WRITTEN.load(Ordering::Relaxed)
}

/// Writes the result to standard output. A reader that left, as `head` does, has what it wanted.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_unredacted(&redaction::redact(text))
}

/// Writes the result to standard output once the servers have ended, page by page where it is longer than the screen.
pub(crate) fn print_paged(pager: &Pager, text: &str) -> Result<(), Failure> {
    let text = redaction::redact(text);
    match pager::wanted(&text) {
        Some(_) => pager.push(&text),
        None => print_unredacted(&text)?,
    }
    Ok(())
}

/// The same for a tool's own answer, which may say whatever it was asked for.
pub(crate) fn print_unredacted(text: &str) -> Result<(), Failure> {
    write(text).map(drop)
}

/// Whoever reads what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReaderState {
    /// May want more.
    Open,
    /// Has what it wanted.
    Closed,
}

/// Writes to standard output, and says whether anybody is left to read more.
pub(crate) fn write(text: &str) -> Result<ReaderState, Failure> {
    write_to(anstream::stdout().lock(), text.as_bytes())
}

/// Writes bytes to standard output as they are; [`write`] removes escape sequences on their way into a pipe.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
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

/// Waits until nobody reads standard output any more; for ever where that cannot be seen.
pub(crate) async fn reader_closed() {
    // What has no reader, as a file, cannot be watched. Nothing is written here: that it would block does not matter.
    let copy = std::io::stdout().as_fd().try_clone_to_owned().map(File::from);
    match copy.and_then(pipe::Sender::from_file_unchecked) {
        Ok(stdout) if stdout.ready(Interest::ERROR).await.is_ok() => {}
        _ => std::future::pending().await,
    }
}

/// Writes a result for scripts.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let json =
        redaction::to_json(value, true).map_err(|error| Failure::usage("the result is not JSON").caused_by(&error))?;
    print_unredacted(&(json + "\n"))
}

/// A tool's own answer for scripts, as one document.
pub(crate) fn json_text(value: &impl serde::Serialize) -> Result<String, Failure> {
    let json = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::usage("the result is not JSON").caused_by(&error))?;
    Ok(clean_json(&json) + "\n")
}

/// Writes what is not the result to standard error.
pub(crate) fn say(text: &str) {
    // Nobody is left to be told that nobody listens.
    let _ = anstream::stderr().lock().write_all(redaction::redact(text).as_bytes());
}
