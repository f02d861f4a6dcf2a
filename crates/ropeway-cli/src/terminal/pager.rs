//! The pager for output that is longer than the screen.

use std::io::{IsTerminal as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::terminal::text::columns;

/// Variables that select the pager, in order of precedence.
const VARIABLES: [&str; 2] = ["ROPEWAY_PAGER", "PAGER"];

/// The default pager: exits if the text fits on the screen, keeps colours and the text.
const USUAL: &str = "less -FRX";

/// Set while the pager is open. Ctrl-C and the deadline do not apply then.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// Set when the process ends together with the pager.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// The terminal settings before the pager started.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Collects long output, which is paged when the command ends and no server is running.
///
/// Clones share one text: the command context hands clones to the code that prints, and the text is taken when the
/// command has ended. The mutex is a std one, held only to append to or take the text, never while a pager runs. Dropping
/// a pager discards text that was not taken.
///
/// The pager process itself is process-wide state. [`show`] blocks its thread and sets `IS_OPEN` for that time; it
/// records the terminal settings in `BEFORE` first. The signal and watchdog threads only call [`is_open`], [`end`] and
/// [`restore`]: after `end`, `show` never returns, so that these threads decide the exit code.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pager {
    text: Arc<Mutex<String>>,
    /// Set by `--no-pager`.
    is_off: bool,
}

impl Pager {
    /// Creates a pager, or one that pages nothing.
    pub(crate) fn new(is_off: bool) -> Self {
        Self { is_off, ..Self::default() }
    }

    /// Takes a text that is longer than the screen. Returns `false` if it must be printed.
    pub(crate) fn take_long(&self, text: &str) -> bool {
        let is_taken = !self.is_off && wanted(text).is_some();
        if is_taken {
            self.push(text);
        }
        is_taken
    }

    /// Appends text.
    fn push(&self, text: &str) {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
    }

    /// Takes the collected text.
    pub(crate) fn take(&self) -> String {
        std::mem::take(&mut *self.text.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns `true` while the pager is open.
pub(crate) fn is_open() -> bool {
    IS_OPEN.load(Ordering::Relaxed)
}

/// Marks the process as ending: [`show`] does not return, so its caller cannot set another exit code.
pub(crate) fn end() {
    IS_ENDING.store(true, Ordering::Relaxed);
}

/// Restores the terminal settings when the process ends while the pager is open.
pub(crate) fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let (true, Some(before)) = (is_open(), before) {
        // The terminal may be closed.
        let _ = tcsetattr(std::io::stdout(), OptionalActions::Now, &before);
    }
}

/// Returns the pager's command for a text that does not fit on the terminal.
pub(crate) fn wanted(text: &str) -> Option<Vec<String>> {
    let stdout = std::io::stdout();
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    if is_dumb || !stdout.is_terminal() {
        return None;
    }
    let (terminal_size::Width(width), terminal_size::Height(height)) = terminal_size::terminal_size_of(&stdout)?;
    if rows(text, usize::from(width)) < usize::from(height) {
        return None;
    }
    words(VARIABLES.iter().find_map(std::env::var_os).map(|named| named.to_string_lossy().into_owned()).as_deref())
}

/// Returns how many rows a text takes.
fn rows(text: &str, width: usize) -> usize {
    let plain = anstream::adapter::strip_str(text).to_string();
    plain.lines().map(|line| columns(line).div_ceil(width.max(1)).max(1)).sum()
}

/// Splits the pager's command. An empty command and `cat` disable paging.
fn words(named: Option<&str>) -> Option<Vec<String>> {
    // Runs without a shell, like `--stdio`.
    let words = shlex::split(named.unwrap_or(USUAL))?;
    (!words.is_empty() && words != ["cat"]).then_some(words)
}

/// Shows a text in the pager and waits for its end. Returns `false` if the pager did not start.
pub(crate) fn show(words: &[String], text: &str) -> bool {
    let [program, arguments @ ..] = words else { return false };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped());
    // Git's defaults: keep colours, and exit if the text fits.
    for (name, value) in [("LESS", "FRX"), ("LV", "-c")] {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = tcgetattr(std::io::stdout()).ok();
    IS_OPEN.store(true, Ordering::Relaxed);
    let started = command.spawn();
    let is_started = started.is_ok();
    if let Ok(mut pager) = started {
        if let Some(mut input) = pager.stdin.take() {
            let colours = anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never;
            let plain;
            let text = if colours {
                text
            } else {
                plain = anstream::adapter::strip_str(text).to_string();
                &plain
            };
            // A pager that exits early does not read the rest.
            let _ = input.write_all(text.as_bytes());
        }
        // The pager's exit status does not matter.
        let _ = pager.wait();
    }
    while IS_ENDING.load(Ordering::Relaxed) {
        std::thread::park();
    }
    IS_OPEN.store(false, Ordering::Relaxed);
    is_started
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pager_is_named_in_words_and_an_empty_name_stands_for_none() {
        assert_eq!(words(None), Some(vec!["less".to_owned(), "-FRX".to_owned()]));
        assert_eq!(words(Some("most -s 'a b'")), Some(["most", "-s", "a b"].map(str::to_owned).into()));
        assert_eq!(["", " ", "cat", "'open"].map(|named| words(Some(named))), [None, None, None, None]);
    }

    #[test]
    fn rows_are_counted_as_the_window_wraps_them() {
        assert_eq!(rows("", 10), 0);
        assert_eq!(rows("\u{1b}[1mone\u{1b}[0m\n\n12345678901\n", 10), 4);
        assert_eq!(rows("日本日本日本", 10), 2);
    }
}
