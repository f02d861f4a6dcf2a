//! A stdio server's process, with its process group and everything that it has started.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::MutexGuard;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::groups::groups;
use super::orphans::{self, ProcessMark};
use super::private_temp::{self, PrivateTemp};
use super::sandbox::SandboxStart;
use crate::error::ConnectErrorKind;
use ropeway_config::{CERTIFICATE_VARIABLES, SandboxFailure, StdioServer};
use ropeway_core::secret::Redactor;

/// Variables that a child gets if it does not inherit the whole environment, in addition to [`CERTIFICATE_VARIABLES`]. With
/// the `uv` variables, package runners work behind a company's own certificate authority.
const MINIMAL_ENVIRONMENT: [&str; 16] = [
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "UV_NATIVE_TLS",
    "UV_SYSTEM_CERTS",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
];

/// Requested pipe size. Large responses then need fewer reads.
#[cfg(target_os = "linux")]
const PIPE_BYTES: usize = 1 << 20;

/// Kills every server process that this process has started, and removes their temporary directories.
///
/// A program that exits without running destructors should call this before `std::process::exit` and when a signal ends it.
/// Connections terminate their processes themselves when they are closed or dropped.
pub fn end_children() {
    drop(end_children_for_good());
}

/// Prevents servers from starting or ending until it is dropped.
pub(crate) struct ExitGuard {
    _groups: MutexGuard<'static, BTreeSet<i32>>,
    _directories: MutexGuard<'static, BTreeSet<PathBuf>>,
}

/// Kills every server process, and prevents others from starting or ending until the returned guard is dropped.
///
/// Without the guard, another thread could start a server meanwhile, or report the killed one as a failure before this process
/// exits.
pub(crate) fn end_children_for_good() -> ExitGuard {
    let mut held = groups();
    for group in std::mem::take(&mut *held) {
        kill(Pid::from_raw(group), Signal::KILL);
    }
    orphans::kill_all();
    ExitGuard { _groups: held, _directories: private_temp::remove_all() }
}

fn kill(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // This fails only if the group is empty.
        let _ = kill_process_group(group, signal);
    }
}

/// Returns `true` if the program is not on the `PATH`.
fn is_missing_program(server: &StdioServer, error: &std::io::Error) -> bool {
    if error.kind() != std::io::ErrorKind::NotFound || server.command.contains('/') {
        return false;
    }
    let own = server.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.expose().into());
    let path: std::ffi::OsString = own.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    // An existing script may lack the interpreter that its first line names.
    !std::env::split_paths(&path).any(|folder| folder.join(&server.command).exists())
}

/// Returns why a server cannot run in its working directory. The system reports the same error for a missing program.
fn directory_problem(server: &StdioServer) -> Option<String> {
    let folder = server.working_dir().filter(|folder| !folder.is_dir())?;
    let problem = if folder.exists() { "is not a directory" } else { "does not exist" };
    Some(format!("working directory `{}` {problem}", folder.display()))
}

/// Returns the error for a program that could not be executed.
fn spawn_error(server: &StdioServer, redactor: &Redactor, source: std::io::Error) -> ConnectErrorKind {
    let program = redactor.redact(&server.command).into_owned();
    let source = if let Some(problem) = directory_problem(server) {
        std::io::Error::new(source.kind(), redactor.redact(&problem).into_owned())
    } else if is_missing_program(server, &source) {
        std::io::Error::new(source.kind(), format!("`{program}` is not on the PATH"))
    } else {
        source
    };
    ConnectErrorKind::Spawn { program, source }
}

/// A child process and its process group. Dropping it kills the whole group.
///
/// The link task owns it. [`terminate`](Self::terminate) ends the group in steps: it waits after stdin was closed, sends
/// SIGTERM and SIGKILL as far as needed, terminates processes outside the group and removes the temporary directory.
/// Dropping it, such as with an aborted link task, does the same at once: SIGKILL for the group and for marked processes,
/// while a thread removes the directory.
///
/// Every running group is registered in the process-wide set behind [`groups`]. Its std mutex is held while a process is
/// spawned, so that [`end_children`] misses none, and never across an `.await`. [`end_children_for_good`] also takes the
/// temporary directories' lock, after this one. Nothing else holds both.
#[derive(Debug)]
pub(crate) struct ChildGroup {
    group: Option<Pid>,
    /// Finds processes outside the group, until all have exited.
    mark: Option<ProcessMark>,
    child: Child,
    /// The server that a launcher executes.
    launched: Option<Box<(StdioServer, Redactor)>>,
    /// The server's temporary directory.
    temp: Option<PrivateTemp>,
}

/// A child process and its pipes.
pub(super) struct StartedChild {
    pub(super) child: ChildGroup,
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
    /// The launcher that was started in the server's place.
    pub(super) sandbox: Option<SandboxStart>,
}

impl ChildGroup {
    /// Returns the process group's id.
    pub(super) fn group_id(&self) -> Option<i32> {
        self.group.map(|group| group.as_raw_nonzero().get())
    }

