//! A pager: output that is longer than the screen, page by page.

use std::io::{IsTerminal as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::terminal::text::columns;

/// The variables that name a pager; the first that is set counts.
const VARIABLES: [&str; 2] = ["ROPEWAY_PAGER", "PAGER"];

/// The pager that is used when none is named: it ends at once if all fits on the screen, and keeps colours and the text.
const USUAL: &str = "less -FRX";

/// Whether a pager is being read. Meanwhile Ctrl-C and the time of the command are not about this process.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// Whether the process is about to end, with the pager.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// How the terminal was before a pager took it.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// What a command wants to be paged. It is shown when everything else is done, so that no server runs while a person reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pager(Arc<Mutex<String>>);

impl Pager {
    /// Adds to what is shown at the end.
    pub(crate) fn push(&self, text: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
    }

    /// Returns what is to be shown.
    pub(crate) fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns whether a pager is being read.
pub(crate) fn is_open() -> bool {
    IS_OPEN.load(Ordering::Relaxed)
}

/// Lets whoever ends the process choose its exit code: a pager that ends by force is not a pager that was left.
pub(crate) fn end() {
    IS_ENDING.store(true, Ordering::Relaxed);
}

/// Gives the terminal back as it was before the pager. For the end of the process in the midst of reading.
pub(crate) fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let (true, Some(before)) = (is_open(), before) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(std::io::stdout(), OptionalActions::Now, &before);
    }
}

/// Returns the words of the pager that should show a text, if one should: on a terminal, and only what does not fit on it.
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

/// How many rows a text takes in a window.
fn rows(text: &str, width: usize) -> usize {
    let plain = anstream::adapter::strip_str(text).to_string();
    plain.lines().map(|line| columns(line).div_ceil(width.max(1)).max(1)).sum()
}

/// The words of the named pager, or of the usual one. An empty name, and `cat`, stand for none.
fn words(named: Option<&str>) -> Option<Vec<String>> {
    // No shell is involved, as in `--stdio`.
    let words = shlex::split(named.unwrap_or(USUAL))?;
    (!words.is_empty() && words != ["cat"]).then_some(words)
}

/// Shows a text in a pager and waits until the person has read enough. Returns false if the pager could not be started.
pub(crate) fn show(words: &[String], text: &str) -> bool {
    let [program, arguments @ ..] = words else { return false };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped());
    // As for `git`: colours are kept, and what fits is printed at once.
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
            // A pager that was left early does not read the rest.
            let _ = input.write_all(text.as_bytes());
        }
        // However it ends, the person has read what they wanted.
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
