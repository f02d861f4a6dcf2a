//! Session state that sealed ids cannot hold: log levels, subscriptions and ended sessions, kept in a file.
//!
//! Changes take effect in memory at once. A separate thread appends them to the file, so that a slow disk delays no request. A
//! gateway reads the file when it starts.

mod line;
mod notebook;
mod writer;

use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;

use self::line::encode;
pub(crate) use self::line::{NoteChange, NotedSession, PrincipalKey, SessionNotes, SessionUid};
use self::notebook::{Limits, Notebook};
use self::writer::Writer;
use ropeway_core::sync::lock;

/// Maximum time until a session's end is stored.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// A gateway's journal. Without a file, it is kept in memory only.
///
/// [`Sessions`](crate::client::session::Sessions) owns the journal, and calls [`revive`](Self::revive) and [`end`](Self::end)
/// under its table's lock. The notebook's lock comes next and the writer's queue last: a line is queued under the notebook's
/// lock, so that the file and the memory have changes in the same order. No lock is held across an `.await` or during disk I/O,
/// which happens in the writer's thread; `end` returns a [`PendingEnd`] to wait for, and `flush` waits without a lock. Dropping
/// the journal waits until the queued lines are written, and blocks its thread meanwhile.
pub(crate) struct Journal {
    notebook: Mutex<Notebook>,
    writer: Option<Writer>,
}

/// A session's end cannot be stored, so the session would be valid again after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the end of the session could not be stored; try again later")]
pub(crate) struct NotStored;

/// A session's end that is on its way to the file.
#[must_use]
pub(crate) struct PendingEnd(Option<oneshot::Receiver<()>>);

impl PendingEnd {
    /// Waits until the session's end is stored.
    pub(crate) async fn stored(self) -> Result<(), NotStored> {
        let Some(stored) = self.0 else { return Ok(()) };
        match tokio::time::timeout(STORE_TIMEOUT, stored).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(NotStored),
        }
    }
}

impl Journal {
    /// Creates a journal in memory.
    pub(crate) fn in_memory() -> Self {
        Self { notebook: Mutex::new(Notebook::new(Limits::default())), writer: None }
    }

    /// Opens a journal. Lines that cannot be read are skipped. Several gateways can use one file: each appends its own changes,
    /// and reads the others' changes when it starts.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let (notebook, writer) = Writer::open(path)?;
        Ok(Self { notebook: Mutex::new(notebook), writer: Some(writer) })
    }

    /// Returns the notes about a session; `None` if it has ended.
    pub(crate) fn revive(&self, session: &NotedSession) -> Option<SessionNotes> {
        let notebook = lock(&self.notebook);
        (!notebook.is_ended(session)).then(|| notebook.notes(session.uid))
    }

    /// Changes the notes about a session. If too many changes wait for the disk, the file does not get this one.
    pub(crate) fn change(&self, session: &NotedSession, change: NoteChange<'_>) {
        let mut notebook = lock(&self.notebook);
        notebook.remove_expired(now());
        if notebook.change(session, &change)
            && let Some(writer) = &self.writer
        {
            let mut lines = Vec::new();
            encode::change(session, &change, &mut lines);
            if !writer.push(&lines, None) {
                tracing::warn!("a change of a session is kept in memory only, because the disk is too slow");
            }
        }
    }

    /// Ends a session permanently.
    ///
    /// # Errors
    ///
    /// Fails if there is no room for one more ended session, in memory or on the way to the disk. The session then continues.
    pub(crate) fn end(&self, session: &NotedSession) -> Result<PendingEnd, NotStored> {
        let mut notebook = lock(&self.notebook);
        notebook.remove_expired(now());
        let Some(writer) = &self.writer else {
            notebook.end(session).map_err(|_| NotStored)?;
            return Ok(PendingEnd(None));
        };
        if !writer.has_room() {
            return Err(NotStored);
        }
        let mut lines = Vec::new();
        encode::end(session, &mut lines);
        for watermark in notebook.end(session).map_err(|_| NotStored)? {
            encode::watermark(&watermark, &mut lines);
        }
        let (done, stored) = oneshot::channel();
        // Only this thread queues lines, as it holds the lock, so the room is still there.
        writer.push(&lines, Some(done));
        Ok(PendingEnd(Some(stored)))
    }

    /// Returns `true` if changes could not be written, so that the file does not have them.
    pub(crate) fn is_failing(&self) -> bool {
        self.writer.as_ref().is_some_and(Writer::is_failing)
    }

    /// Waits until the changes so far are written.
    pub(crate) async fn flush(&self, limit: Duration) {
        let Some(writer) = &self.writer else { return };
        let (done, flushed) = oneshot::channel();
        writer.push(b"", Some(done));
        let _ = tokio::time::timeout(limit, flushed).await;
    }
}

/// Returns the current time in seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
