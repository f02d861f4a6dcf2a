//! The thread that writes a session journal's file.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::line::decode;
use super::notebook::{Limits, Notebook};
use super::now;
use ropeway_core::private_file::{create_folder, open_lock};
use ropeway_core::replace_file::{ReplaceOptions, replace_file};
use ropeway_core::sync::lock;

/// The file is rewritten when it is twice as large as after the last time, and at least this large.
const MIN_REWRITE: u64 = 4 << 20;

/// Maximum bytes that are read from a file.
const MAX_READ: u64 = 256 << 20;

/// Maximum line length, in bytes.
const MAX_LINE: u64 = 4 << 20;

/// Maximum bytes that wait for the writer, and that a writer keeps while the disk fails.
const MAX_QUEUED: usize = 4 << 20;

/// Maximum time that the writer waits for another gateway with the same file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3);

/// Interval between attempts to lock the file.
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// Minimum time between two warnings about a file that cannot be written.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Queues lines for the thread that writes them. Dropping it waits for the thread.
///
/// The journal owns this handle, and the thread owns the file. They share the queue, whose std mutex is held only to add or take
/// lines, never during I/O, and is the last lock that a request takes. The file has a lock of its own, which excludes other
/// gateways; the thread takes it while it holds no other. Lines that could not be written stay with the thread for the next
/// attempt, up to [`MAX_QUEUED`] bytes. Dropping the handle closes the queue, and the thread writes what is left and ends.
pub(super) struct Writer {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

/// The lines that wait for the thread. The thread takes them all at once.
#[derive(Default)]
struct Queue {
    batch: Mutex<Batch>,
    changed: Condvar,
    is_failing: AtomicBool,
}

#[derive(Default)]
struct Batch {
    text: Vec<u8>,
    /// Notified when the lines are written. Dropped if they cannot be.
    written: Vec<oneshot::Sender<()>>,
    is_closed: bool,
}

impl Writer {
    /// Reads and rewrites the file, and starts the thread.
    pub(super) fn open(path: &Path) -> io::Result<(Notebook, Self)> {
        if let Some(folder) = path.parent() {
            create_folder(folder)?;
        }
        let mut name = OsString::from(path.file_name().unwrap_or_default());
        name.push(".lock");
        let guard = open_lock(&path.with_file_name(name))?;
        let mut file = JournalFile { path: path.to_owned(), guard, rewritten: None };
        let notebook = file.locked(JournalFile::rewrite)?;
        let queue = Arc::<Queue>::default();
        let task = WriteLoop { queue: queue.clone(), file, unwritten: Vec::new(), warned_at: None };
        let thread = std::thread::Builder::new().name("gateway-journal".to_owned()).spawn(move || task.run())?;
        Ok((notebook, Self { queue, thread: Some(thread) }))
    }

    /// Returns `true` if [`push`](Self::push) takes more lines.
    pub(super) fn has_room(&self) -> bool {
        lock(&self.queue.batch).text.len() < MAX_QUEUED
    }

    /// Queues lines. `written` is notified when they and all earlier ones are written, and dropped if they cannot be. Returns
    /// `false` if too many lines wait.
    pub(super) fn push(&self, lines: &[u8], written: Option<oneshot::Sender<()>>) -> bool {
        let mut batch = lock(&self.queue.batch);
        if batch.text.len() >= MAX_QUEUED && !lines.is_empty() {
            return false;
        }
        batch.text.extend_from_slice(lines);
        batch.written.extend(written);
        drop(batch);
        self.queue.changed.notify_one();
        true
    }

