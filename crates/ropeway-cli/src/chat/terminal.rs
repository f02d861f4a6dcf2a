//! The user at a terminal: the line editor, Ctrl-C and printed text.

use tokio::signal::unix::Signal;

use super::line_editor::LineEditor;
use crate::output::print::write;
use crate::secrets::redaction;

/// A user at an interactive terminal.
///
/// An interactive chat owns it and uses it on one task, so only that task reads keys. An open prompt reads
/// Ctrl-C as a key; `interrupts` receives the signal while no prompt is open.
pub(crate) struct TerminalUser {
    pub(crate) editor: LineEditor,
    /// Ctrl-C during a turn.
    pub(crate) interrupts: Signal,
}

/// Prints redacted text to standard output, where the user also reads the model's answers and the questions.
pub(crate) fn print_to_user(text: &str) {
    // A closed terminal has no reader.
    let _ = write(&redaction::redact(text));
}

/// Discards Ctrl-C signals that arrived before the current line was typed.
pub(super) async fn drain_signals(interrupts: &mut Signal) {
    loop {
        tokio::select! {
            biased;
            Some(()) = interrupts.recv() => {}
            () = std::future::ready(()) => return,
        }
    }
}

/// Waits for Ctrl-C, forever if `user` is `None`.
pub(super) async fn wait_for_interrupt(user: Option<&mut TerminalUser>) {
    if let Some(user) = user
        && user.interrupts.recv().await.is_some()
    {
        return;
    }
    std::future::pending().await
}
