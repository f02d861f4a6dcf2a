//! A log file that is written by a separate thread, so that a slow disk never delays a request.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::oneshot;

use ropeway_config::LogTarget;
use ropeway_core::event::timestamp;

/// Maximum number of lines that wait for the writer. Further ones are dropped and counted.
const MAX_QUEUED: usize = 4096;

/// Lines within this time are written together.
const BATCH: Duration = Duration::from_millis(20);

/// Size at which collected lines are written.
const MAX_BATCH: usize = 256 << 10;

/// Minimum time between two warnings about a log that cannot be written.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// A log of lines.
#[derive(Debug)]
pub(super) struct LogSink<T> {
    sender: SyncSender<Job<T>>,
    dropped: Arc<AtomicU64>,
}

enum Job<T> {
    Line(T),
    Reopen,
    Flush(oneshot::Sender<()>),
}

impl<T: Send + 'static> LogSink<T> {
    /// Opens the log and starts its writer. `encode` appends a line's text, without the line break.
    pub(super) fn start(target: &LogTarget, encode: impl Fn(&T, &mut Vec<u8>) + Send + 'static) -> io::Result<Self> {
        let output = Output::open(target)?;
        let (sender, jobs) = sync_channel(MAX_QUEUED);
        let dropped = Arc::<AtomicU64>::default();
        let writer = Writer { output, encode, dropped: dropped.clone(), reported: 0, is_torn: false, warned_at: None };
        std::thread::Builder::new().name("gateway-log".to_owned()).spawn(move || writer.run(&jobs))?;
        Ok(Self { sender, dropped })
    }

    /// Adds a line, unless too many lines wait.
    pub(super) fn write(&self, line: T) {
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = self.sender.try_send(Job::Line(line)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Opens the file again, because it was renamed.
    pub(super) fn reopen(&self) {
        // A full queue means that the disk hangs, and then the new file cannot be written either.
        let _ = self.sender.try_send(Job::Reopen);
    }

    /// Waits until the lines so far are written.
    pub(super) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.sender.try_send(Job::Flush(done)).is_ok() {
            let _ = flushed.await;
        }
    }

    /// Returns the number of lines that were not written.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Where lines are written.
enum Output {
    Stderr,
    File { path: PathBuf, file: File },
}

impl Output {
    fn open(target: &LogTarget) -> io::Result<Self> {
        Ok(match target {
            LogTarget::Stderr => Self::Stderr,
            LogTarget::File(path) => Self::File { file: open(path)?, path: path.clone() },
        })
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stderr => io::stderr().lock().write_all(bytes),
            Self::File { file, .. } => file.write_all(bytes),
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        if let Self::File { path, file } = self {
            *file = open(path)?;
        }
        Ok(())
    }
}

/// Opens a file to append lines. A new file is readable by its owner only.
fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

struct Writer<F> {
    output: Output,
    encode: F,
    dropped: Arc<AtomicU64>,
    /// The dropped lines that the log already mentions.
    reported: u64,
    /// Whether the last line may be incomplete.
    is_torn: bool,
    warned_at: Option<Instant>,
}

impl<F> Writer<F> {
    /// Writes lines until the log is dropped.
    fn run<T>(mut self, jobs: &Receiver<Job<T>>)
    where
        F: Fn(&T, &mut Vec<u8>),
    {
        let mut batch = Batch::default();
        while let Ok(first) = jobs.recv() {
            if matches!(first, Job::Line(_)) {
                std::thread::sleep(BATCH);
            }
            let mut next = Some(first);
            while let Some(job) = next {
                match job {
                    Job::Line(line) => {
                        (self.encode)(&line, &mut batch.text);
                        batch.text.push(b'\n');
                        batch.lines += 1;
                    }
                    Job::Reopen => {
                        self.write(&mut batch);
                        if let Err(error) = self.output.reopen() {
                            self.warn(&error);
                        }
                    }
                    Job::Flush(done) => {
                        self.write(&mut batch);
                        // The gateway may have stopped waiting.
                        let _ = done.send(());
                    }
                }
                next = if batch.text.len() < MAX_BATCH { jobs.try_recv().ok() } else { None };
            }
            self.write(&mut batch);
        }
    }

    fn write(&mut self, batch: &mut Batch) {
        if batch.lines == 0 {
            return;
        }
        let mut text = std::mem::take(&mut batch.text);
        let lines = std::mem::take(&mut batch.lines);
        let dropped = self.dropped.load(Ordering::Relaxed);
        if dropped > self.reported {
            let line = format!(
                "{{\"time\":\"{}\",\"dropped_lines\":{}}}\n",
                timestamp(SystemTime::now()),
                dropped - self.reported
            );
            text.splice(0..0, line.into_bytes());
        }
        if self.is_torn {
            text.insert(0, b'\n');
        }
        match self.output.write_all(&text) {
            Ok(()) => (self.is_torn, self.reported) = (false, dropped),
            Err(error) => {
                // The beginning may have been written.
                self.is_torn = true;
                self.dropped.fetch_add(lines, Ordering::Relaxed);
                self.warn(&error);
            }
        }
        text.clear();
        batch.text = text;
    }

    fn warn(&mut self, error: &io::Error) {
        if self.warned_at.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
            self.warned_at = Some(Instant::now());
            let name = match &self.output {
                Output::Stderr => "standard error".to_owned(),
                Output::File { path, .. } => format!("`{}`", path.display()),
            };
            tracing::warn!("could not write the log {name}: {error}");
        }
    }
}