    /// Returns `true` if the last lines could not be written.
    pub(super) fn is_failing(&self) -> bool {
        self.queue.is_failing.load(Ordering::Relaxed)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        lock(&self.queue.batch).is_closed = true;
        self.queue.changed.notify_one();
        // The thread ends after the queued lines, a few megabytes at most.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread's state.
struct WriteLoop {
    queue: Arc<Queue>,
    file: JournalFile,
    /// Lines that could not be written yet.
    unwritten: Vec<u8>,
    warned_at: Option<Instant>,
}

impl WriteLoop {
    /// Writes lines until the journal is dropped.
    fn run(mut self) {
        while let Some(batch) = self.next() {
            let is_written = self.write(&batch.text);
            self.queue.is_failing.store(!is_written, Ordering::Relaxed);
            if is_written {
                // The waiting requests may be gone.
                for written in batch.written {
                    let _ = written.send(());
                }
            }
        }
        if !self.unwritten.is_empty() {
            self.write(b"");
        }
    }

    /// Waits for lines. Returns `None` when the journal is dropped and all lines are written.
    fn next(&self) -> Option<Batch> {
        let is_waiting = |batch: &mut Batch| batch.text.is_empty() && batch.written.is_empty() && !batch.is_closed;
        let batch = lock(&self.queue.batch);
        let mut batch = self.queue.changed.wait_while(batch, is_waiting).unwrap_or_else(PoisonError::into_inner);
        let is_done = batch.text.is_empty() && batch.written.is_empty();
        let taken = Batch {
            text: std::mem::take(&mut batch.text),
            written: std::mem::take(&mut batch.written),
            is_closed: batch.is_closed,
        };
        (!is_done).then_some(taken)
    }

    /// Appends lines after those that could not be written before. Returns `false` if that fails.
    fn write(&mut self, lines: &[u8]) -> bool {
        let is_kept = self.unwritten.len() + lines.len() <= MAX_QUEUED;
        if is_kept {
            self.unwritten.extend_from_slice(lines);
        }
        let unwritten = &self.unwritten;
        let appended = self.file.locked(|file| file.append(unwritten));
        if let Err(error) = &appended {
            self.warn(error);
            return false;
        }
        self.unwritten.clear();
        is_kept
    }

    fn warn(&mut self, error: &io::Error) {
        if self.warned_at.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
            self.warned_at = Some(Instant::now());
            tracing::warn!("could not write the session journal `{}`: {error}", self.file.path.display());
        }
    }
}

/// The file, which several gateways may share. Each locks it to append lines and to rewrite it.
struct JournalFile {
    path: PathBuf,
    /// Locked while the file is used. The file itself is replaced when it is rewritten.
    guard: File,
    /// The file after the last time that it was rewritten, by any gateway.
    rewritten: Option<RewrittenFile>,
}

#[derive(Clone, Copy)]
struct RewrittenFile {
    inode: u64,
    size: u64,
}

impl JournalFile {
    /// Uses the file while no other gateway does.
    fn locked<T>(&mut self, operation: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        let since = Instant::now();
        loop {
            match self.guard.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if since.elapsed() < LOCK_TIMEOUT => std::thread::sleep(LOCK_INTERVAL),
                Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        let result = operation(self);
        self.guard.unlock()?;
        result
    }

    /// Appends all lines or none.
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
        let metadata = file.metadata()?;
        let size = metadata.len();
        let rewritten = match self.rewritten {
            Some(rewritten) if rewritten.inode == metadata.ino() => rewritten,
            // Another gateway has rewritten the file.
            _ => *self.rewritten.insert(RewrittenFile { inode: metadata.ino(), size }),
        };
        if let Err(error) = file.write_all(lines) {
            // A partial line would spoil the next one.
            let _ = file.set_len(size);
            return Err(error);
        }
        if size + lines.len() as u64 > MIN_REWRITE.max(2 * rewritten.size) {
            // The lines are stored, whether or not the file becomes smaller.
            if let Err(error) = self.rewrite() {
                tracing::warn!("could not rewrite the session journal `{}`: {error}", self.path.display());
                self.rewritten = Some(RewrittenFile { size: size + lines.len() as u64, ..rewritten });
            }
        }
        Ok(())
    }

    /// Replaces the file by one with the current notes only, and returns them.
    fn rewrite(&mut self) -> io::Result<Notebook> {
        let notebook = match File::open(&self.path) {
            Ok(file) => read(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Notebook::new(Limits::default()),
            Err(error) => return Err(error),
        };
        let mut text = Vec::new();
        notebook.write(&mut text);
        let metadata = replace_file(&self.path, &text, ReplaceOptions::private())?.metadata()?;
        self.rewritten = Some(RewrittenFile { inode: metadata.ino(), size: metadata.len() });
        Ok(notebook)
    }
}

fn read(file: File) -> Notebook {
    let mut notebook = Notebook::new(Limits::default());
    let now = now();
    let mut reader = io::BufReader::new(file.take(MAX_READ));
    let mut line = Vec::new();
    while reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        if let Some(record) = decode(&line) {
            notebook.apply(record, now);
        }
        line.clear();
    }
    notebook
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::{Journal, NoteChange, NotedSession, PrincipalKey, SessionNotes, SessionUid};
    use super::*;
    use crate::client::LogLevel;

