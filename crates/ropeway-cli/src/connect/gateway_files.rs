//! Files for a gateway in the background: its socket, lock and log, and its process description.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::files::file::{self, open_lock};
use crate::files::user_folders::state_folder;
use crate::trust::sha256;

/// Digits of a configuration path's digest in the files' names.
const NAME_DIGITS: usize = 16;

/// Maximum length of a Unix socket's path in bytes, as for `sun_path` in unix(7), without the final zero.
const MAX_SOCKET_PATH: usize = 103;

/// Time to wait for another command that starts or stops the same gateway.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// A gateway process in the background.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GatewayInfo {
    pub(crate) pid: u32,
    /// The process's start time in clock ticks after boot, where the system tells it. Another process may get the same id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start_time: Option<u64>,
    pub(crate) version: String,
    /// The configuration file.
    pub(crate) config: PathBuf,
    /// The loaded configuration's SHA-256.
    pub(crate) digest: String,
    /// When the gateway was started, in seconds since 1970.
    pub(crate) started: u64,
}

impl GatewayInfo {
    /// Returns `true` if the process is still running.
    pub(crate) fn is_alive(&self) -> bool {
        let Some(pid) = self.process() else { return false };
        match (self.start_time, start_time(self.pid)) {
            (Some(then), Some(now)) => then == now,
            (Some(_), None) => false,
            (None, _) => rustix::process::test_kill_process(pid).is_ok(),
        }
    }

    /// Returns the process id.
    pub(crate) fn process(&self) -> Option<rustix::process::Pid> {
        rustix::process::Pid::from_raw(i32::try_from(self.pid).ok()?)
    }
}

/// Returns a process's start time in clock ticks after boot. Linux only; see proc_pid_stat(5).
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name is in parentheses and may contain anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    // A zombie has ended.
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// One configuration file's gateway files.
///
/// One gateway process and every command for the same configuration file use the same paths. The gateway writes the socket and
/// the description, and removes them when it stops. `up` and `down` hold an advisory lock on the lock file while they start or
/// stop the gateway, so that two commands never do so at once; they keep it across `.await` on purpose. The lock file itself is
/// never removed, since another command may hold it.
#[derive(Clone, Debug)]
pub(crate) struct GatewayFiles {
    pub(crate) folder: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) log: PathBuf,
    lock: PathBuf,
    info: PathBuf,
}

impl GatewayFiles {
    /// Returns the files for a configuration file, without creating any.
    pub(crate) fn of(config: &Path) -> Result<Self, Failure> {
        let config = std::fs::canonicalize(config)
            .map_err(|error| Failure::usage(format!("could not read `{}`", config.display())).caused_by(&error))?;
        let folder = runtime_folder()
            .ok_or_else(|| Failure::usage("no folder for the gateway: neither `XDG_RUNTIME_DIR` nor `HOME` is set"))?;
        let name = &sha256(&config.to_string_lossy())[..NAME_DIGITS];
        let file = |extension: &str| folder.join(format!("{name}.{extension}"));
        let socket = file("sock");
        if socket.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(Failure::usage(format!("the path of the socket is too long: `{}`", socket.display()))
                .hint("set `XDG_RUNTIME_DIR` to a shorter path"));
        }
        Ok(Self { socket, log: file("log"), lock: file("lock"), info: file("json"), folder })
    }

    /// Creates the folder, or checks that only this user has access to it.
    pub(crate) fn create_folder(&self) -> Result<(), Failure> {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        created.map_err(|error| {
            Failure::usage(format!("could not create `{}`", self.folder.display())).caused_by(&error)
        })?;
        self.check_folder()
    }

    /// Returns an error unless only this user has access to the folder: another user's socket could answer for the servers.
    pub(crate) fn check_folder(&self) -> Result<(), Failure> {
        let shown = self.folder.display();
        let there = std::fs::symlink_metadata(&self.folder)
            .map_err(|error| Failure::usage(format!("could not read `{shown}`")).caused_by(&error))?;
        if !there.is_dir() || there.uid() != rustix::process::geteuid().as_raw() {
            return Err(Failure::usage(format!("`{shown}` is not a folder of this user")));
        }
        let mode = there.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(Failure::usage(format!("other users can access `{shown}` (mode {mode:o})"))
                .hint(format!("try `chmod 700 {shown}`")));
        }
        Ok(())
    }

    /// Waits for other commands that start or stop the same gateway. Dropping the file releases the lock.
    pub(crate) fn lock(&self) -> Result<File, Failure> {
        let failed =
            |error: io::Error| Failure::usage(format!("could not lock `{}`", self.lock.display())).caused_by(&error);
        let file = open_lock(&self.lock).map_err(failed)?;
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                Err(TryLockError::WouldBlock) if began.elapsed() > LOCK_TIMEOUT => {
                    return Err(Failure::usage("another command is starting or stopping the gateway"));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Returns the process description, if it exists and is valid.
    pub(crate) fn read_info(&self) -> Option<GatewayInfo> {
        serde_json::from_str(&file::read(&self.info).ok()??).ok()
    }

    /// Writes the process description.
    pub(crate) fn write_info(&self, info: &GatewayInfo) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(info).unwrap_or_default();
        file::put(&self.info, &text, file::PRIVATE)
    }

    /// Removes the socket and the description. The lock stays, since another command may hold it.
    pub(crate) fn remove(&self) {
        for path in [&self.socket, &self.info] {
            // They may not exist.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Returns the folder for sockets: the login session's folder, or one below the state folder.
fn runtime_folder() -> Option<PathBuf> {
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    match session {
        Some(session) => Some(session.join("ropeway")),
        None => Some(state_folder()?.join("run")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_id_and_its_start_time() {
        let info = |pid, start_time| GatewayInfo {
            pid,
            start_time,
            version: String::new(),
            config: PathBuf::new(),
            digest: String::new(),
            started: 0,
        };
        let ours = std::process::id();
        let now = start_time(ours);
        assert!(now.is_some() && info(ours, now).is_alive());
        assert!(!info(ours, now.map(|time| time + 1)).is_alive(), "another process with the same id");
        assert!(!info(0, None).is_alive() && !info(u32::MAX, None).is_alive());
    }
}
