//! Reads a line from the terminal without echo, for passphrases.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, IsTerminal as _, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::termios::{LocalModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcsetattr};

/// Maximum line size in bytes.
const MAX_LINE: u64 = 4096;

/// The terminal and its original modes, while echo is off.
///
/// Process-wide, because the process may end while [`read_line`] blocks: the signal and watchdog threads then call
/// [`restore`]. `read_line` fills it before it turns echo off, and calls `restore` itself afterwards. The call that
/// takes the value restores the modes; later calls do nothing. No lock is held while `read_line` waits for input.
static SAVED: Mutex<Option<(OwnedFd, Termios)>> = Mutex::new(None);

fn saved() -> MutexGuard<'static, Option<(OwnedFd, Termios)>> {
    SAVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the terminal: standard input, or `/dev/tty` if standard input is something else.
fn terminal() -> io::Result<File> {
    if io::stdin().is_terminal() {
        return io::stdin().as_fd().try_clone_to_owned().map(File::from);
    }
    File::open("/dev/tty")
}

/// Returns `true` if a line can be asked for.
pub(crate) fn is_available() -> bool {
    io::stderr().is_terminal() && terminal().is_ok()
}

/// Asks for a line without echo. Returns `None` at the end of input.
pub(crate) fn read_line(prompt: &str) -> io::Result<Option<String>> {
    let terminal = terminal()?;
    let original = tcgetattr(&terminal)?;
    let mut silent = original.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    silent.local_modes.insert(LocalModes::ICANON | LocalModes::ECHONL | LocalModes::ISIG);
    *saved() = Some((terminal.as_fd().try_clone_to_owned()?, original));
    let read = tcsetattr(&terminal, OptionalActions::Now, &silent).map_err(io::Error::from).and_then(|()| {
        // Input typed before the prompt is not an answer.
        let _ = tcflush(&terminal, QueueSelector::IFlush);
        io::stderr().write_all(prompt.as_bytes())?;
        let mut line = String::new();
        let length = BufReader::new(&terminal).take(MAX_LINE).read_line(&mut line)?;
        Ok((length > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned()))
    });
    restore();
    read
}

/// Restores the original terminal modes, if they are changed.
pub(crate) fn restore() {
    if let Some((terminal, modes)) = saved().take() {
        // The terminal may be closed.
        let _ = tcsetattr(terminal, OptionalActions::Now, &modes);
    }
}
