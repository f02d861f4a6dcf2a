//! Which servers a command waits for.

use std::time::Duration;

/// Which servers a command waits for, if it has several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// All servers.
    #[default]
    ForAll,
    /// All except those that failed the last time, and [`SLOW_PATIENCE`] for those that were not ready then.
    UnlessFailed,
    /// Like `UnlessFailed`, and for this long once another one is available.
    Briefly(Duration),
}

/// How long a command waits for servers that it may not need.
pub(crate) const BRIEF_PATIENCE: Duration = Duration::from_secs(2);

/// How long a list waits for a server that was not ready the last time.
pub(crate) const SLOW_PATIENCE: Duration = Duration::from_secs(10);

/// For commands that may not need all servers.
pub(crate) const BRIEFLY: Waiting = Waiting::Briefly(BRIEF_PATIENCE);
