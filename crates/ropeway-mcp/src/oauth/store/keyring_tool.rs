//! The program that accesses the operating system's keyring: `secret-tool` (libsecret), or `security` on macOS.
//!
//! Secrets are passed through pipes, never as arguments, which other processes can see.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use super::error::KeyringError;
use ropeway_core::secret::Secret;

/// Maximum bytes of output to read.
const MAX_OUTPUT: u64 = 16 << 10;

/// Maximum characters of error output in a message.
const MAX_PROBLEM_CHARS: usize = 200;

/// The service under which the key is stored.
const SERVICE: &str = "ropeway";

/// The environment variables that the program gets.
const ENVIRONMENT: [&str; 11] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "HOME",
    "LOGNAME",
    "PATH",
    "TMPDIR",
    "USER",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolKind {
    SecretTool,
    Security,
}

/// A program that accesses the keyring.
#[derive(Clone, Debug)]
pub(super) struct KeyringTool {
    program: PathBuf,
    kind: ToolKind,
    /// Time limit for one run, in which the user may have to unlock the keyring.
    limit: Duration,
}

/// A program's output.
struct Finished {
    code: Option<i32>,
    output: Secret,
    problem: String,
}

impl KeyringTool {
    pub(super) fn new(program: PathBuf, kind: ToolKind, limit: Duration) -> Self {
        Self { program, kind, limit }
    }

    /// Finds this operating system's program.
    pub(super) fn find(limit: Duration) -> Result<Self, KeyringError> {
        let kind = if cfg!(target_os = "macos") { ToolKind::Security } else { ToolKind::SecretTool };
        let unavailable = |problem: String| KeyringError::Unavailable { problem };
        if kind == ToolKind::SecretTool && !has_session_bus() {
            return Err(unavailable("this session has no D-Bus".to_owned()));
        }
        let program = find_program(kind.name(), std::env::var_os("PATH").as_deref());
        let program = program.ok_or_else(|| unavailable(format!("`{}` is not installed", kind.name())))?;
        Ok(Self::new(program, kind, limit))
    }

    /// Returns the secret with this name, or `None` if the keyring has none.
    pub(super) async fn lookup(&self, name: &str) -> Result<Option<Secret>, KeyringError> {
        let finished = match self.kind {
            ToolKind::SecretTool => self.run(&["lookup", "service", SERVICE, "store", name], "").await?,
            ToolKind::Security => self.run(&["find-generic-password", "-s", SERVICE, "-a", name, "-w"], "").await?,
        };
        match (finished.code, self.kind) {
            (Some(0), _) => Ok(Some(finished.output).filter(|output| !output.expose().trim().is_empty())),
            (Some(1), ToolKind::SecretTool) if finished.problem.is_empty() => Ok(None),
            (Some(44), ToolKind::Security) => Ok(None),
            (code, kind) => Err(kind.error(code, finished.problem)),
        }
    }

    /// Stores a secret under a name. Neither may contain quotes or spaces.
    pub(super) async fn store(&self, name: &str, secret: &Secret) -> Result<(), KeyringError> {
        let finished = match self.kind {
            ToolKind::SecretTool => {
                let args = ["store", "--label=Ropeway tokens", "service", SERVICE, "store", name];
                self.run(&args, secret.expose()).await?
            }
            ToolKind::Security => {
                let secret = secret.expose();
                let line =
                    format!("add-generic-password -U -s {SERVICE} -a {name} -l \"Ropeway tokens\" -w {secret}\n");
                self.run(&["-i"], &line).await?
            }
        };
        match finished.code {
            Some(0) => Ok(()),
            code => Err(self.kind.error(code, finished.problem)),
        }
    }

