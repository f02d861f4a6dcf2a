//! A command's deadline and the servers it waits for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ropeway_core::duration::format_duration;
use ropeway_core::tool::Alias;
use tokio::time::Instant;

use crate::failure::{Exit, Failure};

/// The servers that the command waits for.
///
/// The command context, the deadline and the session share one list; the last writer wins. It has a
/// std mutex, because the watchdog thread reads the list when the deadline passes. The mutex is
/// never held across `.await` or together with another lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingServers(Arc<Mutex<Vec<Alias>>>);

impl PendingServers {
    fn lock(&self) -> MutexGuard<'_, Vec<Alias>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the servers. An empty list keeps the previous ones, which later steps are about.
    pub(crate) fn set(&self, servers: Vec<Alias>) {
        if !servers.is_empty() {
            *self.lock() = servers;
        }
    }

    /// Removes all servers: later steps are not about servers.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    pub(crate) fn servers(&self) -> Vec<Alias> {
        self.lock().clone()
    }
}

/// A time limit for a whole command.
#[derive(Clone, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    after: Duration,
    waiting: PendingServers,
}

impl Deadline {
    /// Creates a deadline that ends `after` this time.
    pub(crate) fn new(after: Duration, waiting: PendingServers) -> Self {
        Self { at: Instant::now() + after, after, waiting }
    }

    /// Returns when the deadline passes.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// Returns the time limit.
    pub(crate) fn after(&self) -> Duration {
        self.after
    }

    /// Returns the failure for a command that exceeds the deadline.
    pub(crate) fn failure(&self) -> Failure {
        let after = format_duration(self.after);
        let names: Vec<String> = self.waiting.lock().iter().map(|server| format!("`{server}`")).collect();
        let message = match &names[..] {
            [] => format!("the command timed out after {after}"),
            [server] => format!("server {server} did not respond within {after}"),
            servers => format!("servers {} did not respond within {after}", servers.join(", ")),
        };
        Failure::new(Exit::Timeout, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_names_the_pending_servers() {
        let waiting = PendingServers::default();
        let deadline = Deadline::new(Duration::from_secs(2), waiting.clone());
        let says = |servers: &[&str]| {
            waiting.set(servers.iter().map(|name| Alias::from(*name)).collect());
            deadline.failure().message().to_owned()
        };
        assert_eq!(says(&[]), "the command timed out after 2 s");
        assert_eq!(says(&["a"]), "server `a` did not respond within 2 s");
        assert_eq!(says(&["a", "b"]), "servers `a`, `b` did not respond within 2 s");
        assert_eq!(says(&[]), "servers `a`, `b` did not respond within 2 s");
        waiting.clear();
        assert_eq!(says(&[]), "the command timed out after 2 s");
    }
}
