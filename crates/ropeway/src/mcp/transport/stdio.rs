//! A server that is a child process: started in a process group of its own, and ended with all of it.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::activity::{self, Usage};
use super::groups::groups;
use super::lines::Lines;
use super::orphans::{self, Mark};
use super::reason::reason;
use crate::config::{ServerLimits, StdioServer};
use crate::mcp::fault::ConnectErrorKind;
use crate::mcp::inbox::Inbox;
use crate::secret::Redactor;
use crate::sync::lock;
use crate::tool::Alias;

/// What a child gets of our environment when it does not get all of it: who and where it is, and whose certificates are
/// trusted here. Without the last, a package runner finds nothing behind a company's own authority.
const MINIMAL_ENVIRONMENT: [&str; 19] = [
    "CURL_CA_BUNDLE",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "NODE_EXTRA_CA_CERTS",
    "PATH",
    "REQUESTS_CA_BUNDLE",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
];

/// How large a pipe we ask for: a large answer then takes fewer turns.
#[cfg(target_os = "linux")]
const PIPE: usize = 1 << 20;

/// The longest line of stderr that is kept whole.
const LONGEST_LINE: usize = 4 << 10;

/// Ends every server process that this process has started, at once and for good.
///
/// For a host that is about to end without running its destructors: call it before `std::process::exit` and when
/// a signal ends the program. Connections do this by themselves when they are closed or dropped.
pub fn end_children() {
    drop(end_children_for_good());
}

/// Ends every server process, and keeps others from being started or closed while the returned guard lives.
///
/// Without the guard another thread could start a server behind our back, or take the end of one for a failure and report that
/// before the process ends.
pub(crate) fn end_children_for_good() -> impl Drop {
    let mut held = groups();
    for group in std::mem::take(&mut *held) {
        kill(Pid::from_raw(group), Signal::KILL);
    }
    orphans::kill_all();
    held
}

fn kill(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // It fails only when nobody is left, which is what is wanted.
        let _ = kill_process_group(group, signal);
    }
}

/// Starts the server and a link to it.
pub(crate) fn start(
    server: &StdioServer,
    inbox: Arc<Inbox>,
    limits: &ServerLimits,
) -> Result<Arc<Lines>, ConnectErrorKind> {
    let host = inbox.host();
    let (child, stdin, stdout, stderr) = ChildGroup::start(server, host.mask())?;
    let keeper =
        StderrKeeper { capacity: limits.stderr_bytes, server: host.alias().clone(), mask: host.mask().clone() };
    let stderr = Stderr::keep(stderr, keeper, child.group.map(|group| group.as_raw_nonzero().get()));
    inbox.host().hear(stderr.clone());
    Ok(Lines::start(stdout, stdin, inbox, limits.message_bytes, Some((child, stderr))))
}

/// Returns true if a program that is looked up was not found. The folder to run in may be what is missing instead.
fn is_absent_program(server: &StdioServer, error: &std::io::Error) -> bool {
    if error.kind() != std::io::ErrorKind::NotFound || server.command.contains('/') {
        return false;
    }
    let own = server.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.expose().into());
    let path: std::ffi::OsString = own.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    // A script that is there may lack the program of its first line.
    !std::env::split_paths(&path).any(|folder| folder.join(&server.command).exists())
        && server.cwd.as_ref().is_none_or(|folder| folder.is_dir())
}

/// A child and all that it has started itself. Dropping it ends the whole group.
#[derive(Debug)]
pub(crate) struct ChildGroup {
    group: Option<Pid>,
    /// What finds the rest of it, until that is known to be gone.
    mark: Option<Mark>,
    child: Child,
}

impl ChildGroup {
    fn start(
        server: &StdioServer,
        mask: &Redactor,
    ) -> Result<(Self, ChildStdin, ChildStdout, ChildStderr), ConnectErrorKind> {
        let spawn_error = |source: std::io::Error| {
            let program = mask.hide(&server.command).into_owned();
            let source = if is_absent_program(server, &source) {
                std::io::Error::new(source.kind(), format!("`{program}` is not on the PATH"))
            } else {
                source
            };
            ConnectErrorKind::Spawn { program, source }
        };
        let mut command = Command::new(&server.command);
        command.args(&server.args).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if !server.inherit_env {
            command.env_clear();
            command.envs(MINIMAL_ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        }
        let mark = Mark::new();
        command.envs([mark.variable()]);
        command.envs(server.env.iter().map(|(name, value)| (name, value.expose())));
        if let Some(folder) = &server.cwd {
            command.current_dir(folder);
        }
        let (mut child, group) = {
            // Whoever ends all children must not miss one that is just being born.
            let mut groups = groups();
            let child = command.spawn().map_err(spawn_error)?;
            let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
            groups.extend(group.map(Pid::as_raw_nonzero).map(i32::from));
            (child, group)
        };
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let this = Self { group, mark: Some(mark), child };
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(spawn_error(std::io::Error::other("it has no standard streams")));
        };
        // The system may refuse; the usual size then has to do.
        #[cfg(target_os = "linux")]
        let _ = rustix::pipe::fcntl_setpipe_size(&stdout, PIPE);
        Ok((this, stdin, stdout, stderr))
    }

