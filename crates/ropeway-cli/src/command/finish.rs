//! The end of a command: its output in a pager, its failure, and its deadline.

use std::process::ExitCode;
use std::time::Duration;

use ropeway::mcp::{end_children, end_descendants, ignore_interrupts};
use tokio::time::Instant;

use crate::chat::line_editor;
use crate::connect::deadline::Deadline;
use crate::failure::{Exit, Failure};
use crate::output::print::{has_written, print_json, print_unredacted, say};
use crate::terminal::{hidden_input, pager, status};

/// Delay after the deadline before the process is killed.
const FORCE: Duration = Duration::from_millis(700);

/// Prints the output of a command, in a pager if it is longer than the screen.
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

/// Prints the failure of a command and returns its exit code.
pub(super) fn finish(done: Result<Exit, Failure>, is_document: bool) -> ExitCode {
    let exit = done.unwrap_or_else(|failure| {
        fail(&failure, is_document);
        failure.exit()
    });
    ExitCode::from(exit as u8)
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
pub(super) fn watch(deadline: Deadline, is_document: bool) {
    let watchdog = std::thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
        let end = deadline.at() + FORCE;
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        // The command is done, and its output is in the pager.
        if pager::is_open() {
            return;
        }
        end_children();
        leave();
        fail(&deadline.failure(), is_document);
        std::process::exit(Exit::Timeout as i32);
    });
    // Without a thread, the deadline of the runtime still applies.
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