#[derive(Default)]
struct Batch {
    text: Vec<u8>,
    lines: u64,
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn sink(path: &Path) -> LogSink<String> {
        let target = LogTarget::File(path.to_owned());
        LogSink::start(&target, |line: &String, text| text.extend_from_slice(line.as_bytes())).expect("a file")
    }

    #[tokio::test]
    async fn a_renamed_file_is_opened_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, old) = (folder.path().join("audit.jsonl"), folder.path().join("audit.jsonl.1"));
        let log = sink(&path);
        log.write("first".to_owned());
        log.flush().await;
        assert_eq!(path.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
        std::fs::rename(&path, &old).expect("renamed");
        log.write("second".to_owned());
        log.reopen();
        log.write("third".to_owned());
        log.flush().await;
        assert_eq!(std::fs::read_to_string(&old).expect("a file"), "first\nsecond\n");
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), "third\n");
        assert_eq!(log.dropped(), 0);
    }

    #[tokio::test]
    async fn a_full_disk_is_counted_and_survived() {
        // Every write to it fails as on a full disk.
        let log = sink(Path::new("/dev/full"));
        for n in 0..10 {
            log.write(n.to_string());
        }
        log.flush().await;
        assert_eq!(log.dropped(), 10);
    }

    #[test]
    fn a_log_that_hangs_drops_lines_at_once() {
        let (blocked, release) = (Arc::new(std::sync::Mutex::new(())), Arc::<AtomicU64>::default());
        let held = blocked.lock().expect("a lock");
        let log = {
            let (blocked, release) = (blocked.clone(), release.clone());
            LogSink::start(&LogTarget::File("/dev/null".into()), move |_: &u32, _| {
                drop(blocked.lock());
                release.fetch_add(1, Ordering::Relaxed);
            })
            .expect("a file")
        };
        let began = Instant::now();
        for n in 0..3 * MAX_QUEUED as u32 {
            log.write(n);
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert!(log.dropped() >= MAX_QUEUED as u64, "{}", log.dropped());
        drop(held);
    }

    #[tokio::test]
    async fn the_log_states_how_many_lines_are_missing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let log = sink(&path);
        log.dropped.fetch_add(3, Ordering::Relaxed);
        log.write("line".to_owned());
        log.flush().await;
        let text = std::fs::read_to_string(&path).expect("a file");
        let first: serde_json::Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
        assert_eq!(first["dropped_lines"], 3, "{text}");
        assert!(text.ends_with("}\nline\n"), "{text}");
    }

    #[test]
    fn a_log_that_cannot_be_opened_is_an_error() {
        let target = LogTarget::File("/no/such/folder/audit".into());
        assert!(LogSink::start(&target, |_: &(), _| {}).is_err());
    }
}
