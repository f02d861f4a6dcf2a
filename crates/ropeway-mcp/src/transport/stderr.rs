//! A server process's stderr.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::activity::{self, ResourceUsage};
use super::reason::reason;
use super::sandbox::LaunchReports;
use ropeway_config::SandboxFailure;
use ropeway_core::secret::Redactor;
use ropeway_core::sync::lock;
use ropeway_core::tool::Alias;

/// Longer lines are stored in parts.
const MAX_LINE_BYTES: usize = 4 << 10;

/// The last lines of a process's stderr.
#[derive(Debug)]
pub(crate) struct Stderr {
    buffer: Mutex<LineBuffer>,
    /// The process group that writes to it.
    group: Option<i32>,
    ended: watch::Receiver<()>,
    reader: Mutex<Option<JoinHandle<()>>>,
    /// The failure that the process's launcher has reported.
    launch_failure: Mutex<Option<SandboxFailure>>,
}

#[derive(Debug, Default)]
struct LineBuffer {
    lines: VecDeque<String>,
    bytes: usize,
    /// Number of bytes written so far.
    written: u64,
}

impl Stderr {
    pub(super) fn start(
        pipe: impl AsyncRead + Send + Unpin + 'static,
        log: StderrLog,
        group: Option<i32>,
    ) -> Arc<Self> {
        let (ending, ended) = watch::channel(());
        let (buffer, reader, launch_failure) = (Mutex::default(), Mutex::default(), Mutex::default());
        let stderr = Arc::new(Self { buffer, group, ended, reader, launch_failure });
        let reader = tokio::spawn(read(pipe, Arc::downgrade(&stderr), log, ending));
        *lock(&stderr.reader) = Some(reader);
        stderr
    }

    /// Returns the last lines, oldest first.
    pub(crate) fn lines(&self) -> Vec<String> {
        lock(&self.buffer).lines.iter().cloned().collect()
    }

    /// Returns the line that explains a failure, after waiting briefly for the end of the output.
    pub(crate) async fn reason(&self) -> Option<String> {
        let mut ended = self.ended.clone();
        let _ =
            tokio::time::timeout(Duration::from_millis(100), async { while ended.changed().await.is_ok() {} }).await;
        reason(&self.lines()).map(str::to_owned)
    }

    /// Returns the failure that the process's launcher has reported.
    pub(super) fn launch_failure(&self) -> Option<SandboxFailure> {
        lock(&self.launch_failure).clone()
    }

    /// Returns the process group's resource usage. Output on stderr counts as work.
    fn usage(&self) -> ResourceUsage {
        let written = lock(&self.buffer).written;
        let usage = self.group.map(activity::usage).unwrap_or_default();
        ResourceUsage { ticks: usage.ticks + written, ..usage }
    }

    /// Waits until the process group has been idle for a while.
    pub(crate) async fn until_idle(&self) {
        activity::until_idle(|| self.usage()).await;
    }

    /// Stops reading. The lines so far are kept.
    pub(crate) fn stop(&self) {
        if let Some(reader) = lock(&self.reader).take() {
            reader.abort();
        }
    }
}

impl Drop for Stderr {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn read(mut pipe: impl AsyncRead + Unpin, stderr: Weak<Stderr>, log: StderrLog, _ending: watch::Sender<()>) {
    let mut chunk = vec![0; 4096];
    let mut line = Vec::new();
    while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
        for &byte in &chunk[..count] {
            if byte != b'\n' {
                line.push(byte);
            }
            if byte == b'\n' {
                log.store_line(&stderr, &mut line);
            } else if line.len() >= MAX_LINE_BYTES {
                log.store_part(&stderr, &mut line);
            }
        }
    }
    if !line.is_empty() {
        log.store_line(&stderr, &mut line);
    }
}

/// Redacts, logs and stores stderr lines.
pub(super) struct StderrLog {
    /// Maximum bytes to keep.
    pub(super) capacity: usize,
    pub(super) server: Alias,
    pub(super) redactor: Redactor,
    /// Recognizes a launcher's reports.
    pub(super) reports: Option<LaunchReports>,
}

impl StderrLog {
    /// Stores a whole line.
    fn store_line(&self, stderr: &Weak<Stderr>, line: &mut Vec<u8>) {
        if let Some(failure) = self.reports.as_ref().and_then(|reports| reports.parse(line)) {
            line.clear();
            if let Some(stderr) = stderr.upgrade() {
                *lock(&stderr.launch_failure) = Some(failure);
            }
            return;
        }
        let text = self.redactor.redact(&String::from_utf8_lossy(line)).trim_end().to_owned();
        line.clear();
        self.store(stderr, text);
    }

    /// Stores the beginning of a long line. The end stays in `line`, because a secret may continue there.
    fn store_part(&self, stderr: &Weak<Stderr>, line: &mut Vec<u8>) {
        let text = self.redactor.redact(&String::from_utf8_lossy(line)).into_owned();
        // A percent-encoded secret is three times as long.
        let rest = (3 * self.redactor.longest()).min(MAX_LINE_BYTES / 2).min(text.len());
        let cut = text.floor_char_boundary(text.len() - rest);
        let (text, rest) = text.split_at(cut);
        *line = rest.as_bytes().to_vec();
        self.store(stderr, text.to_owned());
    }

    fn store(&self, stderr: &Weak<Stderr>, text: String) {
        tracing::debug!(server = %self.server, "stderr: {text}");
        let Some(stderr) = stderr.upgrade() else { return };
        let mut buffer = lock(&stderr.buffer);
        buffer.bytes += text.len() + 1;
        buffer.written += text.len() as u64 + 1;
        buffer.lines.push_back(text);
        while buffer.bytes > self.capacity
            && let Some(oldest) = buffer.lines.pop_front()
        {
            buffer.bytes -= oldest.len() + 1;
        }
    }
}
