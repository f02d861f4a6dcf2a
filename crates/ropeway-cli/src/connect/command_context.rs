//! A command's context: global options and shared state.

use std::time::Duration;

use ropeway_core::event::Events;
use serde::Serialize;

use crate::connect::deadline::{Deadline, PendingServers};
use crate::failure::Failure;
use crate::output::print::{print, print_json, print_paged};
use crate::terminal::pager::Pager;
use crate::terminal::status::Status;
use crate::trust::TrustMode;

/// A command's global options and shared state.
pub(crate) struct CommandContext {
    /// Set by `--json`.
    pub(crate) json: bool,
    /// Set by `-v`.
    pub(crate) verbose: bool,
    /// Set by `--timeout`.
    pub(crate) deadline: Option<Deadline>,
    /// The servers that the command waits for.
    pub(crate) waiting: PendingServers,
    pub(crate) status: Status,
    /// The command's events.
    pub(crate) events: Events,
    /// Set by `--trust`.
    pub(crate) trust: TrustMode,
    /// Output to page when the command ends.
    pub(crate) pager: Pager,
}

impl CommandContext {
    pub(crate) fn new(json: bool, timeout: Option<Duration>, verbose: bool, trust: TrustMode, pager: Pager) -> Self {
        let waiting = PendingServers::default();
        let deadline = timeout.map(|timeout| Deadline::new(timeout, waiting.clone()));
        let (status, events) = (Status::new(verbose), Events::default());
        Self { json, verbose, deadline, waiting, status, events, trust, pager }
    }

    /// Prints a result: JSON with `--json`, and text otherwise.
    pub(crate) fn print(&self, json: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.json { print_json(json) } else { print(&text()) }
    }

    /// Like [`print`](Self::print), for a text that is paged if it is longer than the screen.
    pub(crate) fn print_long(&self, json: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.json { print_json(json) } else { print_paged(&self.pager, &text()) }
    }
}
