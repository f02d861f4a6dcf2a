//! The task that owns a JSON Lines link and its child process.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::child::ChildGroup;
use super::io_loop::IoLoop;
use super::outbox::Outbox;
use super::stderr::Stderr;
use crate::error::ConnectErrorKind;
use crate::pending::PendingRequests;
use ropeway_core::sync::lock;

/// How long to wait for the exit status after a child has closed its output.
const EXIT_GRACE: Duration = Duration::from_millis(200);

/// Why the client closes a link.
pub(super) enum CloseReason {
    /// The owner closes it. The child has this long to exit.
    Closed(Duration),
    /// The owner starts the server again. The child has this long to exit.
    Restarted(Duration),
    /// The server does not read its input.
    NotReading,
}

/// Waits until a link ends, fails its pending requests and terminates the child.
pub(super) struct LinkTask {
    pub(super) pending: Arc<PendingRequests>,
    pub(super) outbox: Arc<Mutex<Outbox>>,
    pub(super) child: Option<ChildGroup>,
    pub(super) stderr: Option<Arc<Stderr>>,
    pub(super) disconnected: watch::Sender<Option<Arc<ConnectErrorKind>>>,
}

/// Aborts a task when dropped.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl LinkTask {
    pub(super) async fn run(mut self, io_loop: IoLoop, mut closing: mpsc::UnboundedReceiver<CloseReason>) {
        let mut io_loop = AbortOnDrop(tokio::spawn(io_loop.run()));
        let mut grace = None;
        let cause = tokio::select! {
            ended = &mut io_loop.0 => self.hung_up(ended.ok().flatten()).await,
            status = exited(&mut self.child) => {
                // The last responses may still be in the pipe, which a grandchild may hold open.
                let _ = tokio::time::timeout(EXIT_GRACE, &mut io_loop.0).await;
                self.exit_cause(status).await
            }
            reason = closing.recv() => match reason {
                Some(CloseReason::NotReading) => self.hung_up(None).await,
                Some(CloseReason::Closed(given)) => {
                    grace = Some(given);
                    ConnectErrorKind::Closed
                }
                Some(CloseReason::Restarted(given)) => {
                    grace = Some(given);
                    ConnectErrorKind::Restarted
                }
                None => ConnectErrorKind::Closed,
            },
        };
        let cause = Arc::new(cause);
        // Closing stdin signals the server to exit
        // (https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#stdio).
        lock(&self.outbox).close();
        self.pending.fail_all(&cause);
        self.disconnected.send_replace(Some(cause));
        if let Some(child) = &mut self.child {
            child.terminate(grace.unwrap_or(Duration::from_millis(500))).await;
        }
        if let Some(stderr) = &self.stderr {
            stderr.stop();
        }
    }

    async fn hung_up(&mut self, error: Option<std::io::Error>) -> ConnectErrorKind {
        if let Some(error) = error {
            return ConnectErrorKind::Broken(Box::new(error));
        }
        if self.child.is_none() {
            return ConnectErrorKind::Hangup { said: None };
        }
        match tokio::time::timeout(EXIT_GRACE, exited(&mut self.child)).await {
            Ok(status) => self.exit_cause(status).await,
            Err(_) => ConnectErrorKind::Hangup { said: self.failure_reason().await },
        }
    }

    /// Returns why the process exited: the failure that its launcher has reported, or its status.
    async fn exit_cause(&self, status: String) -> ConnectErrorKind {
        let said = self.failure_reason().await;
        let failure = self.stderr.as_ref().and_then(|stderr| stderr.launch_failure());
        match (failure, &self.child) {
            (Some(failure), Some(child)) => child.launch_error(failure),
            _ => ConnectErrorKind::Exited { status, said },
        }
    }

    /// Returns the stderr line that explains the failure. It may arrive a little after the exit.
    async fn failure_reason(&self) -> Option<String> {
        match &self.stderr {
            Some(stderr) => stderr.reason().await,
            None => None,
        }
    }
}

/// Waits for the child to exit; forever without a child.
async fn exited(child: &mut Option<ChildGroup>) -> String {
    match child {
        Some(child) => child.exited().await,
        None => std::future::pending().await,
    }
}