    fn session(number: u128) -> NotedSession {
        let principal = Some(PrincipalKey::of("key:a"));
        NotedSession { uid: SessionUid(number), principal, issued: now(), expires: now() + 100 }
    }

    fn open(path: &Path) -> Journal {
        Journal::open(path).expect("a journal")
    }

    async fn end(journal: &Journal, session: &NotedSession) {
        journal.end(session).expect("room").stored().await.expect("stored");
    }

    #[tokio::test]
    async fn notes_survive_a_restart_until_their_session_expires() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gateway/sessions.jsonl");
        let journal = open(&path);
        let level = LogLevel::parse("error").expect("a level");
        journal.change(&session(1), NoteChange::LogLevel(level));
        journal.change(&session(1), NoteChange::Subscribe("file:///x"));
        journal.change(&session(1), NoteChange::Subscribe("file:///y"));
        journal.change(&session(1), NoteChange::Unsubscribe("file:///y"));
        end(&journal, &session(2)).await;
        end(&journal, &NotedSession { expires: 1, ..session(3) }).await;
        drop(journal);
        let journal = open(&path);
        let notes = SessionNotes { log_level: Some(level), subscriptions: ["file:///x".into()].into() };
        assert_eq!(journal.revive(&session(1)), Some(notes));
        assert_eq!(journal.revive(&session(2)), None);
        assert_eq!(journal.revive(&session(3)), Some(SessionNotes::default()));
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&path).expect("text").lines().count(), 2);
    }

    #[test]
    fn broken_lines_are_skipped() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sessions.jsonl");
        let good = format!(r#"{{"session":"a","ended":true,"expires":{}}}"#, now() + 100);
        fs::write(&path, format!("garbage\n{good}\n{{\"session\":7}}\n\u{0}\n{good}")).expect("a file");
        assert_eq!(open(&path).revive(&session(0xa)), None);
    }

    #[tokio::test]
    async fn a_file_is_rewritten_only_when_it_has_doubled() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sessions.jsonl");
        let old =
            |number: usize| format!("{{\"session\":\"{number:032x}\",\"ended\":true,\"expires\":{}}}\n", now() + 100);
        // More than the minimum, and none of it can go.
        fs::write(&path, (0..60_000).map(old).collect::<String>()).expect("a file");
        let journal = open(&path);
        let inode = || fs::metadata(&path).expect("a file").ino();
        let size = fs::metadata(&path).expect("a file").len();
        assert!(size > MIN_REWRITE, "{size}");
        let before = inode();
        for number in 0..50 {
            end(&journal, &session((1 << 100) + number)).await;
        }
        assert_eq!(inode(), before, "a change does not rewrite the file");
        let uri = format!("file:///{}", "x".repeat(64 << 10));
        for _ in 0..100 {
            journal.change(&session(1 << 101), NoteChange::Subscribe(&uri));
            journal.change(&session(1 << 101), NoteChange::Unsubscribe(&uri));
            journal.flush(Duration::from_secs(10)).await;
        }
        assert_ne!(inode(), before);
        assert!(fs::metadata(&path).expect("a file").len() < 2 * size);
        drop(journal);
        let journal = open(&path);
        assert_eq!(journal.revive(&session((1 << 100) + 49)), None);
        assert_eq!(journal.revive(&session(59_999)), None);
    }

    #[tokio::test]
    async fn two_gateways_do_not_overwrite_each_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sessions.jsonl");
        let one = open(&path);
        end(&one, &session(1)).await;
        let two = open(&path);
        assert_eq!(two.revive(&session(1)), None, "it reads what the first has written");
        end(&two, &session(2)).await;
        end(&one, &session(3)).await;
        drop(one);
        end(&two, &session(4)).await;
        drop(two);
        let journal = open(&path);
        for number in 1..=4 {
            assert_eq!(journal.revive(&session(number)), None, "{number}");
        }
    }

    #[tokio::test]
    async fn an_end_that_cannot_be_stored_is_reported_and_tried_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sessions.jsonl");
        let journal = open(&path);
        fs::remove_file(&path).expect("a file");
        fs::create_dir(&path).expect("a folder in its place");
        assert!(journal.end(&session(1)).expect("room").stored().await.is_err());
        assert!(journal.is_failing());
        fs::remove_dir(&path).expect("a folder");
        end(&journal, &session(2)).await;
        assert!(!journal.is_failing());
        drop(journal);
        let journal = open(&path);
        assert_eq!([journal.revive(&session(1)), journal.revive(&session(2))], [None, None]);
    }
}