    async fn run(&self, args: &[&str], input: &str) -> Result<Finished, KeyringError> {
        let program = self.kind.name();
        let failed = |error: std::io::Error| KeyringError::Failed { program, problem: error.to_string() };
        let mut command = Command::new(&self.program);
        command.args(args).env_clear().env("LC_ALL", "C");
        command.envs(ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.process_group(0).kill_on_drop(true).spawn().map_err(failed)?;
        let mut group = GroupKiller(child.id());
        match tokio::time::timeout(self.limit, exchange(&mut child, input)).await {
            Ok(finished) => {
                group.0 = None;
                finished.map_err(failed)
            }
            Err(_) => Err(KeyringError::Timeout { program, seconds: self.limit.as_secs() }),
        }
    }
}

/// Ends a program's processes if it did not finish, even when its caller was cancelled.
struct GroupKiller(Option<u32>);

impl Drop for GroupKiller {
    fn drop(&mut self) {
        let group = self.0.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

async fn exchange(child: &mut Child, input: &str) -> std::io::Result<Finished> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A program that exits early explains the reason on stderr.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    let ((), output, problem) = tokio::join!(write, read_bounded(stdout), read_bounded(stderr));
    let status = child.wait().await?;
    Ok(Finished { code: status.code(), output: Secret::new(output), problem: shown(&problem) })
}

async fn read_bounded(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let _ = pipe.take(MAX_OUTPUT).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the start of error output as one line without control characters.
fn shown(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().filter(|c| !c.is_control()).take(MAX_PROBLEM_CHARS).collect()
}

impl ToolKind {
    fn name(self) -> &'static str {
        match self {
            Self::SecretTool => "secret-tool",
            Self::Security => "security",
        }
    }

    /// Finds out why a run failed, from its exit code or error output.
    fn error(self, code: Option<i32>, problem: String) -> KeyringError {
        let has = |words: &[&str]| words.iter().any(|word| problem.to_ascii_lowercase().contains(word));
        match (self, code) {
            // errSecInteractionNotAllowed, errSecAuthFailed and userCanceledErr, truncated to a byte.
            (Self::Security, Some(36 | 51 | 128)) => KeyringError::Locked,
            (Self::SecretTool, _) if has(&["locked", "dismissed", "prompt"]) => KeyringError::Locked,
            (Self::SecretTool, _)
                if has(&[
                    "not provided by any",
                    "autolaunch",
                    "could not connect",
                    "not activatable",
                    "no such interface",
                ]) =>
            {
                KeyringError::Unavailable { problem }
            }
            _ if problem.is_empty() => {
                let problem = code.map_or_else(|| "ended by a signal".to_owned(), |code| format!("exit code {code}"));
                KeyringError::Failed { program: self.name(), problem }
            }
            _ => KeyringError::Failed { program: self.name(), problem },
        }
    }
}

/// Returns `true` if this session has a D-Bus, through which the Secret Service is reached.
fn has_session_bus() -> bool {
    let address = std::env::var_os("DBUS_SESSION_BUS_ADDRESS").is_some_and(|address| !address.is_empty());
    address || std::env::var_os("XDG_RUNTIME_DIR").is_some_and(|folder| Path::new(&folder).join("bus").exists())
}

/// Finds a program in a search path's absolute folders.
fn find_program(name: &str, search_path: Option<&OsStr>) -> Option<PathBuf> {
    let folders = std::env::split_paths(search_path?).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_the_keyring_are_distinguished() {
        use ToolKind::{SecretTool, Security};
        let of = |kind: ToolKind, code, text: &str| kind.error(Some(code), text.to_owned());
        for text in ["secret-tool: Cannot create an item in a locked collection", "secret-tool: Prompt was dismissed"] {
            assert_eq!(of(SecretTool, 1, text), KeyringError::Locked);
        }
        for text in [
            "secret-tool: The name org.freedesktop.secrets was not provided by any .service files",
            "secret-tool: Cannot autolaunch D-Bus without X11 $DISPLAY",
            "secret-tool: Could not connect: No such file or directory",
        ] {
            assert!(matches!(of(SecretTool, 1, text), KeyringError::Unavailable { .. }), "{text}");
        }
        assert_eq!(of(Security, 36, ""), KeyringError::Locked);
        let failed = |program, problem: &str| KeyringError::Failed { program, problem: problem.to_owned() };
        assert_eq!(of(Security, 9, ""), failed("security", "exit code 9"));
        assert_eq!(of(SecretTool, 1, "out of paper"), failed("secret-tool", "out of paper"));
    }

    #[test]
    fn programs_are_not_searched_in_relative_folders() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("tool"), "").expect("a file");
        let path = std::env::join_paths([Path::new(""), Path::new("."), Path::new("/missing"), folder.path()]);
        assert_eq!(find_program("tool", Some(&path.expect("a path"))), Some(folder.path().join("tool")));
        assert_eq!(find_program("Cargo.toml", Some(OsStr::new(".:"))), None);
        assert_eq!(find_program("tool", None), None);
    }

    #[test]
    fn error_output_is_shown_as_one_short_line() {
        assert_eq!(shown(" a\n\tb\u{1b}[31m "), "a b[31m");
        assert_eq!(shown(&"x".repeat(1000)).len(), MAX_PROBLEM_CHARS);
    }
}