    pub(super) fn start(server: &StdioServer, redactor: &Redactor) -> Result<StartedChild, ConnectErrorKind> {
        ProcessMark::check_nesting().map_err(|source| spawn_error(server, redactor, source))?;
        let mut sandbox = SandboxStart::new(server)?;
        let mut command = match &sandbox {
            Some(sandbox) => sandbox.command(server),
            None => {
                let mut command = Command::new(&server.command);
                command.args(&server.args);
                command
            }
        };
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if !server.inherit_env {
            command.env_clear();
            let names = MINIMAL_ENVIRONMENT.iter().chain(CERTIFICATE_VARIABLES);
            command.envs(names.filter_map(|name| Some((name, std::env::var_os(name)?))));
        }
        command.envs(sandbox.as_ref().and_then(SandboxStart::variable));
        // A launcher sets them when it executes the server: `LD_PRELOAD` would run code before it restricts itself.
        if sandbox.is_none() {
            command.envs(server.env.iter().map(|(name, value)| (name, value.expose())));
        }
        // Last, so that an entry cannot replace it.
        let mark = ProcessMark::new();
        command.envs([mark.variable()]);
        if let Some(folder) = server.working_dir() {
            command.current_dir(folder);
        }
        let failed = |source: std::io::Error| match &sandbox {
            Some(sandbox) if directory_problem(server).is_none() => sandbox.error(&source),
            _ => spawn_error(server, redactor, source),
        };
        let (mut child, group) = {
            // `end_children` must not miss a process that is being started.
            let mut groups = groups();
            let child = command.spawn().map_err(failed)?;
            let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
            groups.extend(group.map(Pid::as_raw_nonzero).map(i32::from));
            (child, group)
        };
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let launched = sandbox.is_some().then(|| Box::new((server.clone(), redactor.clone())));
        let temp = sandbox.as_mut().and_then(|sandbox| sandbox.temp.take());
        let child = Self { group, mark: Some(mark), child, launched, temp };
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            let source = std::io::Error::other("the process has no standard streams");
            return Err(spawn_error(server, redactor, source));
        };
        // If the system refuses, the pipe keeps its default size.
        #[cfg(target_os = "linux")]
        let _ = rustix::pipe::fcntl_setpipe_size(&stdout, PIPE_BYTES);
        Ok(StartedChild { child, stdin, stdout, stderr, sandbox })
    }

    /// Returns the error for a failure that the launcher has reported.
    pub(super) fn launch_error(&self, failure: SandboxFailure) -> ConnectErrorKind {
        match (failure, &self.launched) {
            (SandboxFailure::Exec(number), Some(launched)) => {
                let (server, redactor) = &**launched;
                spawn_error(server, redactor, std::io::Error::from_raw_os_error(number))
            }
            (SandboxFailure::Exec(number), None) => {
                ConnectErrorKind::Sandbox { reason: std::io::Error::from_raw_os_error(number).to_string() }
            }
            (SandboxFailure::Refused(reason), launched) => {
                let redacted = launched.as_ref().map(|launched| launched.1.redact(&reason).into_owned());
                ConnectErrorKind::Sandbox { reason: redacted.unwrap_or(reason) }
            }
        }
    }

    /// Waits for the child to exit and returns its status.
    pub(crate) async fn exited(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Terminates the group: waits for an exit after the closed stdin, then sends SIGTERM and SIGKILL to the group.
    pub(crate) async fn terminate(&mut self, grace: Duration) {
        if tokio::time::timeout(grace, self.child.wait()).await.is_err() {
            kill(self.group, Signal::TERM);
            let _ = tokio::time::timeout(grace, self.child.wait()).await;
        } else if self.is_empty() {
            return self.terminate_orphans().await;
        }
        // Processes that remain in the group get a moment to exit.
        kill(self.group, Signal::TERM);
        for _ in 0..10 {
            if self.is_empty() {
                return self.terminate_orphans().await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        kill(self.group, Signal::KILL);
        let _ = tokio::time::timeout(Duration::from_secs(5), self.child.wait()).await;
        self.terminate_orphans().await;
    }

    /// Terminates processes that the child has started outside its group, such as in another session.
    async fn terminate_orphans(&mut self) {
        self.unregister();
        if let Some(mark) = &self.mark
            && mark.signal(Signal::TERM)
        {
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_millis(20)).await;
                if !mark.is_alive() {
                    break;
                }
            }
            mark.kill();
        }
        self.mark = None;
        if let Some(temp) = self.temp.take() {
            temp.remove().await;
        }
    }

    /// Returns `true` if the group has no processes.
    fn is_empty(&self) -> bool {
        self.group.is_none_or(|group| test_kill_process_group(group).is_err())
    }

    /// Forgets the group, because its id may be reused.
    fn unregister(&mut self) {
        if let Some(group) = self.group.take() {
            groups().remove(&group.as_raw_nonzero().get());
        }
    }
}

impl Drop for ChildGroup {
    fn drop(&mut self) {
        kill(self.group, Signal::KILL);
        self.unregister();
        if let Some(mark) = &self.mark {
            mark.kill();
        }
    }
}
