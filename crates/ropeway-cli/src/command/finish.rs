//! How a command ends: its output in a pager, its failure, and its deadline.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

use ropeway_mcp::{end_children, end_descendants, ignore_interrupts};
use tokio::time::Instant;

use crate::chat::line_editor;
use crate::connect::deadline::Deadline;
use crate::failure::{Exit, Failure};
use crate::output::print::{has_written, print_json, print_unredacted, say};
use crate::terminal::{hidden_input, pager, status};

/// Delay after the deadline before the process is killed.
const FORCE: Duration = Duration::from_millis(700);

/// Prints a command's output, in a pager if it is longer than the screen.
pub(super) fn page(text: &str) -> Result<(), Failure> {
    if text.is_empty() {
        return Ok(());
    }
    let Some(words) = pager::wanted(text) else { return print_unredacted(text) };
    ignore_interrupts(true);
    if pager::show(&words, text) {
        // Interrupts stay ignored: one that was meant for the pager may be handled after its exit.
        return Ok(());
    }
    ignore_interrupts(false);
    print_unredacted(text)
}

/// Prints a command's failure and returns its exit code. `report` is shared with the watchdog, if one runs.
pub(super) fn finish(done: Result<Exit, Failure>, is_document: bool, report: &Report) -> ExitCode {
    let exit = done.unwrap_or_else(|failure| {
        report.print_once(|| fail(&failure, is_document));
        failure.exit()
    });
    ExitCode::from(exit as u8)
}

/// The right to print a command's failure, which the command and its watchdog thread share: both may notice a deadline at
/// the same moment, and the first one prints.
///
/// Each side holds the lock while it prints. The command waits for the lock; the watchdog only tries to take it, since
/// the command may be stuck while it prints. A watchdog that has printed never releases the lock, so the command waits
/// until the process ends and cannot print a second failure.
#[derive(Clone, Default)]
pub(super) struct Report(Arc<Mutex<bool>>);

impl Report {
    /// Prints unless the watchdog has printed. Waits if it is printing, which ends the process.
    fn print_once(&self, print: impl FnOnce()) {
        let mut is_printed = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !std::mem::replace(&mut *is_printed, true) {
            print();
        }
    }

    /// Prints unless the command has begun to, which may be stuck at that. Returns `true` if it printed; the command then
    /// waits until the process ends.
    fn print_last(&self, print: impl FnOnce()) -> bool {
        let mut is_printed = match self.0.try_lock() {
            Ok(is_printed) => is_printed,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        if *is_printed {
            return false;
        }
        *is_printed = true;
        print();
        std::mem::forget(is_printed);
        true
    }
}

/// Prints a failure to standard error and, with `--json`, as the document on standard output, unless the command has
/// already printed one.
fn fail(failure: &Failure, is_document: bool) {
    if is_document && !has_written() {
        // A closed pipe is ignored.
        let _ = print_json(&serde_json::json!({"error": failure.record()}));
    }
    say(&failure.render());
}

/// Kills the process after the deadline, even if it is stuck.
pub(super) fn watch(deadline: Deadline, is_document: bool, report: Report) {
    let watchdog = std::thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
        let end = deadline.at() + FORCE;
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        // The command is done, and its output is in the pager.
        if pager::is_open() {
            return;
        }
        end_children();
        leave();
        if !report.print_last(|| fail(&deadline.failure(), is_document)) {
            std::thread::sleep(FORCE);
        }
        std::process::exit(Exit::Timeout as i32);
    });
    // Without a thread, the runtime's deadline still applies.
    drop(watchdog);
}

/// Cleans up when the process ends early.
pub(super) fn leave() {
    pager::end();
    end_descendants();
    leave_terminal();
}

/// Restores the terminal when the process ends early.
pub(super) fn leave_terminal() {
    status::leave();
    line_editor::restore();
    hidden_input::restore();
    pager::restore();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_and_its_watchdog_print_one_failure() {
        let report = Report::default();
        let mut printed = 0;
        report.print_once(|| printed += 1);
        report.print_once(|| printed += 1);
        assert!(!report.print_last(|| printed += 1));
        assert_eq!(printed, 1);
    }

    #[test]
    fn a_watchdog_does_not_wait_for_a_command_that_is_stuck_at_printing() {
        let report = Report::default();
        let mut printed = 0;
        report.print_once(|| assert!(!report.print_last(|| printed += 1)));
        let report = Report::default();
        assert!(report.print_last(|| printed += 1));
        assert!(!report.print_last(|| printed += 1), "the command waits from now on");
        assert_eq!(printed, 1);
    }
}
