//! A setting: what every command needs to know besides its own options.

use std::time::Duration;

use ropeway::event::Events;

use crate::connect::deadline::{Deadline, PendingServers};
use crate::terminal::pager::Pager;
use crate::terminal::status::Status;
use crate::trust::Mode;

/// What every command needs to know besides its own options.
pub(crate) struct CommandContext {
    /// The result is for scripts.
    pub(crate) json: bool,
    /// Somebody wants to see what happens underneath.
    pub(crate) verbose: bool,
    /// How long the command may take.
    pub(crate) deadline: Option<Deadline>,
    /// Whom it waits for.
    pub(crate) waiting: PendingServers,
    /// Where it is shown what is being waited for.
    pub(crate) status: Status,
    /// Where everything that happens is told.
    pub(crate) events: Events,
    /// Whether project files are trusted for this run.
    pub(crate) trust: Mode,
    /// Output that is paged when the command is done.
    pub(crate) pager: Pager,
}

impl CommandContext {
    pub(crate) fn new(json: bool, timeout: Option<Duration>, verbose: bool, trust: Mode) -> Self {
        let waiting = PendingServers::default();
        let deadline = timeout.map(|timeout| Deadline::new(timeout, waiting.clone()));
        let (status, events, pager) = (Status::new(verbose), Events::default(), Pager::default());
        Self { json, verbose, deadline, waiting, status, events, trust, pager }
    }
}