    /// Waits for the child to end, and tells how it did.
    pub(crate) async fn exited(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Ends the group: the child's input is shut already, then comes SIGTERM, then SIGKILL, always to all of it.
    pub(crate) async fn end(&mut self, patience: Duration) {
        if tokio::time::timeout(patience, self.child.wait()).await.is_err() {
            kill(self.group, Signal::TERM);
            let _ = tokio::time::timeout(patience, self.child.wait()).await;
        } else if self.alone() {
            return self.end_orphans().await;
        }
        // What the child has left behind gets a moment to end in good order.
        kill(self.group, Signal::TERM);
        for _ in 0..10 {
            if self.alone() {
                return self.end_orphans().await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        kill(self.group, Signal::KILL);
        let _ = tokio::time::timeout(Duration::from_secs(5), self.child.wait()).await;
        self.end_orphans().await;
    }

    /// Ends what the child has started outside of its group, too: it may have a session of its own.
    async fn end_orphans(&mut self) {
        self.over();
        let Some(mark) = &self.mark else { return };
        if mark.signal(Signal::TERM) {
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_millis(20)).await;
                if !mark.is_carried() {
                    break;
                }
            }
            mark.kill();
        }
        self.mark = None;
    }

    /// Is nobody left in the group?
    fn alone(&self) -> bool {
        self.group.is_none_or(|group| test_kill_process_group(group).is_err())
    }

    /// Forgets the group: its number may come to mean somebody else.
    fn over(&mut self) {
        if let Some(group) = self.group.take() {
            groups().remove(&group.as_raw_nonzero().get());
        }
    }
}

impl Drop for ChildGroup {
    fn drop(&mut self) {
        kill(self.group, Signal::KILL);
        self.over();
        if let Some(mark) = &self.mark {
            mark.kill();
        }
    }
}

/// The last lines of a child's stderr.
#[derive(Debug)]
pub(crate) struct Stderr {
    ring: Mutex<Ring>,
    /// The process group that writes it.
    group: Option<i32>,
    ended: watch::Receiver<()>,
    reader: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Ring {
    lines: VecDeque<String>,
    bytes: usize,
    /// All bytes that were ever written.
    written: u64,
}

impl Stderr {
    fn keep(pipe: impl AsyncRead + Send + Unpin + 'static, keeper: StderrKeeper, group: Option<i32>) -> Arc<Self> {
        let (ending, ended) = watch::channel(());
        let stderr = Arc::new(Self { ring: Mutex::default(), group, ended, reader: Mutex::default() });
        let reader = tokio::spawn(read(pipe, Arc::downgrade(&stderr), keeper, ending));
        *lock(&stderr.reader) = Some(reader);
        stderr
    }

    /// The lines that are kept, oldest first.
    pub(crate) fn lines(&self) -> Vec<String> {
        lock(&self.ring).lines.iter().cloned().collect()
    }

    /// Returns the line that says why the child failed, once it has written all it has to; soon in any case.
    pub(crate) async fn reason(&self) -> Option<String> {
        let mut ended = self.ended.clone();
        let _ =
            tokio::time::timeout(Duration::from_millis(100), async { while ended.changed().await.is_ok() {} }).await;
        reason(&self.lines()).map(str::to_owned)
    }
}

impl Stderr {
    /// Returns what the process group has used so far. A line on stderr counts as work, too.
    fn usage(&self) -> Usage {
        let written = lock(&self.ring).written;
        let usage = self.group.map(activity::usage).unwrap_or_default();
        Usage { ticks: usage.ticks + written, ..usage }
    }

    /// Waits until the process group has neither written nor worked for a while.
    pub(crate) async fn until_idle(&self) {
        activity::until_idle(|| self.usage()).await;
    }
}

impl Drop for Stderr {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Stderr {
    /// Stops to listen; what was heard is kept.
    pub(crate) fn stop(&self) {
        if let Some(reader) = lock(&self.reader).take() {
            reader.abort();
        }
    }
}

async fn read(
    mut pipe: impl AsyncRead + Unpin,
    stderr: std::sync::Weak<Stderr>,
    keeper: StderrKeeper,
    _ending: watch::Sender<()>,
) {
    let mut chunk = vec![0; 4096];
    let mut line = Vec::new();
    while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
        for &byte in &chunk[..count] {
            if byte != b'\n' {
                line.push(byte);
            }
            if byte == b'\n' {
                keeper.line(&stderr, &mut line);
            } else if line.len() >= LONGEST_LINE {
                keeper.part(&stderr, &mut line);
            }
        }
    }
    if !line.is_empty() {
        keeper.line(&stderr, &mut line);
    }
}

/// What it takes to keep a line: how much is kept, whose it is, and what must not be seen of it.
struct StderrKeeper {
    capacity: usize,
    server: Alias,
    mask: Redactor,
}

impl StderrKeeper {
    /// Keeps a whole line.
    fn line(&self, stderr: &std::sync::Weak<Stderr>, line: &mut Vec<u8>) {
        let text = self.mask.hide(&String::from_utf8_lossy(line)).trim_end().to_owned();
        line.clear();
        self.keep(stderr, text);
    }

    /// Keeps the beginning of a line that is too long; a secret that goes on where it is cut stays with the rest.
    fn part(&self, stderr: &std::sync::Weak<Stderr>, line: &mut Vec<u8>) {
        let text = self.mask.hide(&String::from_utf8_lossy(line)).into_owned();
        // Percent-encoded, a secret takes three times its length.
        let rest = (3 * self.mask.longest()).min(LONGEST_LINE / 2).min(text.len());
        let cut = text.floor_char_boundary(text.len() - rest);
        let (text, rest) = text.split_at(cut);
        *line = rest.as_bytes().to_vec();
        self.keep(stderr, text.to_owned());
    }

    fn keep(&self, stderr: &std::sync::Weak<Stderr>, text: String) {
        tracing::debug!(server = %self.server, "stderr: {text}");
        let Some(stderr) = stderr.upgrade() else { return };
        let mut ring = lock(&stderr.ring);
        ring.bytes += text.len() + 1;
        ring.written += text.len() as u64 + 1;
        ring.lines.push_back(text);
        while ring.bytes > self.capacity
            && let Some(oldest) = ring.lines.pop_front()
        {
            ring.bytes -= oldest.len() + 1;
        }
    }
}
